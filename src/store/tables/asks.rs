//! The `asks` table.

use async_trait::async_trait;
use ghost_domain::{AgentId, Ask, AskId, TurnId};

use crate::error::Result;

/// Reads of asks.
#[async_trait]
pub trait AskReads {
    /// The ask with this id.
    async fn ask_get(&mut self, ask_id: AskId) -> Result<Option<Ask>>;

    /// All open asks, in order of creation.
    async fn asks_open(&mut self) -> Result<Vec<Ask>>;

    /// Number of open asks.
    async fn ask_count_open(&mut self) -> Result<u32>;

    /// Open asks that this agent must answer.
    async fn asks_open_to(&mut self, target: &AgentId) -> Result<Vec<Ask>>;

    /// Open asks that this turn waits for.
    async fn asks_open_of_turn(&mut self, turn_id: TurnId) -> Result<Vec<Ask>>;
}

/// Writes of asks.
#[async_trait]
pub trait AskWrites {
    /// Inserts or replaces an ask.
    async fn ask_put(&mut self, ask: &Ask) -> Result<()>;
}
