//! Queries of the durable inboxes. The rows are in `mail.rs`.

use std::collections::{BTreeMap, BTreeSet};

use ghost_domain::{AgentId, Envelope, MailState, MessageId, RootId, Timestamp, TurnId};

use super::mail::columns;
use crate::StoreError;
use crate::sqlite::facts::OpenTurn;
use crate::sqlite::internal_rows::Head;
use crate::sqlite::row::{Args, Keyed, Row, get, get_count, get_parsed, to_json, unreadable};
use crate::sqlite::session::Session;
use crate::sqlite::table_list::table_set;
use crate::sqlite::write_buffer::WriteBuffer;
use crate::tables::{ChatReads, InboxState, MessageReads, MessageWrites, Result, SkillReads};

const TABLES: u64 = table_set::MAIL | table_set::HEADS;

/// SQL condition for messages that are not ready; see [`MessageReads::inbox_ready`]. The inner
/// queries do not depend on the row, so each runs once. The first condition alone decides nearly
/// all messages, and it needs only the index of pending messages, not the rows.
macro_rules! not_ready {
    () => {
        concat!(
            "(to_agent IN (SELECT agent_id ",
            parked_turns!(),
            ") AND (to_agent, root_id) IN (SELECT agent_id, unhex(replace(record ->> '$.root_id', '-', '')) ",
            parked_turns!(),
            "))"
        )
    };
}

macro_rules! parked_turns {
    () => {
        "FROM turns INDEXED BY turns_open WHERE status = 'open' AND record ->> '$.parked.standing' IN ('aside', 'ready')"
    };
}

impl Session {
    /// Changes heads, and updates the counts of pending messages.
    fn change_heads(&mut self, message_ids: &[MessageId], change: impl Fn(&mut Head) + Send) -> Result<()> {
        // A set, so that an id that is given twice is counted once.
        let message_ids: BTreeSet<MessageId> = message_ids.iter().copied().collect();
        self.buffer_mut()?;
        self.load_heads(&message_ids)?;
        for message_id in message_ids {
            let Some(mut head) = self.head(message_id)? else { continue };
            let was = head.state;
            change(&mut head);
            let buffer = self.buffer_mut()?;
            buffer.facts.update_pending_total(was == MailState::Pending, head.state == MailState::Pending);
            if (was == MailState::Pending) != (head.state == MailState::Pending)
                && let Some(depth) = buffer.facts.inbox_depths.get(&head.to).copied()
            {
                let depth = if was == MailState::Pending { depth.saturating_sub(1) } else { depth.saturating_add(1) };
                buffer.facts.inbox_depths.put(head.to.clone(), depth);
            }
            buffer.tables.heads.put(head);
        }
        Ok(())
    }

    /// Whether the cache shows that the agent has no turn parked beside its other work.
    fn has_no_parked_turn(&self, agent_id: &AgentId) -> bool {
        let known = self.buffer().and_then(|buffer| buffer.facts.open_turns.get(agent_id));
        known.is_some_and(|known| *known != OpenTurn::Unknown)
    }

    /// Flushes pending mail, if there is any for this agent. So turns that open in one batch do not flush each other's
    /// messages.
    fn flush_inbox(&mut self, agent_id: &AgentId) -> Result<()> {
        let has_pending = self.buffer().is_some_and(|buffer| {
            buffer.tables.mail.any_pending(|envelope| envelope.to == *agent_id)
                || buffer.tables.heads.any_pending(|head| head.to == *agent_id)
        });
        if has_pending { self.flush_before_read(TABLES) } else { Ok(()) }
    }

    /// Reads messages of an inbox. The arguments of the query are the agent and the limit.
    fn inbox(&mut self, sql: &'static str, agent_id: &AgentId, limit: u32) -> Result<Vec<Envelope>> {
        let mut args = Args::default();
        args.text(agent_id.as_str()).int(i64::from(limit));
        self.flush_inbox(agent_id)?;
        let found = self.rows(sql, args)?.iter().map(Envelope::read).collect::<Result<Vec<_>>>()?;
        let in_savepoint = self.in_savepoint();
        if let Ok(buffer) = self.buffer_mut() {
            found
                .iter()
                .for_each(|envelope| buffer.tables.heads.cache_row(Head::from_envelope(envelope), in_savepoint));
        }
        Ok(found)
    }

