//! Turns, their journals, prompt parts, and sessions with their logs.

use std::time::Duration;

use ghost_domain::journal::{JournalRow, Step};
use ghost_domain::turn::WaitMode;
use ghost_domain::{
    AgentId, ConversationId, LogPlace, RootId, SessionStart, SessionSummary, Timestamp, Turn, TurnId, TurnStatus,
};

use super::prelude::*;

/// Which turns a list contains. `None` means any.
#[derive(Clone, Debug, Default)]
pub struct TurnFilter {
    /// Agent of the turn.
    pub agent_id: Option<AgentId>,
    /// Status of the turn.
    pub status: Option<TurnStatus>,
    /// `true`: only open turns that are parked. `false`: only turns that are not parked.
    pub parked: Option<bool>,
    /// Only turns that are charged to this root or took mail of it.
    pub root_id: Option<RootId>,
    /// Started before this.
    pub before: Option<Timestamp>,
    /// Only turns after this start time and id: older ones, or equally old ones with a lower id.
    pub after: Option<(Timestamp, TurnId)>,
    /// At most this many turns.
    pub limit: u32,
}

/// Precision of the stored time of a prompt part's last use.
pub const PROMPT_USE: Duration = Duration::from_secs(86_400);

insert! {
    turn: Turn, "turns", "ON CONFLICT (turn_id) DO NOTHING";
    turn_id, agent_id, source, started_at, conversation_id = conversation_key(turn.conversation_id), root_id,
    other_roots = other_roots(turn), status, ended_at = ended_at(turn), in_log = turn.is_in_log(),
    standing = standing(turn), log_from, record = to_json(Self::TABLE, turn.turn_id, turn)?
}

/// When a turn ended; `None` while it is open.
fn ended_at(turn: &Turn) -> Option<Timestamp> {
    (turn.status != TurnStatus::Open).then(|| turn.ended_at.unwrap_or(turn.started_at))
}

/// How a parked turn waits, in the words of its record.
fn standing(turn: &Turn) -> Option<&'static str> {
    turn.parked.as_ref().map(|parked| match parked.wait_mode {
        WaitMode::Blocking => "in_line",
        WaitMode::Background => "aside",
        WaitMode::Ready => "ready",
    })
}

/// The conversation of a turn, as a key. It is empty for the agent's own work.
fn conversation_key(conversation_id: Option<ConversationId>) -> Vec<u8> {
    conversation_id.map(|id| id.0.as_bytes().to_vec()).unwrap_or_default()
}

/// The other roots of a turn, 16 bytes each.
fn other_roots(turn: &Turn) -> Vec<u8> {
    turn.other_roots.iter().flat_map(|root_id| root_id.0.into_bytes()).collect()
}

/// Takes turns out of the lists of their roots.
pub(super) const ROOTS_OUT: Sql = sql!(
    "DELETE FROM turn_roots WHERE (root_id, turn_id) IN (WITH RECURSIVE parts (turn_id, root_id, rest) AS (\
     SELECT turn_id, root_id, other_roots FROM turns WHERE turn_id {ids $1} UNION ALL \
     SELECT turn_id, substr(rest, 1, 16), substr(rest, 17) FROM parts WHERE length(rest) > 0) \
     SELECT root_id, turn_id FROM parts)"
);
pub(super) const TURN_OUT: Sql = sql!("DELETE FROM turns WHERE turn_id {ids $1}");

impl Keyed for Turn {
    type Key = TurnId;
    const SELECT: Sql = sql!("SELECT record FROM turns WHERE turn_id = $1");

    fn bind_key(key: &TurnId, args: &mut Args) {
        args.push(key);
    }

    fn read(row: &ReadRow<'_>) -> Result<Self> {
        from_record(Self::TABLE, row)
    }
}

/// The table of steps, for error messages.
const JOURNAL: &str = "journal";

/// The JSON record of a step, with its hashes emptied: they have columns of their own.
fn without_hashes(mut step: String, system: Option<&str>, briefing: Option<&str>) -> String {
    for (field, hash) in [("system", system), ("briefing", briefing)] {
        let Some(hash) = hash else { continue };
        let json_field = format!("\"{field}\":\"{hash}\"");
        if let Some(position) = step.find(&json_field) {
            step.replace_range(position..position + json_field.len(), &format!("\"{field}\":\"\""));
        }
    }
    step
}

/// Decodes a step and fills in its hashes. Older records still contain the hashes.
fn step_of(row: &ReadRow<'_>) -> Result<Step> {
    let mut step: Step = from_record(JOURNAL, row)?;
    if let Step::Briefed { system, briefing, .. } = &mut step {
        for (hash, column) in [(system, 4), (briefing, 5)] {
            if hash.is_empty() {
                *hash = get::<Option<String>>(JOURNAL, row, column)?.unwrap_or_default();
            }
        }
    }
    Ok(step)
}

