//! A skill that an agent holds; held skills outlive restarts (SKILL-41).

use serde::{Deserialize, Serialize};

use crate::ids::AgentId;
use crate::time::Timestamp;

/// One agent's hold on one skill.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HeldSkill {
    /// Who holds it.
    pub agent_id: AgentId,
    /// The skill's name.
    pub skill: String,
    /// Whether its document is in the agent's context.
    pub active: bool,
    /// Since when it is held.
    pub acquired_at: Timestamp,
}
