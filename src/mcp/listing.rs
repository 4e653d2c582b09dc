//! A list of a server, as far as it can be used. What is left out must never be silent.

use crate::text::shown;

/// A list of a server.
#[derive(Clone, Debug, PartialEq)]
pub struct Listing<T> {
    /// The entries that can be used, in the order of the server.
    pub items: Vec<T>,
    /// The entries that cannot, in the order of the server.
    pub skipped: Vec<Skipped>,
    /// Whether the list is whole.
    pub end: ListEnd,
}

/// An entry that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skipped {
    /// Its name as far as it has one, shortened and without control characters.
    pub name: String,
    /// What is wrong with it.
    pub why: String,
}

/// Why a list ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListEnd {
    /// The server has no more.
    Complete,
    /// The server named the same page twice.
    RepeatedPage,
    /// `Limits::pages` are read.
    TooManyPages,
    /// `Limits::entries` are read.
    TooManyEntries,
    /// `Limits::list_bytes` are read.
    TooLarge,
}

impl Skipped {
    pub(crate) fn new(name: &str, why: impl Into<String>) -> Self {
        Self { name: shown(name), why: why.into() }
    }
}
