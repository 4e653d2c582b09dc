//! The checked plan of a world. All other crates read the plan instead of the files. Every
//! reference in a plan is valid.
//!
//! The value of a secret must never be in a plan. A plan holds the name of the environment variable
//! that contains the secret.

pub mod archetype;
pub mod droids;
pub mod http;
pub mod models;
pub mod origins;
pub mod places;
pub mod sandbox;
pub mod toolbox;
pub mod web;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ghost_domain::conversation::{CONTROL, CONTROL_ACTIONS, WEBHOOK};
use ghost_domain::restart::{Backoff, Intensity, RestartType, Strategy};
use ghost_domain::write_acl::WriteAcl;
use ghost_domain::{
    ActionKind, AgentId, BudgetLimits, ChatWake, Declared, HeldSkill, KnowledgeSeed, Limits, Money, Reactions, Scope,
};

use schemars::JsonSchema;
use serde::Deserialize;

pub use self::archetype::{AccessSection, AgentLimits, Archetype, ArchetypeConfig, ToolboxRef};
pub use self::droids::DroidsPlan;
pub use self::http::HttpPlan;
pub use self::models::{LlmPlan, ModelChoice, ProviderPlan};
pub use self::origins::{Origin, Origins, ProviderOrigin};
pub use self::places::{ListenAddress, PlacesPlan, StoragePlan};
pub use self::sandbox::{RemotePlan, SandboxKind, SandboxNetwork, SandboxPlan, SandboxScope, WorkspaceAccess};
pub use self::toolbox::ToolboxPlan;
pub use self::web::WebPlan;
use crate::access::{Groups, TASK_UPDATE, ToolAccess};
pub use crate::heartbeat::{ActiveHours, HeartbeatPlan};
use crate::kinds::{Count, number};
use crate::problem::Problem;
pub use crate::provider_kind::ProviderKind;
use crate::skills::SkillSet;

/// Largest number of agents that the descriptions of tools name.
const RECEIVERS_MAX: usize = 12;
/// The directory of agents' memory in a data directory.
const MEMORY: &str = "agents";

/// A checked world.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The id of the world. It is safe as a directory name, and also names the data directory.
    pub world_id: String,
    /// The name of the world for display.
    pub name: String,
    /// The directory of `world-config.yaml`.
    pub dir: PathBuf,
    /// Text of `laws.md`; empty if there is none.
    pub laws: String,
    /// Text of the world's `tools.md`; empty if there is none.
    pub tools_md: String,
    /// All archetypes by name: every directory under `archetype/`.
    pub archetypes: BTreeMap<String, Arc<Archetype>>,
    /// The tools of an agent without additional groups, by archetype. All such agents share the
    /// value.
    pub archetype_access: BTreeMap<String, Arc<ToolAccess>>,
    /// Archetypes that agents may create agents from (`agents_may_create:`).
    pub creatable: BTreeSet<String>,
    /// The agents of the world file, in its order.
    pub agents: NamedAgents,
    /// The teams, in the order of the world file. Agents without a team are supervised
    /// `one_for_one`.
    pub teams: Vec<TeamPlan>,
    /// The restart intensity of the agents without a team.
    pub root_intensity: Intensity,
    /// Privilege groups.
    pub groups: Groups,
    /// Providers, models and prices.
    pub llm: LlmPlan,
    /// Where the files define providers and models, for messages. It has no effect on a running
    /// world.
    pub origins: Origins,
    /// The world's limits.
    pub limits: Limits,
    /// The budget limits that the world file sets.
    pub budgets: Vec<(Scope, BudgetLimits)>,
    /// The members that a chat message in an ungated channel wakes.
    pub chat_wake: ChatWake,
    /// Whether the owner of a task may update it without the privilege.
    pub owner_may_update_tasks: bool,
    /// The knowledge entries that the world brings, sorted by id.
    pub knowledge: Vec<KnowledgeSeed>,
    /// The skills of the world, as they were when the plan was read.
    pub skills: Arc<SkillSet>,
    /// The toolboxes of the world and of its skills, by name.
    pub toolboxes: BTreeMap<String, Arc<ToolboxPlan>>,
    /// Names of environment variables whose values are secrets. Includes the variables that
    /// providers and webhooks name.
    pub secret_env: BTreeSet<String>,
    /// The main job, if the world has one.
    pub job: Option<JobPlan>,
    /// Whether `/metrics` answers without a token.
    pub metrics_open: bool,
    /// Hosts and origins that the HTTP listener accepts besides its own address.
    pub http: HttpPlan,
    /// Where the daemon keeps the data, and where it listens. A change takes effect at the next start.
    pub places: PlacesPlan,
    /// Webhooks by name. Agents talk with people outside through them.
    pub webhooks: BTreeMap<String, WebhookPlan>,
    /// How readily agents react if their archetype does not set it.
    pub reactions: Reactions,
    /// The chat channels and cron jobs that the file declares.
    pub declared: Declared,
    /// The heartbeat of each agent that has one.
    pub heartbeats: BTreeMap<AgentId, HeartbeatPlan>,
    /// The heartbeat of agents that are created at run time, by archetype.
    pub archetype_heartbeats: BTreeMap<String, HeartbeatPlan>,
    /// Where commands run.
    pub sandbox: SandboxPlan,
    /// Which commands may run.
    pub cli_policy: Arc<ghost_policy::Policy>,
    /// Which calls wait for an operator, and who may answer.
    pub approvals: ApprovalsPlan,
    /// What runs of coding agents may cost.
    pub coding: CodingPlan,
    /// What droids may use.
    pub droids: DroidsPlan,
    /// What agents may reach over the network; `None` if nothing.
    pub web: Option<WebPlan>,
    /// Warnings found while loading.
    pub warnings: Vec<Problem>,
}

