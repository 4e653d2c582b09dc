//! The `agents` and `world_meta` tables.

use async_trait::async_trait;
use ghost_domain::{Agent, AgentId};

use crate::error::Result;
use crate::error::StoreError;

/// Key in `world_meta` of the incarnation floor.
const INCARNATION_FLOOR: &str = "incarnation_floor";

/// Reads of agents and of facts about the world. Single reads include tombstones, because the rules
/// need their incarnations.
#[async_trait]
pub trait AgentReads: Send {
    /// The record of an agent, which may be a tombstone.
    async fn agent_get(&mut self, agent_id: &AgentId) -> Result<Option<Agent>>;

    /// All records in order of id. Tombstones are included only if `tombstones` is true.
    async fn agent_list(&mut self, tombstones: bool) -> Result<Vec<Agent>>;

    /// Ids of agents without a tombstone, in order, starting at `from` (included), at most `limit`.
    /// Reads no records.
    async fn agent_ids(&mut self, from: &str, limit: u32) -> Result<Vec<AgentId>>;

    /// Bytes of storage in use, without free pages; 0 for a backend that stores nothing on disk.
    async fn store_bytes(&mut self) -> Result<u64>;

    /// The given ids that belong to agents without a tombstone, in order. Reads no records.
    async fn agents_among(&mut self, agent_ids: &[AgentId]) -> Result<Vec<AgentId>>;

    /// Number of dynamic agents, without tombstones.
    async fn agent_count_dynamic(&mut self) -> Result<u32>;

    /// A fact about the world, such as its id.
    async fn meta_get(&mut self, key: &str) -> Result<Option<String>>;

    /// The highest incarnation among all pruned tombstones; 0 if none was pruned. It never
    /// decreases. One number serves all ids, because a number for each id would keep as many rows
    /// as pruning deletes.
    async fn agent_incarnation_floor(&mut self) -> Result<u32> {
        let Some(text) = self.meta_get(INCARNATION_FLOOR).await? else { return Ok(0) };
        text.parse().map_err(|error: std::num::ParseIntError| StoreError::Row {
            table: "world_meta",
            key: INCARNATION_FLOOR.to_owned(),
            what: error.to_string(),
        })
    }
}

/// Writes of agents and of facts about the world.
#[async_trait]
pub trait AgentWrites: AgentReads {
    /// Inserts or replaces the record of an agent.
    async fn agent_put(&mut self, agent: &Agent) -> Result<()>;

    /// Inserts the record of an agent whose id is new: no row names it, so it has no mail, no turn and no account. A backend
    /// may then spare the reads that would find that out.
    async fn agent_add(&mut self, agent: &Agent) -> Result<()> {
        self.agent_put(agent).await
    }

    /// Sets a fact about the world.
    async fn meta_put(&mut self, key: &str, value: &str) -> Result<()>;

    /// Raises the incarnation floor to `incarnation` if it is lower. Backends call it when they
    /// prune tombstones.
    async fn agent_incarnation_raise(&mut self, incarnation: u32) -> Result<()> {
        if self.agent_incarnation_floor().await? < incarnation {
            self.meta_put(INCARNATION_FLOOR, &incarnation.to_string()).await?;
        }
        Ok(())
    }
}
