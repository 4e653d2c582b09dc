//! Standard input that is written while a command runs.
//!
//! It must never hold more than [`WAITING_MAX`] bytes that the command has not read.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// Bytes that may wait for the command to read them.
pub const WAITING_MAX: usize = 64 * 1024;

/// A standard input that stays open. Clones are the same one.
#[derive(Clone, Debug, Default)]
pub struct Feed(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Notify,
    /// Notified when the command takes what waits.
    taken: Notify,
}

#[derive(Debug, Default)]
struct State {
    waiting: Vec<u8>,
    closed: bool,
}

/// Why input was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotTaken {
    /// The command has not read enough of what came before.
    Full,
    /// The input was closed.
    Closed,
}

impl Feed {
    fn state(&self) -> MutexGuard<'_, State> {
        // Every change is one statement, so a poisoned lock is safe to use.
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds input: all of it or none.
    ///
    /// # Errors
    /// If it does not fit, or the input is closed.
    pub fn push(&self, bytes: &[u8]) -> Result<(), NotTaken> {
        let mut state = self.state();
        if state.closed {
            return Err(NotTaken::Closed);
        }
        if state.waiting.len() + bytes.len() > WAITING_MAX {
            return Err(NotTaken::Full);
        }
        state.waiting.extend_from_slice(bytes);
        drop(state);
        self.0.changed.notify_one();
        Ok(())
    }

    /// Closes the input: the command reads what waits, and then the end.
    pub fn close(&self) {
        self.state().closed = true;
        self.0.changed.notify_one();
    }

    /// Completes when nothing waits any more. For one caller at a time.
    pub async fn drained(&self) {
        loop {
            // A notification before the wait is kept, so nothing between the two is missed.
            let taken = self.0.taken.notified();
            if self.state().waiting.is_empty() {
                return;
            }
            taken.await;
        }
    }

    /// The next input; `None` at its end. Dropping the future loses nothing.
    pub(crate) async fn next(&self) -> Option<Vec<u8>> {
        loop {
            // A notification before the wait is kept, so nothing between the two is missed.
            let changed = self.0.changed.notified();
            {
                let mut state = self.state();
                if !state.waiting.is_empty() {
                    self.0.taken.notify_one();
                    return Some(std::mem::take(&mut state.waiting));
                }
                if state.closed {
                    return None;
                }
            }
            changed.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::future::FutureExt as _;

    #[tokio::test]
    async fn input_is_taken_whole_in_order_and_within_its_bound() {
        let feed = Feed::default();
        assert_eq!(feed.next().now_or_never(), None);
        feed.push(b"ab").unwrap();
        feed.push(b"c").unwrap();
        assert_eq!(feed.push(&[b'x'; WAITING_MAX]), Err(NotTaken::Full));
        assert_eq!(feed.next().await.as_deref(), Some(&b"abc"[..]));
        feed.push(&[b'x'; WAITING_MAX]).unwrap();
        feed.close();
        assert_eq!(feed.push(b"y"), Err(NotTaken::Closed));
        assert_eq!(feed.drained().now_or_never(), None);
        assert_eq!(feed.next().await.map(|bytes| bytes.len()), Some(WAITING_MAX));
        feed.drained().await;
        assert_eq!(feed.next().await, None);
    }
}
