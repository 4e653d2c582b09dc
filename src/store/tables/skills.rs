//! The `agent_skills` table: which agent holds which skill.

use ghost_domain::{AgentId, HeldSkill};

use crate::error::Result;

/// Reads of held skills.
pub trait SkillReads {
    /// The skills that an agent holds, in order of name.
    fn skills_held(&mut self, agent_id: &AgentId) -> Result<Vec<HeldSkill>>;
}

/// Writes of held skills.
pub trait SkillWrites {
    /// Inserts or replaces a held skill.
    fn skill_put(&mut self, held: &HeldSkill) -> Result<()>;

    /// Removes a held skill. Returns whether it existed.
    fn skill_remove(&mut self, agent_id: &AgentId, skill: &str) -> Result<bool>;
}
