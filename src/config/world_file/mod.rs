//! Reads `world-config.yaml`. Checks everything that can be checked within this file. References to
//! archetypes, groups, tools and teams are kept as fields and checked later.
//!
//! No other file may be read here.

pub mod agents;
mod approvals;
pub mod budgets;
pub mod channels;
pub mod chat_channels;
mod coding;
pub mod commands;
pub mod cron;
pub mod droids;
pub mod http;
pub mod llm;
pub mod parts;
pub mod places;
mod remote;
pub mod sent;
pub mod web;

use std::collections::BTreeMap;

use ghost_domain::restart::Intensity;
use ghost_domain::text::nearest_within;
use ghost_domain::write_acl::WriteAcl;
use ghost_domain::{AgentId, ChatWake, Limits, Reactions, Scope};

use crate::access::AccessDefault;
use crate::heartbeat::HeartbeatBlock;
use crate::plan::{CodingPlan, HttpPlan, JobExpectation, SandboxPlan, WebPlan};
use crate::reader::{Field, Map};

use agents::{AgentEntry, TeamEntry};
use approvals::Approvals;
use budgets::BudgetEntry;
use channels::WebhookEntry;
use chat_channels::ChannelEntry;
use commands::CliPolicy;
use cron::CronEntry;
use droids::Droids;
use llm::LlmEntry;
pub use parts::Named;
use parts::{TEXT_MAX, intensity, names, section, variable, write_acl};
use places::PlacesEntry;
pub use remote::address as server;

