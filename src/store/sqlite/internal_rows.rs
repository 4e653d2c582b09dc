//! Row types that have no counterpart in the domain.

use ghost_domain::{AgentId, Envelope, MailState, MessageId, ScheduleId, TaskEvent, Timestamp, TurnId, WatchSnapshot};

/// A row of `world_meta`: a fact about the world.
#[derive(Clone, Debug)]
pub(super) struct Meta {
    pub(super) key: String,
    pub(super) value: String,
}

/// A row with its sequence number, for a table that only grows.
#[derive(Clone, Debug)]
pub(super) struct Numbered<T> {
    pub(super) seq: i64,
    pub(super) row: T,
}

/// The changeable part of a message (the head), and its receiver.
#[derive(Clone, Debug)]
pub(super) struct Head {
    pub(super) message_id: MessageId,
    pub(super) to: AgentId,
    pub(super) state: MailState,
    pub(super) turn_id: Option<TurnId>,
    pub(super) crashes: u32,
    pub(super) wake: bool,
    pub(super) read_at: Option<Timestamp>,
}

impl Head {
    pub(super) fn from_envelope(envelope: &Envelope) -> Self {
        Self {
            message_id: envelope.message_id,
            to: envelope.to.clone(),
            state: envelope.state,
            turn_id: envelope.turn_id,
            crashes: envelope.crashes,
            wake: envelope.wake,
            read_at: envelope.read_at,
        }
    }

    pub(super) fn apply(&self, envelope: &mut Envelope) {
        envelope.state = self.state;
        envelope.turn_id = self.turn_id;
        envelope.crashes = self.crashes;
        envelope.wake = self.wake;
        envelope.read_at = self.read_at;
    }
}

/// The last snapshot of a watch.
#[derive(Clone, Debug)]
pub(super) struct WatchSnapshotRow {
    pub(super) schedule_id: ScheduleId,
    pub(super) snapshot: WatchSnapshot,
}

/// A history row of a task, with its sequence number.
#[derive(Clone, Debug)]
pub(super) struct TaskHistory {
    pub(super) seq: i64,
    pub(super) event: TaskEvent,
}

/// A prompt part, and the time of its last use.
#[derive(Clone, Debug)]
pub(super) struct Prompt {
    pub(super) hash: String,
    pub(super) text: String,
    pub(super) at: Timestamp,
}
