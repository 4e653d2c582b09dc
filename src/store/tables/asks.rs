//! The `asks` table.

use ghost_domain::{AgentId, Ask, AskId, TurnId};

use crate::error::Result;

/// Reads of asks.
pub trait AskReads {
    /// The ask with this id.
    fn ask_get(&mut self, ask_id: AskId) -> Result<Option<Ask>>;

    /// All open asks, in order of creation.
    fn asks_open(&mut self) -> Result<Vec<Ask>>;

    /// Number of open asks.
    fn ask_count_open(&mut self) -> Result<u32>;

    /// Open asks that this agent must answer.
    fn asks_open_to(&mut self, target: &AgentId) -> Result<Vec<Ask>>;

    /// Open asks that this turn waits for.
    fn asks_open_of_turn(&mut self, turn_id: TurnId) -> Result<Vec<Ask>>;
}

/// Writes of asks.
pub trait AskWrites {
    /// Inserts or replaces an ask.
    fn ask_put(&mut self, ask: &Ask) -> Result<()>;
}
