//! The archetypes of a plan.

use std::collections::BTreeSet;

use ghost_domain::{Money, Reactions};

use super::models::ModelChoice;
use crate::heartbeat::HeartbeatBlock;

/// An archetype: the files that its agents are made from.
#[derive(Clone, Debug)]
pub struct Archetype {
    /// The name of its directory.
    pub name: String,
    /// The text of `soul.md`: the agent's character.
    pub soul: String,
    /// The text of `goal.md`: the agent's purpose.
    pub goal: String,
    /// The text of `agent.md`: how the agent works.
    pub agent: String,
    /// The text of `user.md`: the people the agent works for. Empty if there is none.
    pub user: String,
    /// The parsed `config.md`, never sent to a model.
    pub config: ArchetypeConfig,
}

/// The content of `config.md`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ArchetypeConfig {
    /// `## LLM`.
    pub model: ModelChoice,
    /// `## Limits`.
    pub limits: AgentLimits,
    /// `daily_cost_usd` under `## Limits`: the limit of an agent's cost in one day.
    pub daily_money: Option<Money>,
    /// `## Tool Access`; `None` if the section is absent.
    pub access: Option<AccessSection>,
    /// `## Tools`, the legacy allow-list; `None` if absent.
    pub legacy_tools: Option<Vec<String>>,
    /// `## Toolbox` blocks.
    pub toolboxes: Vec<ToolboxRef>,
    /// Full names of the tools that those blocks name.
    pub toolbox_tools: BTreeSet<String>,
    /// `## Skills`. `None` means all eligible skills, an empty set means none.
    pub skills: Option<BTreeSet<String>>,
    /// `timezone` under `## Prompt`. The stable part of the prompt names it.
    pub timezone: Option<String>,
    /// `## Channels`: how readily agents react. `None` means the world's setting.
    pub reactions: Option<Reactions>,
    /// `## Heartbeat`.
    pub heartbeat: Option<HeartbeatBlock>,
    /// The text of `HEARTBEAT.md`; `None` if there is none.
    pub heartbeat_text: Option<String>,
    /// The reason why agents of the archetype must not start. The world itself starts.
    /// `None` if they may.
    pub refused: Option<String>,
}

/// `## Tool Access`, with tool names resolved to canonical ones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccessSection {
    /// The privilege groups of the agent.
    pub groups: BTreeSet<String>,
    /// Single tools in addition to the groups.
    pub overrides: BTreeSet<String>,
    /// A profile that narrows all grants.
    pub profile: Option<String>,
    /// Tools that the agent must not have, regardless of other grants (`deny:`; ACC-15).
    pub denied: BTreeSet<String>,
}

/// One `## Toolbox` block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolboxRef {
    /// Path of the `toolbox.yaml`, as written.
    pub source: String,
    /// Short names of the tools.
    pub tools: Vec<String>,
}

/// Limits that an archetype or an agent may narrow. `None` means the world's limit.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AgentLimits {
    /// See [`turn_rounds_max`](ghost_domain::Limits::turn_rounds_max).
    pub turn_rounds_max: Option<u32>,
    /// See [`turn_seconds`](ghost_domain::Limits::turn_seconds).
    pub turn_seconds: Option<u32>,
    /// See [`context_bytes`](ghost_domain::Limits::context_bytes). May be written as
    /// `context_window_tokens`, at 4 bytes a token.
    pub context_bytes: Option<u32>,
    /// See [`result_view_bytes`](ghost_domain::Limits::result_view_bytes).
    pub result_view_bytes: Option<u32>,
    /// See [`result_once_bytes`](ghost_domain::Limits::result_once_bytes).
    pub result_once_bytes: Option<u32>,
}
