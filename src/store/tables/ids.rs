//! Ids by range, whatever they are of: what a person typed is the beginning of one.

use async_trait::async_trait;
use uuid::Uuid;

use crate::error::Result;

/// What an id is of, for those that people type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdKind {
    /// An ask.
    Ask,
    /// A conversation.
    Conversation,
    /// A dead letter.
    DeadLetter,
    /// A message.
    Message,
    /// A timer, cron job, watch or heartbeat.
    Schedule,
    /// A task.
    Task,
    /// A turn.
    Turn,
}

impl IdKind {
    /// All of them.
    pub const ALL: [Self; 7] =
        [Self::Ask, Self::Conversation, Self::DeadLetter, Self::Message, Self::Schedule, Self::Task, Self::Turn];
}

/// Reading ids.
#[async_trait]
pub trait IdReads {
    /// The ids of that kind from `first` to `last`, both included, in ascending order, at most `most` and never more than
    /// 1,000. A range of the primary key is read, so the cost is that of what is returned.
    async fn ids_between(&mut self, kind: IdKind, first: Uuid, last: Uuid, most: u32) -> Result<Vec<Uuid>>;
}
