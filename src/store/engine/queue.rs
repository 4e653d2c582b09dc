//! The queue of commands between their callers and the thread of the writer, and the orders that end it.
//!
//! The queue must never drop a command that it has accepted, unless the writer has ended.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};

use tokio::sync::Semaphore;

use crate::error::StoreError;
use crate::handle::Work;

/// What ends the writer, from least to most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Stop {
    #[default]
    No,
    /// A query has found damage, or the writer has ended by itself.
    Damaged,
    /// The store closes.
    Closing,
}

#[derive(Default)]
struct State {
    commands: VecDeque<Work>,
    stop: Stop,
}

/// The queue. Callers share it with the writer and the readers.
pub(super) struct Queue {
    state: Mutex<State>,
    /// Notified with every command and order.
    changed: Condvar,
    /// One permit for each command that the queue still has space for. Closed when no command is accepted any more.
    space: Semaphore,
    /// The first damage that a query has found.
    damage: OnceLock<StoreError>,
}

impl Queue {
    /// An empty queue with space for `max` commands.
    pub(super) fn new(max: usize) -> Self {
        Self {
            state: Mutex::default(),
            changed: Condvar::new(),
            space: Semaphore::new(max.max(1)),
            damage: OnceLock::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // No call panics between two changes of the state.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues a command; waits while the queue is full.
    pub(super) async fn submit(&self, work: Work) -> Result<(), StoreError> {
        let permit = self.space.acquire().await.map_err(|_| StoreError::Closed)?;
        let mut state = self.lock();
        if state.stop > Stop::No {
            return Err(StoreError::Closed);
        }
        permit.forget();
        state.commands.push_back(work);
        self.changed.notify_all();
        Ok(())
    }

    /// The next command, without waiting.
    pub(super) fn try_next(&self) -> Option<Work> {
        let work = self.lock().commands.pop_front()?;
        self.space.add_permits(1);
        Some(work)
    }

    /// The next command; waits for one. `None` when the writer must end and no command is left.
    pub(super) fn next(&self) -> Option<Work> {
        let mut state = self.lock();
        loop {
            if let Some(work) = state.commands.pop_front() {
                self.space.add_permits(1);
                return Some(work);
            }
            if state.stop > Stop::No {
                return None;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn stop(&self, stop: Stop) {
        let mut state = self.lock();
        state.stop = state.stop.max(stop);
        self.space.close();
        self.changed.notify_all();
    }

    /// Makes the writer run the queued commands, close its connection and end.
    pub(super) fn close(&self) {
        self.stop(Stop::Closing);
    }

    /// Ends the writer if `error` is damage, which a query has found. From now on no command is acknowledged.
    pub(super) fn raise(&self, error: &StoreError) {
        if matches!(error, StoreError::Damaged { .. }) {
            // The first damage is the cause; later ones are the same or its consequences.
            let _ = self.damage.set(error.clone());
            self.stop(Stop::Damaged);
        }
    }

    /// Returns the damage that a query has found.
    pub(super) fn check(&self) -> Result<(), StoreError> {
        self.damage.get().map_or(Ok(()), |damage| Err(damage.clone()))
    }

    /// Refuses all further commands and drops those that wait. Only the writer calls this, when it runs none any more.
    pub(super) fn end(&self) {
        self.stop(Stop::Damaged);
        let left = std::mem::take(&mut self.lock().commands);
        // Dropped without the lock, because it wakes their callers.
        drop(left);
    }

    /// Waits until the store closes.
    pub(super) fn wait_for_close(&self) {
        let mut state = self.lock();
        while state.stop < Stop::Closing {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}
