//! Queries of the durable inboxes. The rows are in `mail.rs`.

use std::collections::BTreeSet;

use ghost_domain::{AgentId, Envelope, MailState, MessageId, RootId, Timestamp, TurnId};

use super::mail::columns;
use crate::sqlite::row::{Args, Keyed, Row, get, get_count, get_maybe_id, get_parsed, to_json, unreadable};
use crate::sqlite::session::Session;
use crate::tables::{InboxState, MessageReads, MessageWrites, Result};

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
    /// Runs a change on each message: the statement's first value is the id. An id without a message changes nothing.
    fn change_mail(&mut self, message_ids: &[MessageId], sql: &'static str, bind: impl Fn(&mut Args)) -> Result<()> {
        // A set, so that an id that is given twice is changed once.
        for message_id in message_ids.iter().collect::<BTreeSet<_>>() {
            let mut args = Args::default();
            args.id(message_id.0);
            bind(&mut args);
            self.execute(sql, args)?;
        }
        Ok(())
    }

    /// Counts a message that begins to wait in an inbox.
    fn enter_inbox(&mut self, agent_id: &AgentId) -> Result<()> {
        self.batch()?.counters.pending += 1;
        let mut args = Args::default();
        args.text(agent_id.as_str());
        let sql = "INSERT INTO inboxes (agent_id, pending) VALUES (?, 1) \
                   ON CONFLICT (agent_id) DO UPDATE SET pending = pending + 1";
        self.execute(sql, args).map(drop)
    }

    /// Counts a message that waits no longer.
    fn leave_inbox(&mut self, agent_id: &AgentId) -> Result<()> {
        self.batch()?.counters.pending -= 1;
        let mut args = Args::default();
        args.text(agent_id.as_str());
        self.execute("UPDATE inboxes SET pending = pending - 1 WHERE agent_id = ?", args).map(drop)
    }

    /// Reads messages of an inbox. The arguments of the query are the agent and the limit.
    fn inbox(&mut self, sql: &'static str, agent_id: &AgentId, limit: u32) -> Result<Vec<Envelope>> {
        let mut args = Args::default();
        args.text(agent_id.as_str()).int(i64::from(limit));
        self.list(sql, args)
    }
}

impl MessageReads for Session {
    fn message_get(&mut self, message_id: MessageId) -> Result<Option<Envelope>> {
        self.get(&message_id)
    }

    fn message_state(&mut self, message_id: MessageId) -> Result<Option<(MailState, Option<TurnId>, u32)>> {
        let mut args = Args::default();
        args.id(message_id.0);
        let row = self.row("SELECT state, turn_id, crashes FROM messages WHERE message_id = ?", args)?;
        const TABLE: &str = Envelope::TABLE;
        row.map(|row| {
            let turn_id = get_maybe_id(TABLE, &row, 1)?.map(TurnId);
            Ok((get_parsed(TABLE, &row, 0)?, turn_id, get_count(TABLE, &row, 2)?))
        })
        .transpose()
    }

    fn inbox_depth(&mut self, agent_id: &AgentId) -> Result<u32> {
        let mut args = Args::default();
        args.text(agent_id.as_str());
        let row = self.row("SELECT pending FROM inboxes WHERE agent_id = ?", args)?;
        row.map_or(Ok(0), |row| get_count("inboxes", &row, 0))
    }

    fn inbox_depths(&mut self, agent_ids: &[AgentId]) -> Result<Vec<u32>> {
        agent_ids.iter().map(|agent_id| self.inbox_depth(agent_id)).collect()
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
        let sql = concat!(
            "SELECT DISTINCT to_agent FROM messages WHERE state = 'pending' AND wake = 1 AND NOT ",
            not_ready!(),
            " ORDER BY to_agent"
        );
        let rows = self.rows(sql, Args::default())?;
        rows.iter().map(|row| get_parsed(Envelope::TABLE, row, 0)).collect()
    }

    fn inbox_waiting_among(&mut self, agent_ids: &[AgentId]) -> Result<Vec<AgentId>> {
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
        if let Ok(batch) = self.batch() {
            return Ok(u64::try_from(batch.counters.pending).unwrap_or(0));
        }
        let row = self.row("SELECT count(*) FROM messages WHERE state = 'pending'", Args::default())?;
        row.map_or(Ok(0), |row| get_count(Envelope::TABLE, &row, 0))
    }

    fn messages_of_turn(&mut self, turn_id: TurnId) -> Result<Vec<Envelope>> {
        let mut args = Args::default();
        args.id(turn_id.0);
        self.list(concat!("SELECT ", columns!(), " FROM messages WHERE turn_id = ? ORDER BY seq"), args)
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
        self.list(sql, args)
    }
}

impl MessageWrites for Session {
    fn message_append(&mut self, envelope: &Envelope) -> Result<()> {
        let batch = self.batch()?;
        batch.counters.messages += 1;
        let seq = batch.counters.messages;
        self.put(&Envelope { seq, ..envelope.clone() })?;
        if envelope.state == MailState::Pending { self.enter_inbox(&envelope.to) } else { Ok(()) }
    }

    fn message_mark(
        &mut self,
        message_ids: &[MessageId],
        state: MailState,
        turn_id: Option<TurnId>,
        add_crashes: u32,
    ) -> Result<()> {
        // A set, so that an id that is given twice is counted once.
        for message_id in message_ids.iter().collect::<BTreeSet<_>>() {
            let mut args = Args::default();
            args.id(message_id.0);
            let Some(row) = self.row("SELECT to_agent, state FROM messages WHERE message_id = ?", args)? else {
                continue;
            };
            let (to, was): (AgentId, MailState) =
                (get_parsed(Envelope::TABLE, &row, 0)?, get_parsed(Envelope::TABLE, &row, 1)?);
            let mut args = Args::default();
            args.id(message_id.0).text(state.as_str()).maybe_id(turn_id.map(|id| id.0)).int(i64::from(add_crashes));
            // The column is read as a 32-bit number.
            let sql = "UPDATE messages SET state = ?2, turn_id = ?3, crashes = min(crashes + ?4, 4294967295) \
                       WHERE message_id = ?1";
            self.execute(sql, args)?;
            match (was == MailState::Pending, state == MailState::Pending) {
                (true, false) => self.leave_inbox(&to)?,
                (false, true) => self.enter_inbox(&to)?,
                _ => {}
            }
        }
        Ok(())
    }

    fn message_read(&mut self, message_ids: &[MessageId], at: Timestamp) -> Result<()> {
        self.change_mail(message_ids, "UPDATE messages SET read_at = ?2 WHERE message_id = ?1", |args| {
            args.int(at.0);
        })
    }

    fn message_forgive(&mut self, message_ids: &[MessageId]) -> Result<()> {
        self.change_mail(message_ids, "UPDATE messages SET crashes = 0 WHERE message_id = ?1", |_| {})
    }

    fn message_rouse(&mut self, message_ids: &[MessageId]) -> Result<()> {
        self.change_mail(message_ids, "UPDATE messages SET wake = 1 WHERE message_id = ?1", |_| {})
    }
}
