//! The logs of sessions: the ended turns of a session, and the `sessions` table, which says where a log starts.

use ghost_domain::{AgentId, ConversationId, LogPlace, SessionStart, SessionSummary, Timestamp, Turn};

use crate::error::Result;

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

/// Reads of sessions.
pub trait SessionReads {
    /// Where the log of a session starts; `None` if at its first turn.
    fn session_start(
        &mut self,
        agent_id: &AgentId,
        conversation_id: Option<ConversationId>,
    ) -> Result<Option<SessionStart>>;

    /// The turns in the log of a session ([`Turn::is_in_log`]), in reverse order of their ends.
    fn session_turns(&mut self, query: &SessionTurns) -> Result<Vec<Turn>>;

    /// The sessions of an agent whose logs have turns opened by mail, at most `limit`.
    /// The one whose last turn ended last is first. Turns that ended before `from` do not count. `since` leaves out
    /// sessions without a turn that ended later.
    fn session_list(
        &mut self,
        agent_id: &AgentId,
        from: Timestamp,
        since: Timestamp,
        limit: u32,
    ) -> Result<Vec<SessionSummary>>;
}

/// Writes of sessions.
pub trait SessionWrites {
    /// Inserts or replaces the start of a session's log.
    fn session_start_put(&mut self, start: &SessionStart) -> Result<()>;
}
