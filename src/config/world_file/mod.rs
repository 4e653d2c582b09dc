//! Reads `world-config.yaml`: one struct for the file, one for each section. Everything that can be checked within the file
//! is checked here; references to archetypes, groups, tools and teams keep their places and are checked later.

pub mod agents;
pub mod budgets;
pub mod channels;
pub mod commands;
pub mod cron;
pub mod hints;
pub mod models;
pub mod places;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Deref;

use ghost_domain::write_acl::WriteAcl;
use ghost_domain::{AgentId, ChatWake, Limits};
use schemars::{JsonSchema, json_schema};
use serde::Deserialize;
use serde::de::{self, Deserializer, MapAccess, Visitor};

use self::agents::{AgentEntry, AgentSection, IntensitySection, TeamSection};
use self::budgets::BudgetsSection;
use self::channels::{ChannelSection, ChannelsSection};
use self::commands::{CliPolicySection, SandboxSection};
use self::cron::CronSection;
use self::hints::HINTS;
use self::models::{LlmSection, ProviderEntry};
use self::places::{ListenSection, Place, Places, StorageSection};
use crate::access::AccessDefault;
use crate::heartbeat::HeartbeatBlock;
use crate::kinds::{Name, Parsed, Range, TEXT_MAX, Text, Time, Usd, Variable, schema};
use crate::plan::{HttpPlan, JobExpectation, SandboxPlan, WebPlan};
use crate::reader::Field;
use crate::typed::{self, Read, Spanned};

/// A name that refers to something, with its place.
pub type Named<'f> = (&'f Field<'f>, &'f str);

/// The content of `world-config.yaml`.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct WorldConfig {
    /// Id, name and restart intensity of the world.
    pub world: WorldSection,
    /// The agents. A world has at least one.
    pub agents: Spanned<Vec<Spanned<AgentSection>>>,
    /// Agents that are restarted together.
    pub teams: Vec<Spanned<TeamSection>>,
    /// Privilege groups, each with the tools that it grants.
    pub tool_privileges: Option<Spanned<BTreeMap<Name, Vec<Spanned<Text<200>>>>>>,
    /// Who may use a tool that no group lists.
    pub access: AccessSection,
    /// Archetypes that agents may create agents from.
    pub agents_may_create: Vec<Spanned<Name>>,
    /// Providers, models and prices.
    pub llm: LlmSection,
    /// Bounds of the world.
    pub limits: LimitsByName,
    /// Limits of tokens and money.
    pub budgets: BudgetsSection,
    /// The directories that agents may write to.
    pub write_acls: BTreeMap<Parsed<AgentId>, Spanned<Vec<Spanned<Text<1_024>>>>>,
    /// Rules of chat.
    pub chat: ChatSection,
    /// Rules of tasks.
    pub tasks: TasksSection,
    /// Where skills come from.
    pub skills: SkillsSection,
    /// Environment variables whose values are secrets.
    pub secrets_env: Vec<Variable>,
    /// The main job.
    pub job: Option<JobSection>,
    /// The metrics page.
    pub metrics: MetricsSection,
    /// Hosts and origins that the HTTP listener accepts besides its own address.
    pub http: HttpPlan,
    /// The directory of the data. A relative path starts at the world's directory.
    pub data_dir: Option<Spanned<Place>>,
    /// The directory that agents work in. A relative path starts at the world's directory.
    pub workspace_dir: Option<Spanned<Place>>,
    /// Where the daemon listens.
    pub listen: ListenSection,
    /// The database.
    pub storage: StorageSection,
    /// Where commands run.
    pub sandbox: Option<Spanned<SandboxSection>>,
    /// Which commands may run.
    pub cli_policy: Option<CliPolicySection>,
    /// Which calls wait for an operator.
    pub approvals: ApprovalsSection,
    /// What runs of coding agents may cost.
    pub coding: CodingSection,
    /// What droids may use.
    pub droids: DroidsSection,
    /// What agents may reach over the network.
    pub web: Option<WebPlan>,
    /// Webhooks to the outside.
    pub channels: ChannelsSection,
    /// Chat channels by name.
    pub chat_channels: BTreeMap<Parsed<ghost_domain::ChannelName>, Spanned<ChannelSection>>,
    /// Recurring jobs.
    pub cron: Vec<Spanned<CronSection>>,
    /// The heartbeat of agents without one of their own.
    pub heartbeat: Option<HeartbeatBlock>,
    /// Toolboxes, in order.
    pub toolboxes: Vec<ToolboxSection>,
}