/// The SQL condition for a status. The status is a literal, and the condition of the partial index
/// is repeated: SQLite uses a partial index only if the query states its condition. With a bound
/// status it would also plan the query anew for each value.
fn with_status(status: TurnStatus) -> &'static str {
    match status {
        TurnStatus::Open => "status = 'open'",
        TurnStatus::Finished => "status = 'finished' AND status <> 'open'",
        TurnStatus::Failed => "status = 'failed' AND status <> 'open' AND status <> 'finished'",
        TurnStatus::TimedOut => "status = 'timed_out' AND status <> 'open' AND status <> 'finished'",
        TurnStatus::Cancelled => "status = 'cancelled' AND status <> 'open' AND status <> 'finished'",
        TurnStatus::Split => "status = 'split' AND status <> 'open' AND status <> 'finished'",
        TurnStatus::Dead => "status = 'dead' AND status <> 'open' AND status <> 'finished'",
    }
}

/// The query and index for a list, such that no unwanted turn is read. The index is named, because
/// SQLite does not know how many turns an agent has had or how few have failed.
fn list_source(filter: &TurnFilter) -> &'static str {
    match (&filter.agent_id, filter.status) {
        // A root has few turns (`limits.root_turns_max`), so sorting them is cheap.
        _ if filter.root_id.is_some() => "SELECT record FROM turn_roots CROSS JOIN turns",
        (_, Some(TurnStatus::Open)) => "SELECT record FROM turns{index turns_open}",
        // Only open turns are parked.
        _ if filter.parked == Some(true) => "SELECT record FROM turns{index turns_open}",
        // Most turns finish, so few others lie between them.
        (Some(_), None | Some(TurnStatus::Finished)) => "SELECT record FROM turns{index turns_agent}",
        (Some(_), Some(_)) => "SELECT record FROM turns{index turns_unfinished}",
        (None, Some(_)) => "SELECT record FROM turns{index turns_status}",
        (None, None) => "SELECT record FROM turns{index turns_started}",
    }
}

/// The query for a list, newest first.
pub(super) fn list(filter: &TurnFilter) -> (Statement, Args) {
    Conditions::new(list_source(filter))
        .when(filter.root_id, "turns.turn_id = turn_roots.turn_id AND turn_roots.root_id = $1")
        .when(filter.agent_id.as_ref(), "agent_id = $1")
        .and(filter.status.map(with_status))
        .and(filter.parked.map(with_parked))
        .when(filter.before, "started_at < $1")
        .when(filter.after, "(started_at, turns.turn_id) < ($1, $2)")
        .order("started_at DESC, turns.turn_id DESC", list_limit(filter.limit))
}

/// The SQL condition for parked turns. Only open turns are parked, and there are few.
fn with_parked(parked: bool) -> &'static str {
    match parked {
        true => "status = 'open' AND standing IS NOT NULL",
        false => "standing IS NULL",
    }
}

functions! {
    /// Matching turns, newest first.
    page turn_list(filter: &TurnFilter) -> Vec<Turn>: list(filter);
    /// The turn with this id.
    get turn_get(turn_id: TurnId) -> Option<Turn>: &turn_id;
    /// The text of a prompt part, by its hash.
    value prompt_get(hash: &str) -> Option<String>: "prompts", "SELECT text FROM prompts WHERE hash = $1";
    /// All open turns, in order of start. The index is named, because SQLite would rather read all turns in order than
    /// sort the few open ones. The same holds for the open turns of one agent.
    list turns_open() -> Vec<Turn>:
        "SELECT record FROM turns{index turns_open} WHERE status = 'open' ORDER BY started_at, turn_id";
    /// All open turns of an agent, also those of operators, in order of start.
    list turns_open_of(agent_id: &AgentId) -> Vec<Turn>:
        "SELECT record FROM turns{index turns_open} WHERE status = 'open' AND agent_id = $1 \
        ORDER BY started_at, turn_id";
}

impl Tx {
    /// The open turn that the agent continues: the only one that is not aside, or else the oldest
    /// of the turns that were aside and may continue. A turn is aside if it is parked and its agent
    /// continues with other work ([`Turn::is_in_background`]). Turns of operators are ignored.
    pub fn turn_open_of(&mut self, agent_id: &AgentId) -> Result<Option<Turn>> {
        let sql = sql!(
            "SELECT record FROM turns{index turns_open} WHERE status = 'open' AND agent_id = $1 \
                   AND source <> 'operator' ORDER BY started_at, turn_id"
        );
        let mut open: Vec<Turn> = self.list(sql, args![agent_id])?;
        let index =
            open.iter().position(|turn| !turn.is_in_background()).or_else(|| open.iter().position(Turn::is_ready));
        Ok(index.map(|index| open.swap_remove(index)))
    }

