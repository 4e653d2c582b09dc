//! What the writer remembers of the open batch: the events and signals to publish after COMMIT, and the last number of
//! each sequence. A refused command takes back its own; a failed batch takes back all.
//!
//! Rows are never kept here: they are in the database as soon as a command has written them.

use ghost_domain::Event;
use ghost_domain::event::NewEvent;
use ghost_domain::ports::Signal;
use ghost_domain::{EventId, Timestamp};

/// The last number assigned in each sequence of the world, and the number of messages that wait in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counters {
    pub(crate) messages: i64,
    pub(crate) journal: i64,
    pub(crate) usage: i64,
    pub(crate) task_events: i64,
    pub(crate) events: i64,
    pub(crate) pending: i64,
}

impl Counters {
    /// Assigns the next number of a sequence.
    pub(crate) fn next(&mut self, sequence: fn(&mut Self) -> &mut i64) -> i64 {
        let last = sequence(self);
        *last += 1;
        *last
    }
}

/// The open batch.
#[derive(Debug)]
pub(crate) struct Batch {
    pub(crate) counters: Counters,
    pub(crate) signals: Vec<Signal>,
    /// Its events, which are published if it is committed.
    pub(crate) events: Vec<Event>,
    /// The state to which the refusal of the running command returns.
    at_command: Mark,
    /// The numbers of the last commit.
    at_commit: Counters,
}

/// How far the accepted commands of the batch have come.
#[derive(Clone, Copy, Debug)]
struct Mark {
    counters: Counters,
    events: usize,
    signals: usize,
}

impl Batch {
    /// An empty batch after the last commit, which assigned these numbers.
    pub(crate) fn new(counters: Counters) -> Self {
        Self {
            counters,
            signals: Vec::new(),
            events: Vec::new(),
            at_command: Mark { counters, events: 0, signals: 0 },
            at_commit: counters,
        }
    }

    /// Numbers an event of the running command.
    pub(crate) fn event(&mut self, event_id: EventId, ts: Timestamp, new: NewEvent) -> Event {
        Event {
            seq: self.counters.next(|counters| &mut counters.events),
            event_id,
            ts,
            kind: new.kind,
            agent_id: new.agent_id,
            channel: new.channel,
            correlation_id: new.correlation_id,
            payload: new.payload.into(),
        }
    }

    /// Keeps what the accepted command added.
    pub(crate) fn accept(&mut self) {
        self.at_command = Mark { counters: self.counters, events: self.events.len(), signals: self.signals.len() };
    }

    /// Takes back what the refused command added.
    pub(crate) fn reject(&mut self) {
        self.counters = self.at_command.counters;
        self.events.truncate(self.at_command.events);
        self.signals.truncate(self.at_command.signals);
    }

    /// Ends a committed batch. Returns the events and signals to publish.
    pub(crate) fn committed(&mut self) -> (Vec<Event>, Vec<Signal>) {
        let Self { events, signals, .. } = std::mem::replace(self, Self::new(self.counters));
        (events, signals)
    }

    /// Ends a failed batch: takes everything back.
    pub(crate) fn abandoned(&mut self) {
        *self = Self::new(self.at_commit);
    }
}
