//! Regular expressions of rules. Read when the file is, compiled when first used: compiling takes a hundred times as long,
//! and most rules of a file are not reached in one start.
//!
//! Must never: let a pattern pass that cannot be compiled.

use std::sync::OnceLock;

use regex::{Captures, Regex, RegexBuilder};

/// Largest compiled expression, in bytes.
const SIZE_MAX: usize = 1 << 20;
/// Up to this length, without a counted repetition and with few classes, a pattern cannot compile to more than
/// [`SIZE_MAX`].
const SMALL_MAX: usize = 256;
/// A Unicode class such as `\\w` compiles to some ten kilobytes.
const CLASSES_MAX: usize = 16;

/// A regular expression.
#[derive(Debug)]
pub(super) struct Pattern {
    source: String,
    compiled: OnceLock<Result<Regex, String>>,
}

impl Pattern {
    /// Reads a pattern.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(super) fn new(source: &str) -> Result<Self, String> {
        regex_syntax::parse(source).map_err(|error| ghost_domain::text::one_line(&error.to_string()))?;
        let pattern = Self { source: source.to_owned(), compiled: OnceLock::new() };
        let classes = source.bytes().filter(|byte| matches!(byte, b'\\' | b'[' | b'.')).count();
        if source.len() > SMALL_MAX || source.contains('{') || classes > CLASSES_MAX {
            pattern.regex()?;
        }
        Ok(pattern)
    }

    fn regex(&self) -> Result<&Regex, String> {
        let compile = || {
            let built = RegexBuilder::new(&self.source).size_limit(SIZE_MAX).build();
            built.map_err(|error| ghost_domain::text::one_line(&error.to_string()))
        };
        self.compiled.get_or_init(compile).as_ref().map_err(Clone::clone)
    }

    /// What the pattern catches in `text`, if it is found there.
    pub(super) fn captures<'t>(&self, text: &'t str) -> Result<Option<Captures<'t>>, String> {
        Ok(self.regex()?.captures(text))
    }

    /// The names of its groups, in order.
    pub(super) fn names(&self) -> Result<regex::CaptureNames<'_>, String> {
        Ok(self.regex()?.capture_names())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_cannot_be_compiled_is_refused_when_it_is_read() {
        for bad in ["(", "a{2,1}", "[z-a]", r"\p{Nope}", r"(\w{1000}){1000}", "(?P<a>x)(?P<a>y)"] {
            assert!(Pattern::new(bad).is_err(), "{bad} was taken");
        }
    }

    proptest! {
        #[test]
        fn a_pattern_that_was_taken_compiles(source in r"([a-c]|\\[wdsWDSb]|\\p\{L\}|[.*+?|^$()]|\[[a-z^]{1,3}\]|\{[0-9]{1,3}\}){0,40}") {
            if let Ok(pattern) = Pattern::new(&source) {
                prop_assert!(pattern.captures("abc").is_ok());
            }
        }
    }
}