    /// The journal of a turn, in order.
    pub fn journal_of(&mut self, turn_id: TurnId) -> Result<Vec<JournalRow>> {
        let sql = sql!(
            "SELECT step, seq, turn_id, at, system_hash, briefing_hash FROM journal WHERE turn_id = $1 ORDER BY seq"
        );
        self.rows(sql, args![turn_id], |row| {
            Ok(fields!(JOURNAL, row, 1, JournalRow { seq, turn_id, at; step: step_of(row)? }))
        })
    }

    /// Inserts or replaces a turn.
    pub fn turn_put(&mut self, turn: &Turn) -> Result<()> {
        if self.turn_change(turn)? {
            return Ok(());
        }
        if !self.turn_insert(turn)? {
            // Its roots have changed, or it is open again.
            let ids = to_json(Turn::TABLE, turn.turn_id, &[turn.turn_id.0.simple()])?;
            for sql in [ROOTS_OUT, TURN_OUT] {
                self.execute(sql, args![&ids])?;
            }
            self.turn_insert(turn)?;
        }
        for root_id in std::iter::once(&turn.root_id).chain(&turn.other_roots) {
            let sql = sql!("INSERT INTO turn_roots (root_id, turn_id) VALUES ($1, $2) ON CONFLICT DO NOTHING");
            self.execute(sql, args![root_id, turn.turn_id])?;
        }
        Ok(())
    }

    /// Changes a turn whose roots stay, which is nearly every write. Returns whether there was one to change.
    fn turn_change(&mut self, turn: &Turn) -> Result<bool> {
        let record = to_json(Turn::TABLE, turn.turn_id, turn)?;
        let mut args = args![turn.turn_id, turn.root_id, other_roots(turn), record, standing(turn), turn.log_from];
        // A turn that was open and stays so changes no indexed column.
        let mut sql = sql!(
            "UPDATE turns SET record = $4, standing = $5, log_from = $6 \
             WHERE turn_id = $1 AND status = 'open' AND root_id = $2 AND other_roots = $3"
        );
        if turn.status != TurnStatus::Open {
            (turn.status, ended_at(turn), turn.is_in_log()).bind(&mut args);
            sql = sql!(
                "UPDATE turns SET record = $4, standing = $5, log_from = $6, status = $7, ended_at = $8, in_log = $9 \
                 WHERE turn_id = $1 AND root_id = $2 AND other_roots = $3"
            );
        }
        Ok(self.execute(sql, args)? > 0)
    }

    /// Inserts a turn. Returns whether it was not there.
    fn turn_insert(&mut self, turn: &Turn) -> Result<bool> {
        let mut args = args![];
        turn.bind(&mut args)?;
        Ok(self.execute(Turn::WRITE, args)? > 0)
    }

    /// Appends a step to a turn's journal.
    pub fn journal_append(&mut self, turn_id: TurnId, step: &Step, at: Timestamp) -> Result<()> {
        let seq = self.next(|counters| &mut counters.journal)?;
        let (system, briefing) = match step {
            Step::Briefed { system, briefing, .. } => (Some(system.as_str()), Some(briefing.as_str())),
            _ => (None, None),
        };
        let record = without_hashes(to_json(JOURNAL, seq, step)?, system, briefing);
        let sql = sql!(
            "INSERT INTO journal (seq, turn_id, at, step, system_hash, briefing_hash) VALUES ($1, $2, $3, $4, $5, $6)"
        );
        self.execute(sql, args![seq, turn_id, at, record, system, briefing]).map(drop)
    }

    /// Stores a prompt part under its hash. If the part exists, only the time of its last use
    /// changes, with the precision [`PROMPT_USE`].
    pub fn prompt_put(&mut self, hash: &str, text: &str, at: Timestamp) -> Result<()> {
        // A text has tens of kilobytes, and most are there already.
        let sql = sql!("SELECT at FROM prompts WHERE hash = $1");
        let used: Option<Timestamp> = self.row(sql, args![hash], |row| get("prompts", row, 0))?;
        if used.is_some_and(|used| at < used.plus(PROMPT_USE)) {
            return Ok(());
        }
        let sql = sql!(
            "INSERT INTO prompts (hash, text, at) VALUES ($1, $2, $3) ON CONFLICT (hash) DO UPDATE SET at = excluded.at \
            WHERE excluded.at >= prompts.at + 86400000"
        );
        self.execute(sql, args![hash, text, at]).map(drop)
    }
}

