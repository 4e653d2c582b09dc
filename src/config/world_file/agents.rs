//! Reads `agents` and `teams` of `world-config.yaml`.
//!
//! A reference must never be resolved here; that needs the other files.

use std::time::Duration;

use ghost_domain::AgentId;
use ghost_domain::restart::{Backoff, Intensity, RestartType, Strategy};
use ghost_domain::tool_catalogue::Profile;
use ghost_domain::write_acl::WriteAcl;

use super::budgets::{self, BudgetEntry};
use super::llm::{ModelEntry, read_model};
use super::parts::{Named, intensity, names, read_intensity, section, write_acl};
use crate::heartbeat::{self, HeartbeatBlock};
use crate::plan::{AgentLimits, RestartPlan};
use crate::problem::Hint;
use crate::reader::{Field, Map};

/// The largest `count` of one entry, and of all agents of a world file together.
pub const AGENTS_MAX: u64 = 100_000;

/// One agent of `agents`. The comment of each field is its key in the file.
#[derive(Clone)]
pub struct AgentEntry<'n> {
    /// The position of the entry.
    pub field: Field<'n>,
    /// `id`.
    pub agent_id: AgentId,
    /// `archetype`.
    pub archetype: Option<Named<'n>>,
    /// `name`.
    pub name: Option<String>,
    /// `team`.
    pub team: Option<Named<'n>>,
    /// `autostart`.
    pub autostart: bool,
    /// `restart`.
    pub restart: RestartPlan,
    /// `privilege_groups`.
    pub groups: Vec<Named<'n>>,
    /// `profile`.
    pub profile: Option<Profile>,
    /// `write_acl`.
    pub write_acl: Option<(Field<'n>, WriteAcl)>,
    /// `budget`.
    pub budget: Option<(Field<'n>, BudgetEntry)>,
    /// The model settings in `overrides`.
    pub model: ModelEntry<'n>,
    /// The limits in `overrides`.
    pub limits: AgentLimits,
    /// `heartbeat`.
    pub heartbeat: Option<HeartbeatBlock>,
}

/// One entry of `teams`. The comment of each field is its key in the file.
pub struct TeamEntry<'n> {
    /// The position of the entry.
    pub field: Field<'n>,
    /// `name`.
    pub name: String,
    /// `strategy`.
    pub strategy: Strategy,
    /// `intensity`.
    pub intensity: Intensity,
    /// `agents`.
    pub agents: Vec<(Field<'n>, AgentId)>,
}

/// Reads `agents`. An empty list is an error.
pub fn agents<'n>(map: &Map<'n>) -> Vec<AgentEntry<'n>> {
    let Some(field) = map.need("agents", "[{ id: lead, archetype: lead }]") else { return Vec::new() };
    let list = field.list();
    // If the list is too long, that was already reported.
    if list.is_empty() && field.length() == 0 {
        let hint = "name at least one: `- { id: lead, archetype: lead }`";
        field.error("a world needs at least one agent", hint);
    }
    let mut agents = Vec::new();
    for field in &list {
        let Some((entry, count)) = agent(field) else { continue };
        let room = AGENTS_MAX - u64::try_from(agents.len()).unwrap_or(AGENTS_MAX);
        if count.unwrap_or(1) > room {
            let hint = "use several worlds, or lower `count`";
            field.error(format!("a world file may have at most {AGENTS_MAX} agents"), hint);
            break;
        }
        match count {
            None => agents.push(entry),
            Some(count) => agents.extend(numbered(&entry, count)),
        }
    }
    agents
}

/// The agents of an entry with `count`: `worker-1`, `worker-2` and so on. So more of them can be added without a change
/// of the others. Each may also write to its own directory.
fn numbered<'n>(entry: &AgentEntry<'n>, count: u64) -> Vec<AgentEntry<'n>> {
    let refused = |refusal: ghost_domain::Refusal| {
        entry.field.error(refusal.message, Hint::of(refusal.hint, "choose a shorter id"));
    };
    let one = |n: u64| -> Result<AgentEntry<'n>, ghost_domain::Refusal> {
        let agent_id: AgentId = format!("{}-{n}", entry.agent_id).parse()?;
        let write_acl = match &entry.write_acl {
            Some((field, acl)) => {
                let own = WriteAcl::own_directory(&agent_id);
                let prefixes = [acl.prefixes(), own.prefixes()].concat();
                Some((field.clone(), WriteAcl::of(&agent_id, &prefixes)?))
            }
            None => None,
        };
        let name = entry.name.as_ref().map(|name| format!("{name} {n}"));
        Ok(AgentEntry { agent_id, name, write_acl, ..entry.clone() })
    };
    // What is wrong with one is wrong with all, so it is reported once.
    (1..=count).map(one).collect::<Result<_, _>>().map_err(refused).unwrap_or_default()
}

fn new_id(field: &Field<'_>) -> Option<AgentId> {
    let agent_id: AgentId = field.parsed("an agent id")?;
    match agent_id.check_new() {
        Ok(()) => Some(agent_id),
        Err(refusal) => {
            field.error(refusal.message, Hint::of(refusal.hint, "choose another id"));
            None
        }
    }
}

