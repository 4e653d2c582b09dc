//! The `turns`, `journal` and `prompts` tables.

use std::time::Duration;

use ghost_domain::journal::{JournalRow, Step};
use ghost_domain::{AgentId, RootId, Timestamp, Turn, TurnId, TurnStatus};

use crate::error::Result;

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

/// Reads of turns.
pub trait TurnReads {
    /// The turn with this id.
    fn turn_get(&mut self, turn_id: TurnId) -> Result<Option<Turn>>;

    /// The open turn that the agent continues: the only one that is not aside, or else the oldest
    /// of the turns that were aside and may continue. A turn is aside if it is parked and its agent
    /// continues with other work ([`Turn::is_in_background`]). Turns of operators are ignored.
    fn turn_open_of(&mut self, agent_id: &AgentId) -> Result<Option<Turn>>;

    /// All open turns, in order of start.
    fn turns_open(&mut self) -> Result<Vec<Turn>>;

    /// Matching turns, newest first.
    fn turn_list(&mut self, filter: &TurnFilter) -> Result<Vec<Turn>>;

    /// The journal of a turn, in order.
    fn journal_of(&mut self, turn_id: TurnId) -> Result<Vec<JournalRow>>;

    /// The text of a prompt part, by its hash.
    fn prompt_get(&mut self, hash: &str) -> Result<Option<String>>;
}

/// Writes of turns.
pub trait TurnWrites {
    /// Inserts or replaces a turn.
    fn turn_put(&mut self, turn: &Turn) -> Result<()>;

    /// Appends a step to a turn's journal.
    fn journal_append(&mut self, turn_id: TurnId, step: &Step, at: Timestamp) -> Result<()>;

    /// Stores a prompt part under its hash. If the part exists, only the time of its last use
    /// changes, with the precision [`PROMPT_USE`].
    fn prompt_put(&mut self, hash: &str, text: &str, at: Timestamp) -> Result<()>;
}
