//! The `turns`, `journal` and `prompts` tables.

use std::time::Duration;

use async_trait::async_trait;
use ghost_domain::journal::{JournalRow, Step};
use ghost_domain::{AgentId, RootId, Timestamp, Turn, TurnId, TurnStatus};

use crate::error::Result;

/// Which turns a list wants; `None` is any.
#[derive(Clone, Debug, Default)]
pub struct TurnFilter {
    /// Whose.
    pub agent_id: Option<AgentId>,
    /// How far.
    pub status: Option<TurnStatus>,
    /// Only open turns that are parked, or only others.
    pub parked: Option<bool>,
    /// Which root they are charged to, or took mail of.
    pub root_id: Option<RootId>,
    /// What opened it; see [`Turn::source`].
    pub source: Option<&'static str>,
    /// Started before this.
    pub before: Option<Timestamp>,
    /// What comes behind this turn in the order of the list, whether or not it is still there: older, or as old with a lower
    /// id. For paging.
    pub after: Option<(Timestamp, TurnId)>,
    /// At most this many; 0 means 100; never more than 1,000.
    pub limit: u32,
}

/// How exactly the time of a prompt part's last use is kept.
pub const PROMPT_USE: Duration = Duration::from_secs(86_400);

/// Reading turns.
#[async_trait]
pub trait TurnReads {
    /// One turn.
    async fn turn_get(&mut self, turn_id: TurnId) -> Result<Option<Turn>>;

    /// The open turn that an agent goes on with: its own, which no operator's is, and not one that is parked aside. There is
    /// never more than one; without it, the oldest of those that were aside and may go on.
    async fn turn_open_of(&mut self, agent_id: &AgentId) -> Result<Option<Turn>>;

    /// All open turns, in order of start.
    async fn turns_open(&mut self) -> Result<Vec<Turn>>;

    /// Turns, newest first.
    async fn turn_list(&mut self, filter: &TurnFilter) -> Result<Vec<Turn>>;

    /// The journal of a turn, in order.
    async fn journal_of(&mut self, turn_id: TurnId) -> Result<Vec<JournalRow>>;

    /// A prompt part by its hash.
    async fn prompt_get(&mut self, hash: &str) -> Result<Option<String>>;
}

/// Writing turns.
#[async_trait]
pub trait TurnWrites {
    /// Inserts or replaces a turn.
    async fn turn_put(&mut self, turn: &Turn) -> Result<()>;

    /// Appends a step to a turn's journal.
    async fn journal_append(&mut self, turn_id: TurnId, step: &Step, at: Timestamp) -> Result<()>;

    /// Keeps a prompt part under its hash. If it is there, only the time of its last use is kept, to [`PROMPT_USE`].
    async fn prompt_put(&mut self, hash: &str, text: &str, at: Timestamp) -> Result<()>;
}
