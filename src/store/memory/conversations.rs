//! Conversations with people and programs outside, and their entries.

use std::ops::Bound;

use ghost_domain::{
    AgentId, Conversation, ConversationEntry, ConversationId, Delivery, MailState, Timestamp, TurnId, TurnStatus,
};
use uuid::Uuid;

use super::prune::oldest;
use super::session::{Session, bound, count, page};
use super::tables::Tables;
use crate::StoreError;
use crate::tables::{ConversationReads, ConversationWrites, Result};

/// When a waiting entry is due: its own due time, or the time it was written.
fn due_at(entry: &ConversationEntry) -> Option<Timestamp> {
    (entry.delivery == Delivery::Pending).then(|| entry.next_at.unwrap_or(entry.at))
}

impl Tables {
    /// Entries of a conversation after a sequence, in order.
    fn entries_of(&self, conversation_id: ConversationId, after: i64) -> impl Iterator<Item = &ConversationEntry> {
        let from = Bound::Excluded((conversation_id, after));
        let all = (from, Bound::Included((conversation_id, i64::MAX)));
        // `BTreeMap::range` panics if a range begins after its end. No entry comes after the last
        // possible sequence.
        let any = after < i64::MAX;
        any.then(|| self.conversation_entries.range(all)).into_iter().flatten().map(|(_, entry)| entry)
    }

    fn entry_unindex(&mut self, key: (ConversationId, i64)) {
        let Some((due, turn_id)) = self.conversation_entries.get(&key).map(|before| (due_at(before), before.turn_id))
        else {
            return;
        };
        if let Some(due) = due {
            self.conversation_entries_by_due.remove(&(due, key.0, key.1));
        }
        if let Some(turn_id) = turn_id {
            self.conversation_entries_by_turn.remove(&(turn_id, key.0, key.1));
        }
    }

    /// Deletes a conversation, its entries and their index rows.
    fn conversation_delete(&mut self, conversation_id: ConversationId) {
        let seqs: Vec<i64> = self.entries_of(conversation_id, i64::MIN).map(|entry| entry.seq).collect();
        for seq in seqs {
            self.entry_unindex((conversation_id, seq));
            self.conversation_entries.remove(&(conversation_id, seq));
        }
        self.conversation_unindex(conversation_id);
        self.conversations.remove(&conversation_id);
    }

    fn conversation_unindex(&mut self, conversation_id: ConversationId) {
        let before = self.conversations.get(&conversation_id);
        if let Some(name) = before.map(|before| (before.adapter.clone(), before.thread.clone())) {
            self.conversations_by_thread.remove(&name);
        }
    }

    pub(super) fn prune_conversations(&mut self, before: Timestamp, limit: usize) -> usize {
        let inactive = self
            .conversations
            .values()
            .filter(|conversation| {
                !self.entries_of(conversation.conversation_id, i64::MIN).any(|entry| self.is_needed(entry))
            })
            .map(|conversation| (conversation.updated_at, conversation.conversation_id));
        let old = oldest(inactive, before, limit);
        for conversation_id in &old {
            self.conversation_delete(*conversation_id);
        }
        old.len()
    }

    pub(super) fn prune_conversation_entries(&mut self, before: Timestamp, keep: u32, limit: usize) -> usize {
        let mut old: Vec<(ConversationId, i64)> = Vec::new();
        let all: Vec<ConversationId> = self.conversations.iter().map(|(id, _)| *id).collect();
        for id in all {
            let newest = self.entries_of(id, i64::MIN).map(|entry| entry.seq).max().unwrap_or(0);
            let kept = newest.saturating_sub(i64::from(keep));
            let room = limit - old.len();
            let gone = self.entries_of(id, i64::MIN).take_while(|entry| {
                let expired = entry.at < before || entry.seq <= kept;
                expired && !self.is_needed(entry)
            });
            old.extend(gone.take(room).map(|entry| (id, entry.seq)));
        }
        for key in &old {
            self.entry_unindex(*key);
            self.conversation_entries.remove(key);
        }
        old.len()
    }

    /// Whether a delivery, an open turn, or mail that is not consumed still needs the entry.
    fn is_needed(&self, entry: &ConversationEntry) -> bool {
        let turn_is_open = entry
            .turn_id
            .and_then(|turn_id| self.turns.get(&turn_id))
            .is_some_and(|turn| turn.status == TurnStatus::Open);
        let held = self.message(entry.message_id).is_some_and(|mail| mail.state != MailState::Consumed);
        matches!(entry.delivery, Delivery::Draft | Delivery::Pending) || turn_is_open || held
    }
}

