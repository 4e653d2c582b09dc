//! Held skills.

use ghost_domain::{AgentId, HeldSkill};

use super::session::Session;
use crate::tables::{Result, SkillReads, SkillWrites};

impl SkillReads for Session<'_> {
    fn skills_held(&mut self, agent_id: &AgentId) -> Result<Vec<HeldSkill>> {
        Ok(self
            .tables
            .skills
            .range((agent_id.clone(), String::new())..)
            .take_while(|((holder, _), _)| holder == agent_id)
            .map(|(_, held)| held.clone())
            .collect())
    }
}

impl SkillWrites for Session<'_> {
    fn skill_put(&mut self, held: &HeldSkill) -> Result<()> {
        self.tables.skills.put((held.agent_id.clone(), held.skill.clone()), held.clone());
        Ok(())
    }

    fn skill_remove(&mut self, agent_id: &AgentId, skill: &str) -> Result<bool> {
        Ok(self.tables.skills.remove(&(agent_id.clone(), skill.to_owned())))
    }
}
