//! Standard output that is read while a command runs, at its reader's pace.
//!
//! It must never hold more than the runner may send ahead: a command whose output nobody reads stops.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// A standard output that is read piece by piece. Clones are the same one.
#[derive(Clone, Debug, Default)]
pub struct Drain(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Notify,
    /// Notified when the reader takes what waits.
    taken: Notify,
}

#[derive(Debug, Default)]
struct State {
    waiting: Vec<u8>,
    /// Bytes that were taken and for which the command has no new credit yet.
    taken: u32,
    closed: bool,
}

impl Drain {
    fn state(&self) -> MutexGuard<'_, State> {
        // Every change is a few assignments, so a poisoned lock is safe to use.
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next output; `None` at its end. Dropping the future loses nothing. For one reader at a time.
    pub async fn next(&self) -> Option<Vec<u8>> {
        loop {
            // A notification before the wait is kept, so nothing between the two is missed.
            let changed = self.0.changed.notified();
            {
                let mut state = self.state();
                if !state.waiting.is_empty() {
                    let bytes = std::mem::take(&mut state.waiting);
                    state.taken = state.taken.saturating_add(u32::try_from(bytes.len()).unwrap_or(u32::MAX));
                    drop(state);
                    self.0.taken.notify_one();
                    return Some(bytes);
                }
                if state.closed {
                    return None;
                }
            }
            changed.await;
        }
    }

    /// Adds output. The credit of the command bounds it.
    pub(crate) fn push(&self, bytes: &[u8]) {
        self.state().waiting.extend_from_slice(bytes);
        self.0.changed.notify_one();
    }

    /// The bytes that the reader has taken since the last call. Waits until there are some.
    pub(crate) async fn taken(&self) -> u32 {
        loop {
            let taken = self.0.taken.notified();
            let bytes = std::mem::take(&mut self.state().taken);
            if bytes > 0 {
                return bytes;
            }
            taken.await;
        }
    }

    /// Ends the output: the reader gets what waits, and then the end.
    pub(crate) fn close(&self) {
        self.state().closed = true;
        self.0.changed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::future::FutureExt as _;

    #[tokio::test]
    async fn output_is_taken_in_order_and_credit_comes_with_the_reading() {
        let drain = Drain::default();
        assert_eq!(drain.next().now_or_never(), None);
        drain.push(b"ab");
        drain.push(b"c");
        assert_eq!(drain.taken().now_or_never(), None, "nothing was read");
        assert_eq!(drain.next().await.as_deref(), Some(&b"abc"[..]));
        assert_eq!(drain.taken().await, 3);
        drain.push(b"d");
        drain.close();
        assert_eq!(drain.next().await.as_deref(), Some(&b"d"[..]));
        assert_eq!(drain.next().await, None);
    }
}
