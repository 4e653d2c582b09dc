//! Tracks whether recent commits failed. `status` shows this. It also limits how often one repeated
//! cause is logged.
//!
//! This module must never stop a caller from trying to write again.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// After this many committed batches in a row, the next failure is logged as new, even if its text
/// is the same.
const NEW_AFTER: u64 = 100;
/// After this many committed batches in a row, the store is reported as able to write. One is not
/// enough: on a full disk a small batch may succeed where others fail.
const RECOVERED_AFTER: u64 = 3;

/// Outcome of the last batches.
#[derive(Debug, Default)]
pub(crate) struct Failing {
    /// Whether `last` holds a failure. Every commit reads this flag, so it must not need the lock.
    any: AtomicBool,
    last: Mutex<LastFailure>,
}

#[derive(Debug, Default)]
struct LastFailure {
    /// Text of the last failure.
    text: String,
    /// Number of failures with this text.
    failures: u64,
    /// Batches committed since the last failure.
    committed: u64,
}

impl Failing {
    fn last(&self) -> MutexGuard<'_, LastFailure> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records a failure. Returns the number of failures with this text, if that number is 1 or
    /// another power of ten: only these are logged.
    pub(crate) fn failed(&self, text: &str) -> Option<u64> {
        self.any.store(true, Ordering::Release);
        let mut last = self.last();
        if last.text != text {
            *last = LastFailure { text: text.to_owned(), ..LastFailure::default() };
        }
        last.failures = last.failures.saturating_add(1);
        last.committed = 0;
        let count = last.failures;
        (10_u64.pow(count.ilog10()) == count).then_some(count)
    }

    /// Records a committed batch.
    pub(crate) fn committed(&self) {
        if !self.any.load(Ordering::Acquire) {
            return;
        }
        let mut last = self.last();
        last.committed = last.committed.saturating_add(1);
        if last.committed >= NEW_AFTER {
            *last = LastFailure::default();
            self.any.store(false, Ordering::Release);
        }
    }

    /// Text of the last failure, if fewer than [`RECOVERED_AFTER`] batches were committed since.
    pub(crate) fn reason(&self) -> Option<String> {
        if !self.any.load(Ordering::Acquire) {
            return None;
        }
        let last = self.last();
        (last.committed < RECOVERED_AFTER).then(|| last.text.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repeated_failure_is_reported_at_powers_of_ten() {
        let failing = Failing::default();
        assert_eq!(failing.reason(), None);
        let reported: Vec<u64> = (0..1_000).filter_map(|_| failing.failed("full")).collect();
        assert_eq!(reported, [1, 10, 100, 1_000]);
        assert_eq!(failing.reason().as_deref(), Some("full"));
        assert_eq!(failing.failed("locked"), Some(1), "another reason");
        (0..RECOVERED_AFTER).for_each(|_| failing.committed());
        assert_eq!(failing.reason(), None, "it can write again");
        assert_eq!(failing.failed("locked"), None, "a few committed batches do not make the failure new");
        (0..NEW_AFTER).for_each(|_| failing.committed());
        assert_eq!(failing.failed("locked"), Some(1));
    }
}
