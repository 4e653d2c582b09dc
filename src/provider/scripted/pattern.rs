//! Regular expressions of rules. Read when the file is, compiled when first used: compiling takes a hundred times as long,
//! and most rules of a file are not reached in one start.
//!
//! Must never: let a pattern pass that cannot be compiled.

use std::sync::OnceLock;

use regex::{Regex, RegexBuilder};
use regex_syntax::hir::{Class, ClassUnicodeRange, Hir, HirKind};
use regex_syntax::utf8::Utf8Sequences;

/// Largest compiled expression, in bytes.
const SIZE_MAX: usize = 1 << 20;
/// What one byte, one look-around or one group comes to when compiled, in bytes, at most.
const PART: usize = 64;

/// So many places of a pattern at which a text may be at once make looking for it twice as much work.
const PLACES: usize = 8;

/// A regular expression.
#[derive(Debug)]
pub(super) struct Pattern {
    source: String,
    size: usize,
    effort: u64,
    looks_further: bool,
    compiled: OnceLock<Result<Regex, String>>,
}

impl Pattern {
    /// Reads a pattern.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(super) fn new(source: &str) -> Result<Self, String> {
        let pattern = Self::parsed(source)?;
        if pattern.size > SIZE_MAX {
            // It may yet be small enough: only compiling it tells.
            pattern.compile()?;
        }
        Ok(pattern)
    }

    /// Reads a pattern of which only [`compile`](Self::compile) tells whether it is too large.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(super) fn parsed(source: &str) -> Result<Self, String> {
        let parsed = regex_syntax::parse(source).map_err(|error| ghost_domain::text::one_line(&error.to_string()))?;
        let size = measure(&parsed, |bytes| bytes, |class| class.iter().map(bytes_of).sum()).saturating_mul(PART);
        // Of a run of bytes hardly ever more than one is stood before.
        let places = measure(&parsed, |bytes| bytes / PLACES + 1, |_| 1) / PLACES;
        let effort = u64::try_from(places).unwrap_or(u64::MAX).saturating_add(1);
        let looks_further = looks_further(&parsed, true);
        Ok(Self { source: source.to_owned(), size, effort, looks_further, compiled: OnceLock::new() })
    }

    /// Compiles it, if that was not done yet.
    ///
    /// # Errors
    /// It is too large.
    pub(super) fn compile(&self) -> Result<&Regex, String> {
        let compile = || {
            let built = RegexBuilder::new(&self.source).size_limit(SIZE_MAX).build();
            built.map_err(|error| ghost_domain::text::one_line(&error.to_string()))
        };
        self.compiled.get_or_init(compile).as_ref().map_err(Clone::clone)
    }

    /// Whether it is compiled.
    pub(super) fn is_compiled(&self) -> bool {
        self.compiled.get().is_some()
    }

    /// How large it is when compiled, in bytes, at most. One that is larger than allowed is not compiled to its end.
    pub(super) fn size(&self) -> usize {
        self.size.min(2 * SIZE_MAX)
    }

    /// Whether looking for a match may go on to the end of the text although the match ends long before.
    pub(super) fn looks_further(&self) -> bool {
        self.looks_further
    }

    /// How much work a byte is in which it is looked for: 1 for common ones.
    pub(super) fn effort(&self) -> u64 {
        self.effort
    }
}

/// Whether part of a pattern may go on for as long as the text does and then not be a match after all: it can be repeated
/// without end, and something must follow. `last` says that nothing must follow the pattern itself.
fn looks_further(pattern: &Hir, last: bool) -> bool {
    let may_be_nothing =
        |one: &Hir| one.properties().minimum_len() == Some(0) && one.properties().look_set().is_empty();
    match pattern.kind() {
        HirKind::Empty | HirKind::Literal(_) | HirKind::Class(_) | HirKind::Look(_) => false,
        HirKind::Repetition(repeated) => {
            repeated.max.is_none() && !last || looks_further(&repeated.sub, last && repeated.min <= 1)
        }
        HirKind::Capture(group) => looks_further(&group.sub, last),
        HirKind::Concat(all) => {
            let must = all.iter().rposition(|one| !may_be_nothing(one));
            all.iter().enumerate().any(|(at, one)| looks_further(one, last && must.is_none_or(|must| must <= at)))
        }
        HirKind::Alternation(all) => all.iter().any(|one| looks_further(one, last)),
    }
}

/// Of how many bytes the sequences are made that a range of characters is spelt in.
fn bytes_of(range: &ClassUnicodeRange) -> usize {
    Utf8Sequences::new(range.start(), range.end()).map(|sequence| sequence.len()).sum()
}

/// Of how many parts a pattern is made once its counted repetitions are written out, where `bytes` says it of a run of
/// bytes and `class` of a class of characters. The parser bounds how deep it goes.
fn measure(pattern: &Hir, bytes: fn(usize) -> usize, class: fn(&[ClassUnicodeRange]) -> usize) -> usize {
    match pattern.kind() {
        HirKind::Empty => 1,
        HirKind::Literal(literal) => bytes(literal.0.len()),
        HirKind::Class(Class::Unicode(found)) => class(found.ranges()),
        HirKind::Class(Class::Bytes(found)) => found.ranges().len(),
        HirKind::Look(_) => 1,
        HirKind::Repetition(repeated) => {
            let times = repeated.max.unwrap_or(repeated.min).max(repeated.min).max(1);
            measure(&repeated.sub, bytes, class)
                .saturating_add(1)
                .saturating_mul(usize::try_from(times).unwrap_or(usize::MAX))
        }
        HirKind::Capture(group) => measure(&group.sub, bytes, class).saturating_add(2),
        HirKind::Concat(all) | HirKind::Alternation(all) => {
            all.iter().fold(1, |sum, one| sum.saturating_add(measure(one, bytes, class)).saturating_add(1))
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
    fn what_may_go_on_without_being_a_match_looks_further() {
        for (source, further) in [
            (r"\w+", false),
            (r"(?m)^## (\S+)", false),
            (r"\d{1,4}%|[a-z]+", false),
            (r"\d+(?:[.,]\d+){0,6}", false),
            (r"(?m)^.*$", true),
            (r"(?:a+){2}", true),
            (".*[^A-Z]|[A-Z]", true),
            (r"\d+%", true),
            ("(?:a+b)+", true),
        ] {
            assert_eq!(Pattern::new(source).unwrap().looks_further(), further, "{source}");
        }
    }

    #[test]
    fn a_pattern_of_common_size_is_compiled_when_it_is_used() {
        for common in [r"(?m)^## (\S+) \((\d{1,3})\)$", "a{2,20}", r"^\w+: (?P<rest>.*)$", r"\w \w"] {
            let pattern = Pattern::new(common).unwrap();
            assert!(!pattern.is_compiled(), "{common}");
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
                prop_assert!(pattern.compile().is_ok(), "{repeated}");
            }
        }
    }

    proptest! {
        #[test]
        fn a_pattern_that_was_taken_compiles(source in r"([a-c]|\\[wdsWDSb]|\\p\{L\}|[.*+?|^$()]|\[[a-z^]{1,3}\]|\{[0-9]{1,3}\}){0,40}") {
            if let Ok(pattern) = Pattern::new(&source) {
                prop_assert!(pattern.compile().is_ok());
            }
        }
    }
}
