//! Rows and queries of agents, and of facts about the world.

use ghost_domain::{Agent, AgentId, AgentKind};

use super::prelude::*;

/// The columns of an agent that most commands need. They cost a third of its record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentColumns {
    /// Kind of the agent.
    pub kind: AgentKind,
    /// Name of the node that owns it.
    pub node: String,
    /// Fencing epoch of its owner.
    pub epoch: i64,
    /// Whether the row is a tombstone.
    pub deleted: bool,
}

/// Key in `world_meta` of the incarnation floor.
const INCARNATION_FLOOR: &str = "incarnation_floor";

/// The count of dynamic agents, without tombstones.
const DYNAMIC: &str = "agents_dynamic";

record! {
    agent: Agent, "agents"; key agent_id: AgentId;
    kind, archetype, owner, node, epoch, deleted_at
}

functions! {
    /// The record of an agent, which may be a tombstone.
    get agent_get(agent_id: &AgentId) -> Option<Agent>: agent_id;
    /// Records of agents without a tombstone, in order of id: those after the id `after`, at most `limit`.
    list agent_page(after: &str, limit: u32) -> Vec<Agent>:
        "SELECT record FROM agents WHERE agent_id > $1 AND deleted_at IS NULL ORDER BY agent_id {limit $2}";
    /// Number of dynamic agents, without tombstones.
    counted agent_count_dynamic() -> u32: DYNAMIC;
    /// Sets a fact about the world.
    change meta_put(key: &str, value: &str) -> ():
        "INSERT INTO world_meta (key, value) VALUES ($1, $2) ON CONFLICT (key) DO UPDATE SET value = excluded.value";
}

impl Tx {
    /// The highest incarnation among all pruned tombstones; 0 if none was pruned. It never
    /// decreases. One number serves all ids, because a number for each id would keep as many rows
    /// as pruning deletes.
    pub fn agent_incarnation_floor(&mut self) -> Result<u32> {
        let Some(text) = self.meta_get(INCARNATION_FLOOR)? else { return Ok(0) };
        text.parse().map_err(|error: std::num::ParseIntError| StoreError::Row {
            table: "world_meta",
            key: INCARNATION_FLOOR.to_owned(),
            what: error.to_string(),
        })
    }

    /// Raises the incarnation floor to `incarnation` if it is lower. Backends call it when they
    /// prune tombstones.
    pub fn agent_incarnation_raise(&mut self, incarnation: u32) -> Result<()> {
        if self.agent_incarnation_floor()? < incarnation {
            self.meta_put(INCARNATION_FLOOR, &incarnation.to_string())?;
        }
        Ok(())
    }

    /// The columns of an agent, which may be a tombstone. Its record is not read.
    pub fn agent_columns(&mut self, agent_id: &AgentId) -> Result<Option<AgentColumns>> {
        self.row(sql!("SELECT kind, node, epoch, deleted_at FROM agents WHERE agent_id = $1"), args![agent_id], |row| {
            Ok(AgentColumns {
                kind: get(Agent::TABLE, row, 0)?,
                node: get(Agent::TABLE, row, 1)?,
                epoch: get(Agent::TABLE, row, 2)?,
                deleted: get::<Option<i64>>(Agent::TABLE, row, 3)?.is_some(),
            })
        })
    }

    /// All records in order of id. Tombstones are included only if `tombstones` is true.
    pub fn agent_list(&mut self, tombstones: bool) -> Result<Vec<Agent>> {
        let sql = if tombstones {
            sql!("SELECT record FROM agents ORDER BY agent_id")
        } else {
            sql!("SELECT record FROM agents WHERE deleted_at IS NULL ORDER BY agent_id")
        };
        self.list(sql, args![])
    }

    /// Ids of agents without a tombstone, in order, starting at `from` (included), at most `limit`.
    /// Reads no records.
    pub fn agent_ids(&mut self, from: &str, limit: u32) -> Result<Vec<AgentId>> {
        let sql = sql!(
            "SELECT agent_id FROM agents WHERE agent_id >= $1 AND deleted_at IS NULL ORDER BY agent_id {limit $2}"
        );
        self.rows(sql, args![from, limit], |row| get(Agent::TABLE, row, 0))
    }

    /// Ids of the agents that take mail, in order: those without a tombstone that are no droids; only those of this
    /// archetype, if given. Only ids after `after`, at most `limit`. Reads no records.
    pub fn agents_with_mail(&mut self, archetype: Option<&str>, after: &str, limit: u32) -> Result<Vec<AgentId>> {
        let sql = sql!(
            "SELECT agent_id FROM agents WHERE agent_id > $2 AND deleted_at IS NULL AND kind <> 'droid' \
            AND (CAST($1 AS TEXT) IS NULL OR archetype = $1) ORDER BY agent_id {limit $3}"
        );
        self.rows(sql, args![archetype, after, limit], |row| get(Agent::TABLE, row, 0))
    }

    /// Bytes of storage in use, without free pages; 0 for a backend that stores nothing on disk. In PostgreSQL, the
    /// bytes of the files of the schema, which deleting does not change ([`Tx::frees_space`]).
    pub fn store_bytes(&mut self) -> Result<u64> {
        self.count("pragma", sql!("SELECT {bytes}"), args![])
    }

    /// The given ids that belong to agents without a tombstone, in order. Reads no records.
    pub fn agents_among(&mut self, agent_ids: &[AgentId]) -> Result<Vec<AgentId>> {
        let sql = sql!("SELECT agent_id FROM agents WHERE deleted_at IS NULL AND agent_id {in $1} ORDER BY agent_id");
        self.rows(sql, args![to_json(Agent::TABLE, "ids", &agent_ids)?], |row| get(Agent::TABLE, row, 0))
    }

    /// A fact about the world, such as its id.
    pub fn meta_get(&mut self, key: &str) -> Result<Option<String>> {
        self.row(sql!("SELECT value FROM world_meta WHERE key = $1"), args![key], |row| get("world_meta", row, 0))
    }

    /// Inserts or replaces the record of an agent.
    pub fn agent_put(&mut self, agent: &Agent) -> Result<()> {
        let count = (agent.kind == AgentKind::Dynamic && !agent.is_deleted()).then_some(DYNAMIC);
        let stored =
            sql!("SELECT 'agents_dynamic' FROM agents WHERE agent_id = $1 AND kind = 'dynamic' AND deleted_at IS NULL");
        self.put_counted(agent, &agent.agent_id, stored, count)
    }
}
