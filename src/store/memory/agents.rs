//! Agents and facts about the world.

use async_trait::async_trait;
use ghost_domain::{Agent, AgentId, AgentKind};

use super::session::{Session, count};
use crate::tables::{AgentReads, AgentWrites, Result};

#[async_trait]
impl AgentReads for Session<'_> {
    async fn agent_get(&mut self, agent_id: &AgentId) -> Result<Option<Agent>> {
        Ok(self.tables.agents.get(agent_id).cloned())
    }

    async fn agent_list(&mut self, tombstones: bool) -> Result<Vec<Agent>> {
        Ok(self.tables.agents.values().filter(|agent| tombstones || !agent.is_deleted()).cloned().collect())
    }

    async fn agent_count_dynamic(&mut self) -> Result<u32> {
        let dynamic = |agent: &&Agent| agent.kind == AgentKind::Dynamic && !agent.is_deleted();
        Ok(count(self.tables.agents.values().filter(dynamic).count()))
    }

    async fn meta_get(&mut self, key: &str) -> Result<Option<String>> {
        Ok(self.tables.meta.get(&key.to_owned()).cloned())
    }
}

#[async_trait]
impl AgentWrites for Session<'_> {
    async fn agent_put(&mut self, agent: &Agent) -> Result<()> {
        self.tables.agents.put(agent.agent_id.clone(), agent.clone());
        Ok(())
    }

    async fn meta_put(&mut self, key: &str, value: &str) -> Result<()> {
        self.tables.meta.put(key.to_owned(), value.to_owned());
        Ok(())
    }
}