/// The agents of a world file, in its order, with an index of their ids: a world may name 100,000.
#[derive(Clone, Debug, Default)]
pub struct NamedAgents {
    agents: Vec<AgentPlan>,
    index: HashMap<AgentId, usize>,
}

impl NamedAgents {
    /// The entry of an agent.
    #[must_use]
    pub fn get(&self, agent_id: &AgentId) -> Option<&AgentPlan> {
        self.index.get(agent_id).and_then(|at| self.agents.get(*at))
    }

    /// The entries, to change them in place. Their ids must stay.
    pub fn iter_mut(&mut self) -> std::slice::IterMut<'_, AgentPlan> {
        self.agents.iter_mut()
    }
}

impl From<Vec<AgentPlan>> for NamedAgents {
    fn from(agents: Vec<AgentPlan>) -> Self {
        let index = agents.iter().enumerate().map(|(at, agent)| (agent.agent_id.clone(), at)).collect();
        Self { agents, index }
    }
}

impl Deref for NamedAgents {
    type Target = [AgentPlan];

    fn deref(&self) -> &[AgentPlan] {
        &self.agents
    }
}

impl<'a> IntoIterator for &'a NamedAgents {
    type Item = &'a AgentPlan;
    type IntoIter = std::slice::Iter<'a, AgentPlan>;

    fn into_iter(self) -> Self::IntoIter {
        self.agents.iter()
    }
}

impl<'a> IntoIterator for &'a mut NamedAgents {
    type Item = &'a mut AgentPlan;
    type IntoIter = std::slice::IterMut<'a, AgentPlan>;

    fn into_iter(self) -> Self::IntoIter {
        self.agents.iter_mut()
    }
}

impl Plan {
    /// The agents of the world file, if they are few enough to be named in the descriptions of tools.
    #[must_use]
    pub fn receivers(&self) -> Vec<String> {
        match self.agents.len() {
            0..=RECEIVERS_MAX => self.agents.iter().map(|agent| agent.agent_id.to_string()).collect(),
            _ => Vec::new(),
        }
    }

    /// The actions that an adapter supports. Empty if the world has no adapter of that name.
    #[must_use]
    pub fn channel_actions(&self, adapter: &str) -> &[ActionKind] {
        match adapter.strip_prefix(WEBHOOK) {
            Some(name) => self.webhooks.get(name).map_or(&[], |webhook| &webhook.actions),
            None if adapter == CONTROL => CONTROL_ACTIONS,
            None => &[],
        }
    }

