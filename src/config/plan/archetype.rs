//! What a plan has of an archetype (ARCH-01..06).

use std::collections::BTreeSet;

use ghost_domain::{Money, Reactions};

use super::models::ModelChoice;
use crate::heartbeat::HeartbeatBlock;

/// An archetype: the files that an agent is made from (ARCH-01).
#[derive(Clone, Debug)]
pub struct Archetype {
    /// Directory name.
    pub name: String,
    /// Who it is.
    pub soul: String,
    /// What it is for.
    pub goal: String,
    /// How it works: prose.
    pub agent: String,
    /// Whom it works for.
    pub user: String,
    /// The parsed `config.md`, never sent to a model (ARCH-02).
    pub config: ArchetypeConfig,
}

/// What `config.md` says (ARCH-03..06).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ArchetypeConfig {
    /// `## LLM`.
    pub model: ModelChoice,
    /// `## Limits`.
    pub limits: AgentLimits,
    /// `## Limits`: what an agent may cost in one day.
    pub daily_money: Option<Money>,
    /// `## Tool Access`; `None` if the section is absent.
    pub access: Option<AccessSection>,
    /// `## Tools`, the legacy allow-list; `None` if absent.
    pub legacy_tools: Option<Vec<String>>,
    /// `## Toolbox` blocks.
    pub toolboxes: Vec<ToolboxRef>,
    /// `## Skills`: `None` is all eligible, an empty set is none.
    pub skills: Option<BTreeSet<String>>,
    /// `## Prompt`: the time zone named in the stable part.
    pub timezone: Option<String>,
    /// `## Channels`: how freely it reacts (MSG-14); the world's level if absent.
    pub reactions: Option<Reactions>,
    /// `## Heartbeat`.
    pub heartbeat: Option<HeartbeatBlock>,
    /// The text of `HEARTBEAT.md`; `None` if there is none.
    pub heartbeat_text: Option<String>,
    /// Why agents made from it must not start although the world does (WORLD-07); `None` if they may.
    pub refused: Option<String>,
}

/// `## Tool Access` as written, names resolved to canonical ones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccessSection {
    /// Groups that the agent belongs to.
    pub groups: BTreeSet<String>,
    /// Single tools beyond its groups.
    pub overrides: BTreeSet<String>,
    /// A profile that narrows everything (ACC-13).
    pub profile: Option<String>,
    /// Tools that it must not have, whatever grants them (`deny:`; ACC-15).
    pub denied: BTreeSet<String>,
}

/// One `## Toolbox` block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolboxRef {
    /// Path of the `toolbox.yaml`, as written.
    pub source: String,
    /// Short names of the tools wanted.
    pub tools: Vec<String>,
}

/// Bounds that one archetype narrows; `None` falls through to the world's limits.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AgentLimits {
    /// See [`turn_rounds_max`](ghost_domain::Limits::turn_rounds_max).
    pub turn_rounds_max: Option<u32>,
    /// See [`turn_seconds`](ghost_domain::Limits::turn_seconds).
    pub turn_seconds: Option<u32>,
    /// See [`context_bytes`](ghost_domain::Limits::context_bytes); written `context_window_tokens` and taken as 4 bytes a token.
    pub context_bytes: Option<u32>,
    /// See [`result_view_bytes`](ghost_domain::Limits::result_view_bytes).
    pub result_view_bytes: Option<u32>,
}
