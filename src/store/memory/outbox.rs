//! The outbox: events to publish, signals to send and callbacks to call after commits. It is filled
//! under the lock of the tables and emptied without it, in the order of commits.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use ghost_domain::Event;
use ghost_domain::ports::Signal;

use crate::handle::{Ack, Committed};

/// The outputs of one commit.
pub(super) struct CommitOutput {
    pub(super) events: Vec<Event>,
    pub(super) signals: Vec<Signal>,
    pub(super) ack: Ack,
}

#[derive(Default)]
struct Queue {
    outputs: VecDeque<CommitOutput>,
    /// Whether a task is emptying the queue now. Other tasks then leave their outputs to it, which
    /// keeps the order.
    busy: bool,
}

/// The queue of outputs of commits.
#[derive(Default)]
pub(super) struct Outbox {
    queue: Mutex<Queue>,
}

impl Outbox {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        // No code that can panic runs under this lock.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds the outputs of a commit. The caller holds the lock of the tables, so that the order
    /// here is the order of commits.
    pub(super) fn push(&self, outputs: CommitOutput) {
        self.lock().outputs.push_back(outputs);
    }

    /// Publishes and acknowledges until the queue is empty. The caller holds no lock.
    pub(super) fn empty(&self, committed: &Committed) {
        if std::mem::replace(&mut self.lock().busy, true) {
            return;
        }
        // The guard clears `busy` even if a receiver of signals panics; otherwise nothing would
        // ever be published again.
        let guard = BusyGuard(self);
        while let Some(CommitOutput { events, signals, ack }) = guard.next() {
            committed.publish(events, &signals);
            ack(Ok(()));
        }
    }
}

struct BusyGuard<'a>(&'a Outbox);

impl BusyGuard<'_> {
    /// Takes the next outputs. If there are none, it clears `busy` under the same lock, so that
    /// outputs added at that moment are not forgotten.
    fn next(&self) -> Option<CommitOutput> {
        let mut queue = self.0.lock();
        let outputs = queue.outputs.pop_front();
        queue.busy = outputs.is_some();
        outputs
    }
}

impl Drop for BusyGuard<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.lock().busy = false;
        }
    }
}
