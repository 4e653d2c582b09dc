//! The `agent_skills` table.

use async_trait::async_trait;
use ghost_domain::{AgentId, HeldSkill};

use crate::error::Result;

/// Reading held skills.
#[async_trait]
pub trait SkillReads {
    /// The skills that an agent holds, in order of name.
    async fn skills_held(&mut self, agent_id: &AgentId) -> Result<Vec<HeldSkill>>;
}

/// Writing held skills.
#[async_trait]
pub trait SkillWrites {
    /// Inserts or replaces a hold.
    async fn skill_put(&mut self, held: &HeldSkill) -> Result<()>;

    /// Ends a hold. Says whether there was one.
    async fn skill_remove(&mut self, agent_id: &AgentId, skill: &str) -> Result<bool>;
}