/// The parsed world file. The comment of each field is its key in the file.
pub struct WorldFile<'n> {
    /// `world.id`, if present.
    pub id: Option<String>,
    /// The line for problems with the id.
    pub id_line: usize,
    /// `world.name`, if present.
    pub name: Option<String>,
    /// `world.intensity`.
    pub root_intensity: Intensity,
    /// `agents`.
    pub agents: Vec<AgentEntry<'n>>,
    /// `teams`.
    pub teams: Vec<TeamEntry<'n>>,
    /// `tool_privileges`: each group with its words.
    pub groups: Vec<(String, Vec<Named<'n>>)>,
    /// The line of `tool_privileges`; 1 if absent.
    pub groups_line: usize,
    /// `access.default`.
    pub access_default: AccessDefault,
    /// Whether the world file has `access.default`.
    pub access_is_written: bool,
    /// `access.strict_channel_privileges`.
    pub strict_channel: bool,
    /// `agents_may_create`.
    pub creatable: Vec<Named<'n>>,
    /// `llm`.
    pub llm: LlmEntry<'n>,
    /// `limits`.
    pub limits: Limits,
    /// `budgets`. The fields are kept because the scopes must still be checked.
    pub budgets: Vec<(Field<'n>, Scope, BudgetEntry)>,
    /// `write_acls`.
    pub write_acls: BTreeMap<AgentId, (Field<'n>, WriteAcl)>,
    /// `chat.wake`.
    pub chat_wake: ChatWake,
    /// `tasks.owner_may_update`.
    pub owner_may_update: bool,
    /// `skills.roots`; `None` if absent.
    pub skill_roots: Option<Vec<Named<'n>>>,
    /// `skills.bundled`.
    pub bundled_skills: Vec<Named<'n>>,
    /// `secrets_env`.
    pub secret_env: Vec<String>,
    /// `job`.
    pub job: Option<JobEntry<'n>>,
    /// `metrics.open`.
    pub metrics_open: bool,
    /// `http`.
    pub http: HttpPlan,
    /// `data_dir`, `workspace_dir`, `listen` and `storage`.
    pub places: PlacesEntry<'n>,
    /// `sandbox`.
    pub sandbox: SandboxPlan,
    /// `cli_policy`.
    pub cli_policy: CliPolicy<'n>,
    /// `approvals`.
    pub approvals: Approvals<'n>,
    /// `coding`.
    pub coding: CodingPlan,
    /// `droids`.
    pub droids: Droids<'n>,
    /// `web`.
    pub web: Option<WebPlan>,
    /// `channels.webhooks`.
    pub webhooks: BTreeMap<String, WebhookEntry<'n>>,
    /// `channels.reactions`.
    pub reactions: Reactions,
    /// `chat_channels`.
    pub chat_channels: Vec<ChannelEntry<'n>>,
    /// `cron`.
    pub cron: Vec<CronEntry<'n>>,
    /// `heartbeat`.
    pub heartbeat: Option<HeartbeatBlock>,
    /// `toolboxes`.
    pub toolboxes: Vec<ToolboxEntry<'n>>,
}

/// One entry of `toolboxes`. The comment of each field is its key in the file.
pub struct ToolboxEntry<'n> {
    /// `source`.
    pub source: Named<'n>,
    /// `allow`; `None` means every tool of the toolbox.
    pub allow: Option<Vec<Named<'n>>>,
}

/// The main job, under `job`. The comment of each field is its key in the file.
pub struct JobEntry<'n> {
    /// `input`.
    pub input: Named<'n>,
    /// `lead`.
    pub lead: (Field<'n>, AgentId),
    /// `brief`.
    pub brief: Named<'n>,
    /// `result`.
    pub result: Named<'n>,
    /// `expects`.
    pub expects: Option<JobExpectation>,
}

/// Keys that people expect here, with the hint for each: it names the place of the setting.
const ELSEWHERE: [(&str, &str); 10] = [
    ("workspace", "write `workspace_dir`"),
    ("database", "SQLite's is in the data directory: write `data_dir`; for PostgreSQL write `storage`"),
    ("dir", "the world's directory is the one that holds this file"),
    ("groups", "privilege groups are written under `tool_privileges`"),
    ("rooms", "chat channels are written under `chat_channels`"),
    ("cron_jobs", "recurring jobs are written under `cron`"),
    ("jobs", "recurring jobs are written under `cron`; the job of `--input` under `job`"),
    ("schedule", "recurring jobs are written under `cron`"),
    ("schedules", "recurring jobs are written under `cron`"),
    ("timers", "recurring jobs are written under `cron`; a timer is set by an agent, or with `ghostctl timer set`"),
];

/// Keys that people write under `world`, with the hint for each.
const IN_WORLD: [(&str, &str); 4] = [
    ("data_dir", "write it at the top of the file, beside `world`"),
    ("workspace_dir", "write it at the top of the file, beside `world`"),
    ("listen", "write it at the top of the file, beside `world`"),
    ("storage", "write it at the top of the file, beside `world`"),
];

/// Limits of a `config.md` that people write here, with the hint for each.
const LIMITS_ELSEWHERE: [(&str, &str); 5] = [
    (
        "max_tool_rounds",
        "write `turn_rounds_max`; `max_tool_rounds` belongs under `## Limits` of an archetype's config.md",
    ),
    ("turn_timeout_seconds", "write `turn_seconds`"),
    ("context_window_tokens", "write `context_bytes`: four bytes a token"),
    ("tool_result_chars", "write `result_view_bytes`"),
    ("daily_cost_usd", "write `budgets: { world: { usd_per_day: … } }`"),
];

/// Keys that people write at the top of the file, with the section that they belong to.
const WITHIN: [(&str, &str); 27] = [
    ("allowed_hosts", "http"),
    ("allowed_origins", "http"),
    ("backend", "storage"),
    ("brief", "job"),
    ("default_model", "llm"),
    ("default_provider", "llm"),
    ("grpc", "listen"),
    ("id", "world"),
    ("input", "job"),
    ("intensity", "world"),
    ("lead", "job"),
    ("model", "llm"),
    ("models_file", "llm"),
    ("name", "world"),
    ("bundled", "skills"),
    ("open", "metrics"),
    ("owner_may_update", "tasks"),
    ("prices", "llm"),
    ("provider", "llm"),
    ("providers", "llm"),
    ("reactions", "channels"),
    ("result", "job"),
    ("roots", "skills"),
    ("strict_channel_privileges", "access"),
    ("url_env", "storage"),
    ("wake", "chat"),
    ("webhooks", "channels"),
];

/// The hint for a key at the top of the file that belongs into a section.
fn within(key: &str) -> Option<String> {
    let limits = Limits::default().table();
    let limit_keys = limits.iter().map(|(name, ..)| (*name, "limits"));
    let all: Vec<(&str, &str)> = WITHIN.into_iter().chain(limit_keys).collect();
    let near = nearest_within(key, all.iter().map(|(name, _)| *name), if key.len() < 4 { 0 } else { 1 })?;
    let (_, section) = all.iter().find(|(name, _)| *name == near)?;
    let name = match near {
        "model" => "default_model",
        "provider" => "default_provider",
        _ => near,
    };
    Some(format!("did you mean `{section}: {{ {name}: … }}`?"))
}

/// Reads the whole file.
pub fn read<'n>(root: &Field<'n>) -> Option<WorldFile<'n>> {
    if root.is_null() {
        root.error("the file has no content", "a world needs at least `agents`");
        return None;
    }
    let map = root.map()?;
    let (id, name, root_intensity) = world(&map);
    let id_line = map.get("world").map_or(1, |field| field.line());
    let agents = agents::agents(&map);
    let channels = channels::channels(&map);
    let teams = agents::teams(&map);
    let (groups, groups_line) = groups(&map);
    let (access_default, strict_channel) = access(&map);
    let access_is_written = access_default.is_some();
    let access_default = access_default.unwrap_or_default();
    let (heartbeat, ack_chars) = heartbeats(&map);
    let mut limits = limits(&map);
    if let Some(chars) = ack_chars {
        limits.heartbeat_ack_chars = chars;
    }
    let (skill_roots, bundled_skills) = section(&map, "skills", |skills| {
        let bundled = skills.get("bundled").map(|names| names.texts(64)).unwrap_or_default();
        Some((skills.get("roots").map(|roots| roots.texts(1_024)), bundled))
    })
    .unwrap_or_default();
    let file = WorldFile {
        id,
        id_line,
        name,
        root_intensity,
        agents,
        teams,
        groups,
        groups_line,
        access_default,
        access_is_written,
        strict_channel,
        creatable: map.get("agents_may_create").map(|field| names(&field)).unwrap_or_default(),
        llm: llm::llm(&map),
        limits,
        budgets: budgets::all(&map),
        write_acls: write_acls(&map),
        chat_wake: chat_wake(&map),
        owner_may_update: section(&map, "tasks", |tasks| tasks.get("owner_may_update")?.flag()).unwrap_or(true),
        skill_roots,
        bundled_skills,
        secret_env: map.get("secrets_env").map(|field| variables(&field)).unwrap_or_default(),
        job: section(&map, "job", job),
        metrics_open: section(&map, "metrics", |metrics| metrics.get("open")?.flag()).unwrap_or(false),
        http: http::http(&map),
        places: places::places(&map),
        sandbox: commands::sandbox(&map),
        cli_policy: commands::cli_policy(&map),
        approvals: approvals::approvals(&map),
        coding: coding::coding(&map),
        droids: droids::droids(&map),
        web: web::web(&map),
        webhooks: channels.webhooks,
        reactions: channels.reactions,
        chat_channels: chat_channels::chat_channels(&map),
        cron: cron::cron(&map),
        heartbeat,
        toolboxes: toolboxes(&map),
    };
    map.finish_or(&[&ELSEWHERE[..], &budgets::AT_THE_TOP].concat(), within);
    Some(file)
}