    /// How readily agents of an archetype react.
    #[must_use]
    pub fn reactions_of(&self, archetype: &str) -> Reactions {
        self.archetypes.get(archetype).and_then(|archetype| archetype.config.reactions).unwrap_or(self.reactions)
    }

    /// The heartbeat of an agent with this archetype, if it has one.
    #[must_use]
    pub fn heartbeat(&self, agent_id: &AgentId, archetype: &str) -> Option<&HeartbeatPlan> {
        match self.agents.get(agent_id) {
            Some(_) => self.heartbeats.get(agent_id),
            None => self.archetype_heartbeats.get(archetype),
        }
    }

    /// Whether an agent with this access has `tool` (a canonical name) in its registry. `outside`
    /// says whether the turn came from an outside conversation: only such a turn has the channel
    /// tools.
    #[must_use]
    pub fn grants(&self, access: &ToolAccess, tool: &str, outside: bool) -> bool {
        let of_channel = is_of_channel(tool);
        match outside {
            // The owner of a task may report progress. The tool itself checks the owner.
            _ if !of_channel => {
                access.can_access(tool)
                    || (self.owner_may_update_tasks && tool == TASK_UPDATE && access.may_update_own_tasks())
            }
            true => access.can_access_with_channel(tool),
            false => false,
        }
    }

    /// Whether an agent of `archetype` with this access and these skills has `tool` (a full name) of `toolbox` in its
    /// registry. A tool of the world's toolboxes needs a word for it: the archetype's `## Toolbox`, a group, or an override.
    /// A skill's own tools come with the skill.
    #[must_use]
    pub fn grants_of_toolbox(
        &self,
        (archetype, access): (&ArchetypeConfig, &ToolAccess),
        held: &[HeldSkill],
        toolbox: &ToolboxPlan,
        tool: &str,
    ) -> bool {
        match &toolbox.skill {
            Some(skill) => held.iter().any(|held| held.skill == *skill) && access.can_access_of_skill(tool),
            None => access.can_access_of_toolbox(tool, archetype.toolbox_tools.contains(tool)),
        }
    }

    /// The directory of the world's files that stands against a data directory at `data_dir`: agents or jobs would read the
    /// database, or a start would read the data as files of the world.
    #[must_use]
    pub fn data_conflict(&self, data_dir: &Path) -> Option<PathBuf> {
        let within = ["archetype", "knowledge", "skills", "snippets", "scripts"].map(|name| self.dir.join(name));
        let input = self.job.as_ref().map(|job| &job.input);
        within.iter().chain(input).find(|dir| data_dir.starts_with(dir)).cloned()
    }

    /// The directory that stands against a workspace at `workspace`: one of the world's files or of its data, if the
    /// one contains the other. Agents could change their own rules, or the database. A workspace below the data
    /// directory is possible.
    #[must_use]
    pub fn workspace_conflict(&self, workspace: &Path, data_dir: Option<&Path>) -> Option<PathBuf> {
        let within = ["archetype", "knowledge", "skills", "snippets"].map(|name| self.dir.join(name));
        let named = self.llm.providers.values().filter_map(|provider| provider.dir.as_ref());
        let named = named.chain(self.skills.roots()).chain(self.job.as_ref().map(|job| &job.input));
        // A link may name a skill outside of the roots.
        let named = named.chain(self.skills.all().values().map(|skill| &skill.root));
        let named = named.chain(self.toolboxes.values().map(|toolbox| &toolbox.dir));
        let memory = data_dir.map(|dir| dir.join(MEMORY));
        let whole = [Some(self.dir.as_path()), data_dir];
        let above = whole.into_iter().flatten().find(|dir| dir.starts_with(workspace)).map(Path::to_owned);
        let either = |dir: &&PathBuf| dir.starts_with(workspace) || workspace.starts_with(dir);
        above.or_else(|| within.iter().chain(named).chain(&memory).find(either).cloned())
    }
}

/// Whether a tool (a canonical name) exists only in turns that came from an outside conversation.
#[must_use]
pub fn is_of_channel(tool: &str) -> bool {
    tool == "message" || tool.strip_prefix("syscall.").unwrap_or(tool).starts_with("channel.")
}

