//! Agents, droids, and what agents hold: skills and write grants. Also facts about the world.

use ghost_domain::{Agent, AgentId, AgentKind, Droid, Grant, GrantId, HeldSkill, Timestamp};

use super::counts::of;
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
    /// Ids of agents without a tombstone, in order, starting at `from` (included), at most `limit`.
    /// Reads no records.
    values agent_ids(from: &str, limit: u32) -> Vec<AgentId>: Agent::TABLE,
        "SELECT agent_id FROM agents WHERE agent_id >= $1 AND deleted_at IS NULL ORDER BY agent_id {limit $2}";
    /// Ids of the agents that take mail, in order: those without a tombstone that are no droids; only those of this
    /// archetype, if given. Only ids after `after`, at most `limit`. Reads no records.
    values agents_with_mail(archetype: Option<&str>, after: &str, limit: u32) -> Vec<AgentId>: Agent::TABLE,
        "SELECT agent_id FROM agents WHERE agent_id > $2 AND deleted_at IS NULL AND kind <> 'droid' \
        AND (CAST($1 AS TEXT) IS NULL OR archetype = $1) ORDER BY agent_id {limit $3}";
    /// Inserts or replaces the record of an agent.
    put_counted agent_put(agent: &Agent) -> (): &agent.agent_id,
        "SELECT 'agents_dynamic' FROM agents WHERE agent_id = $1 AND kind = 'dynamic' AND deleted_at IS NULL",
        (agent.kind == AgentKind::Dynamic && !agent.is_deleted()).then_some(DYNAMIC);
    /// Bytes of storage in use, without free pages; 0 for a backend that stores nothing on disk. In PostgreSQL, the
    /// bytes of the files of the schema, which deleting does not change ([`Tx::frees_space`]).
    number store_bytes() -> u64: "pragma", "SELECT {bytes}";
    /// A fact about the world, such as its id.
    value meta_get(key: &str) -> Option<String>: "world_meta", "SELECT value FROM world_meta WHERE key = $1";
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

    /// The given ids that belong to agents without a tombstone, in order. Reads no records.
    pub fn agents_among(&mut self, agent_ids: &[AgentId]) -> Result<Vec<AgentId>> {
        let sql = sql!("SELECT agent_id FROM agents WHERE deleted_at IS NULL AND agent_id {in $1} ORDER BY agent_id");
        self.rows(sql, args![to_json(Agent::TABLE, "ids", &agent_ids)?], |row| get(Agent::TABLE, row, 0))
    }
}

record! { held: HeldSkill, "agent_skills"; key agent_id: AgentId, skill: String; }

functions! {
    /// The skills that an agent holds, in order of name.
    list skills_held(agent_id: &AgentId) -> Vec<HeldSkill>:
        "SELECT record FROM agent_skills WHERE agent_id = $1 ORDER BY skill";
    /// Inserts or replaces a held skill.
    put skill_put(held: &HeldSkill) -> (): held;
    /// Removes a held skill. Returns whether it existed.
    remove skill_remove(agent_id: &AgentId, skill: &str) -> bool:
        "DELETE FROM agent_skills WHERE agent_id = $1 AND skill = $2";
}

record! { grant: Grant, "acl_grants"; key grant_id: GrantId; agent_id, expires_at }

functions! {
    /// All stored grants in order of id, also those that have ended. Only grants after the id `after`.
    page grant_list(after: Option<GrantId>, limit: u32) -> Vec<Grant>:
        Conditions::new("SELECT record FROM acl_grants")
            .when(after, "grant_id > $1")
            .order("grant_id", list_limit(limit));
    /// The grant with this id, also after its end while it is stored.
    get grant_get(grant_id: GrantId) -> Option<Grant>: &grant_id;
    /// Inserts or replaces a grant.
    put grant_put(grant: &Grant) -> (): grant;
    /// Removes a grant. Returns whether it existed.
    remove grant_remove(grant_id: GrantId) -> bool: "DELETE FROM acl_grants WHERE grant_id = $1";
}

impl Tx {
    /// The grants of an agent that have not ended at `now`, in order of id, at most
    /// [`PAGE_MAX`](super::PAGE_MAX).
    pub fn grants_live(&mut self, agent_id: &AgentId, now: Timestamp) -> Result<Vec<Grant>> {
        let sql = sql!(
            "SELECT record FROM acl_grants{index acl_grants_agent} WHERE agent_id = $1 AND expires_at > $2 \
            ORDER BY grant_id {limit $3}"
        );
        self.list(sql, args![agent_id, now, PAGE_MAX])
    }
}

/// How many droids have not ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LiveDroids {
    /// Those of one parent.
    pub of_parent: u32,
    /// Those of the world.
    pub all: u32,
}

/// The count of droids that have not ended, of the world and of a parent.
const LIVE: &str = "droids_live";

record! { droid: Droid, "droids"; key droid_id: AgentId; parent_id, ended_at }

functions! {
    /// Droids in order of id, also those that have ended: those of `parent`, if it is given. Only droids after the id
    /// `after`.
    page droid_list(parent: Option<&AgentId>, after: Option<&AgentId>, limit: u32) -> Vec<Droid>:
        Conditions::new("SELECT record FROM droids")
            .when(parent, "parent_id = $1")
            .when(after, "droid_id > $1")
            .order("droid_id", list_limit(limit));
    /// The droid with this id.
    get droid_get(droid_id: &AgentId) -> Option<Droid>: droid_id;
    /// Inserts or replaces a droid.
    put_counted droid_put(droid: &Droid) -> (): &droid.droid_id,
        "SELECT 'droids_live/' || parent_id FROM droids WHERE droid_id = $1 AND ended_at IS NULL",
        droid.ended_at.is_none().then(|| of(LIVE, &droid.parent_id)).as_deref();
}

impl Tx {
    /// The droids that have not ended, in order of id, at most [`PAGE_MAX`](super::PAGE_MAX).
    pub fn droids_live(&mut self) -> Result<Vec<Droid>> {
        let sql =
            sql!("SELECT record FROM droids{index droids_live} WHERE ended_at IS NULL ORDER BY droid_id {limit $1}");
        self.list(sql, args![PAGE_MAX])
    }

    /// The number of droids of `parent`, and of the world, that have not ended.
    pub fn droids_live_count(&mut self, parent: &AgentId) -> Result<LiveDroids> {
        Ok(LiveDroids { of_parent: self.counted(&of(LIVE, parent))?, all: self.counted(LIVE)? })
    }
}
