//! Rows and queries of the skills that agents hold.

use ghost_domain::{AgentId, HeldSkill};

use super::prelude::*;

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
