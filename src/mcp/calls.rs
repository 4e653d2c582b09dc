//! The calls that wait for an answer. They say whom a question of the server belongs to.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The calls of one connection. Clones are the same ones.
#[derive(Clone, Debug, Default)]
pub(crate) struct Calls(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    next: u64,
    labels: BTreeMap<u64, Option<Arc<str>>>,
}

/// A call that waits. Dropping it ends the waiting.
#[derive(Debug)]
pub(crate) struct Waiting {
    calls: Calls,
    number: u64,
}

impl Calls {
    fn state(&self) -> MutexGuard<'_, State> {
        // Every change leaves the state whole, so a poisoned lock is safe to use.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a call.
    pub(crate) fn begin(&self, label: Option<Arc<str>>) -> Waiting {
        let mut state = self.state();
        let number = state.next;
        state.next += 1;
        state.labels.insert(number, label);
        Waiting { calls: self.clone(), number }
    }

    /// The label of the only call that waits. With several, nobody knows which one the server means.
    pub(crate) fn only(&self) -> Option<Arc<str>> {
        let state = self.state();
        let mut labels = state.labels.values();
        match (labels.next(), labels.next()) {
            (Some(label), None) => label.clone(),
            _ => None,
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.calls.state().labels.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_belongs_to_a_call_only_if_one_call_waits() {
        let calls = Calls::default();
        assert_eq!(calls.only(), None);
        let first = calls.begin(Some("first".into()));
        assert_eq!(calls.only().as_deref(), Some("first"));
        let second = calls.begin(Some("second".into()));
        assert_eq!(calls.only(), None);
        drop(first);
        assert_eq!(calls.only().as_deref(), Some("second"));
        drop(second);
        assert_eq!(calls.only(), None);
    }
}
