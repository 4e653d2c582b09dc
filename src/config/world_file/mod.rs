//! `world-config.yaml`, key by key. What can be judged from the file alone is checked here; references to archetypes,
//! groups, tools and teams are kept as fields and checked once everything is known.
//!
//! Must never: read another file.

pub mod agents;
pub mod channels;
pub mod later;
pub mod llm;

use std::collections::BTreeMap;
use std::time::Duration;

use ghost_domain::restart::Intensity;
use ghost_domain::write_acl::WriteAcl;
use ghost_domain::{AgentId, BudgetLimits, ChatWake, Limits, Money, Reactions, Scope};

use crate::access::AccessDefault;
use crate::heartbeat::HeartbeatBlock;
use crate::reader::{Field, Map};

use agents::{AgentEntry, TeamEntry};
use channels::WebhookEntry;
use llm::LlmEntry;

/// Longest free text of the file, in bytes.
pub const TEXT_MAX: usize = 8 * 1024;

/// A reference and what it names.
pub type Named<'n> = (Field<'n>, &'n str);

/// The file, read.
pub struct WorldFile<'n> {
    /// `world.id`, if it was given.
    pub id: Option<String>,
    /// `world.name`, if it was given.
    pub name: Option<String>,
    /// `world.intensity`.
    pub root_intensity: Intensity,
    /// `agents`.
    pub agents: Vec<AgentEntry<'n>>,
    /// `teams`.
    pub teams: Vec<TeamEntry<'n>>,
    /// `tool_privileges`: group names with their words.
    pub groups: Vec<(String, Vec<Named<'n>>)>,
    /// The line of `tool_privileges`; 0 if there is none.
    pub groups_line: usize,
    /// `access.default`.
    pub access_default: AccessDefault,
    /// `access.strict_channel_privileges`.
    pub strict_channel: bool,
    /// `agents_may_create`.
    pub creatable: Vec<Named<'n>>,
    /// `llm`.
    pub llm: LlmEntry<'n>,
    /// `limits`.
    pub limits: Limits,
    /// `budgets`, with the fields of scopes that must exist.
    pub budgets: Vec<(Field<'n>, Scope, BudgetEntry)>,
    /// `write_acls`.
    pub write_acls: BTreeMap<AgentId, (Field<'n>, WriteAcl)>,
    /// `chat.wake`.
    pub chat_wake: ChatWake,
    /// `tasks.owner_may_update`.
    pub owner_may_update: bool,
    /// `skills.roots`; `None` if it was not given.
    pub skill_roots: Option<Vec<Named<'n>>>,
    /// `secrets_env`.
    pub secret_env: Vec<String>,
    /// `job`.
    pub job: Option<JobEntry<'n>>,
    /// `metrics.open`.
    pub metrics_open: bool,
    /// `channels.webhooks`.
    pub webhooks: BTreeMap<String, WebhookEntry<'n>>,
    /// `channels.reactions`.
    pub reactions: Reactions,
    /// `heartbeat`.
    pub heartbeat: Option<HeartbeatBlock>,
    /// `toolboxes`.
    pub toolboxes: Vec<ToolboxEntry<'n>>,
}

/// One entry of `toolboxes`.
pub struct ToolboxEntry<'n> {
    /// `source`.
    pub source: Named<'n>,
    /// `allow`; `None` is every tool of the box.
    pub allow: Option<Vec<Named<'n>>>,
}

/// `job`.
pub struct JobEntry<'n> {
    /// `input`.
    pub input: Named<'n>,
    /// `lead`.
    pub lead: (Field<'n>, AgentId),
    /// `brief`.
    pub brief: Named<'n>,
    /// `result`.
    pub result: Named<'n>,
}

/// Keys that people know from elsewhere, and where the thing is set here.
const ELSEWHERE: [(&str, &str); 6] = [
    ("data_dir", "the data directory is given by `ghostd up --data`"),
    ("workspace_dir", "the workspace is the directory `workspace` in the data directory"),
    ("listen", "listeners are given by `ghostd up --listen` and `--http`"),
    ("storage", "the store is SQLite in the data directory"),
    ("dir", "the world's directory is the one that holds this file"),
    ("groups", "privilege groups are written under `tool_privileges`"),
];

/// Reads the whole file.
pub fn read<'n>(root: &Field<'n>) -> Option<WorldFile<'n>> {
    if root.is_null() {
        root.error("the file says nothing", Some("a world needs at least `agents`".to_owned()));
        return None;
    }
    let map = root.map()?;
    let (id, name, root_intensity) = world(&map);
    let agents = agents::agents(&map);
    let channels = channels::channels(&map);
    let teams = agents::teams(&map);
    let (groups, groups_line) = groups(&map);
    let (access_default, strict_channel) = access(&map);
    let (heartbeat, ack_chars) = heartbeats(&map);
    let mut limits = limits(&map);
    if let Some(chars) = ack_chars {
        limits.heartbeat_ack_chars = chars;
    }
    let file = WorldFile {
        id,
        name,
        root_intensity,
        agents,
        teams,
        groups,
        groups_line,
        access_default,
        strict_channel,
        creatable: map.get("agents_may_create").map(|field| names(&field)).unwrap_or_default(),
        llm: llm::llm(&map),
        limits,
        budgets: budgets(&map),
        write_acls: write_acls(&map),
        chat_wake: section(&map, "chat", chat_wake).unwrap_or(ChatWake::Mentions),
        owner_may_update: section(&map, "tasks", |tasks| tasks.get("owner_may_update")?.flag()).unwrap_or(true),
        skill_roots: section(&map, "skills", |skills| skills.get("roots").map(|roots| roots.texts(1_024))),
        secret_env: map.get("secrets_env").map(|field| variables(&field)).unwrap_or_default(),
        job: section(&map, "job", job),
        metrics_open: section(&map, "metrics", |metrics| metrics.get("open")?.flag()).unwrap_or(false),
        webhooks: channels.webhooks,
        reactions: channels.reactions,
        heartbeat,
        toolboxes: toolboxes(&map),
    };
    later::read(&map);
    map.finish(&ELSEWHERE);
    Some(file)
}

