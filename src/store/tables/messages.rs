//! Messages in the durable inboxes, and dead letters.

use std::collections::{BTreeSet, HashMap};

use ghost_domain::{
    AgentId, AskId, ConversationId, DeadLetter, DeadLetterId, DeadLetterStatus, Envelope, HeldSkill, Kind, MailState,
    MessageId, RootId, Timestamp, TurnId,
};

use super::counts::of;
use super::prelude::*;

/// The columns of a message, in the order in which they are read.
macro_rules! columns {
    () => {
        "seq, message_id, to_agent, from_party, kind, subject, body, ask_id, root_id, hop, wake, created_at, state, \
         turn_id, crashes, read_at, attachments, conversation_id"
    };
}

macro_rules! select {
    () => {
        concat!("SELECT ", columns!(), " FROM messages")
    };
}

insert! {
    mail: Envelope, "messages";
    seq, message_id, to_agent = &mail.to, from_party = &mail.from, kind, subject, body,
    attachments = match mail.attachments.is_empty() {
        true => None,
        false => Some(to_json(Self::TABLE, mail.message_id, &mail.attachments)?),
    },
    ask_id, conversation_id = mail.conversation_id.map(|id| id.to_string()), root_id, hop, wake, created_at, state, turn_id,
    crashes, read_at
}

impl Keyed for Envelope {
    type Key = MessageId;
    const SELECT: Sql = sql!(select!(), " WHERE message_id = $1");

    fn bind_key(key: &MessageId, args: &mut Args) {
        args.push(key);
    }

    fn read(row: &ReadRow<'_>) -> Result<Self> {
        const TABLE: &str = Envelope::TABLE;
        let attachments = get::<Option<&str>>(TABLE, row, 16)?.map_or(Ok(Vec::new()), |text| from_json(TABLE, text))?;
        Ok(fields!(TABLE, row, 0, Self {
            seq, message_id, to, from, kind, subject, body, ask_id, root_id, hop, wake, created_at, state, turn_id,
            crashes, read_at; attachments: attachments, conversation_id: conversation(row, 17)?
        }))
    }
}

/// The conversation of a message. The column holds its id as text.
fn conversation(row: &ReadRow<'_>, column: usize) -> Result<Option<ConversationId>> {
    const TABLE: &str = Envelope::TABLE;
    let text: Option<&str> = get(TABLE, row, column)?;
    text.map(|text| text.parse().map_err(|error| unreadable(TABLE, text, error))).transpose()
}

/// Result of [`Tx::inbox_state`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct InboxState {
    /// Mail that is ready ([`Tx::inbox_ready`]). If it is empty, the other fields are not
    /// filled in.
    pub mail: Vec<Envelope>,
    /// Whether the agent's chat channels have unread messages.
    pub unread: bool,
    /// The skills that the agent holds, in order of name.
    pub skills: Vec<HeldSkill>,
}

/// What the end of a turn needs of an envelope that the turn took. The text is not read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TakenMail {
    /// Id of the message.
    pub message_id: MessageId,
    /// Kind of the message.
    pub kind: Kind,
    /// The ask that it carries, if any.
    pub ask_id: Option<AskId>,
    /// The conversation that it belongs to, if any.
    pub conversation_id: Option<ConversationId>,
}

/// SQL condition for messages that are ready; see [`Tx::inbox_ready`]. The inner
/// queries do not depend on the row, so each runs once. The first condition alone decides nearly
/// all messages, and it needs only the index of pending messages, not the rows.
macro_rules! ready {
    () => {
        concat!(
            "NOT (to_agent IN (SELECT agent_id ",
            parked_turns!(),
            ") AND (to_agent, root_id) IN (SELECT agent_id, root_id ",
            parked_turns!(),
            "))"
        )
    };
}

/// Selects the receivers of ready mail that wakes; a further condition begins with AND.
macro_rules! waiting {
    ($($and:literal)?) => {
        sql!(
            "SELECT DISTINCT to_agent FROM messages WHERE state = 'pending' AND wake = 1 ", $($and,)? "AND ", ready!(),
            " ORDER BY to_agent"
        )
    };
}

macro_rules! parked_turns {
    () => {
        "FROM turns{index turns_open} WHERE status = 'open' AND standing IN ('aside', 'ready')"
    };
}

