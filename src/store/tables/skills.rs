//! Rows and queries of the skills that agents hold.

use ghost_domain::{AgentId, HeldSkill};

use super::prelude::*;

record! { held: HeldSkill, "agent_skills"; key agent_id: AgentId, skill: String; }

impl Tx {
    /// The skills that an agent holds, in order of name.
    pub fn skills_held(&mut self, agent_id: &AgentId) -> Result<Vec<HeldSkill>> {
        self.list(sql!("SELECT record FROM agent_skills WHERE agent_id = $1 ORDER BY skill"), args![agent_id])
    }

    /// Inserts or replaces a held skill.
    pub fn skill_put(&mut self, held: &HeldSkill) -> Result<()> {
        self.put(held)
    }

    /// Removes a held skill. Returns whether it existed.
    pub fn skill_remove(&mut self, agent_id: &AgentId, skill: &str) -> Result<bool> {
        let sql = sql!("DELETE FROM agent_skills WHERE agent_id = $1 AND skill = $2");
        Ok(self.execute(sql, args![agent_id, skill])? > 0)
    }
}
