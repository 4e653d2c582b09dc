//! One completion.

use crate::text::one_line;

/// A description is truncated to this many characters.
const ABOUT: usize = 60;

/// A completion and its description.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The completed word.
    pub value: String,
    /// Description; may be empty.
    pub about: String,
}

impl Candidate {
    /// A completion with a description.
    pub fn new(value: impl Into<String>, about: &str) -> Self {
        Self { value: value.into(), about: one_line(about, ABOUT) }
    }

    /// Whether every shell takes the word literally. Agents choose some of the offered names, and users accept
    /// completions without reading them, so a name must not be able to run anything.
    pub fn is_harmless(&self) -> bool {
        let plain = |c: char| c.is_alphanumeric() || "._/@:=,+-".contains(c);
        // zsh replaces `=name` with the path of a program.
        !self.value.starts_with('=') && self.value.chars().all(plain)
    }
}
