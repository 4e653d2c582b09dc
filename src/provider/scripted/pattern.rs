//! Regular expressions of rules. They are compiled when they are first used, because a start reaches
//! few of a file's rules.
//! The `regex` crate searches in linear time.
//!
//! This module must never compile an expression of unbounded size.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use regex::{Regex, RegexBuilder};

/// Largest compiled expression, in bytes.
const SIZE_MAX: usize = 1 << 20;
/// Maximum expressions that [`Patterns`] keeps.
const CACHED_MAX: usize = 256;

/// A regular expression.
#[derive(Debug)]
pub(super) struct Pattern {
    source: String,
    compiled: OnceLock<Result<Regex, String>>,
}

impl Pattern {
    pub(super) fn new(source: &str) -> Self {
        Self { source: source.to_owned(), compiled: OnceLock::new() }
    }

    /// The compiled expression.
    ///
    /// # Errors
    /// The syntax error, or that the expression is larger than one MiB when compiled, as text.
    pub(super) fn compile(&self) -> Result<&Regex, String> {
        let compile = || {
            let built = RegexBuilder::new(&self.source).size_limit(SIZE_MAX).build();
            built.map_err(|error| ghost_domain::text::one_line(&error.to_string()))
        };
        self.compiled.get_or_init(compile).as_ref().map_err(Clone::clone)
    }
}

/// The expressions that templates passed to filters, so that a loop compiles each once.
#[derive(Default)]
pub(super) struct Patterns(Mutex<BTreeMap<String, Arc<Pattern>>>);

impl Patterns {
    /// The pattern for `source`, from the cache if it is there.
    pub(super) fn get(&self, source: &str) -> Arc<Pattern> {
        // The map is complete between any two calls, so a panic elsewhere does not damage it.
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(pattern) = known.get(source) {
            return Arc::clone(pattern);
        }
        let pattern = Arc::new(Pattern::new(source));
        if known.len() >= CACHED_MAX {
            known.clear();
        }
        known.insert(source.to_owned(), Arc::clone(&pattern));
        pattern
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_or_large_expression_is_refused() {
        for bad in ["(", "a{2,1}", "[z-a]", r"\p{Nope}", "(?P<a>x)(?P<a>y)"] {
            assert!(Pattern::new(bad).compile().is_err(), "{bad} was taken");
        }
        assert!(Pattern::new(r"(\w{1000}){1000}").compile().is_err());
        assert!(Pattern::new(r"(?m)^## (\S+) \((\d{1,3})\)$").compile().is_ok());
    }
}