/// A webhook: signed JSON comes in over HTTP and goes out to an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebhookPlan {
    /// The address to which agents' messages are posted.
    pub url: String,
    /// The environment variable with the secret, used in both directions.
    pub secret_env: String,
    /// The agent that answers threads which no other agent has.
    pub agent: AgentId,
    /// The largest accepted deviation of a request's time stamp.
    pub tolerance: Duration,
    /// The actions that the other side supports, sorted. Always includes sending.
    pub actions: Vec<ActionKind>,
}

/// The main job of a world.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobPlan {
    /// The default input directory, relative to the world.
    pub input: PathBuf,
    /// The agent that gets the job.
    pub lead: AgentId,
    /// The message to the lead, in which `{job_id}`, `{input}`, `{files}` and `{skipped}` are replaced.
    pub brief: String,
    /// The directory in the workspace for the result, such as `output/briefings`.
    pub result: String,
    /// What a job takes, as the world states it.
    pub expects: Option<JobExpectation>,
}

/// The most input tokens that a job is expected to take: so many in any case, for each file, and for each token of the
/// files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct JobExpectation {
    /// Tokens in any case.
    #[serde(deserialize_with = "number::<0, 1_000_000_000, _, _>")]
    #[schemars(with = "Count<0, 1_000_000_000>")]
    pub base: u32,
    /// Tokens for each file.
    #[serde(deserialize_with = "number::<0, 1_000_000_000, _, _>")]
    #[schemars(with = "Count<0, 1_000_000_000>")]
    pub per_file: u32,
    /// Tokens for each token of the files.
    #[serde(deserialize_with = "number::<0, 1_000_000_000, _, _>")]
    #[schemars(with = "Count<0, 1_000_000_000>")]
    pub per_token: u32,
}

/// An agent of the world file.
#[derive(Clone, Debug)]
pub struct AgentPlan {
    /// The id of the agent.
    pub agent_id: AgentId,
    /// The name for display. Defaults to the id.
    pub name: String,
    /// Key of [`Plan::archetypes`].
    pub archetype: String,
    /// The team of the agent. `None` means no team.
    pub team: Option<String>,
    /// Whether the agent starts when it is first created.
    pub autostart: bool,
    /// The restart rules of the agent.
    pub restart: RestartPlan,
    /// The tools of the agent, resolved.
    pub access: Arc<ToolAccess>,
    /// The directories that the agent may write to.
    pub write_acl: WriteAcl,
    /// The model of the agent: its archetype's choice with its own overrides.
    pub model: ModelChoice,
    /// The limits of the agent.
    pub limits: AgentLimits,
    /// The line of the agent in the world file, for messages.
    pub line: usize,
}

/// The restart rules of one agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RestartPlan {
    /// When the agent is restarted.
    pub restart: RestartType,
    /// How often the agent may be restarted.
    pub intensity: Intensity,
    /// The pause before a restart.
    pub backoff: Backoff,
}

impl Default for RestartPlan {
    fn default() -> Self {
        Self { restart: RestartType::Permanent, intensity: Intensity::default(), backoff: Backoff::default() }
    }
}

/// A team of agents under one supervisor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TeamPlan {
    /// The name of the team.
    pub name: String,
    /// Which members are restarted with a crashed member.
    pub strategy: Strategy,
    /// The number of restarts within a window after which the whole team fails.
    pub intensity: Intensity,
    /// The members, in start order.
    pub agents: Vec<AgentId>,
}

/// The `approvals` of a world file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApprovalsPlan {
    /// Canonical names of the tools whose every call waits for an operator.
    pub tools: BTreeSet<String>,
    /// Principals that may answer. If there are none, every operator may, but not with `/approve` in a conversation.
    pub approvers: BTreeSet<String>,
    /// How long a call waits.
    pub expires: Duration,
}

impl Default for ApprovalsPlan {
    fn default() -> Self {
        Self { tools: BTreeSet::new(), approvers: BTreeSet::new(), expires: Duration::from_secs(30 * 60) }
    }
}

/// The `coding` of a world file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CodingPlan {
    /// What one run may cost at most. It is reserved before the run; a run that tells no cost is charged all of it. Without
    /// it, nothing is reserved, and no run starts where a budget counts money.
    pub run_budget: Option<Money>,
}
