//! The `agents` and `world_meta` tables.

use async_trait::async_trait;
use ghost_domain::{Agent, AgentId};

use crate::error::Result;
use crate::error::StoreError;

/// The fact under which the floor of incarnations is kept.
const FLOOR: &str = "incarnation_floor";

/// Reading agents. Tombstones are included: the rules need their incarnations.
#[async_trait]
pub trait AgentReads: Send {
    /// The record of an agent, tombstone or not.
    async fn agent_get(&mut self, agent_id: &AgentId) -> Result<Option<Agent>>;

    /// All records in order of id, tombstones only if asked for.
    async fn agent_list(&mut self, tombstones: bool) -> Result<Vec<Agent>>;

    /// Ids of agents without a tombstone, in order, from `from` on, at most `limit`. No record is read out.
    async fn agent_ids(&mut self, from: &str, limit: u32) -> Result<Vec<AgentId>>;

    /// Bytes of storage in use, without what is free to be used again; 0 if nothing is stored on a disk.
    async fn store_bytes(&mut self) -> Result<u64>;

    /// Those among these ids that are agents without a tombstone, in order. No record is read out.
    async fn agents_among(&mut self, agent_ids: &[AgentId]) -> Result<Vec<AgentId>>;

    /// How many dynamic agents there are, tombstones left out.
    async fn agent_count_dynamic(&mut self) -> Result<u32>;

    /// A fact about the world itself, such as its id.
    async fn meta_get(&mut self, key: &str) -> Result<Option<String>>;

    /// The highest incarnation among the tombstones that were pruned; 0 if none was. It never falls. One number stands
    /// for all ids, because one for each would keep as many rows as pruning takes away.
    async fn agent_incarnation_floor(&mut self) -> Result<u32> {
        let Some(text) = self.meta_get(FLOOR).await? else { return Ok(0) };
        text.parse().map_err(|error: std::num::ParseIntError| StoreError::Row {
            table: "world_meta",
            key: FLOOR.to_owned(),
            what: error.to_string(),
        })
    }
}

/// Writing agents.
#[async_trait]
pub trait AgentWrites: AgentReads {
    /// Inserts or replaces the record of an agent.
    async fn agent_put(&mut self, agent: &Agent) -> Result<()>;

    /// Sets a fact about the world itself.
    async fn meta_put(&mut self, key: &str, value: &str) -> Result<()>;

    /// Raises the floor of incarnations to `incarnation`, if it is lower. For backends, when they prune tombstones.
    async fn agent_incarnation_raise(&mut self, incarnation: u32) -> Result<()> {
        if self.agent_incarnation_floor().await? < incarnation {
            self.meta_put(FLOOR, &incarnation.to_string()).await?;
        }
        Ok(())
    }
}
