//! The checked plan of a world: what every other room reads instead of files. Building one is the work of the other
//! modules here; holding one means that every reference in it resolves.
//!
//! Must never: hold a secret's value (only the name of the environment variable that does).

pub mod archetype;
pub mod heartbeat;
pub mod http;
pub mod models;
pub mod origins;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ghost_domain::restart::{Backoff, Intensity, RestartType, Strategy};
use ghost_domain::write_acl::WriteAcl;
use ghost_domain::{ActionKind, AgentId, BudgetLimits, ChatWake, Declared, KnowledgeSeed, Limits, Reactions, Scope};

pub use self::archetype::{AccessSection, AgentLimits, Archetype, ArchetypeConfig, ToolboxRef};
pub use self::heartbeat::{ActiveHours, HeartbeatPlan};
pub use self::http::HttpPlan;
pub use self::models::{LlmPlan, ModelChoice, ProviderPlan};
pub use self::origins::{Origin, Origins, ProviderOrigin};
use crate::access::{Groups, TASK_UPDATE, ToolAccess};
use crate::problem::Problem;
pub use crate::provider_kind::ProviderKind;

/// A whole world, checked.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The world's id: a directory-safe name, also the name of its data directory.
    pub world_id: String,
    /// The name people see.
    pub name: String,
    /// The directory that holds `world-config.yaml`.
    pub dir: PathBuf,
    /// Text of `laws.md`; empty if there is none.
    pub laws: String,
    /// Text of the world's `tools.md`; empty if there is none.
    pub tools_md: String,
    /// Archetypes by name, every directory under `archetype/`.
    pub archetypes: BTreeMap<String, Arc<Archetype>>,
    /// What an agent made from an archetype without further groups may use, by archetype; shared by all of them.
    pub archetype_access: BTreeMap<String, Arc<ToolAccess>>,
    /// Archetypes that agents may create agents from (`agents_may_create:`).
    pub creatable: BTreeSet<String>,
    /// The agents that the world file names, in its order.
    pub agents: Vec<AgentPlan>,
    /// The teams, in the order of the world file. Agents in none belong to the world's own, which is `one_for_one`.
    pub teams: Vec<TeamPlan>,
    /// The restart intensity of the world's own team.
    pub root_intensity: Intensity,
    /// Privilege groups.
    pub groups: Groups,
    /// Models and what they cost.
    pub llm: LlmPlan,
    /// Where the files say that; of no meaning to a running world.
    pub origins: Origins,
    /// Bounds.
    pub limits: Limits,
    /// Limits of budgets that the world file sets at boot.
    pub budgets: Vec<(Scope, BudgetLimits)>,
    /// Whom a post in an ungated chat channel wakes (CHAT-11).
    pub chat_wake: ChatWake,
    /// Whether the owner of a task may change its status without the privilege (TASK-05).
    pub owner_may_update_tasks: bool,
    /// Entries of knowledge that the world's files bring, in order of id.
    pub knowledge: Vec<KnowledgeSeed>,
    /// Directories with skills, lowest precedence first; all exist.
    pub skill_roots: Vec<PathBuf>,
    /// Names of environment variables whose values are secrets, besides those that providers name.
    pub secret_env: BTreeSet<String>,
    /// The files that a main job takes in when no `--input` is given; relative to the world, and what to do with them.
    pub job: Option<JobPlan>,
    /// The origin of the HTTP side's metrics: whether `/metrics` is open.
    pub metrics_open: bool,
    /// Whom the HTTP side answers besides its own address.
    pub http: HttpPlan,
    /// The webhooks over which someone outside talks with agents, by name.
    pub webhooks: BTreeMap<String, WebhookPlan>,
    /// How freely agents react whose archetype says nothing (MSG-14).
    pub reactions: Reactions,
    /// The chat channels and cron jobs that the file declares.
    pub declared: Declared,
    /// The heartbeats of agents that have one (HB-04).
    pub heartbeats: BTreeMap<AgentId, HeartbeatPlan>,
    /// What is allowed but doubtful.
    pub warnings: Vec<Problem>,
}

impl Plan {
    /// Whether an agent with this access has `tool`, a canonical name, in its registry: in a turn that comes from `outside`,
    /// or in one that does not. The tools of the outside channel exist in the former alone (CONF-03).
    #[must_use]
    pub fn grants(&self, access: &ToolAccess, tool: &str, outside: bool) -> bool {
        let of_channel = is_of_channel(tool);
        match outside {
            // The owner of a task may say how far it is (TASK-05): the tool is there, and knows whom it serves.
            _ if !of_channel => {
                access.can_access(tool)
                    || (self.owner_may_update_tasks && tool == TASK_UPDATE && access.may_update_own_tasks())
            }
            true => access.can_access_with_channel(tool),
            false => false,
        }
    }
}

/// Whether a tool, by its canonical name, exists only in turns that come from a conversation outside (CONF-03).
#[must_use]
pub fn is_of_channel(tool: &str) -> bool {
    tool == "message" || tool.strip_prefix("syscall.").unwrap_or(tool).starts_with("channel.")
}

/// A webhook: signed JSON in over the daemon's HTTP side and out to an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebhookPlan {
    /// Where what agents say is posted.
    pub url: String,
    /// The environment variable that holds the secret of both directions.
    pub secret_env: String,
    /// The agent that answers threads which nobody else has.
    pub agent: AgentId,
    /// How far the time stamp of a request may be off.
    pub tolerance: Duration,
    /// What the other side understands, sorted; sending always.
    pub actions: Vec<ActionKind>,
}

/// The main job of a world.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobPlan {
    /// The shipped input directory.
    pub input: PathBuf,
    /// The agent that is told of the job.
    pub lead: AgentId,
    /// What it is told; `{job_id}`, `{input}` and `{files}` are filled in.
    pub brief: String,
    /// Directory in the workspace under which the result appears, such as `output/briefings`.
    pub result: String,
}

/// An agent that the world file names.
#[derive(Clone, Debug)]
pub struct AgentPlan {
    /// Its id.
    pub agent_id: AgentId,
    /// The name people see; the id if none is given.
    pub name: String,
    /// Key of [`Plan::archetypes`].
    pub archetype: String,
    /// Its team; `None` is the world's own.
    pub team: Option<String>,
    /// Whether a first boot starts it.
    pub autostart: bool,
    /// When and how it is restarted.
    pub restart: RestartPlan,
    /// What it may use, resolved.
    pub access: Arc<ToolAccess>,
    /// Where it may write.
    pub write_acl: WriteAcl,
    /// Its model, archetype and overrides merged.
    pub model: ModelChoice,
    /// Its bounds.
    pub limits: AgentLimits,
    /// Where this agent stands in the world file, for messages.
    pub line: usize,
}

/// Restart rules of one child (DESIGN.md section 3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RestartPlan {
    /// When.
    pub restart: RestartType,
    /// How often at most.
    pub intensity: Intensity,
    /// How soon.
    pub backoff: Backoff,
}

impl Default for RestartPlan {
    fn default() -> Self {
        Self { restart: RestartType::Permanent, intensity: Intensity::default(), backoff: Backoff::default() }
    }
}

/// A team (DESIGN.md section 3).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TeamPlan {
    /// Its name.
    pub name: String,
    /// Who is restarted with a crashed member.
    pub strategy: Strategy,
    /// How many restarts within what window fail the team as a whole.
    pub intensity: Intensity,
    /// Its members, in start order.
    pub agents: Vec<AgentId>,
}