/// Which ended turns of a session a list contains.
#[derive(Clone, Debug)]
pub struct SessionTurns {
    /// The agent.
    pub agent_id: AgentId,
    /// The conversation; `None` for the agent's own work.
    pub conversation_id: Option<ConversationId>,
    /// The source of the turns; see [`Turn::source`].
    pub source: &'static str,
    /// Only this turn and later ones.
    pub from: Option<LogPlace>,
    /// Only turns before this place.
    pub before: Option<LogPlace>,
    /// At most this many turns.
    pub limit: u32,
}

impl SessionTurns {
    /// The newest turns of a session, at most `limit`.
    #[must_use]
    pub fn newest(
        agent_id: &AgentId,
        conversation_id: Option<ConversationId>,
        source: &'static str,
        limit: u32,
    ) -> Self {
        Self { agent_id: agent_id.clone(), conversation_id, source, from: None, before: None, limit }
    }
}

/// The conversation in the key of a session. The text is empty for the agent's own work.
fn session_key(conversation_id: Option<ConversationId>) -> String {
    conversation_id.map(|id| id.to_string()).unwrap_or_default()
}

record! {
    session: SessionStart, "sessions";
    key agent_id: AgentId, conversation_id: String = session_key(session.conversation_id);
    ended_at = session.start.place.ended_at
}

pub(super) fn log(query: &SessionTurns) -> (Statement, Args) {
    let place = |place: LogPlace| (place.ended_at, place.turn_id);
    Conditions::new("SELECT record FROM turns{index turns_session}")
        .when(Some(&query.agent_id), "in_log = 1 AND agent_id = $1")
        .when(Some(query.source), "source = $1")
        .when(Some(conversation_key(query.conversation_id)), "conversation_id = $1")
        .when(query.from.map(place), "(ended_at, turn_id) >= ($1, $2)")
        .when(query.before.map(place), "(ended_at, turn_id) < ($1, $2)")
        .order("ended_at DESC, turn_id DESC", list_limit(query.limit))
}

/// The turns in the logs of an agent that mail opened.
macro_rules! logged {
    () => {
        "FROM turns{index turns_session} WHERE in_log = 1 AND agent_id = $1 AND source = 'mail'"
    };
}

/// The sessions of an agent. The recursive part jumps from one session to the next in the index.
pub(super) const SESSIONS: Sql = sql!(
    "WITH RECURSIVE names (name) AS (SELECT (SELECT conversation_id ",
    logged!(),
    " ORDER BY conversation_id LIMIT 1) UNION ALL SELECT (SELECT conversation_id ",
    logged!(),
    " AND conversation_id > names.name ORDER BY conversation_id LIMIT 1) FROM names WHERE names.name IS NOT NULL), ",
    "ends (name, last_at) AS (SELECT name, (SELECT max(ended_at) ",
    logged!(),
    " AND conversation_id = names.name) FROM names WHERE name IS NOT NULL) ",
    "SELECT name, last_at, (SELECT count(*) ",
    logged!(),
    " AND conversation_id = top.name AND ended_at >= $4) FROM (SELECT name, last_at FROM ends ",
    "WHERE last_at > $2 AND last_at >= $4 ORDER BY last_at DESC, name {limit $3}) AS top ORDER BY last_at DESC, name"
);

fn summary(row: &ReadRow<'_>) -> Result<SessionSummary> {
    let name: &[u8] = get(SessionStart::TABLE, row, 0)?;
    let conversation_id = match name {
        [] => None,
        _ => Some(get(SessionStart::TABLE, row, 0)?),
    };
    let (last_at, turns) = (get(SessionStart::TABLE, row, 1)?, get(SessionStart::TABLE, row, 2)?);
    Ok(SessionSummary { conversation_id, turns, last_at })
}

functions! {
    /// Where the log of a session starts; `None` if at its first turn.
    get session_start(agent_id: &AgentId, conversation_id: Option<ConversationId>) -> Option<SessionStart>:
        &(agent_id.clone(), session_key(conversation_id));
    /// The turns in the log of a session ([`Turn::is_in_log`]), in reverse order of their ends.
    page session_turns(query: &SessionTurns) -> Vec<Turn>: log(query);
    /// Inserts or replaces the start of a session's log.
    put session_start_put(start: &SessionStart) -> (): start;
}

impl Tx {
    /// The sessions of an agent whose logs have turns opened by mail, at most `limit`.
    /// The one whose last turn ended last is first. Turns that ended before `from` do not count. `since` leaves out
    /// sessions without a turn that ended later.
    pub fn session_list(
        &mut self,
        agent_id: &AgentId,
        from: Timestamp,
        since: Timestamp,
        limit: u32,
    ) -> Result<Vec<SessionSummary>> {
        self.rows(SESSIONS, args![agent_id, since, list_limit(limit), from], summary)
    }
}