/// Reads one entry, and its `count`.
fn agent<'n>(field: &Field<'n>) -> Option<(AgentEntry<'n>, Option<u64>)> {
    let map = field.map_of("{ id: lead, archetype: lead }")?;
    let agent_id = map.need("id", "lead").and_then(|field| new_id(&field));
    let count = map.get("count").and_then(|field| field.count(1..=AGENTS_MAX));
    let archetype = map.need("archetype", "lead").and_then(|field| field.text(200).map(|text| (field.clone(), text)));
    let name = map.get("name").and_then(|field| field.text(200).map(str::to_owned));
    let team = map.get("team").and_then(|field| field.name().map(|name| (field.clone(), name)));
    let autostart = map.get("autostart").and_then(|field| field.flag()).unwrap_or(true);
    let restart = section(&map, "restart", |inner| Some(restart(inner))).unwrap_or_default();
    let groups = map.get("privilege_groups").map(|field| names(&field)).unwrap_or_default();
    let profile = map.get("profile").and_then(|field| field.choice(&Profile::NAMES)).and_then(Profile::named);
    let acl = map.get("write_acl");
    let acl = acl.and_then(|field| write_acl(&field, agent_id.as_ref()).map(|acl| (field, acl)));
    let spend = map.get("budget").and_then(|field| {
        let limits = budgets::one(&field)?;
        Some((field, limits))
    });
    let (model, limits) =
        section(&map, "overrides", |inner| Some((read_model(inner), agent_limits(inner)))).unwrap_or_default();
    let heartbeat = map.get("heartbeat").and_then(|field| heartbeat::block(&field));
    map.finish(&[("overides", "did you mean `overrides`?")]);
    let entry = AgentEntry {
        field: field.clone(),
        agent_id: agent_id?,
        archetype,
        name,
        team,
        autostart,
        restart,
        groups,
        profile,
        write_acl: acl,
        budget: spend,
        model,
        limits,
        heartbeat,
    };
    Some((entry, count))
}

fn restart(map: &Map<'_>) -> RestartPlan {
    let default = RestartPlan::default();
    let kinds: Vec<&'static str> = RestartType::ALL.iter().map(|kind| kind.as_str()).collect();
    let kind = map.get("type").and_then(|field| field.choice(&kinds)).and_then(|kind| kind.parse().ok());
    let intensity = read_intensity(map);
    let range = || Duration::from_millis(1)..=Duration::from_secs(3_600);
    let backoff = map.get("backoff").map(|field| {
        if field.is_single() {
            let base = field.duration(range()).unwrap_or(default.backoff.base);
            return Backoff { base, cap: default.backoff.cap.max(base) };
        }
        let Some(inner) = field.map() else { return default.backoff };
        let base = inner.get("base").and_then(|field| field.duration(range())).unwrap_or(default.backoff.base);
        let cap = inner.get("cap").and_then(|field| field.duration(range())).unwrap_or(default.backoff.cap.max(base));
        if cap < base {
            inner.field().error("`cap` is shorter than `base`", "`base` is the first wait, `cap` the longest");
        }
        inner.finish(&[]);
        Backoff { base, cap }
    });
    RestartPlan { restart: kind.unwrap_or(default.restart), intensity, backoff: backoff.unwrap_or(default.backoff) }
}

/// Reads the limits that an agent or archetype may narrow, under their names here or in a
/// `config.md`.
pub fn agent_limits(map: &Map<'_>) -> AgentLimits {
    let table = ghost_domain::Limits::default().table();
    let range = |name: &str| {
        let (_, _, least, most) =
            table.iter().find(|row| row.0 == name).copied().unwrap_or(("", 0, 1, u64::from(u32::MAX)));
        least..=most
    };
    let read = |limit: &'static str, other: &'static str, times: u64| {
        let own = map.get(limit).and_then(|field| field.count(range(limit)));
        let alias = map.get(other).and_then(|field| {
            let range = range(limit);
            let number = field.count(range.start().div_ceil(times)..=range.end() / times)?;
            if own.is_some() {
                field.error(format!("this is the same bound as `{limit}`, which is set too"), "keep one of the two");
            }
            Some(number * times)
        });
        own.or(alias).and_then(|number| u32::try_from(number).ok())
    };
    let result_once_bytes = map.get("result_once_bytes").and_then(|field| field.count(range("result_once_bytes")));
    AgentLimits {
        turn_rounds_max: read("turn_rounds_max", "max_tool_rounds", 1),
        turn_seconds: read("turn_seconds", "turn_timeout_seconds", 1),
        context_bytes: read("context_bytes", "context_window_tokens", 4),
        result_view_bytes: read("result_view_bytes", "tool_result_chars", 1),
        result_once_bytes: result_once_bytes.and_then(|number| u32::try_from(number).ok()),
    }
}

/// Reads `teams`.
pub fn teams<'n>(map: &Map<'n>) -> Vec<TeamEntry<'n>> {
    map.get("teams").map(|field| field.list()).unwrap_or_default().iter().filter_map(team).collect()
}

fn team<'n>(field: &Field<'n>) -> Option<TeamEntry<'n>> {
    let map = field.map_of("{ name: desk, agents: [lead] }")?;
    let name = map.need("name", "desk").and_then(|field| field.name().map(str::to_owned));
    let kinds: Vec<&'static str> = Strategy::ALL.iter().map(|kind| kind.as_str()).collect();
    let strategy = map.get("strategy").and_then(|field| field.choice(&kinds)).and_then(|kind| kind.parse().ok());
    let intensity = intensity(&map).unwrap_or_default();
    let list = map.get("agents").map(|field| field.list()).unwrap_or_default();
    let agents = list.into_iter().filter_map(|item| item.parsed("an agent id").map(|id| (item, id))).collect();
    map.finish(&[]);
    Some(TeamEntry {
        field: field.clone(),
        name: name?,
        strategy: strategy.unwrap_or(Strategy::OneForOne),
        intensity,
        agents,
    })
}
