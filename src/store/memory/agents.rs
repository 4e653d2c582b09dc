//! Agents and facts about the world, in memory.

use std::collections::BTreeSet;

use ghost_domain::{Agent, AgentId, AgentKind};

use super::session::{Session, bound, count};
use crate::tables::{AgentReads, AgentWrites, Result};

impl AgentReads for Session<'_> {
    fn agent_get(&mut self, agent_id: &AgentId) -> Result<Option<Agent>> {
        Ok(self.tables.agents.get(agent_id).cloned())
    }

    fn agent_list(&mut self, tombstones: bool) -> Result<Vec<Agent>> {
        Ok(self.tables.agents.values().filter(|agent| tombstones || !agent.is_deleted()).cloned().collect())
    }

    fn agent_ids(&mut self, from: &str, limit: u32) -> Result<Vec<AgentId>> {
        let living = self.tables.agents.values().filter(|agent| !agent.is_deleted());
        let ids = living.map(|agent| agent.agent_id.clone()).filter(|agent_id| agent_id.as_str() >= from);
        Ok(ids.take(bound(limit)).collect())
    }

    fn store_bytes(&mut self) -> Result<u64> {
        Ok(0)
    }

    fn agents_among(&mut self, agent_ids: &[AgentId]) -> Result<Vec<AgentId>> {
        let lives = |agent_id: &&AgentId| self.tables.agents.get(*agent_id).is_some_and(|agent| !agent.is_deleted());
        let among: BTreeSet<&AgentId> = agent_ids.iter().filter(lives).collect();
        Ok(among.into_iter().cloned().collect())
    }

    fn agent_count_dynamic(&mut self) -> Result<u32> {
        let dynamic = |agent: &&Agent| agent.kind == AgentKind::Dynamic && !agent.is_deleted();
        Ok(count(self.tables.agents.values().filter(dynamic).count()))
    }

    fn meta_get(&mut self, key: &str) -> Result<Option<String>> {
        Ok(self.tables.meta.get(&key.to_owned()).cloned())
    }
}

impl AgentWrites for Session<'_> {
    fn agent_put(&mut self, agent: &Agent) -> Result<()> {
        self.tables.agents.put(agent.agent_id.clone(), agent.clone());
        Ok(())
    }

    fn meta_put(&mut self, key: &str, value: &str) -> Result<()> {
        self.tables.meta.put(key.to_owned(), value.to_owned());
        Ok(())
    }
}
