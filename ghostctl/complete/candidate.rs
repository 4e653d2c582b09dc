//! One word that could stand at the cursor.

use crate::text::one_line;

/// Characters of what is told beside a candidate.
const ABOUT: usize = 60;

/// What could be meant, and a few words about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The whole word.
    pub value: String,
    /// What it is; may be empty.
    pub about: String,
}

impl Candidate {
    /// A word, and what it is.
    pub fn new(value: impl Into<String>, about: &str) -> Self {
        Self { value: value.into(), about: one_line(about, ABOUT) }
    }
}
