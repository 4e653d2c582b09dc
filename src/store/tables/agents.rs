//! The `agents` and `world_meta` tables.

use ghost_domain::{Agent, AgentId};

use crate::error::Result;
use crate::error::StoreError;

/// Key in `world_meta` of the incarnation floor.
const INCARNATION_FLOOR: &str = "incarnation_floor";

/// Reads of agents and of facts about the world. Single reads include tombstones, because the rules
/// need their incarnations.
pub trait AgentReads: Send {
    /// The record of an agent, which may be a tombstone.
    fn agent_get(&mut self, agent_id: &AgentId) -> Result<Option<Agent>>;

    /// All records in order of id. Tombstones are included only if `tombstones` is true.
    fn agent_list(&mut self, tombstones: bool) -> Result<Vec<Agent>>;

    /// Ids of agents without a tombstone, in order, starting at `from` (included), at most `limit`.
    /// Reads no records.
    fn agent_ids(&mut self, from: &str, limit: u32) -> Result<Vec<AgentId>>;

    /// Bytes of storage in use, without free pages; 0 for a backend that stores nothing on disk.
    fn store_bytes(&mut self) -> Result<u64>;

    /// The given ids that belong to agents without a tombstone, in order. Reads no records.
    fn agents_among(&mut self, agent_ids: &[AgentId]) -> Result<Vec<AgentId>>;

    /// Number of dynamic agents, without tombstones.
    fn agent_count_dynamic(&mut self) -> Result<u32>;

    /// A fact about the world, such as its id.
    fn meta_get(&mut self, key: &str) -> Result<Option<String>>;

    /// The highest incarnation among all pruned tombstones; 0 if none was pruned. It never
    /// decreases. One number serves all ids, because a number for each id would keep as many rows
    /// as pruning deletes.
    fn agent_incarnation_floor(&mut self) -> Result<u32> {
        let Some(text) = self.meta_get(INCARNATION_FLOOR)? else { return Ok(0) };
        text.parse().map_err(|error: std::num::ParseIntError| StoreError::Row {
            table: "world_meta",
            key: INCARNATION_FLOOR.to_owned(),
            what: error.to_string(),
        })
    }
}

/// Writes of agents and of facts about the world.
pub trait AgentWrites: AgentReads {
    /// Inserts or replaces the record of an agent.
    fn agent_put(&mut self, agent: &Agent) -> Result<()>;

    /// Inserts the record of an agent whose id is new: no row names it, so it has no mail, no turn and no account. A backend
    /// may then spare the reads that would find that out.
    fn agent_add(&mut self, agent: &Agent) -> Result<()> {
        self.agent_put(agent)
    }

    /// Sets a fact about the world.
    fn meta_put(&mut self, key: &str, value: &str) -> Result<()>;

    /// Raises the incarnation floor to `incarnation` if it is lower. Backends call it when they
    /// prune tombstones.
    fn agent_incarnation_raise(&mut self, incarnation: u32) -> Result<()> {
        if self.agent_incarnation_floor()? < incarnation {
            self.meta_put(INCARNATION_FLOOR, &incarnation.to_string())?;
        }
        Ok(())
    }
}
