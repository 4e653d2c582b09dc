//! Regular expressions of rules. Read when the file is, compiled when first used: compiling takes a hundred times as long,
//! and most rules of a file are not reached in one start.
//!
//! Must never: let a pattern pass that cannot be compiled.

use std::sync::OnceLock;

use regex::{Captures, Regex, RegexBuilder};
use regex_syntax::hir::{Class, ClassUnicodeRange, Hir, HirKind};
use regex_syntax::utf8::Utf8Sequences;

/// Largest compiled expression, in bytes.
const SIZE_MAX: usize = 1 << 20;
/// What one byte, one look-around or one group comes to when compiled, in bytes, at most.
const PART: usize = 64;

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
        let parsed = regex_syntax::parse(source).map_err(|error| ghost_domain::text::one_line(&error.to_string()))?;
        let pattern = Self { source: source.to_owned(), compiled: OnceLock::new() };
        if parts(&parsed).saturating_mul(PART) > SIZE_MAX {
            // It may yet be small enough: only compiling it tells.
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

/// Of how many bytes the sequences are made that a range of characters is spelt in.
fn bytes_of(range: &ClassUnicodeRange) -> usize {
    Utf8Sequences::new(range.start(), range.end()).map(|sequence| sequence.len()).sum()
}

/// Of how many parts a pattern is made once its counted repetitions are written out. The parser bounds how deep it goes.
fn parts(pattern: &Hir) -> usize {
    match pattern.kind() {
        HirKind::Empty => 1,
        HirKind::Literal(literal) => literal.0.len(),
        HirKind::Class(Class::Unicode(class)) => class.ranges().iter().map(bytes_of).sum(),
        HirKind::Class(Class::Bytes(class)) => class.ranges().len(),
        HirKind::Look(_) => 1,
        HirKind::Repetition(repeated) => {
            let times = repeated.max.unwrap_or(repeated.min).max(repeated.min).max(1);
            parts(&repeated.sub).saturating_add(1).saturating_mul(usize::try_from(times).unwrap_or(usize::MAX))
        }
        HirKind::Capture(group) => parts(&group.sub).saturating_add(2),
        HirKind::Concat(all) | HirKind::Alternation(all) => {
            all.iter().fold(1, |sum, one| sum.saturating_add(parts(one)).saturating_add(1))
        }
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

    #[test]
    fn a_pattern_of_common_size_is_compiled_when_it_is_used() {
        for common in [r"(?m)^## (\S+) \((\d{1,3})\)$", "a{2,20}", r"^\w+: (?P<rest>.*)$", r"\w \w"] {
            let pattern = Pattern::new(common).unwrap();
            assert!(pattern.compiled.get().is_none(), "{common}");
        }
    }

    proptest! {
        // Compiling the largest takes a while.
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// What is believed to be small enough without compiling it is: nothing is refused when a rule runs.
        #[test]
        fn a_pattern_of_repeated_classes_that_was_taken_compiles(
            pieces in prop::collection::vec((r"[a-z]|\\[wdsWDS]|\\p\{(L|Han|Cyrillic|Lu)\}|\.", 0_u32..40, 0_u32..200), 1..4),
            deep in 0_u8..3,
        ) {
            let flat: String =
                pieces.iter().map(|(class, least, more)| format!("(?:{class}{{{least},{}}})", least + more)).collect();
            let repeated = (0..deep).fold(flat, |inner, _| format!("(?:{inner}){{3}}"));
            if let Ok(pattern) = Pattern::new(&repeated) {
                prop_assert!(pattern.captures("abc").is_ok(), "{repeated}");
            }
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
