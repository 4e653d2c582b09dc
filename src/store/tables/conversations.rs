//! Rows and queries of conversations with people and programs outside the world, and of their
//! entries.

use ghost_domain::{AgentId, Conversation, ConversationEntry, ConversationId, Delivery, Timestamp, TurnId};

use crate::error::Result;
use crate::query::{Conditions, list_limit};
use crate::row::{Args, Keyed, ReadRow, Row, from_record, get, to_json};
use crate::sql::{Sql, Statement, sql};
use crate::tx::Tx;

/// The count of conversations.
pub(super) const CONVERSATIONS: &str = "conversations";

impl Row for Conversation {
    const TABLE: &'static str = "conversations";
    const WRITE: Sql = sql!(
        "INSERT INTO conversations (conversation_id, adapter, thread, owner, updated_at, record) VALUES \
        ($1, $2, $3, $4, $5, $6) ON CONFLICT (conversation_id) DO UPDATE SET adapter = excluded.adapter, \
        thread = excluded.thread, owner = excluded.owner, updated_at = excluded.updated_at, record = \
        excluded.record"
    );

    fn bind(&self, args: &mut Args) -> Result<()> {
        args.id(self.conversation_id.0)
            .text(&self.adapter)
            .text(&self.thread)
            .text(self.owner.as_str())
            .int(self.updated_at.0)
            .put(to_json(Self::TABLE, self.conversation_id, self)?);
        Ok(())
    }
}

impl Keyed for Conversation {
    type Key = ConversationId;
    const SELECT: Sql = sql!("SELECT record FROM conversations WHERE conversation_id = $1");

    fn bind_key(key: &ConversationId, args: &mut Args) {
        args.id(key.0);
    }

    fn read(row: &ReadRow<'_>) -> Result<Self> {
        from_record(Self::TABLE, row)
    }
}

impl Row for ConversationEntry {
    const TABLE: &'static str = "conversation_entries";
    const WRITE: Sql = sql!(
        "INSERT INTO conversation_entries (conversation_id, seq, turn_id, message_id, delivery, next_at, at, record) \
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT (conversation_id, seq) DO UPDATE SET turn_id = \
        excluded.turn_id, message_id = excluded.message_id, delivery = excluded.delivery, next_at = excluded.next_at, at = excluded.at, \
        record = excluded.record"
    );

    fn bind(&self, args: &mut Args) -> Result<()> {
        // A waiting entry without a due time is due from the time it was written.
        let due = (self.delivery == Delivery::Pending).then(|| self.next_at.unwrap_or(self.at));
        args.id(self.conversation_id.0)
            .int(self.seq)
            .maybe_id(self.turn_id.map(|id| id.0))
            .id(self.message_id.0)
            .text(self.delivery.as_str())
            .maybe_at(due)
            .int(self.at.0)
            .put(to_json(Self::TABLE, self.conversation_id, self)?);
        Ok(())
    }
}

impl Keyed for ConversationEntry {
    type Key = (ConversationId, i64);
    const SELECT: Sql = sql!("SELECT record FROM conversation_entries WHERE conversation_id = $1 AND seq = $2");

    fn bind_key(key: &Self::Key, args: &mut Args) {
        args.id(key.0.0).int(key.1);
    }

    fn read(row: &ReadRow<'_>) -> Result<Self> {
        from_record(Self::TABLE, row)
    }
}

/// One page of the list, latest activity first.
fn list(owner: Option<&AgentId>, after: Option<(Timestamp, ConversationId)>, limit: u32) -> (Statement, Args) {
    Conditions::new("SELECT record FROM conversations")
        .when(owner, "owner = $1", |id, args| {
            args.text(id.as_str());
        })
        .when(after, "(updated_at, conversation_id) < ($1, $2)", |(at, id), args| {
            args.int(at.0).id(id.0);
        })
        .order("updated_at DESC, conversation_id DESC", list_limit(limit))
}

impl Tx {
    /// The conversation with this id.
    pub fn conversation_get(&mut self, conversation_id: ConversationId) -> Result<Option<Conversation>> {
        self.get(&conversation_id)
    }

    /// The conversation with this adapter and thread name.
    pub fn conversation_find(&mut self, adapter: &str, thread: &str) -> Result<Option<Conversation>> {
        let mut args = Args::default();
        args.text(adapter).text(thread);
        Ok(self
            .list(sql!("SELECT record FROM conversations WHERE adapter = $1 AND thread = $2"), args)?
            .into_iter()
            .next())
    }

    /// Conversations with the latest activity first (then by id, highest first); only those of this
    /// owner, if given.
    pub fn conversation_list(
        &mut self,
        owner: Option<&AgentId>,
        after: Option<(Timestamp, ConversationId)>,
        limit: u32,
    ) -> Result<Vec<Conversation>> {
        let (sql, args) = list(owner, after, limit);
        self.list(sql, args)
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
        let mut args = Args::default();
        args.id(conversation_id.0).int(after).int(i64::from(limit));
        self.list(sql, args)
    }

    /// Entries that a turn wrote, in order of conversation and sequence.
    pub fn conversation_entries_of_turn(&mut self, turn_id: TurnId) -> Result<Vec<ConversationEntry>> {
        let sql = sql!("SELECT record FROM conversation_entries WHERE turn_id = $1 ORDER BY conversation_id, seq");
        let mut args = Args::default();
        args.id(turn_id.0);
        self.list(sql, args)
    }

    /// Entries that wait for delivery and are due at `now`, in order of due time (then conversation
    /// and sequence), at most `limit`. Conversations of the adapters in `passing` are omitted. A
    /// waiting entry without a due time is due from the time it was written.
    pub fn deliveries_due(&mut self, now: Timestamp, passing: &[String], limit: u32) -> Result<Vec<ConversationEntry>> {
        let mut args = Args::default();
        args.int(now.0);
        if passing.is_empty() {
            args.int(i64::from(limit));
            let sql = sql!(
                "SELECT record FROM conversation_entries WHERE delivery = 'pending' AND next_at <= $1 \
                       ORDER BY next_at, conversation_id, seq {limit $2}"
            );
            return self.list(sql, args);
        }
        args.put(to_json(Conversation::TABLE, "passing", &passing)?).int(i64::from(limit));
        let sql = sql!(
            "SELECT record FROM conversation_entries AS e WHERE delivery = 'pending' AND next_at <= $1 \
                   AND NOT EXISTS (SELECT 1 FROM conversations AS c WHERE c.conversation_id = e.conversation_id \
                   AND c.adapter {in $2}) \
                   ORDER BY next_at, conversation_id, seq {limit $3}"
        );
        self.list(sql, args)
    }

    /// When the next waiting entry is due; `None` if no entry waits.
    pub fn delivery_next_at(&mut self) -> Result<Option<Timestamp>> {
        let sql = sql!("SELECT min(next_at) FROM conversation_entries WHERE delivery = 'pending'");
        let at = self.row(sql, Args::default(), |row| get::<Option<i64>>(ConversationEntry::TABLE, row, 0))?;
        Ok(at.flatten().map(Timestamp))
    }
}

impl Tx {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sqlite::tests::plans::assert_indexed;

    #[tokio::test]
    async fn conversations_are_read_from_indexes() {
        let bob: AgentId = "bob".parse().unwrap();
        for owner in [None, Some(&bob)] {
            for after in [None, Some((Timestamp(1), ConversationId(uuid::Uuid::nil())))] {
                assert_indexed(list(owner, after, 9)).await;
            }
        }
    }
}