fn world(map: &Map<'_>) -> (Option<String>, Option<String>, Intensity) {
    let Some(world) = map.get("world").and_then(|field| field.map_of("{ id: my-world }")) else {
        return Default::default();
    };
    let id = world.get("id").and_then(|field| field.name().map(str::to_owned));
    let name = world.get("name").and_then(|field| field.text(200).map(str::to_owned));
    let intensity = intensity(&world).unwrap_or_default();
    world.finish(&[&IN_WORLD[..], &ELSEWHERE].concat());
    (id, name, intensity)
}

fn groups<'n>(map: &Map<'n>) -> (Vec<(String, Vec<Named<'n>>)>, usize) {
    let Some(field) = map.get("tool_privileges") else { return (Vec::new(), 1) };
    let mut groups = Vec::new();
    for (key, words) in field.entries() {
        if !crate::reader::is_name(&key.text) {
            words.error("the group's name is not a name", "use 1 to 64 letters, digits, `.`, `_` and `-`");
            continue;
        }
        groups.push((key.text.clone(), words.texts(200)));
    }
    (groups, field.line())
}

fn access(map: &Map<'_>) -> (Option<AccessDefault>, bool) {
    let read = section(map, "access", |access| {
        let default = match access.get("default").and_then(|field| field.choice(&["safe", "public", "privileged"])) {
            Some("privileged") => Some(AccessDefault::Privileged),
            Some("public") => Some(AccessDefault::Public),
            Some(_) => Some(AccessDefault::Safe),
            None => None,
        };
        let strict = access.get("strict_channel_privileges").and_then(|field| field.flag()).unwrap_or(false);
        Some((default, strict))
    });
    read.unwrap_or_default()
}

/// The world's heartbeat block, and `ack_max_chars`, which can be set only for the whole world.
fn heartbeats(map: &Map<'_>) -> (Option<HeartbeatBlock>, Option<u32>) {
    let Some(inner) = map.get("heartbeat").and_then(|field| field.map_of("{ every: 30m }")) else {
        return (None, None);
    };
    let ack_chars = inner.get("ack_max_chars").and_then(|field| field.count32(0..=10_000));
    let block = crate::heartbeat::keys(&inner);
    inner.finish(&[]);
    (Some(block), ack_chars)
}

fn chat_wake(map: &Map<'_>) -> ChatWake {
    let Some(chat) = map.get("chat").and_then(|field| field.map()) else { return ChatWake::Mentions };
    let wake = chat.get("wake").and_then(|field| field.choice(&["all", "mentions", "none"]));
    chat.finish(&[("channels", "chat channels are written at the top of the file, under `chat_channels`")]);
    match wake {
        Some("all") => ChatWake::All,
        Some("none") => ChatWake::None,
        _ => ChatWake::Mentions,
    }
}

fn limits(map: &Map<'_>) -> Limits {
    let default = Limits::default();
    let Some(inner) = map.get("limits").and_then(|field| field.map()) else { return default };
    let mut values = serde_json::Map::new();
    for (name, _, least, most) in default.table() {
        if let Some(number) = inner.get(name).and_then(|field| field.count(least..=most)) {
            values.insert(name.to_owned(), number.into());
        }
    }
    let field = inner.field().clone();
    inner.finish(&LIMITS_ELSEWHERE);
    match serde_json::from_value(values.into()) {
        Ok(limits) => limits,
        Err(error) => {
            field.error(format!("the limits cannot be used: {error}"), "omit the limits that you do not need");
            default
        }
    }
}

fn write_acls<'n>(map: &Map<'n>) -> BTreeMap<AgentId, (Field<'n>, WriteAcl)> {
    let mut found = BTreeMap::new();
    for (key, field) in map.get("write_acls").map(|field| field.entries()).unwrap_or_default() {
        match key.text.parse() {
            Ok(id) => {
                if let Some(acl) = write_acl(&field, Some(&id)) {
                    found.insert(id, (field, acl));
                }
            }
            Err(refusal) => field.refused(refusal, "write the id of an agent"),
        }
    }
    found
}

