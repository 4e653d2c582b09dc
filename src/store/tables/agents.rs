//! The `agents` and `world_meta` tables.

use async_trait::async_trait;
use ghost_domain::{Agent, AgentId};

use super::Result;

/// Reading agents. Tombstones are included: the rules need their incarnations.
#[async_trait]
pub trait AgentReads {
    /// The record of an agent, tombstone or not.
    async fn agent_get(&mut self, agent_id: &AgentId) -> Result<Option<Agent>>;

    /// All records in order of id, tombstones only if asked for.
    async fn agent_list(&mut self, tombstones: bool) -> Result<Vec<Agent>>;

    /// How many dynamic agents there are, tombstones left out.
    async fn agent_count_dynamic(&mut self) -> Result<u32>;

    /// A fact about the world itself, such as its id.
    async fn meta_get(&mut self, key: &str) -> Result<Option<String>>;
}

/// Writing agents.
#[async_trait]
pub trait AgentWrites {
    /// Inserts or replaces the record of an agent.
    async fn agent_put(&mut self, agent: &Agent) -> Result<()>;

    /// Sets a fact about the world itself.
    async fn meta_put(&mut self, key: &str, value: &str) -> Result<()>;
}
