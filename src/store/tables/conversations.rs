//! The `conversations` and `conversation_entries` tables.

use async_trait::async_trait;
use ghost_domain::{AgentId, Conversation, ConversationEntry, ConversationId, Timestamp, TurnId};

use crate::error::Result;

/// Reading conversations.
#[async_trait]
pub trait ConversationReads {
    /// One conversation.
    async fn conversation_get(&mut self, conversation_id: ConversationId) -> Result<Option<Conversation>>;

    /// The conversation that an adapter knows under this name.
    async fn conversation_find(&mut self, adapter: &str, thread: &str) -> Result<Option<Conversation>>;

    /// Conversations, last spoken in first (then by id, the highest first), from behind `after`, at most 1,000; of this owner
    /// if given. What comes behind the last of a full list is read with its place.
    async fn conversation_list(
        &mut self,
        owner: Option<&AgentId>,
        after: Option<(Timestamp, ConversationId)>,
    ) -> Result<Vec<Conversation>>;

    /// How many conversations there are.
    async fn conversation_count(&mut self) -> Result<u32>;

    /// Entries after `after`, in order, at most `limit`.
    async fn conversation_entries(
        &mut self,
        conversation_id: ConversationId,
        after: i64,
        limit: u32,
    ) -> Result<Vec<ConversationEntry>>;

    /// Entries that a turn wrote, in order of conversation and sequence.
    async fn conversation_entries_of_turn(&mut self, turn_id: TurnId) -> Result<Vec<ConversationEntry>>;

    /// Entries that wait to be delivered and whose time has come by `now`, the longest due first (then by conversation
    /// and sequence), at most `limit`; without those of conversations that an adapter in `passing` carries. One that waits
    /// and names no time is due from the moment it was committed.
    async fn deliveries_due(
        &mut self,
        now: Timestamp,
        passing: &[String],
        limit: u32,
    ) -> Result<Vec<ConversationEntry>>;

    /// When the next entry falls due, if any waits.
    async fn delivery_next_at(&mut self) -> Result<Option<Timestamp>>;
}

/// Writing conversations.
#[async_trait]
pub trait ConversationWrites {
    /// Inserts or replaces a conversation.
    async fn conversation_put(&mut self, conversation: &Conversation) -> Result<()>;

    /// Inserts or replaces an entry, whose sequence the caller has taken from its conversation.
    async fn conversation_entry_put(&mut self, entry: &ConversationEntry) -> Result<()>;
}
