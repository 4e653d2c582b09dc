//! Reads `world-config.yaml`: one struct for the file, one for each section. Everything that can be checked within the file
//! is checked here; references to archetypes, groups, tools and teams keep their places and are checked later.

pub mod agents;
pub mod budgets;
pub mod channels;
pub mod commands;
pub mod cron;
pub mod hints;
pub mod limits;
pub mod models;
pub mod places;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Deref;

use ghost_domain::write_acl::WriteAcl;
use ghost_domain::{AgentId, ChatWake, Limits};
use schemars::JsonSchema;
use serde::Deserialize;

use self::agents::{AgentEntry, AgentSection, IntensitySection, TeamSection};
use self::budgets::BudgetsSection;
use self::channels::{ChannelSection, ChannelsSection};
use self::commands::{CliPolicySection, SandboxSection};
use self::cron::CronSection;
use self::hints::HINTS;
use self::limits::LimitsByName;
use self::models::{LlmSection, ProviderEntry};
use self::places::{ListenSection, Place, Places, StorageSection};
use crate::access::AccessDefault;
use crate::heartbeat::HeartbeatBlock;
use crate::kinds::{Name, Parsed, TEXT_MAX, Text, Time, Usd, Variable, duration};
use crate::plan::{ApprovalsPlan, HttpPlan, JobExpectation, SandboxPlan, WebPlan};
use crate::reader::Field;
use crate::typed::{self, Read, Spanned};

/// A name that refers to something, with its place.
pub type Named<'f> = (&'f Field<'f>, &'f str);

/// The content of `world-config.yaml`.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct WorldConfig {
    /// Id and name of the world, and how often its agents may restart.
    pub world: WorldSection,
    /// The agents: at least one entry, and at most 100,000 agents.
    pub agents: Spanned<Vec<Spanned<AgentSection>>>,
    /// Groups of agents that restart together.
    pub teams: Vec<Spanned<TeamSection>>,
    /// Privilege groups, each with the tools that only its members have.
    #[schemars(title = "map of groups to lists of tools")]
    pub tool_privileges: Option<Spanned<BTreeMap<Name, Vec<Spanned<Text<200>>>>>>,
    /// Who may use a tool that no group lists.
    pub access: AccessSection,
    /// Archetypes from which `syscall.agent.create` may make agents. The default is none.
    #[schemars(title = "list of archetypes")]
    pub agents_may_create: Vec<Spanned<Name>>,
    /// Providers, models and prices.
    pub llm: LlmSection,
    /// Bounds of the world.
    pub limits: LimitsByName,
    /// Limits of tokens and money.
    pub budgets: BudgetsSection,
    /// By agent id: the same as the agent's `write_acl`. Set one of the two.
    #[schemars(title = "map of agent ids to lists of directories")]
    pub write_acls: BTreeMap<Parsed<AgentId>, Spanned<Vec<Spanned<Text<1_024>>>>>,
    /// Rules of chat.
    pub chat: ChatSection,
    /// Rules of tasks.
    pub tasks: TasksSection,
    /// Where skills come from.
    pub skills: SkillsSection,
    /// Variables whose values must not appear in events, ledger or logs. Provider keys, webhook secrets and
    /// `GHOST_TOKEN` are included already.
    pub secrets_env: Vec<Variable>,
    /// What to do with the files of `ghostd up --input DIR`. Without it a world takes no input.
    pub job: Option<JobSection>,
    /// The metrics page.
    pub metrics: MetricsSection,
    /// Further hosts and origins that may call the HTTP listener.
    pub http: HttpPlan,
    /// The data directory. The default is `$GHOST_STATE_DIR/<world>`, else `~/.local/state/ghost/<world>`.
    pub data_dir: Option<Spanned<Place>>,
    /// The agents' files. The default is `workspace` in the data directory.
    pub workspace_dir: Option<Spanned<Place>>,
    /// Where the daemon listens.
    pub listen: ListenSection,
    /// Where the records are.
    pub storage: StorageSection,
    /// Where agents' commands run.
    pub sandbox: Option<Spanned<SandboxSection>>,
    /// Which programs a command line may use. Without it the shipped tiers apply.
    pub cli_policy: Option<CliPolicySection>,
    /// Which calls wait for an operator.
    pub approvals: ApprovalsSection,
    /// What runs of coding agents may cost.
    pub coding: CodingSection,
    /// What droids may use.
    pub droids: DroidsSection,
    /// What agents reach over the network. Without it no agent has the tools of the web.
    pub web: Option<WebPlan>,
    /// Webhooks, and how readily agents react in conversations with people outside.
    pub channels: ChannelsSection,
    /// Chat channels by name.
    pub chat_channels: BTreeMap<Parsed<ghost_domain::ChannelName>, Spanned<ChannelSection>>,
    /// Jobs that run again and again, or once.
    pub cron: Vec<Spanned<CronSection>>,
    /// Asks idle agents regularly whether there is something to do.
    pub heartbeat: Option<HeartbeatBlock>,
    /// Toolboxes of the world, in order.
    pub toolboxes: Vec<ToolboxSection>,
}

