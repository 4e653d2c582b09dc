//! Rows and queries of conversations with people and programs outside the world, and of their
//! entries.

use ghost_domain::{AgentId, Conversation, ConversationEntry, ConversationId, Delivery, Timestamp, TurnId};

use super::prelude::*;

/// The count of conversations.
pub(super) const CONVERSATIONS: &str = "conversations";

record! {
    conversation: Conversation, "conversations"; key conversation_id: ConversationId;
    adapter, thread, owner, updated_at
}

record! {
    entry: ConversationEntry, "conversation_entries"; key conversation_id: ConversationId, seq: i64;
    turn_id, message_id, delivery,
    // A waiting entry without a due time is due from the time it was written.
    next_at = (entry.delivery == Delivery::Pending).then(|| entry.next_at.unwrap_or(entry.at)),
    at
}

/// One page of the list, latest activity first.
pub(super) fn list(
    owner: Option<&AgentId>,
    after: Option<(Timestamp, ConversationId)>,
    limit: u32,
) -> (Statement, Args) {
    Conditions::new("SELECT record FROM conversations")
        .when(owner, "owner = $1")
        .when(after, "(updated_at, conversation_id) < ($1, $2)")
        .order("updated_at DESC, conversation_id DESC", list_limit(limit))
}

functions! {
    /// Conversations with the latest activity first (then by id, highest first); only those of this
    /// owner, if given.
    page conversation_list(owner: Option<&AgentId>, after: Option<(Timestamp, ConversationId)>, limit: u32)
        -> Vec<Conversation>: list(owner, after, limit);
    /// The conversation with this id.
    get conversation_get(conversation_id: ConversationId) -> Option<Conversation>: &conversation_id;
    /// The conversation with this adapter and thread name.
    first conversation_find(adapter: &str, thread: &str) -> Option<Conversation>:
        "SELECT record FROM conversations WHERE adapter = $1 AND thread = $2";
    /// Number of conversations.
    counted conversation_count() -> u32: CONVERSATIONS;
    /// Entries of a conversation after the sequence `after`, in order, at most `limit`.
    list conversation_entries(conversation_id: ConversationId, after: i64, limit: u32) -> Vec<ConversationEntry>:
        "SELECT record FROM conversation_entries WHERE conversation_id = $1 AND seq > $2 ORDER BY seq {limit $3}";
    /// Entries that a turn wrote, in order of conversation and sequence.
    list conversation_entries_of_turn(turn_id: TurnId) -> Vec<ConversationEntry>:
        "SELECT record FROM conversation_entries WHERE turn_id = $1 ORDER BY conversation_id, seq";
    /// Inserts or replaces an entry. The caller has taken its sequence from the conversation.
    put conversation_entry_put(entry: &ConversationEntry) -> (): entry;
}

impl Tx {
    /// Entries that wait for delivery and are due at `now`, in order of due time (then conversation
    /// and sequence), at most `limit`. Conversations of the adapters in `passing` are omitted. A
    /// waiting entry without a due time is due from the time it was written.
    pub fn deliveries_due(&mut self, now: Timestamp, passing: &[String], limit: u32) -> Result<Vec<ConversationEntry>> {
        if passing.is_empty() {
            let sql = sql!(
                "SELECT record FROM conversation_entries WHERE delivery = 'pending' AND next_at <= $1 \
                       ORDER BY next_at, conversation_id, seq {limit $2}"
            );
            return self.list(sql, args![now, limit]);
        }
        let sql = sql!(
            "SELECT record FROM conversation_entries AS e WHERE delivery = 'pending' AND next_at <= $1 \
                   AND NOT EXISTS (SELECT 1 FROM conversations AS c WHERE c.conversation_id = e.conversation_id \
                   AND c.adapter {in $2}) \
                   ORDER BY next_at, conversation_id, seq {limit $3}"
        );
        self.list(sql, args![now, to_json(Conversation::TABLE, "passing", &passing)?, limit])
    }

    /// When the next waiting entry is due; `None` if no entry waits.
    pub fn delivery_next_at(&mut self) -> Result<Option<Timestamp>> {
        let sql = sql!("SELECT min(next_at) FROM conversation_entries WHERE delivery = 'pending'");
        Ok(self.row(sql, args![], |row| get(ConversationEntry::TABLE, row, 0))?.flatten())
    }

    /// Inserts or replaces a conversation.
    pub fn conversation_put(&mut self, conversation: &Conversation) -> Result<()> {
        let stored = sql!("SELECT 'conversations' FROM conversations WHERE conversation_id = $1");
        self.put_counted(conversation, &conversation.conversation_id, stored, Some(CONVERSATIONS))
    }
}