functions! {
    /// The message with this id.
    get message_get(message_id: MessageId) -> Option<Envelope>: &message_id;
    /// Pending mail of an inbox, in order, at most `limit`.
    list inbox_pending(agent_id: &AgentId, limit: u32) -> Vec<Envelope>:
        concat!(select!(), " WHERE state = 'pending' AND to_agent = $1 ORDER BY seq {limit $2}");
    /// Pending mail of an inbox that is ready, in order, at most `limit`. If a turn of the agent is
    /// parked because the budget of its root is spent, further mail of that root is not ready: it
    /// waits for that turn.
    list inbox_ready(agent_id: &AgentId, limit: u32) -> Vec<Envelope>:
        concat!(select!(), " WHERE state = 'pending' AND to_agent = $1 AND ", ready!(), " ORDER BY seq {limit $2}");
    /// Number of pending messages in an inbox.
    number inbox_depth(agent_id: &AgentId) -> u32: "inboxes", "SELECT pending FROM inboxes WHERE agent_id = $1";
    /// The mail that a turn took, in order.
    list messages_of_turn(turn_id: TurnId) -> Vec<Envelope>: concat!(select!(), " WHERE turn_id = $1 ORDER BY seq");
    /// The newest mail of an agent in any state, newest first, at most `limit`. Each half has an index of its own. The
    /// newest rows of both together are the newest of all.
    list messages_recent(agent_id: &AgentId, limit: u32) -> Vec<Envelope>: concat!(
        "SELECT * FROM (", select!(), " WHERE state = 'pending' AND to_agent = $1 ORDER BY seq DESC {limit $2}) ",
        "AS waiting UNION ALL SELECT * FROM (", select!(), " WHERE state <> 'pending' AND to_agent = $1 ",
        "ORDER BY seq DESC {limit $2}) AS past ORDER BY seq DESC {limit $2}"
    );
}

impl Tx {
    /// Runs a change on each message: the statement's first value is the id. An id without a message changes nothing.
    fn change_mail(&mut self, message_ids: &[MessageId], sql: Sql, values: impl Bind + Copy) -> Result<()> {
        // A set, so that an id that is given twice is changed once.
        for message_id in message_ids.iter().collect::<BTreeSet<_>>() {
            let mut args = args![message_id];
            values.bind(&mut args);
            self.execute(sql, args)?;
        }
        Ok(())
    }

    /// Counts a message that begins to wait in an inbox.
    fn enter_inbox(&mut self, agent_id: &AgentId) -> Result<()> {
        self.batch()?.counters.pending += 1;
        let sql = sql!(
            "INSERT INTO inboxes (agent_id, pending) VALUES ($1, 1) \
                   ON CONFLICT (agent_id) DO UPDATE SET pending = inboxes.pending + 1"
        );
        self.execute(sql, args![agent_id]).map(drop)
    }

    /// Counts a message that waits no longer.
    fn leave_inbox(&mut self, agent_id: &AgentId) -> Result<()> {
        self.batch()?.counters.pending -= 1;
        self.execute(sql!("UPDATE inboxes SET pending = pending - 1 WHERE agent_id = $1"), args![agent_id]).map(drop)
    }

    /// Reads ids of receivers.
    fn receivers(&mut self, sql: Sql, args: Args) -> Result<Vec<AgentId>> {
        self.rows(sql, args, |row| get(Envelope::TABLE, row, 0))
    }

    /// The state of a message, its turn, and how often its agent crashed on it.
    pub fn message_state(&mut self, message_id: MessageId) -> Result<Option<(MailState, Option<TurnId>, u32)>> {
        const TABLE: &str = Envelope::TABLE;
        let sql = sql!("SELECT state, turn_id, crashes FROM messages WHERE message_id = $1");
        self.row(sql, args![message_id], |row| Ok((get(TABLE, row, 0)?, get(TABLE, row, 1)?, get(TABLE, row, 2)?)))
    }

    /// Number of pending messages in each of these inboxes, in the given order. A fan-out needs
    /// only one query.
    pub fn inbox_depths(&mut self, agent_ids: &[AgentId]) -> Result<Vec<u32>> {
        let among = to_json("inboxes", "ids", &agent_ids)?;
        let sql = sql!("SELECT agent_id, pending FROM inboxes WHERE agent_id {in $1}");
        let found: Vec<(String, u32)> =
            self.rows(sql, args![among], |row| Ok((get("inboxes", row, 0)?, get("inboxes", row, 1)?)))?;
        let depths: HashMap<_, _> = found.into_iter().collect();
        Ok(agent_ids.iter().map(|agent_id| depths.get(agent_id.as_str()).copied().unwrap_or(0)).collect())
    }

