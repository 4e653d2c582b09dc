//! Rows and queries of sessions and their logs.

use ghost_domain::{AgentId, ConversationId, LogPlace, SessionStart, SessionSummary, Timestamp, Turn};

use super::prelude::*;
use super::turns::conversation_key;

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

/// The conversation in the key of a session. The text is empty for the agent's own work.
fn session_key(conversation_id: Option<ConversationId>) -> String {
    conversation_id.map(|id| id.to_string()).unwrap_or_default()
}

record! {
    session: SessionStart, "sessions";
    key agent_id: AgentId, conversation_id: String = session_key(session.conversation_id);
    ended_at = session.start.place.ended_at
}

pub(super) fn turns(query: &SessionTurns) -> (Statement, Args) {
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
pub(super) const LIST: Sql = sql!(
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
    page session_turns(query: &SessionTurns) -> Vec<Turn>: turns(query);
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
        self.rows(LIST, args![agent_id, since, list_limit(limit), from], summary)
    }
}