/// Reads the map under `key` with `read`, then reports the keys that it did not ask for.
pub fn section<'n, T>(map: &Map<'n>, key: &'static str, read: impl FnOnce(&Map<'n>) -> Option<T>) -> Option<T> {
    let inner = map.get(key)?.map()?;
    let value = read(&inner);
    inner.finish(&[]);
    value
}

fn world(map: &Map<'_>) -> (Option<String>, Option<String>, Intensity) {
    let Some(world) = map.get("world").and_then(|field| field.map()) else { return Default::default() };
    let id = world.get("id").and_then(|field| field.name().map(str::to_owned));
    let name = world.get("name").and_then(|field| field.text(200).map(str::to_owned));
    let intensity = intensity(&world).unwrap_or_default();
    world.finish(&ELSEWHERE);
    (id, name, intensity)
}

/// `intensity: { max, window }` in `map`.
pub fn intensity(map: &Map<'_>) -> Option<Intensity> {
    section(map, "intensity", |inner| Some(read_intensity(inner)))
}

/// `max` and `window` in `map`.
pub fn read_intensity(map: &Map<'_>) -> Intensity {
    let default = Intensity::default();
    Intensity {
        max: map.get("max").and_then(|field| field.count32(0..=10_000)).unwrap_or(default.max),
        window: map
            .get("window")
            .and_then(|field| field.duration(Duration::from_secs(1)..=Duration::from_secs(7 * 86_400)))
            .unwrap_or(default.window),
    }
}

fn groups<'n>(map: &Map<'n>) -> (Vec<(String, Vec<Named<'n>>)>, usize) {
    let Some(field) = map.get("tool_privileges") else { return (Vec::new(), 0) };
    let mut groups = Vec::new();
    for (key, words) in field.entries() {
        if !crate::reader::is_name(&key.text) {
            words.error(
                "the group's name is not a name",
                Some("use 1 to 64 letters, digits, `.`, `_` and `-`".to_owned()),
            );
            continue;
        }
        groups.push((key.text.clone(), words.texts(200)));
    }
    (groups, field.line())
}

fn access(map: &Map<'_>) -> (AccessDefault, bool) {
    let read = section(map, "access", |access| {
        let default = match access.get("default").and_then(|field| field.choice(&["public", "privileged"])) {
            Some("privileged") => AccessDefault::Privileged,
            _ => AccessDefault::Public,
        };
        let strict = access.get("strict_channel_privileges").and_then(|field| field.flag()).unwrap_or(false);
        Some((default, strict))
    });
    read.unwrap_or_default()
}

/// A list of names.
pub fn names<'n>(field: &Field<'n>) -> Vec<Named<'n>> {
    field.list().into_iter().filter_map(|item| item.name().map(|name| (item.clone(), name))).collect()
}

/// The world's block, and the bound that only it has.
fn heartbeats(map: &Map<'_>) -> (Option<HeartbeatBlock>, Option<u32>) {
    let Some(inner) = map.get("heartbeat").and_then(|field| field.map()) else { return (None, None) };
    let ack_chars = inner.get("ack_max_chars").and_then(|field| field.count32(0..=10_000));
    let block = crate::heartbeat::keys(&inner);
    inner.finish(&[]);
    (Some(block), ack_chars)
}

