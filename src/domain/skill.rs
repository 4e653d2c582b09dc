//! The record of a skill that an agent holds. Held skills survive restarts.

use serde::{Deserialize, Serialize};

use crate::ids::AgentId;
use crate::time::Timestamp;

/// One skill that one agent holds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HeldSkill {
    /// Id of the agent that holds the skill.
    pub agent_id: AgentId,
    /// Name of the skill.
    pub skill: String,
    /// Whether the agent has read the skill's text since it acquired the skill.
    pub active: bool,
    /// When the agent acquired the skill.
    pub acquired_at: Timestamp,
}