fn variables(field: &Field<'_>) -> Vec<String> {
    field.list().iter().filter_map(variable).collect()
}

fn job<'n>(map: &Map<'n>) -> Option<JobEntry<'n>> {
    let text = |key, max, such_as| {
        map.need(key, such_as).and_then(|field: Field<'n>| field.text(max).map(|text| (field.clone(), text)))
    };
    let input = text("input", 1_024, "input");
    let lead = map.need("lead", "lead").and_then(|field| field.parsed("an agent id").map(|id| (field, id)));
    let brief = text("brief", TEXT_MAX, "'Make a briefing of the {files} files in {input}.'");
    let result = text("result", 1_024, "output/briefings");
    let expects = map.get("expects").and_then(|field| field.map_of("{ base: 300000, per_file: 40000, per_token: 3 }"));
    let expects = expects.map(|inner| {
        let tokens = |key| {
            let number = inner.get(key).and_then(|field| field.count(0..=1_000_000_000));
            number.and_then(|number| u32::try_from(number).ok()).unwrap_or_default()
        };
        let (base, per_file, per_token) = (tokens("base"), tokens("per_file"), tokens("per_token"));
        inner.finish(&[]);
        JobExpectation { base, per_file, per_token }
    });
    Some(JobEntry { input: input?, lead: lead?, brief: brief?, result: result?, expects })
}

fn toolboxes<'n>(map: &Map<'n>) -> Vec<ToolboxEntry<'n>> {
    let Some(field) = map.get("toolboxes") else { return Vec::new() };
    let mut found = Vec::new();
    for item in field.list() {
        let Some(inner) = item.map_of("{ source: toolbox/devtools/toolbox.yaml }") else { continue };
        let source = inner
            .need("source", "toolbox/devtools/toolbox.yaml")
            .and_then(|field| field.text(1_024).map(|text| (field.clone(), text)));
        let allow = inner.get("allow").map(|field| names(&field));
        inner.finish(&[]);
        found.extend(source.map(|source| ToolboxEntry { source, allow }));
    }
    found
}