/// `world`: what the world is called.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct WorldSection {
    /// Names the data directory. The default is the name of the world's directory.
    pub id: Option<Name>,
    /// What people and models see. The default is the id.
    pub name: Option<Text<200>>,
    /// Has no effect yet: an agent without a team fails alone, by its own `restart`.
    pub intensity: IntensitySection,
}

/// `access`: who may use a tool that no group lists.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AccessSection {
    /// Who may use a tool that is in no group.
    #[schemars(extend("default" = "safe"))]
    pub default: Option<AccessDefault>,
    /// Whether `syscall.channel.send` and `syscall.channel.handoff` need their group even in a conversation with
    /// someone outside.
    pub strict_channel_privileges: bool,
}

/// `chat`: rules of chat.
#[derive(Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ChatSection {
    /// Which members a post in an ungated channel wakes. In a channel of two, a post always wakes the other. Members
    /// that are not woken see the posts in their next turn.
    pub wake: ChatWake,
}

impl Default for ChatSection {
    fn default() -> Self {
        Self { wake: ChatWake::Mentions }
    }
}

/// `tasks`: rules of tasks.
#[derive(Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TasksSection {
    /// Whether agents without the privilege may change status, note and result of their own tasks.
    pub owner_may_update: bool,
}

impl Default for TasksSection {
    fn default() -> Self {
        Self { owner_may_update: true }
    }
}

/// `skills`: where skills come from.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SkillsSection {
    /// Directories of skills, relative to the world's directory or one of the two above it. The default is `skills/`
    /// beside each toolbox.
    #[schemars(title = "list of directories")]
    pub roots: Option<Vec<Spanned<Text<1_024>>>>,
    /// Skills that Ghost brings. The default is none.
    #[schemars(title = "list of skills")]
    pub bundled: Vec<Spanned<Text<64>>>,
}

/// `metrics`: the metrics page.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct MetricsSection {
    /// Whether `/metrics` answers without a token.
    pub open: bool,
}

/// `approvals`: which calls wait for an operator, and who may answer.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ApprovalsSection {
    /// Every call of these tools waits. A `*` stands for any run of characters.
    #[schemars(title = "list of tools")]
    pub tools: Vec<Spanned<Name>>,
    /// Principals that may answer, such as `uid-1000` or `token`. Only listed ones may answer with `/approve` in a
    /// conversation. The default is every operator.
    #[schemars(title = "list of principals")]
    pub approvers: Vec<Name>,
    /// How long a call waits; then it does not run.
    #[schemars(extend("default" = duration(ApprovalsPlan::default().expires)))]
    pub expires: Option<Time<1_000, 604_800_000>>,
}

/// `coding`: what runs of coding agents may cost.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct CodingSection {
    /// What one run of a coding agent may cost, in US dollars: reserved before it, and charged in full if the agent
    /// tells no cost.
    pub run_budget: Option<Usd>,
}

/// `droids`: what the helpers may use that agents start for one piece of work.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct DroidsSection {
    /// The most that a droid may have, also what its parent lacks. The default is what its parent has of five tools.
    #[schemars(title = "list of tools")]
    pub tools: Option<Vec<Spanned<Text<200>>>>,
    /// The model of droids. A parent may name another one of the world. The default is the
    /// parent's.
    #[schemars(title = "`provider/model`")]
    pub model: Option<Spanned<Text<200>>>,
}

/// `job`: the main job.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct JobSection {
    /// The directory of the input, within the world, if `--input` is absent.
    #[schemars(title = "directory of the world")]
    pub input: Option<Spanned<Text<1_024>>>,
    /// The agent that gets the job as a task. It must have `syscall.task.update`, or `tasks.owner_may_update` must be
    /// on.
    pub lead: Option<Spanned<Parsed<AgentId>>>,
    /// The description of its task. `{job_id}`, `{input}` (where the files are in the workspace), `{files}` (their
    /// number) and `{skipped}` (names that were not taken, or `nothing`) are filled in.
    pub brief: Option<Spanned<Text<TEXT_MAX>>>,
    /// The directory of the workspace where the result must lie: the lead closes the job's task with the path of a
    /// file below it.
    #[schemars(title = "directory of the workspace")]
    pub result: Option<Spanned<Text<1_024>>>,
    /// The input tokens that the job may take.
    pub expects: Option<JobExpectation>,
}

/// One entry of `toolboxes`.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ToolboxSection {
    /// The path of a `toolbox.yaml`, relative to the world's directory or one of the two above it.
    #[schemars(title = "path")]
    pub source: Option<Spanned<Text<1_024>>>,
    /// The tools that the world takes. The default is all.
    #[schemars(title = "list of tools")]
    pub allow: Option<Vec<Spanned<Name>>>,
}

