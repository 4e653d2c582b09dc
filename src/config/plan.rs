//! The checked plan of a world: what every other room reads instead of files. Building one is the work of the other
//! modules here; holding one means that every reference in it resolves.
//!
//! Must never: hold a secret's value (only the name of the environment variable that does).

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ghost_domain::Price;
use ghost_domain::restart::{Backoff, Intensity, RestartType, Strategy};
use ghost_domain::write_acl::WriteAcl;
use ghost_domain::{ActionKind, AgentId, BudgetLimits, ChatWake, KnowledgeSeed, Limits, Money, Reactions, Scope};

use crate::access::{Groups, ToolAccess};
use crate::problem::Problem;

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
    /// The webhooks over which someone outside talks with agents, by name.
    pub webhooks: BTreeMap<String, WebhookPlan>,
    /// How freely agents react whose archetype says nothing (MSG-14).
    pub reactions: Reactions,
    /// The heartbeats of agents that have one (HB-04).
    pub heartbeats: BTreeMap<AgentId, HeartbeatPlan>,
    /// What is allowed but doubtful.
    pub warnings: Vec<Problem>,
}

/// An agent's heartbeat (HB-01, HB-04).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeartbeatPlan {
    /// How often.
    pub every: Duration,
    /// In which hours; at all hours if none.
    pub active: Option<ActiveHours>,
    /// Where an alert goes: `none`, `last` or a chat channel.
    pub target: String,
    /// What it is asked; `None` is a plain question.
    pub prompt: Option<String>,
    /// Whether there is a HEARTBEAT.md that says nothing, so that there is nothing to ask.
    pub empty: bool,
}

/// Hours of a day, in minutes since midnight; they may go over it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ActiveHours {
    /// The first minute.
    pub from: u32,
    /// The first minute after.
    pub to: u32,
    /// The zone, an IANA name.
    pub timezone: String,
}

impl ActiveHours {
    /// Whether a minute of the day is among them.
    #[must_use]
    pub fn covers(&self, minute: u32) -> bool {
        if self.from < self.to {
            (self.from..self.to).contains(&minute)
        } else {
            minute >= self.from || minute < self.to
        }
    }
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
    pub heartbeat: Option<crate::heartbeat::HeartbeatBlock>,
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

/// Which model an agent thinks with. `None` fields fall through to the world's defaults.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ModelChoice {
    /// A key of [`LlmPlan::providers`].
    pub provider: Option<String>,
    /// The model's name at that provider.
    pub model: Option<String>,
    /// Models to try after it, in order, each `model` or `provider/model`.
    pub fallback_models: Vec<String>,
    /// Sampling temperature.
    pub temperature: Option<f64>,
    /// Most tokens in one answer.
    pub max_tokens: Option<u32>,
    /// Reasoning effort: `low`, `medium` or `high`.
    pub thinking: Option<String>,
}

/// Bounds that one archetype narrows; `None` falls through to [`Limits`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AgentLimits {
    /// See [`Limits::turn_rounds_max`].
    pub turn_rounds_max: Option<u32>,
    /// See [`Limits::turn_seconds`].
    pub turn_seconds: Option<u32>,
    /// See [`Limits::context_bytes`]; written `context_window_tokens` and taken as 4 bytes a token.
    pub context_bytes: Option<u32>,
    /// See [`Limits::result_view_bytes`].
    pub result_view_bytes: Option<u32>,
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

/// Models.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LlmPlan {
    /// The provider of agents that name none.
    pub default_provider: String,
    /// The model of agents that name none.
    pub default_model: String,
    /// Providers by name.
    pub providers: BTreeMap<String, ProviderPlan>,
    /// Prices by `provider/model` or `model`; the price of every model is 0 at a `scripted` or `recorded` provider.
    pub prices: BTreeMap<String, Price>,
    /// Which of the providers' usual key variables were set when the world was loaded; never their values.
    pub keys_present: BTreeSet<String>,
}

/// The protocol that a provider speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ProviderKind {
    /// Anthropic's Messages API.
    Anthropic,
    /// OpenAI's chat completions, and everything that speaks them (vLLM, llama.cpp, …).
    OpenAi,
    /// Gemini's generateContent.
    Gemini,
    /// Ollama's own chat API.
    Ollama,
    /// Rules from a file: demos, tests, simulation.
    Scripted,
    /// Answers of an earlier run.
    Recorded,
}

/// One provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProviderPlan {
    /// Its protocol.
    pub kind: ProviderKind,
    /// Where it listens; `None` is the provider's own address.
    pub base_url: Option<String>,
    /// The environment variable that holds its key; `None` sends none.
    pub api_key_env: Option<String>,
    /// Calls at once.
    pub concurrency: u32,
    /// Attempts of one call before a fall-back or the end (LOOP-09).
    pub attempts: u32,
    /// The wait after a failure without a retry-after; doubled each time up to `retry_cap`.
    pub retry_base: Duration,
    /// See `retry_base`. A longer retry-after than this makes the call fall back at once.
    pub retry_cap: Duration,
    /// For `scripted`: the directory with `<model>.yaml` rule files. For `recorded`: the data directory of the run.
    pub dir: Option<PathBuf>,
}