    /// Loads the heads that are not in memory, in one query.
    fn load_heads(&mut self, message_ids: &BTreeSet<MessageId>) -> Result<()> {
        let Some(buffer) = self.buffer() else { return Ok(()) };
        let unknown: Vec<String> = message_ids
            .iter()
            .filter(|id| buffer.tables.heads.get(id).is_none())
            .map(|id| id.0.simple().to_string())
            .collect();
        if unknown.len() < 2 {
            return Ok(());
        }
        let mut args = Args::default();
        args.put(to_json(Head::TABLE, "ids", &unknown)?);
        let sql = "SELECT message_id, to_agent, state, turn_id, crashes, wake, read_at FROM messages \
                   WHERE message_id IN (SELECT unhex(value) FROM json_each(?))";
        self.flush_before_read(TABLES)?;
        let found = self.rows(sql, args)?.iter().map(Head::read).collect::<Result<Vec<_>>>()?;
        let in_savepoint = self.in_savepoint();
        let heads = &mut self.buffer_mut()?.tables.heads;
        found.into_iter().for_each(|head| heads.cache_row(head, in_savepoint));
        Ok(())
    }

    /// The head of a message, flushed or not.
    fn head(&mut self, message_id: MessageId) -> Result<Option<Head>> {
        if let Some(buffer) = self.buffer()
            && buffer.tables.heads.get(&message_id).is_none()
            && let Some(envelope) = buffer.tables.mail.get(&message_id)
        {
            return Ok(Some(Head::from_envelope(envelope)));
        }
        self.get(&message_id)
    }

    /// Reads messages. Flushes pending changes first.
    fn list_mail(&mut self, sql: &'static str, args: Args) -> Result<Vec<Envelope>> {
        self.flush_before_read(TABLES)?;
        self.rows(sql, args)?.iter().map(Envelope::read).collect()
    }
}

impl MessageReads for Session {
    fn message_get(&mut self, message_id: MessageId) -> Result<Option<Envelope>> {
        let Some(mut envelope) = self.get::<Envelope>(&message_id)? else { return Ok(None) };
        if let Some(head) = self.buffer().and_then(|buffer| buffer.tables.heads.get(&message_id)) {
            head.apply(&mut envelope);
        }
        Ok(Some(envelope))
    }

    fn message_state(&mut self, message_id: MessageId) -> Result<Option<(MailState, Option<TurnId>, u32)>> {
        Ok(self.head(message_id)?.map(|head| (head.state, head.turn_id, head.crashes)))
    }

    fn inbox_depth(&mut self, agent_id: &AgentId) -> Result<u32> {
        if let Some(depth) = self.buffer().and_then(|buffer| buffer.facts.inbox_depths.get(agent_id)) {
            return Ok(*depth);
        }
        self.flush_inbox(agent_id)?;
        let mut args = Args::default();
        args.text(agent_id.as_str());
        let sql = "SELECT count(*) FROM messages WHERE state = 'pending' AND to_agent = ?";
        let depth = match self.row(sql, args)? {
            Some(row) => get_count(Envelope::TABLE, &row, 0)?,
            None => 0,
        };
        if let Ok(buffer) = self.buffer_mut() {
            buffer.facts.inbox_depths.put(agent_id.clone(), depth);
        }
        Ok(depth)
    }

    fn inbox_depths(&mut self, agent_ids: &[AgentId]) -> Result<Vec<u32>> {
        let known = |buffer: Option<&WriteBuffer>, id: &AgentId| {
            buffer.and_then(|buffer| buffer.facts.inbox_depths.get(id)).copied()
        };
        let unknown: BTreeSet<&AgentId> =
            agent_ids.iter().filter(|agent_id| known(self.buffer(), agent_id).is_none()).collect();
        let mut found: BTreeMap<AgentId, u32> = unknown.iter().map(|agent_id| ((*agent_id).clone(), 0)).collect();
        if !unknown.is_empty() {
            self.flush_before_read(TABLES)?;
            let mut args = Args::default();
            args.put(to_json(Envelope::TABLE, "inboxes", &unknown)?);
            let sql = "SELECT to_agent, count(*) FROM messages WHERE state = 'pending' \
                       AND to_agent IN (SELECT value FROM json_each(?)) GROUP BY to_agent";
            for row in self.rows(sql, args)? {
                found.insert(get_parsed(Envelope::TABLE, &row, 0)?, get_count(Envelope::TABLE, &row, 1)?);
            }
            if let Ok(buffer) = self.buffer_mut() {
                found.iter().for_each(|(agent_id, depth)| buffer.facts.inbox_depths.put(agent_id.clone(), *depth));
            }
        }
        let depth = |id: &AgentId| known(self.buffer(), id).or_else(|| found.get(id).copied()).unwrap_or(0);
        Ok(agent_ids.iter().map(depth).collect())
    }

