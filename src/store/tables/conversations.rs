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

impl Tx {
    /// The conversation with this id.
    pub fn conversation_get(&mut self, conversation_id: ConversationId) -> Result<Option<Conversation>> {
        self.get(&conversation_id)
    }

    /// The conversation with this adapter and thread name.
    pub fn conversation_find(&mut self, adapter: &str, thread: &str) -> Result<Option<Conversation>> {
        self.first(sql!("SELECT record FROM conversations WHERE adapter = $1 AND thread = $2"), args![adapter, thread])
    }

    /// Conversations with the latest activity first (then by id, highest first); only those of this
    /// owner, if given.
    pub fn conversation_list(
        &mut self,
        owner: Option<&AgentId>,
        after: Option<(Timestamp, ConversationId)>,
        limit: u32,
    ) -> Result<Vec<Conversation>> {
        self.page(list(owner, after, limit))
    }

    /// Number of conversations.
    pub fn conversation_count(&mut self) -> Result<u32> {
        self.counted(CONVERSATIONS)
    }

    /// Entries of a conversation after the sequence `after`, in order, at most `limit`.
    pub fn conversation_entries(
        &mut self,
        conversation_id: ConversationId,
        after: i64,
        limit: u32,
    ) -> Result<Vec<ConversationEntry>> {
        let sql = sql!(
            "SELECT record FROM conversation_entries WHERE conversation_id = $1 AND seq > $2 ORDER BY seq {limit $3}"
        );
        self.list(sql, args![conversation_id, after, limit])
    }

    /// Entries that a turn wrote, in order of conversation and sequence.
    pub fn conversation_entries_of_turn(&mut self, turn_id: TurnId) -> Result<Vec<ConversationEntry>> {
        let sql = sql!("SELECT record FROM conversation_entries WHERE turn_id = $1 ORDER BY conversation_id, seq");
        self.list(sql, args![turn_id])
    }

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
        let at = self.row(sql, args![], |row| get::<Option<i64>>(ConversationEntry::TABLE, row, 0))?;
        Ok(at.flatten().map(Timestamp))
    }

    /// Inserts or replaces a conversation.
    pub fn conversation_put(&mut self, conversation: &Conversation) -> Result<()> {
        let stored = sql!("SELECT 'conversations' FROM conversations WHERE conversation_id = $1");
        self.put_counted(conversation, &conversation.conversation_id, stored, Some(CONVERSATIONS))
    }

    /// Inserts or replaces an entry. The caller has taken its sequence from the conversation.
    pub fn conversation_entry_put(&mut self, entry: &ConversationEntry) -> Result<()> {
        self.put(entry)
    }
}
