//! Sessions. A turn belongs to one session: a conversation with someone outside, or the agent's own work. The
//! log of a session is what the agent's ended turns of that session were asked, said and did. A prompt holds the newest
//! part of its own session's log and nothing of another's.
//!
//! This module must never hold the log itself: it is in the journals of the turns.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::ids::{AgentId, ConversationId, TurnId};
use crate::time::Timestamp;

/// The name of the session of an agent's own work. Every other session has the id of its conversation.
pub const OWN_WORK: &str = "own";

/// The name of a session, as tools and commands use it.
pub fn name_of(conversation_id: Option<ConversationId>) -> String {
    conversation_id.map_or_else(|| OWN_WORK.to_owned(), |id| id.to_string())
}

/// The session with this name. `None` if the text names none.
pub fn named(name: &str) -> Option<Option<ConversationId>> {
    if name == OWN_WORK { Some(None) } else { name.parse().ok().map(Some) }
}

/// An ended turn's place in the log of its session. Turns are in the order in which they ended, so that a range of ended
/// turns never changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct LogPlace {
    /// When the turn ended.
    pub ended_at: Timestamp,
    /// Id of the turn.
    pub turn_id: TurnId,
}

impl LogPlace {
    /// The first place at an instant.
    pub fn first_at(at: Timestamp) -> Self {
        Self { ended_at: at, turn_id: TurnId(Uuid::nil()) }
    }

    /// The last place at an instant.
    pub fn last_at(at: Timestamp) -> Self {
        Self { ended_at: at, turn_id: TurnId(Uuid::max()) }
    }

    /// The next place: no turn lies between the two.
    #[must_use]
    pub fn next(self) -> Self {
        match self.turn_id.0.as_u128().checked_add(1) {
            Some(id) => Self { turn_id: TurnId(Uuid::from_u128(id)), ..self },
            None => Self::first_at(Timestamp(self.ended_at.0.saturating_add(1))),
        }
    }
}

/// The first round of a log that prompts hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogStart {
    /// The turn.
    #[serde(flatten)]
    pub place: LogPlace,
    /// The number of the turn's rounds that are left out: the mail is the first round, each answer with its results is
    /// another.
    pub round: u32,
    /// Whether the rest was left out because the log was full. If not, an operator reset the session.
    pub cut: bool,
}

/// The part of a session's log that a prompt holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogRange {
    /// The first round; `None` for the whole log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start: Option<LogStart>,
    /// The last turn.
    pub end: LogPlace,
}

/// Where the log of a session starts. A session without such a record starts at its first turn.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionStart {
    /// The agent.
    pub agent_id: AgentId,
    /// The conversation; `None` for the agent's own work.
    pub conversation_id: Option<ConversationId>,
    /// The first round.
    #[serde(flatten)]
    pub start: LogStart,
    /// The last reset, if the log was cut after it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reset: Option<LogPlace>,
}

impl SessionStart {
    /// The place of the last reset. What the session held up to it is left behind, also for reads of its history. A cut
    /// leaves only prompts.
    pub fn reset_place(&self) -> Option<LogPlace> {
        self.reset.or((!self.start.cut).then_some(self.start.place))
    }

    /// Whether a cut to `start` moves this start onward. A cut of a log that was read before a reset does not.
    pub fn may_move_to(&self, start: &LogStart) -> bool {
        self.start.place < start.place || (self.start.place == start.place && self.start.cut)
    }
}

/// A session in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionSummary {
    /// The conversation; `None` for the agent's own work.
    pub conversation_id: Option<ConversationId>,
    /// Number of its ended turns that are still stored.
    pub turns: u64,
    /// When its last turn ended.
    pub last_at: Timestamp,
}