    fn inbox_pending(&mut self, agent_id: &AgentId, limit: u32) -> Result<Vec<Envelope>> {
        // `?+0`: see `Conditions::order`.
        let sql = concat!(
            "SELECT ",
            columns!(),
            " FROM messages WHERE state = 'pending' AND to_agent = ? ORDER BY seq LIMIT ?+0"
        );
        self.inbox(sql, agent_id, limit)
    }

    fn inbox_ready(&mut self, agent_id: &AgentId, limit: u32) -> Result<Vec<Envelope>> {
        if self.buffer().is_some() {
            if self.has_no_parked_turn(agent_id) {
                return self.inbox_pending(agent_id, limit);
            }
            self.flush_before_read(table_set::TURNS)?;
        }
        let sql = concat!(
            "SELECT ",
            columns!(),
            " FROM messages WHERE state = 'pending' AND to_agent = ? AND NOT ",
            not_ready!(),
            " ORDER BY seq LIMIT ?+0"
        );
        self.inbox(sql, agent_id, limit)
    }

    fn inbox_state(&mut self, agent_id: &AgentId, limit: u32) -> Result<InboxState> {
        if self.buffer().is_some() {
            let mail = self.inbox_ready(agent_id, limit)?;
            if mail.is_empty() {
                return Ok(InboxState::default());
            }
            let unread = !self.chat_unread(agent_id)?.is_empty();
            return Ok(InboxState { mail, unread, skills: self.skills_held(agent_id)? });
        }
        let mut args = Args::default();
        args.text(agent_id.as_str()).int(i64::from(limit));
        // The inner queries do not depend on the row, so each runs once.
        let sql = concat!(
            "SELECT ",
            columns!(),
            ", EXISTS (SELECT 1 FROM chat_members AS m CROSS JOIN chat_channels AS c WHERE m.agent_id = ?1 ",
            "AND c.channel = m.channel AND c.gated = 0 AND c.last_seq > m.read_seq), ",
            "(SELECT json_group_array(json(record)) FROM ",
            "(SELECT record FROM agent_skills WHERE agent_id = ?1 ORDER BY skill)) ",
            "FROM messages WHERE state = 'pending' AND to_agent = ?1 AND NOT ",
            not_ready!(),
            " ORDER BY seq LIMIT ?2+0"
        );
        let rows = self.rows(sql, args)?;
        let Some(first) = rows.first() else { return Ok(InboxState::default()) };
        let (unread, skills) = (get(Envelope::TABLE, first, 18)?, get::<&str>(Envelope::TABLE, first, 19)?);
        let skills = serde_json::from_str(skills).map_err(|error| unreadable("agent_skills", skills, error))?;
        let mail = rows.iter().map(Envelope::read).collect::<Result<_>>()?;
        Ok(InboxState { mail, unread, skills })
    }

    fn inbox_waiting(&mut self) -> Result<Vec<AgentId>> {
        self.flush_before_read(TABLES | table_set::TURNS)?;
        let sql = concat!(
            "SELECT DISTINCT to_agent FROM messages WHERE state = 'pending' AND wake = 1 AND NOT ",
            not_ready!(),
            " ORDER BY to_agent"
        );
        let rows = self.rows(sql, Args::default())?;
        rows.iter().map(|row| get_parsed(Envelope::TABLE, row, 0)).collect()
    }

    fn inbox_waiting_among(&mut self, agent_ids: &[AgentId]) -> Result<Vec<AgentId>> {
        self.flush_before_read(TABLES | table_set::TURNS)?;
        let mut args = Args::default();
        args.put(to_json(Envelope::TABLE, "inboxes", &agent_ids)?);
        let sql = concat!(
            "SELECT DISTINCT to_agent FROM messages WHERE state = 'pending' AND wake = 1 ",
            "AND to_agent IN (SELECT value FROM json_each(?)) AND NOT ",
            not_ready!(),
            " ORDER BY to_agent"
        );
        self.rows(sql, args)?.iter().map(|row| get_parsed(Envelope::TABLE, row, 0)).collect()
    }

