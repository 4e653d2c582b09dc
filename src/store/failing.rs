//! Whether a store can write, as its last batches say: for `status`, and so that one cause does not fill the log.
//!
//! Must never: keep anyone from trying again.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Batches that are committed before the same failure is news again.
const CALM: u64 = 100;
/// Batches that are committed before the trouble is over: a small one may find room where others do not.
const SOUND: u64 = 3;

/// What the last batches came to.
#[derive(Debug, Default)]
pub(crate) struct Failing {
    /// Whether `last` holds anything: asked at every commit.
    any: AtomicBool,
    last: Mutex<Last>,
}

#[derive(Debug, Default)]
struct Last {
    /// What the last failure said.
    why: String,
    /// Failures that said it.
    failures: u64,
    /// Batches that were committed since the last one.
    committed: u64,
}

impl Failing {
    fn last(&self) -> MutexGuard<'_, Last> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes note of a failure; gives how many there were with these words if that is 1 or another power of ten.
    pub(crate) fn failed(&self, why: &str) -> Option<u64> {
        self.any.store(true, Ordering::Release);
        let mut last = self.last();
        if last.why != why {
            *last = Last { why: why.to_owned(), ..Last::default() };
        }
        last.failures = last.failures.saturating_add(1);
        last.committed = 0;
        let count = last.failures;
        (10_u64.pow(count.ilog10()) == count).then_some(count)
    }

    /// Takes note of a batch that was committed.
    pub(crate) fn committed(&self) {
        if !self.any.load(Ordering::Acquire) {
            return;
        }
        let mut last = self.last();
        last.committed = last.committed.saturating_add(1);
        if last.committed >= CALM {
            *last = Last::default();
            self.any.store(false, Ordering::Release);
        }
    }

    /// What the last batches failed with, if fewer than [`SOUND`] were committed since.
    pub(crate) fn why(&self) -> Option<String> {
        if !self.any.load(Ordering::Acquire) {
            return None;
        }
        let last = self.last();
        (last.committed < SOUND).then(|| last.why.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_told_once_and_again_when_it_is_news() {
        let failing = Failing::default();
        assert_eq!(failing.why(), None);
        let told: Vec<u64> = (0..1_000).filter_map(|_| failing.failed("full")).collect();
        assert_eq!(told, [1, 10, 100, 1_000]);
        assert_eq!(failing.why().as_deref(), Some("full"));
        assert_eq!(failing.failed("locked"), Some(1), "another reason");
        (0..SOUND).for_each(|_| failing.committed());
        assert_eq!(failing.why(), None, "it can write again");
        assert_eq!(failing.failed("locked"), None, "small batches that fit between are no calm");
        (0..CALM).for_each(|_| failing.committed());
        assert_eq!(failing.failed("locked"), Some(1));
    }
}