impl ConversationReads for Session<'_> {
    fn conversation_get(&mut self, conversation_id: ConversationId) -> Result<Option<Conversation>> {
        Ok(self.tables.conversations.get(&conversation_id).cloned())
    }

    fn conversation_find(&mut self, adapter: &str, thread: &str) -> Result<Option<Conversation>> {
        let found = self.tables.conversations_by_thread.get(&(adapter.to_owned(), thread.to_owned()));
        Ok(found.and_then(|conversation_id| self.tables.conversations.get(conversation_id)).cloned())
    }

    fn conversation_list(
        &mut self,
        owner: Option<&AgentId>,
        after: Option<(Timestamp, ConversationId)>,
        limit: u32,
    ) -> Result<Vec<Conversation>> {
        let key = |conversation: &Conversation| (conversation.updated_at, conversation.conversation_id);
        let wanted = |conversation: &&Conversation| {
            owner.is_none_or(|owner| conversation.owner == *owner)
                && after.is_none_or(|after| key(conversation) < after)
        };
        let mut found: Vec<&Conversation> = self.tables.conversations.values().filter(wanted).collect();
        found.sort_by_key(|conversation| std::cmp::Reverse(key(conversation)));
        Ok(page(found, limit))
    }

    fn conversation_count(&mut self) -> Result<u32> {
        Ok(count(self.tables.conversations.values().count()))
    }

    fn conversation_entries(
        &mut self,
        conversation_id: ConversationId,
        after: i64,
        limit: u32,
    ) -> Result<Vec<ConversationEntry>> {
        Ok(self.tables.entries_of(conversation_id, after).take(bound(limit)).cloned().collect())
    }

    fn conversation_entries_of_turn(&mut self, turn_id: TurnId) -> Result<Vec<ConversationEntry>> {
        let first = (turn_id, ConversationId(Uuid::nil()), i64::MIN);
        let last = (turn_id, ConversationId(Uuid::max()), i64::MAX);
        Ok(self
            .tables
            .conversation_entries_by_turn
            .range(first..=last)
            .filter_map(|((_, conversation_id, seq), ())| {
                self.tables.conversation_entries.get(&(*conversation_id, *seq))
            })
            .cloned()
            .collect())
    }

    fn deliveries_due(&mut self, now: Timestamp, passing: &[String], limit: u32) -> Result<Vec<ConversationEntry>> {
        Ok(self
            .tables
            .conversation_entries_by_due
            .range(..=(now, ConversationId(Uuid::max()), i64::MAX))
            .filter(|((_, conversation_id, _), ())| {
                let adapter = self.tables.conversations.get(conversation_id).map(|conversation| &conversation.adapter);
                !adapter.is_some_and(|adapter| passing.contains(adapter))
            })
            .take(bound(limit))
            .filter_map(|((_, conversation_id, seq), ())| {
                self.tables.conversation_entries.get(&(*conversation_id, *seq))
            })
            .cloned()
            .collect())
    }

    fn delivery_next_at(&mut self) -> Result<Option<Timestamp>> {
        Ok(self.tables.conversation_entries_by_due.iter().next().map(|((due, _, _), ())| *due))
    }
}

impl ConversationWrites for Session<'_> {
    fn conversation_put(&mut self, conversation: &Conversation) -> Result<()> {
        let conversation_id = conversation.conversation_id;
        let name = (conversation.adapter.clone(), conversation.thread.clone());
        if self.tables.conversations_by_thread.get(&name).is_some_and(|other| *other != conversation_id) {
            return Err(StoreError::Row {
                table: "conversations",
                key: conversation_id.to_string(),
                what: format!("{} has another conversation for this thread", conversation.adapter),
            });
        }
        self.tables.conversation_unindex(conversation_id);
        self.tables.conversations_by_thread.put(name, conversation_id);
        self.tables.conversations.put(conversation_id, conversation.clone());
        Ok(())
    }

    fn conversation_entry_put(&mut self, entry: &ConversationEntry) -> Result<()> {
        let key = (entry.conversation_id, entry.seq);
        self.tables.entry_unindex(key);
        if let Some(due) = due_at(entry) {
            self.tables.conversation_entries_by_due.put((due, key.0, key.1), ());
        }
        if let Some(turn_id) = entry.turn_id {
            self.tables.conversation_entries_by_turn.put((turn_id, key.0, key.1), ());
        }
        self.tables.conversation_entries.put(key, entry.clone());
        Ok(())
    }
}
