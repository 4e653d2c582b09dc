//! Durable inboxes.

use std::collections::BTreeSet;

use ghost_domain::{AgentId, Envelope, MailState, MessageId, RootId, Timestamp, TurnId};

use super::session::{Session, bound, count};
use super::tables::{Tables, next};
use crate::StoreError;
use crate::tables::{ChatReads, InboxState, MessageReads, MessageWrites, Result, SkillReads};

impl Tables {
    /// Pending mail of an inbox, in order.
    fn pending_of<'a>(&'a self, agent_id: &AgentId) -> impl Iterator<Item = &'a Envelope> {
        self.messages_by_pending
            .range((agent_id.clone(), i64::MIN)..=(agent_id.clone(), i64::MAX))
            .filter_map(|((_, seq), ())| self.messages.get(seq))
    }

    /// Whether the message must wait for a turn of its agent that is parked because the budget of
    /// its root is spent.
    fn is_held(&self, mail: &Envelope) -> bool {
        self.open_turns()
            .any(|turn| turn.is_in_background() && turn.agent_id == mail.to && turn.root_id == mail.root_id)
    }

    /// Agents with ready mail for which `wanted` is true, in order.
    fn waiting(&self, wanted: impl Fn(&Envelope) -> bool) -> Vec<AgentId> {
        let waiting: BTreeSet<&AgentId> = self
            .messages_by_pending
            .iter()
            .filter(|((_, seq), ())| self.messages.get(seq).is_some_and(|mail| wanted(mail) && !self.is_held(mail)))
            .map(|((agent_id, _), ())| agent_id)
            .collect();
        waiting.into_iter().cloned().collect()
    }

    pub(super) fn message(&self, message_id: MessageId) -> Option<&Envelope> {
        self.messages.get(self.messages_by_id.get(&message_id)?)
    }

    /// Writes a row and its index rows.
    fn message_write(&mut self, envelope: Envelope) {
        let seq = envelope.seq;
        self.message_unindex(seq);
        self.messages_by_id.put(envelope.message_id, seq);
        self.messages_by_receiver.put((envelope.to.clone(), seq), ());
        if envelope.state == MailState::Pending {
            self.messages_by_pending.put((envelope.to.clone(), seq), ());
        }
        if let Some(turn_id) = envelope.turn_id {
            self.messages_by_turn.put((turn_id, seq), ());
        }
        self.messages.put(seq, envelope);
    }

    fn message_unindex(&mut self, seq: i64) {
        let Some((message_id, to, turn_id)) =
            self.messages.get(&seq).map(|before| (before.message_id, before.to.clone(), before.turn_id))
        else {
            return;
        };
        let key = (to, seq);
        self.messages_by_id.remove(&message_id);
        self.messages_by_receiver.remove(&key);
        self.messages_by_pending.remove(&key);
        if let Some(turn_id) = turn_id {
            self.messages_by_turn.remove(&(turn_id, seq));
        }
    }

    /// Deletes a row and its index rows.
    pub(super) fn message_delete(&mut self, seq: i64) {
        self.message_unindex(seq);
        self.messages.remove(&seq);
    }
}