    /// The data that an agent needs to open a turn: its ready mail, as
    /// [`Tx::inbox_ready`] returns it, and the other fields of [`InboxState`]. One query,
    /// because every turn begins with it.
    pub fn inbox_state(&mut self, agent_id: &AgentId, limit: u32) -> Result<InboxState> {
        // The inner queries do not depend on the row, so each runs once.
        let sql = sql!(
            "SELECT ",
            columns!(),
            ", CAST(CASE WHEN EXISTS (SELECT 1 FROM chat_members AS m CROSS JOIN chat_channels AS c WHERE m.agent_id = $1 ",
            "AND c.channel = m.channel AND c.gated = 0 AND c.last_seq > m.read_seq) THEN 1 ELSE 0 END AS BIGINT), ",
            "(SELECT string_agg(record, ',') FROM agent_skills WHERE agent_id = $1) ",
            "FROM messages WHERE state = 'pending' AND to_agent = $1 AND ",
            ready!(),
            " ORDER BY seq {limit $2}"
        );
        let mut state = InboxState::default();
        let mut is_first = true;
        state.mail = self.rows(sql, args![agent_id, limit], |row| {
            if std::mem::take(&mut is_first) {
                state.unread = get(Envelope::TABLE, row, 18)?;
                if let Some(records) = get::<Option<&str>>(Envelope::TABLE, row, 19)? {
                    let read = serde_json::from_str(&format!("[{records}]"));
                    state.skills = read.map_err(|error| unreadable(HeldSkill::TABLE, records, error))?;
                    state.skills.sort_by(|one, other| one.skill.cmp(&other.skill));
                }
            }
            Envelope::read(row)
        })?;
        Ok(state)
    }

    /// Agents with ready mail that wakes, in order of id.
    pub fn inbox_waiting(&mut self) -> Result<Vec<AgentId>> {
        self.receivers(waiting!(), args![])
    }

    /// The given agents that have ready mail that wakes, in order of id. Reads no envelopes.
    pub fn inbox_waiting_among(&mut self, agent_ids: &[AgentId]) -> Result<Vec<AgentId>> {
        let among = to_json(Envelope::TABLE, "inboxes", &agent_ids)?;
        self.receivers(waiting!("AND to_agent {in $1} "), args![among])
    }

    /// Agents with ready mail of this root that wakes, in order of id. Reads no envelopes, so the
    /// size of the mail does not matter.
    pub fn inbox_waiting_of(&mut self, root_id: RootId) -> Result<Vec<AgentId>> {
        self.receivers(waiting!("AND root_id = $1 "), args![root_id])
    }

    /// Number of pending messages in the world.
    pub fn inbox_total(&mut self) -> Result<u64> {
        if let Ok(batch) = self.batch() {
            return Ok(u64::try_from(batch.counters.pending).unwrap_or(0));
        }
        self.count(Envelope::TABLE, sql!("SELECT count(*) FROM messages WHERE state = 'pending'"), args![])
    }

    /// The mail that a turn took and has not consumed, in order.
    pub fn mail_taken(&mut self, turn_id: TurnId) -> Result<Vec<TakenMail>> {
        let sql = sql!(
            "SELECT message_id, kind, ask_id, conversation_id FROM messages WHERE turn_id = $1 AND state = 'taken' \
                   ORDER BY seq"
        );
        self.rows(sql, args![turn_id], |row| {
            let of_mail = conversation(row, 3)?;
            Ok(fields!(Envelope::TABLE, row, 0, TakenMail { message_id, kind, ask_id; conversation_id: of_mail }))
        })
    }

    /// Appends a message to the inbox of its receiver. The store assigns `seq` and ignores the one
    /// in the envelope. Checks nothing.
    pub fn message_append(&mut self, envelope: &Envelope) -> Result<()> {
        let seq = self.next(|counters| &mut counters.messages)?;
        self.put(&Envelope { seq, ..envelope.clone() })?;
        if envelope.state == MailState::Pending { self.enter_inbox(&envelope.to) } else { Ok(()) }
    }

    /// Sets state and turn of messages and adds `add_crashes` to their crash counts. Besides these,
    /// only the wake flag ([`Tx::message_rouse`]) and the time of the last reading
    /// ([`Tx::message_read`]) of an envelope ever change. Ids that do not exist are ignored.
    pub fn message_mark(
        &mut self,
        message_ids: &[MessageId],
        state: MailState,
        turn_id: Option<TurnId>,
        add_crashes: u32,
    ) -> Result<()> {
        // A set, so that an id that is given twice is counted once.
        for message_id in message_ids.iter().collect::<BTreeSet<_>>() {
            let sql = sql!("SELECT to_agent, state FROM messages WHERE message_id = $1");
            let found: Option<(AgentId, MailState)> = self.row(sql, args![message_id], |row| {
                Ok((get(Envelope::TABLE, row, 0)?, get(Envelope::TABLE, row, 1)?))
            })?;
            let Some((to, was)) = found else { continue };
            // The column is read as a 32-bit number.
            let sql = sql!(
                "UPDATE messages SET state = $2, turn_id = $3, crashes = \
                       CASE WHEN crashes + $4 > 4294967295 THEN 4294967295 ELSE crashes + $4 END \
                       WHERE message_id = $1"
            );
            self.execute(sql, args![message_id, state, turn_id, add_crashes])?;
            match (was == MailState::Pending, state == MailState::Pending) {
                (true, false) => self.leave_inbox(&to)?,
                (false, true) => self.enter_inbox(&to)?,
                _ => {}
            }
        }
        Ok(())
    }