/// `world`: what the world is called.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct WorldSection {
    /// The id, safe as a name of a directory. The default is the name of the world's directory.
    pub id: Option<Name>,
    /// The name for display. The default is the id.
    pub name: Option<Text<200>>,
    /// The restart intensity of the agents without a team.
    pub intensity: IntensitySection,
}

/// `access`: who may use a tool that no group lists.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AccessSection {
    /// `safe` (the default), `public` or `privileged`.
    pub default: Option<AccessDefault>,
    /// Whether channel tools need a privilege in turns from outside, too.
    pub strict_channel_privileges: bool,
}

/// `chat`: rules of chat.
#[derive(Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ChatSection {
    /// The members that a chat message in an ungated channel wakes.
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
    /// Whether the owner of a task may update it without the privilege.
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
    /// Directories of skills. The default are those beside the toolboxes.
    pub roots: Option<Vec<Spanned<Text<1_024>>>>,
    /// Names of skills that Ghost brings.
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
    /// Tools whose every call waits.
    pub tools: Vec<Spanned<Name>>,
    /// Principals that may answer. The default is every operator.
    pub approvers: Vec<Name>,
    /// How long a call waits.
    pub expires: Option<Time<1_000, 604_800_000>>,
}

/// `coding`: what runs of coding agents may cost.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct CodingSection {
    /// The most US dollars of one run.
    pub run_budget: Option<Usd>,
}

/// `droids`: what the helpers may use that agents start for one piece of work.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct DroidsSection {
    /// The tools that a droid may have at most. The default are those of its parent.
    pub tools: Option<Vec<Spanned<Text<200>>>>,
    /// The model of droids. The default is that of the parent.
    pub model: Option<Spanned<Text<200>>>,
}

/// `job`: the main job.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct JobSection {
    /// The directory of the input, relative to the world.
    pub input: Option<Spanned<Text<1_024>>>,
    /// The agent that gets the job.
    pub lead: Option<Spanned<Parsed<AgentId>>>,
    /// The message to the lead. `{job_id}`, `{input}`, `{files}` and `{skipped}` are replaced.
    pub brief: Option<Spanned<Text<TEXT_MAX>>>,
    /// The directory in the workspace for the result.
    pub result: Option<Spanned<Text<1_024>>>,
    /// What the job takes.
    pub expects: Option<JobExpectation>,
}

/// One entry of `toolboxes`.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ToolboxSection {
    /// The path of the manifest, from the world's directory or up to two levels above it.
    pub source: Option<Spanned<Text<1_024>>>,
    /// The tools that the world takes. The default is every tool.
    pub allow: Option<Vec<Spanned<Name>>>,
}

/// `limits`, each within its own range.
#[derive(Default)]
pub struct LimitsByName(pub Limits);

schema!(LimitsByName, _ => {
    let one = |((name, default, least, most), meaning): ((&str, _, _, _), &str)| {
        let schema = serde_json::json!({
            "description": meaning, "type": "integer", "default": default, "minimum": least, "maximum": most
        });
        (name.to_owned(), schema)
    };
    let limits = Limits::default().table().into_iter().zip(Limits::meanings());
    let properties: serde_json::Map<_, _> = limits.map(one).collect();
    json_schema!({ "type": "object", "properties": properties, "additionalProperties": false })
});

impl<'de> Deserialize<'de> for LimitsByName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Bounds;
        impl<'de> Visitor<'de> for Bounds {
            type Value = Limits;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("limits")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Limits, A::Error> {
                let mut values = serde_json::Map::new();
                while let Some(LimitName(name, range)) = map.next_key()? {
                    values.insert(name.to_owned(), map.next_value_seed(range)?.into());
                }
                serde_json::from_value(values.into()).map_err(de::Error::custom)
            }
        }
        deserializer.deserialize_struct("Limits", &[], Bounds).map(Self)
    }
}

struct LimitName(&'static str, Range);

impl<'de> Deserialize<'de> for LimitName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        static NAMES: std::sync::LazyLock<Vec<&str>> =
            std::sync::LazyLock::new(|| Limits::default().table().iter().map(|(name, ..)| *name).collect());
        let key = String::deserialize(deserializer)?;
        let range = Limits::default().table().into_iter().find(|(name, ..)| *name == key);
        range
            .map(|(name, _, least, most)| Self(name, Range(least, most)))
            .ok_or_else(|| de::Error::unknown_field(&key, &NAMES))
    }
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
