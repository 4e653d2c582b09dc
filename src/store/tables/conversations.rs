//! The `conversations` and `conversation_entries` tables.

use ghost_domain::{AgentId, Conversation, ConversationEntry, ConversationId, Timestamp, TurnId};

use crate::error::Result;

/// Reads of conversations.
pub trait ConversationReads {
    /// The conversation with this id.
    fn conversation_get(&mut self, conversation_id: ConversationId) -> Result<Option<Conversation>>;

    /// The conversation with this adapter and thread name.
    fn conversation_find(&mut self, adapter: &str, thread: &str) -> Result<Option<Conversation>>;

    /// Conversations with the latest activity first (then by id, highest first); only those of this
    /// owner, if given.
    fn conversation_list(
        &mut self,
        owner: Option<&AgentId>,
        after: Option<(Timestamp, ConversationId)>,
        limit: u32,
    ) -> Result<Vec<Conversation>>;

    /// Number of conversations.
    fn conversation_count(&mut self) -> Result<u32>;

    /// Entries of a conversation after the sequence `after`, in order, at most `limit`.
    fn conversation_entries(
        &mut self,
        conversation_id: ConversationId,
        after: i64,
        limit: u32,
    ) -> Result<Vec<ConversationEntry>>;

    /// Entries that a turn wrote, in order of conversation and sequence.
    fn conversation_entries_of_turn(&mut self, turn_id: TurnId) -> Result<Vec<ConversationEntry>>;

    /// Entries that wait for delivery and are due at `now`, in order of due time (then conversation
    /// and sequence), at most `limit`. Conversations of the adapters in `passing` are omitted. A
    /// waiting entry without a due time is due from the time it was written.
    fn deliveries_due(&mut self, now: Timestamp, passing: &[String], limit: u32) -> Result<Vec<ConversationEntry>>;

    /// When the next waiting entry is due; `None` if no entry waits.
    fn delivery_next_at(&mut self) -> Result<Option<Timestamp>>;
}

/// Writes of conversations.
pub trait ConversationWrites {
    /// Inserts or replaces a conversation.
    fn conversation_put(&mut self, conversation: &Conversation) -> Result<()>;

    /// Inserts or replaces an entry. The caller has taken its sequence from the conversation.
    fn conversation_entry_put(&mut self, entry: &ConversationEntry) -> Result<()>;
}