    /// Sets the time at which a turn took messages.
    pub fn message_read(&mut self, message_ids: &[MessageId], at: Timestamp) -> Result<()> {
        self.change_mail(message_ids, sql!("UPDATE messages SET read_at = $2 WHERE message_id = $1"), at)
    }

    /// Sets the crash count of messages to 0, for an operator who retries them.
    pub fn message_forgive(&mut self, message_ids: &[MessageId]) -> Result<()> {
        self.change_mail(message_ids, sql!("UPDATE messages SET crashes = 0 WHERE message_id = $1"), ())
    }

    /// Sets the wake flag of quiet messages: either the heartbeat that they waited for was removed,
    /// or they must be tried alone.
    pub fn message_rouse(&mut self, message_ids: &[MessageId]) -> Result<()> {
        self.change_mail(message_ids, sql!("UPDATE messages SET wake = 1 WHERE message_id = $1"), ())
    }
}

/// The count of held dead letters, of the world and of an agent.
pub(super) const HELD: &str = "dead_letters_held";

record! {
    letter: DeadLetter, "dead_letters"; key dead_letter_id: DeadLetterId;
    agent_id, turn_id, status, created_at,
    resolved_at = (letter.status != DeadLetterStatus::Held).then(|| letter.resolved_at.unwrap_or(letter.created_at))
}

/// One page of the list of dead letters, newest first.
pub(super) fn dead_letters(
    agent_id: Option<&AgentId>,
    status: Option<DeadLetterStatus>,
    after: Option<(Timestamp, DeadLetterId)>,
    limit: u32,
) -> (Statement, Args) {
    Conditions::new("SELECT record FROM dead_letters")
        .when(agent_id, "agent_id = $1")
        .when(status, "status = $1")
        .when(after, "(created_at, dead_letter_id) < ($1, $2)")
        .order("created_at DESC, dead_letter_id DESC", list_limit(limit))
}

functions! {
    /// Dead letters, newest first (then by id, highest first); only those of this agent and this
    /// status, if given.
    page dead_letter_list(
        agent_id: Option<&AgentId>, status: Option<DeadLetterStatus>, after: Option<(Timestamp, DeadLetterId)>,
        limit: u32
    ) -> Vec<DeadLetter>: dead_letters(agent_id, status, after, limit);
    /// The dead letter with this id.
    get dead_letter_get(dead_letter_id: DeadLetterId) -> Option<DeadLetter>: &dead_letter_id;
}

impl Tx {
    /// Number of held dead letters; only those of this agent, if given.
    pub fn dead_letter_count_held(&mut self, agent_id: Option<&AgentId>) -> Result<u32> {
        self.counted(&agent_id.map_or(HELD.to_owned(), |agent_id| of(HELD, agent_id)))
    }

    /// Inserts or replaces a dead letter.
    pub fn dead_letter_put(&mut self, dead_letter: &DeadLetter) -> Result<()> {
        let stored = sql!(
            "SELECT 'dead_letters_held/' || agent_id FROM dead_letters WHERE dead_letter_id = $1 AND status = 'held'"
        );
        let count = (dead_letter.status == DeadLetterStatus::Held).then(|| of(HELD, &dead_letter.agent_id));
        self.put_counted(dead_letter, &dead_letter.dead_letter_id, stored, count.as_deref())?;
        let dead_letter_id = dead_letter.dead_letter_id.0;
        self.execute(sql!("DELETE FROM dead_letter_mail WHERE dead_letter_id = $1"), args![dead_letter_id])?;
        for message_id in &dead_letter.messages {
            let sql = sql!(
                "INSERT INTO dead_letter_mail (dead_letter_id, message_id) VALUES ($1, $2) ON CONFLICT DO NOTHING"
            );
            self.execute(sql, args![dead_letter_id, message_id])?;
        }
        Ok(())
    }
}