fn chat_wake(chat: &Map<'_>) -> Option<ChatWake> {
    match chat.get("wake")?.choice(&["all", "mentions", "none"])? {
        "all" => Some(ChatWake::All),
        "none" => Some(ChatWake::None),
        _ => Some(ChatWake::Mentions),
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
    inner.finish(&[]);
    match serde_json::from_value(values.into()) {
        Ok(limits) => limits,
        Err(error) => {
            field.error(format!("the limits cannot be taken: {error}"), None);
            default
        }
    }
}

/// The limits of one scope: in all, and for one day.
#[derive(Clone, Copy, Debug, Default)]
pub struct BudgetEntry {
    /// `tokens` and `usd`; `None` if it names neither, and a day's are named.
    pub whole: Option<BudgetLimits>,
    /// `tokens_per_day` and `usd_per_day`; `None` if it names neither.
    pub day: Option<BudgetLimits>,
}

/// An amount of dollars.
pub fn money(field: &Field<'_>) -> Option<Money> {
    let usd = field.number(0.0..=1e9)?;
    Money::from_usd(usd).map_err(|refusal| field.error(refusal.message, refusal.hint)).ok()
}

/// Reads `tokens` and `usd`, and the same per day.
pub fn budget(map: &Map<'_>) -> BudgetEntry {
    let limits = |tokens: &'static str, usd: &'static str| {
        let usd = map.get(usd).and_then(|field| money(&field));
        BudgetLimits { tokens: map.get(tokens).and_then(|field| field.count(0..=1_000_000_000_000_000)), money: usd }
    };
    let (whole, day) = (limits("tokens", "usd"), limits("tokens_per_day", "usd_per_day"));
    let named = |limits: &BudgetLimits| *limits != BudgetLimits::default();
    BudgetEntry { whole: (named(&whole) || !named(&day)).then_some(whole), day: Some(day).filter(named) }
}

fn budgets<'n>(map: &Map<'n>) -> Vec<(Field<'n>, Scope, BudgetEntry)> {
    let mut found = Vec::new();
    let read = |field: &Field<'n>| {
        let inner = field.map()?;
        let limits = budget(&inner);
        inner.finish(&[]);
        Some(limits)
    };
    section(map, "budgets", |budgets| {
        if let Some(field) = budgets.get("world")
            && let Some(limits) = read(&field)
        {
            found.push((field, Scope::World, limits));
        }
        for (key, field) in budgets.get("team").map(|field| field.entries()).unwrap_or_default() {
            if let Some(limits) = read(&field) {
                found.push((field, Scope::Team(key.text.clone()), limits));
            }
        }
        for (key, field) in budgets.get("agent").map(|field| field.entries()).unwrap_or_default() {
            match key.text.parse() {
                Ok(id) => found.extend(read(&field).map(|limits| (field, Scope::Agent(id), limits))),
                Err(refusal) => report_key(&field, &refusal),
            }
        }
        Some(())
    });
    found
}

fn report_key(field: &Field<'_>, refusal: &ghost_domain::Refusal) {
    field.error(refusal.message.clone(), refusal.hint.clone());
}

/// An agent's list of write prefixes (ACL-02, ACL-03, ACL-08). Of one whose id cannot be read the shape alone is checked.
pub fn write_acl(field: &Field<'_>, agent: Option<&AgentId>) -> Option<WriteAcl> {
    let read = |prefixes: &[String]| match agent {
        Some(agent) => WriteAcl::of(agent, prefixes),
        None => WriteAcl::new(prefixes),
    };
    let mut prefixes = Vec::new();
    for (item, prefix) in field.texts(1_024) {
        match read(&[prefix.to_owned()]) {
            Ok(_) => prefixes.push(prefix.to_owned()),
            Err(refusal) => item.error(refusal.message, refusal.hint),
        }
    }
    read(&prefixes).ok()
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
            Err(refusal) => report_key(&field, &refusal),
        }
    }
    found
}

/// Whether `name` can be the name of an environment variable.
pub fn is_variable(name: &str) -> bool {
    (1..=128).contains(&name.len())
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
        && !name.as_bytes()[0].is_ascii_digit()
}

/// The name of an environment variable.
pub fn variable(field: &Field<'_>) -> Option<String> {
    let name = field.text(1_024)?;
    if is_variable(name) {
        return Some(name.to_owned());
    }
    // What stands here may be the secret itself, so it is not shown.
    field.error(
        "this is not the name of an environment variable",
        Some("write the variable's name, such as OPENAI_API_KEY; never the value itself".to_owned()),
    );
    None
}

fn variables(field: &Field<'_>) -> Vec<String> {
    field.list().iter().filter_map(variable).collect()
}

fn job<'n>(map: &Map<'n>) -> Option<JobEntry<'n>> {
    let text = |key, max| map.need(key).and_then(|field| field.text(max).map(|text| (field.clone(), text)));
    let input = text("input", 1_024);
    let lead = map.need("lead").and_then(|field| field.parsed("an agent id").map(|id| (field, id)));
    let brief = text("brief", TEXT_MAX);
    let result = text("result", 1_024);
    Some(JobEntry { input: input?, lead: lead?, brief: brief?, result: result? })
}

fn toolboxes<'n>(map: &Map<'n>) -> Vec<ToolboxEntry<'n>> {
    let Some(field) = map.get("toolboxes") else { return Vec::new() };
    let mut found = Vec::new();
    for item in field.list() {
        let Some(inner) = item.map() else { continue };
        let source = inner.need("source").and_then(|field| field.text(1_024).map(|text| (field.clone(), text)));
        let allow = inner.get("allow").map(|field| names(&field));
        inner.finish(&[]);
        found.extend(source.map(|source| ToolboxEntry { source, allow }));
    }
    if !found.is_empty() {
        later::unused(&field);
    }
    found
}
