//! Ranges of ids of one kind. They resolve an id prefix that a person typed.

use uuid::Uuid;

use crate::error::Result;

/// The kinds of ids that people type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdKind {
    /// Id of an approval.
    Approval,
    /// Id of an ask.
    Ask,
    /// Id of a conversation.
    Conversation,
    /// Id of a dead letter.
    DeadLetter,
    /// Id of a write grant.
    Grant,
    /// Id of a message.
    Message,
    /// Id of a schedule: a timer, cron job, watch or heartbeat.
    Schedule,
    /// Id of a task.
    Task,
    /// Id of a turn.
    Turn,
}

impl IdKind {
    /// All kinds.
    pub const ALL: [Self; 9] = [
        Self::Approval,
        Self::Ask,
        Self::Conversation,
        Self::DeadLetter,
        Self::Grant,
        Self::Message,
        Self::Schedule,
        Self::Task,
        Self::Turn,
    ];
}

/// Reads of ids.
pub trait IdReads {
    /// The ids of this kind from `first` to `last`, both included, in ascending order, at most
    /// `limit` and never more than 1,000. It reads a range of the primary key, so the cost depends
    /// only on the number of ids returned.
    fn ids_between(&mut self, kind: IdKind, first: Uuid, last: Uuid, limit: u32) -> Result<Vec<Uuid>>;
}
