//! What commits still owe the outside: events to publish, signals to pass on, callers to answer. Filled under the lock
//! of the tables and emptied without it, in the order of commits.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use ghost_domain::Event;
use ghost_domain::ports::Signal;

use crate::handle::{Ack, Committed};

/// What one commit owes.
pub(super) struct Owed {
    pub(super) events: Vec<Event>,
    pub(super) signals: Vec<Signal>,
    pub(super) ack: Ack,
}

#[derive(Default)]
struct Queue {
    owed: VecDeque<Owed>,
    /// Whether someone is emptying the queue now; whoever comes meanwhile leaves its part to them, in order.
    busy: bool,
}

/// The queue between commits and their publication.
#[derive(Default)]
pub(super) struct Outbox {
    queue: Mutex<Queue>,
}

impl Outbox {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        // Nothing that can panic runs under this lock.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Called under the lock of the tables, so that the order here is the order of commits.
    pub(super) fn push(&self, owed: Owed) {
        self.lock().owed.push_back(owed);
    }

    /// Called without any lock: publishes and answers until nothing is owed.
    pub(super) fn empty(&self, committed: &Committed) {
        if std::mem::replace(&mut self.lock().busy, true) {
            return;
        }
        // Given back even if a receiver of signals panics, or nothing would ever be published again.
        let turn = Turn(self);
        while let Some(Owed { events, signals, ack }) = turn.next() {
            committed.publish(events, &signals);
            ack(Ok(()));
        }
    }
}

struct Turn<'a>(&'a Outbox);

impl Turn<'_> {
    /// The next to settle. Finding none and stepping back are one act, so that nothing pushed meanwhile is left behind.
    fn next(&self) -> Option<Owed> {
        let mut queue = self.0.lock();
        let owed = queue.owed.pop_front();
        queue.busy = owed.is_some();
        owed
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.lock().busy = false;
        }
    }
}