    fn inbox_waiting_of(&mut self, root_id: RootId) -> Result<Vec<AgentId>> {
        self.flush_before_read(TABLES | table_set::TURNS)?;
        let mut args = Args::default();
        args.id(root_id.0);
        let sql = concat!(
            "SELECT DISTINCT to_agent FROM messages WHERE state = 'pending' AND wake = 1 AND root_id = ? AND NOT ",
            not_ready!(),
            " ORDER BY to_agent"
        );
        self.rows(sql, args)?.iter().map(|row| get_parsed(Envelope::TABLE, row, 0)).collect()
    }

    fn inbox_total(&mut self) -> Result<u64> {
        if let Some(waiting) = self.buffer().and_then(|buffer| buffer.facts.pending_total.get(&())) {
            return Ok(*waiting);
        }
        self.flush_before_read(TABLES)?;
        let row = self.row("SELECT count(*) FROM messages WHERE state = 'pending'", Args::default())?;
        let waiting = row.map_or(Ok(0), |row| get_count(Envelope::TABLE, &row, 0))?;
        if let Ok(buffer) = self.buffer_mut() {
            buffer.facts.pending_total.put((), waiting);
        }
        Ok(waiting)
    }

    fn messages_of_turn(&mut self, turn_id: TurnId) -> Result<Vec<Envelope>> {
        let mut args = Args::default();
        args.id(turn_id.0);
        self.list_mail(concat!("SELECT ", columns!(), " FROM messages WHERE turn_id = ? ORDER BY seq"), args)
    }

    fn messages_recent(&mut self, agent_id: &AgentId, limit: u32) -> Result<Vec<Envelope>> {
        let mut args = Args::default();
        args.text(agent_id.as_str()).int(i64::from(limit));
        // Each half has an index of its own. The newest rows of both together are the newest of
        // all.
        let sql = concat!(
            "SELECT * FROM (SELECT ",
            columns!(),
            " FROM messages WHERE state = 'pending' AND to_agent = ?1 ORDER BY seq DESC LIMIT ?2+0) UNION ALL ",
            "SELECT * FROM (SELECT ",
            columns!(),
            " FROM messages WHERE state <> 'pending' AND to_agent = ?1 ORDER BY seq DESC LIMIT ?2+0) ",
            "ORDER BY seq DESC LIMIT ?2+0"
        );
        self.list_mail(sql, args)
    }
}

impl MessageWrites for Session {
    fn message_append(&mut self, envelope: &Envelope) -> Result<()> {
        let message_id = envelope.message_id;
        self.buffer_mut()?;
        self.spill()?;
        if self.buffer_mut()?.facts.mail_ids.may_hold(message_id) && self.head(message_id)?.is_some() {
            return Err(StoreError::Row {
                table: Envelope::TABLE,
                key: message_id.to_string(),
                what: "mail of this id was appended before".to_owned(),
            });
        }
        let buffer = self.buffer_mut()?;
        buffer.facts.mail_ids.put(message_id);
        buffer.counters.messages += 1;
        buffer.facts.update_pending_total(false, envelope.state == MailState::Pending);
        if envelope.state == MailState::Pending
            && let Some(depth) = buffer.facts.inbox_depths.get(&envelope.to).copied()
        {
            buffer.facts.inbox_depths.put(envelope.to.clone(), depth.saturating_add(1));
        }
        buffer.command_rows += 2;
        buffer.tables.heads.put_implied(Head::from_envelope(envelope));
        buffer.tables.mail.put(Envelope { seq: buffer.counters.messages, ..envelope.clone() });
        Ok(())
    }

    fn message_mark(
        &mut self,
        message_ids: &[MessageId],
        state: MailState,
        turn_id: Option<TurnId>,
        add_crashes: u32,
    ) -> Result<()> {
        self.change_heads(message_ids, |head| {
            head.state = state;
            head.turn_id = turn_id;
            head.crashes = head.crashes.saturating_add(add_crashes);
        })
    }

    fn message_read(&mut self, message_ids: &[MessageId], at: Timestamp) -> Result<()> {
        self.change_heads(message_ids, |head| head.read_at = Some(at))
    }

    fn message_forgive(&mut self, message_ids: &[MessageId]) -> Result<()> {
        self.change_heads(message_ids, |head| head.crashes = 0)
    }

    fn message_rouse(&mut self, message_ids: &[MessageId]) -> Result<()> {
        self.change_heads(message_ids, |head| head.wake = true)
    }
}