impl MessageReads for Session<'_> {
    fn message_get(&mut self, message_id: MessageId) -> Result<Option<Envelope>> {
        Ok(self.tables.message(message_id).cloned())
    }

    fn message_state(&mut self, message_id: MessageId) -> Result<Option<(MailState, Option<TurnId>, u32)>> {
        Ok(self.tables.message(message_id).map(|envelope| (envelope.state, envelope.turn_id, envelope.crashes)))
    }

    fn inbox_depth(&mut self, agent_id: &AgentId) -> Result<u32> {
        Ok(count(self.tables.pending_of(agent_id).count()))
    }

    fn inbox_depths(&mut self, agent_ids: &[AgentId]) -> Result<Vec<u32>> {
        Ok(agent_ids.iter().map(|agent_id| count(self.tables.pending_of(agent_id).count())).collect())
    }

    fn inbox_pending(&mut self, agent_id: &AgentId, limit: u32) -> Result<Vec<Envelope>> {
        Ok(self.tables.pending_of(agent_id).take(bound(limit)).cloned().collect())
    }

    fn inbox_ready(&mut self, agent_id: &AgentId, limit: u32) -> Result<Vec<Envelope>> {
        let ready = self.tables.pending_of(agent_id).filter(|mail| !self.tables.is_held(mail));
        Ok(ready.take(bound(limit)).cloned().collect())
    }

    fn inbox_state(&mut self, agent_id: &AgentId, limit: u32) -> Result<InboxState> {
        let mail = self.inbox_ready(agent_id, limit)?;
        if mail.is_empty() {
            return Ok(InboxState::default());
        }
        let unread = !self.chat_unread(agent_id)?.is_empty();
        Ok(InboxState { mail, unread, skills: self.skills_held(agent_id)? })
    }

    fn inbox_waiting(&mut self) -> Result<Vec<AgentId>> {
        Ok(self.tables.waiting(|mail| mail.wake))
    }

    fn inbox_waiting_among(&mut self, agent_ids: &[AgentId]) -> Result<Vec<AgentId>> {
        let waits =
            |agent_id: &&AgentId| self.tables.pending_of(agent_id).any(|mail| mail.wake && !self.tables.is_held(mail));
        let among: BTreeSet<&AgentId> = agent_ids.iter().filter(waits).collect();
        Ok(among.into_iter().cloned().collect())
    }

    fn inbox_waiting_of(&mut self, root_id: RootId) -> Result<Vec<AgentId>> {
        Ok(self.tables.waiting(|mail| mail.wake && mail.root_id == root_id))
    }

    fn inbox_total(&mut self) -> Result<u64> {
        Ok(u64::from(count(self.tables.messages_by_pending.iter().count())))
    }

    fn messages_of_turn(&mut self, turn_id: TurnId) -> Result<Vec<Envelope>> {
        Ok(self
            .tables
            .messages_by_turn
            .range((turn_id, i64::MIN)..=(turn_id, i64::MAX))
            .filter_map(|((_, seq), ())| self.tables.messages.get(seq))
            .cloned()
            .collect())
    }

    fn messages_recent(&mut self, agent_id: &AgentId, limit: u32) -> Result<Vec<Envelope>> {
        Ok(self
            .tables
            .messages_by_receiver
            .range((agent_id.clone(), i64::MIN)..=(agent_id.clone(), i64::MAX))
            .rev()
            .filter_map(|((_, seq), ())| self.tables.messages.get(seq))
            .take(bound(limit))
            .cloned()
            .collect())
    }
}

impl MessageWrites for Session<'_> {
    fn message_append(&mut self, envelope: &Envelope) -> Result<()> {
        if self.tables.messages_by_id.contains(&envelope.message_id) {
            return Err(StoreError::Row {
                table: "messages",
                key: envelope.message_id.to_string(),
                what: "mail of this id was appended before".to_owned(),
            });
        }
        let seq = next(&mut self.tables.counters.message);
        self.tables.message_write(Envelope { seq, ..envelope.clone() });
        Ok(())
    }

    fn message_mark(
        &mut self,
        message_ids: &[MessageId],
        state: MailState,
        turn_id: Option<TurnId>,
        add_crashes: u32,
    ) -> Result<()> {
        // A set, so that an id that is given twice is counted once.
        for message_id in message_ids.iter().copied().collect::<BTreeSet<_>>() {
            if let Some(mut mail) = self.tables.message(message_id).cloned() {
                mail.state = state;
                mail.turn_id = turn_id;
                mail.crashes = mail.crashes.saturating_add(add_crashes);
                self.tables.message_write(mail);
            }
        }
        Ok(())
    }

    fn message_read(&mut self, message_ids: &[MessageId], at: Timestamp) -> Result<()> {
        for message_id in message_ids {
            if let Some(mut mail) = self.tables.message(*message_id).cloned() {
                mail.read_at = Some(at);
                self.tables.message_write(mail);
            }
        }
        Ok(())
    }

    fn message_forgive(&mut self, message_ids: &[MessageId]) -> Result<()> {
        for message_id in message_ids {
            if let Some(mut mail) = self.tables.message(*message_id).cloned() {
                mail.crashes = 0;
                self.tables.message_write(mail);
            }
        }
        Ok(())
    }

    fn message_rouse(&mut self, message_ids: &[MessageId]) -> Result<()> {
        for message_id in message_ids {
            if let Some(mut mail) = self.tables.message(*message_id).cloned() {
                mail.wake = true;
                self.tables.message_write(mail);
            }
        }
        Ok(())
    }
}