/// The file with everything that is read from it.
pub struct WorldFile<'n> {
    config: Read<'n, WorldConfig>,
    /// The agents, each entry with a `count` as many.
    pub agents: Vec<AgentEntry>,
    /// The ids of all agents that the file names, those with a problem included.
    pub ids: BTreeSet<AgentId>,
    /// The names of all teams, those with a problem included.
    pub team_names: BTreeSet<String>,
    /// The prefixes of `write_acls`.
    pub acls: BTreeMap<AgentId, WriteAcl>,
    /// `limits`.
    pub limits: Limits,
    /// The usable entries of `llm.providers`.
    pub providers: BTreeMap<String, ProviderEntry>,
    /// The names of providers with a problem, which was reported.
    pub unread: BTreeSet<String>,
    /// `sandbox`.
    pub sandbox: SandboxPlan,
    /// `cli_policy`, or what is shipped.
    pub policy: ghost_policy::Settings,
}

impl<'n> Deref for WorldFile<'n> {
    type Target = Read<'n, WorldConfig>;

    fn deref(&self) -> &Self::Target {
        &self.config
    }
}

impl<'n> WorldFile<'n> {
    /// The entries of `agents` that could be read.
    pub fn entries(&self) -> &[Spanned<AgentSection>] {
        &self.config.agents.value
    }

    /// The entry of an agent.
    pub fn section(&self, agent: &AgentEntry) -> &Spanned<AgentSection> {
        &self.config.agents.value[agent.entry]
    }

    /// The place of an agent's entry.
    pub fn place(&self, agent: &AgentEntry) -> &Field<'n> {
        self.at(self.section(agent))
    }

    /// The places of data, workspace, listeners and database.
    pub fn places(&self) -> Places<'_, 'n, WorldConfig> {
        let (read, data_dir, workspace_dir) = (&self.config, self.data_dir.as_ref(), self.workspace_dir.as_ref());
        Places { read, data_dir, workspace_dir, listen: &self.listen, storage: &self.storage }
    }

    /// A word with its place.
    pub fn named<'f, T: Deref<Target = String>>(&'f self, word: &'f Spanned<T>) -> Named<'f> {
        (self.at(word), &word.value)
    }

    /// Words with their places.
    pub fn all_named<'f, T: Deref<Target = String>>(&'f self, words: &'f [Spanned<T>]) -> Vec<Named<'f>> {
        words.iter().map(|word| self.named(word)).collect()
    }
}

/// Reads the whole file.
pub fn read<'n>(root: &Field<'n>) -> Option<WorldFile<'n>> {
    if root.is_null() {
        root.error("the file has no content", "a world needs at least `agents`");
        return None;
    }
    let config: Read<'n, WorldConfig> = typed::read(root, &HINTS)?;
    if root.node().get("agents").is_none() {
        root.error("`agents` is missing", "for example `agents: [{ id: lead, archetype: lead }]`");
    }
    for entry in &config.agents.value {
        if let Some(chars) = entry.heartbeat.as_ref().and_then(|heartbeat| heartbeat.ack_max_chars.as_ref()) {
            let hint = "it is one limit for the whole world: write it under `heartbeat` at the top of the file";
            config.at(chars).error("there is no key `ack_max_chars` here", hint);
        }
        if let Some(usd) = &entry.overrides.daily_cost_usd {
            let hint = "write `budget: { usd_per_day: … }` in the entry of the agent";
            config.at(usd).error("there is no key `daily_cost_usd` here", hint);
        }
    }
    let (agents, ids) = agents::expand(&config, &config.agents);
    let team_names = root.get("teams").map(|teams| teams.items()).unwrap_or_default();
    let team_names = team_names.iter().filter_map(|team| team.get("name")?.node().text().map(str::to_owned)).collect();
    let mut acls = BTreeMap::new();
    for (Parsed(id), prefixes) in &config.write_acls {
        acls.extend(agents::write_acl(&config, prefixes, Some(id)).map(|acl| (id.clone(), acl)));
    }
    let mut limits = config.limits.0.clone();
    if let Some(chars) = config.heartbeat.as_ref().and_then(|heartbeat| heartbeat.ack_max_chars.as_ref()) {
        limits.heartbeat_ack_chars = chars.u32();
    }
    let (providers, unread) = models::providers(&config, &config.llm, root);
    let sandbox = config.sandbox.as_ref().map(|section| section.plan(config.at(section), &config)).unwrap_or_default();
    let policy = config.cli_policy.as_ref().map_or_else(ghost_policy::shipped, CliPolicySection::settings);
    Some(WorldFile { agents, ids, team_names, acls, limits, providers, unread, sandbox, policy, config })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::report::Report;

    /// The problems of a world file with this text, and what `look` sees in it.
    pub(crate) fn problems(text: &str, look: impl Fn(&WorldFile<'_>)) -> String {
        let report = Report::default();
        let file = report.file("w.yaml");
        let text = format!("{text}agents: [{{ id: lead, archetype: lead }}]\n");
        let node = crate::yaml::parse(&text, &file, &|_| Some("from-the-environment".to_owned())).unwrap();
        if let Some(world) = read(&Field::root(&node, &file)) {
            look(&world);
        }
        report.finish().to_string()
    }

    pub(crate) fn problems_of(text: &str) -> String {
        problems(text, |_| ())
    }
}
