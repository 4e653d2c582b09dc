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

    /// Whether the word means itself to every shell, and names nothing but itself to a command. Agents choose some of the
    /// names that are offered, and a person who accepts one has seldom read it.
    pub fn is_harmless(&self) -> bool {
        let plain = |c: char| c.is_alphanumeric() || "._/@:=,+-".contains(c);
        // zsh takes `=name` for the path of a program.
        !self.value.starts_with('=') && self.value.chars().all(plain)
    }
}
