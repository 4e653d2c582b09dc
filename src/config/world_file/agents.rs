//! `agents` and `teams`.

use std::collections::BTreeSet;
use std::fmt;

use ghost_domain::model_facts::Thinking;
use ghost_domain::restart::{Backoff, Intensity, RestartType, Strategy};
use ghost_domain::tool_catalogue::Profile;
use ghost_domain::write_acl::WriteAcl;
use ghost_domain::{AgentId, Limits, Refusal};
use schemars::{JsonSchema, json_schema};
use serde::Deserialize;
use serde::de::{self, DeserializeSeed as _, Deserializer, IntoDeserializer as _, Visitor};

use super::budgets::Budget;
use crate::deserializer::whole;
use crate::heartbeat::HeartbeatBlock;
use crate::kinds::{Count, Name, NewId, Parsed, Range, Text, Thousandths, Time, Usd, duration, schema};
use crate::plan::{AgentLimits, ModelChoice, RestartPlan};
use crate::problem::Hint;
use crate::reader::Field;
use crate::typed::{Read, Spanned, problem};

/// The largest `count` of one entry, and of all agents of a world file together.
pub const AGENTS_MAX: u64 = 100_000;

/// One entry of `agents`.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AgentSection {
    /// Unique in the world. `system` and `all` are refused.
    pub id: Option<NewId>,
    /// Makes so many agents of this entry: `<id>-1`, `<id>-2` and so on. A `name` gets the number, too. If
    /// `write_acl` is set, each also keeps its own directory.
    pub count: Option<Count<1, AGENTS_MAX>>,
    /// A directory under `archetype/`.
    #[schemars(title = "name")]
    pub archetype: Option<Spanned<Text<200>>>,
    /// What people and models see. The default is the id.
    pub name: Option<Text<200>>,
    /// One of `teams`. The default is none.
    pub team: Option<Spanned<Name>>,
    /// Whether the first start of the world starts the agent. The default is `true`.
    pub autostart: Option<bool>,
    /// When and how often it is restarted.
    pub restart: RestartSection,
    /// Groups beside those of its archetype.
    #[schemars(title = "list of groups")]
    pub privilege_groups: Vec<Spanned<Name>>,
    /// Narrows its tools to those of the profile; `full` narrows nothing.
    #[schemars(with = "Option<String>", extend("enum" = Profile::NAMES))]
    pub profile: Option<Profile>,
    /// The directories of the workspace that it may write to. Each ends in `/`; never `agents/`, another agent's
    /// directory or a reserved place (`.git`, `.ghost-world`). The default is `agents/<id>/`.
    #[schemars(title = "list of directories")]
    pub write_acl: Option<Spanned<Vec<Spanned<Text<1_024>>>>>,
    /// What the agent may spend, as `budgets.agent.<id>`. Set one of the two.
    pub budget: Option<Spanned<Budget>>,
    /// Replaces what its archetype says: the keys of `## LLM` and `## Limits` of a `config.md`, without
    /// `daily_cost_usd`. A new `provider` or `model` drops the archetype's `fallback_models`.
    pub overrides: Overrides,
    /// Its own heartbeat: the keys of `heartbeat`, without `ack_max_chars`.
    pub heartbeat: Option<HeartbeatBlock>,
}

/// `overrides` of an agent; `## LLM` and `## Limits` of an archetype have some of the keys each.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Overrides {
    /// The provider of the model. The default is `llm.default_provider`.
    #[schemars(title = "provider")]
    pub provider: Option<Spanned<Text<200>>>,
    /// The model's name at that provider. The default is `llm.default_model`.
    #[schemars(title = "model")]
    pub model: Option<Spanned<Text<200>>>,
    /// Models that are tried in this order when a model fails: `model` or `provider/model`.
    #[schemars(title = "list of models")]
    pub fallback_models: Vec<Spanned<Text<200>>>,
    /// The sampling temperature. The default is the provider's.
    pub temperature: Option<Spanned<Thousandths<0, 2_000>>>,
    /// Tokens of one answer. The default is `limits.answer_tokens`.
    pub max_tokens: Option<Spanned<Count<1, 1_000_000>>>,
    /// How much the model thinks. The default is the provider's.
    pub thinking: Option<Spanned<Thinking>>,
    /// Model calls in one turn. The default is the world's limit.
    pub turn_rounds_max: Option<Spanned<LimitOf<ROUNDS>>>,
    /// The same as `turn_rounds_max`.
    pub max_tool_rounds: Option<Spanned<LimitOf<ROUNDS>>>,
    /// Seconds of work in one turn. The default is the world's limit.
    pub turn_seconds: Option<Spanned<LimitOf<SECONDS>>>,
    /// The same as `turn_seconds`.
    pub turn_timeout_seconds: Option<Spanned<LimitOf<SECONDS>>>,
    /// Bytes of the conversation. For Ollama also the window that the model is loaded with. The default is the
    /// world's limit.
    pub context_bytes: Option<Spanned<LimitOf<CONTEXT>>>,
    /// The same as `context_bytes`, in tokens of 4 bytes each.
    pub context_window_tokens: Option<Spanned<LimitOf<TOKENS>>>,
    /// Bytes of a tool result that the model sees. The default is the world's limit.
    pub result_view_bytes: Option<Spanned<LimitOf<VIEW>>>,
    /// The same as `result_view_bytes`.
    pub tool_result_chars: Option<Spanned<LimitOf<VIEW>>>,
    /// Bytes of a tool result above which the model sees it once. The default is the world's limit.
    pub result_once_bytes: Option<Spanned<LimitOf<ONCE>>>,
    /// What each agent of the archetype may cost in a day (UTC), created agents included; in an archetype's file
    /// alone. The world file's `usd_per_day` for the agent, or a limit set by hand, takes precedence.
    pub daily_cost_usd: Option<Spanned<Usd>>,
}

/// The world's limits that an agent may narrow, each with how many of its units one of the key's is.
const NARROWED: [(&str, u64); 6] = [
    ("turn_rounds_max", 1),
    ("turn_seconds", 1),
    ("context_bytes", 1),
    ("context_bytes", 4),
    ("result_view_bytes", 1),
    ("result_once_bytes", 1),
];
const ROUNDS: usize = 0;
const SECONDS: usize = 1;
const CONTEXT: usize = 2;
const TOKENS: usize = 3;
const VIEW: usize = 4;
const ONCE: usize = 5;

/// A limit within the range of the world's limit `NARROWED[AT]`, in units of that limit.
#[derive(Clone, Copy)]
pub struct LimitOf<const AT: usize>(u32);

schema!(@[const AT: usize] LimitOf<AT>, _ => {
    let Range(least, most) = Self::range();
    json_schema!({ "type": "integer", "minimum": least, "maximum": most })
});

impl<const AT: usize> LimitOf<AT> {
    /// The values of the key.
    fn range() -> Range {
        let (limit, times) = NARROWED[AT];
        let table = Limits::default().table();
        let row = table.iter().find(|row| row.0 == limit);
        let (least, most) = row.map_or((1, u64::from(u32::MAX)), |(_, _, least, most)| (*least, *most));
        Range(least.div_ceil(times), most / times)
    }
}

impl<'de, const AT: usize> Deserialize<'de> for LimitOf<AT> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let number = Self::range().deserialize(deserializer)?;
        u32::try_from(number * NARROWED[AT].1).map(Self).map_err(de::Error::custom)
    }
}

impl Overrides {
    /// The keys of `## LLM`.
    pub const MODEL: [&str; 6] = ["provider", "model", "fallback_models", "temperature", "max_tokens", "thinking"];

    /// The keys of `## Limits`.
    pub const LIMITS: [&str; 10] = [
        "turn_rounds_max",
        "max_tool_rounds",
        "turn_seconds",
        "turn_timeout_seconds",
        "context_bytes",
        "context_window_tokens",
        "result_view_bytes",
        "tool_result_chars",
        "result_once_bytes",
        "daily_cost_usd",
    ];

    /// The settings of the model.
    pub fn choice(&self) -> ModelChoice {
        let text = |word: &Option<Spanned<Text<200>>>| word.as_ref().map(|word| word.0.clone());
        ModelChoice {
            provider: text(&self.provider),
            model: text(&self.model),
            fallback_models: self.fallback_models.iter().map(|model| model.0.clone()).collect(),
            temperature: self.temperature.as_ref().map(|value| value.0),
            max_tokens: self.max_tokens.as_ref().map(|value| value.u32()),
            thinking: self.thinking.as_ref().map(|value| value.value),
        }
    }

    /// The places of `temperature`, `max_tokens` and `thinking`.
    pub fn settings<'f, 'n, T>(&self, read: &'f Read<'n, T>) -> Vec<(&'static str, &'f Field<'n>)> {
        [
            ("temperature", self.temperature.as_ref().map(|value| read.at(value))),
            ("max_tokens", self.max_tokens.as_ref().map(|value| read.at(value))),
            ("thinking", self.thinking.as_ref().map(|value| read.at(value))),
        ]
        .into_iter()
        .filter_map(|(key, field)| Some((key, field?)))
        .collect()
    }

    /// The limits. A bound that is written under both its names is reported.
    pub fn limits<T>(&self, read: &Read<'_, T>) -> AgentLimits {
        fn either<T, const AT: usize, const ALIAS: usize>(
            read: &Read<'_, T>,
            own: &Option<Spanned<LimitOf<AT>>>,
            alias: &Option<Spanned<LimitOf<ALIAS>>>,
        ) -> Option<u32> {
            if let (Some(_), Some(alias)) = (own, alias) {
                let message = format!("this is the same bound as `{}`, which is set too", NARROWED[AT].0);
                read.at(alias).error(message, "keep one of the two");
            }
            own.as_ref().map(|limit| limit.0).or(alias.as_ref().map(|limit| limit.0))
        }
        AgentLimits {
            turn_rounds_max: either(read, &self.turn_rounds_max, &self.max_tool_rounds),
            turn_seconds: either(read, &self.turn_seconds, &self.turn_timeout_seconds),
            context_bytes: either(read, &self.context_bytes, &self.context_window_tokens),
            result_view_bytes: either(read, &self.result_view_bytes, &self.tool_result_chars),
            result_once_bytes: self.result_once_bytes.as_ref().map(|limit| limit.0),
        }
    }
}

/// One entry of `teams`.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TeamSection {
    /// Unique in the world.
    pub name: Option<Name>,
    /// Which members restart when one crashes: it alone, all, or it and those after it. The default is `one_for_one`.
    pub strategy: Option<Strategy>,
    /// More restarts than `max` within `window` make the team fail.
    pub intensity: IntensitySection,
    /// The members, in start order. An agent may name its `team` instead.
    pub agents: Vec<Spanned<Parsed<AgentId>>>,
}

/// `intensity`: how many restarts within which window.
#[derive(Clone, Copy, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct IntensitySection {
    /// Restarts within `window`; one more, and it fails.
    #[schemars(extend("default" = Intensity::default().max))]
    max: Count<0, 10_000>,
    /// The time within which restarts count.
    #[schemars(extend("default" = duration(Intensity::default().window)))]
    window: Time<1_000, 604_800_000>,
}

impl Default for IntensitySection {
    fn default() -> Self {
        let Intensity { max, window } = Intensity::default();
        Self { max: Count(u64::from(max)), window: Time(window) }
    }
}

impl From<IntensitySection> for Intensity {
    fn from(section: IntensitySection) -> Self {
        Self { max: section.max.u32(), window: section.window.0 }
    }
}

/// `restart` of an agent.
#[derive(Clone, Copy, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RestartSection {
    /// When it is restarted: always, only after a crash, or never.
    r#type: RestartType,
    /// Restarts within `window`; one more, and it fails.
    #[schemars(extend("default" = RestartPlan::default().intensity.max))]
    max: Count<0, 10_000>,
    /// The time within which restarts count.
    #[schemars(extend("default" = duration(RestartPlan::default().intensity.window)))]
    window: Time<1_000, 604_800_000>,
    /// The wait before a restart. It starts at `base` and doubles up to `cap`, less a random part of up to a fifth. A
    /// duration alone is `base`.
    #[schemars(extend("default" = backoff()))]
    backoff: BackoffSection,
}

impl Default for RestartSection {
    fn default() -> Self {
        let RestartPlan { restart, intensity, .. } = RestartPlan::default();
        let backoff = BackoffSection(Backoff::default());
        Self { r#type: restart, max: Count(u64::from(intensity.max)), window: Time(intensity.window), backoff }
    }
}

impl From<RestartSection> for RestartPlan {
    fn from(section: RestartSection) -> Self {
        let RestartSection { r#type, max, window, backoff: BackoffSection(backoff) } = section;
        Self { restart: r#type, intensity: Intensity { max: max.u32(), window: window.0 }, backoff }
    }
}

/// The default of `backoff`, as it is written.
fn backoff() -> serde_json::Value {
    let Backoff { base, cap } = Backoff::default();
    serde_json::json!({ "base": duration(base), "cap": duration(cap) })
}

/// `backoff`: one duration, or both.
#[derive(Clone, Copy)]
struct BackoffSection(Backoff);

schema!(BackoffSection, generator => json_schema!({
    "anyOf": [generator.subschema_for::<Time<1, 3_600_000>>(), generator.subschema_for::<BackoffMap>()]
}));

/// `backoff` as a map.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct BackoffMap {
    /// The first wait.
    #[schemars(extend("default" = backoff()["base"]))]
    base: Option<Time<1, 3_600_000>>,
    /// The longest wait.
    #[schemars(extend("default" = backoff()["cap"]))]
    cap: Option<Time<1, 3_600_000>>,
}

impl<'de> Deserialize<'de> for BackoffSection {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = BackoffMap;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("write a duration such as 250ms, or { base: 250ms, cap: 30s }")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<BackoffMap, E> {
                let base = Time::deserialize(text.into_deserializer())?;
                Ok(BackoffMap { base: Some(base), cap: None })
            }

            fn visit_unit<E: de::Error>(self) -> Result<BackoffMap, E> {
                Ok(BackoffMap::default())
            }

            fn visit_map<A: de::MapAccess<'de>>(self, map: A) -> Result<BackoffMap, A::Error> {
                BackoffMap::deserialize(de::value::MapAccessDeserializer::new(map))
            }
        }
        let BackoffMap { base, cap } = deserializer.deserialize_newtype_struct("$text_or BackoffMap", Either)?;
        let default = Backoff::default();
        let base = base.map_or(default.base, |base| base.0);
        let cap = cap.map_or(default.cap.max(base), |cap| cap.0);
        if cap < base {
            let hint = "`base` is the first wait, `cap` the longest";
            return Err(problem("`cap` is shorter than `base`", hint));
        }
        Ok(Self(Backoff { base, cap }))
    }
}

/// One agent of the file.
pub struct AgentEntry {
    /// The id.
    pub agent_id: AgentId,
    /// The name for display.
    pub name: Option<String>,
    /// The directories that it may write to, if its entry names them.
    pub write_acl: Option<WriteAcl>,
    /// The position of its entry in the list of those that could be read.
    pub entry: usize,
}

/// The agents, each entry with a `count` as many, and the ids of all that the file names.
pub(super) fn expand<T>(
    read: &Read<'_, T>,
    list: &Spanned<Vec<Spanned<AgentSection>>>,
) -> (Vec<AgentEntry>, BTreeSet<AgentId>) {
    let (mut agents, mut ids) = (Vec::new(), BTreeSet::new());
    let field = read.at(list);
    if field.length() == 0 {
        let hint = "name at least one: `- { id: lead, archetype: lead }`";
        field.error("a world needs at least one agent", hint);
    }
    for (entry, section) in list.iter().enumerate() {
        let room = AGENTS_MAX - u64::try_from(agents.len()).unwrap_or(AGENTS_MAX);
        if section.count.map_or(1, |count| count.0) > room {
            let hint = "use several worlds, or lower `count`";
            read.at(section).error(format!("a world file may have at most {AGENTS_MAX} agents"), hint);
            break;
        }
        agents.extend(members(read, section, entry));
    }
    ids.extend(agents.iter().map(|agent| agent.agent_id.clone()));
    // An entry that could not be read was reported. Those who name its agents are right.
    let is_read = |item: &Field<'_>| list.iter().any(|section| std::ptr::eq(read.at(section).node(), item.node()));
    let unread = field.items().into_iter().filter(|item| !is_read(item));
    for (id, count) in unread.filter_map(|item| Some((item.node().get("id")?.text()?.to_owned(), item.get("count")))) {
        let count = count.and_then(|count| whole(count.node().text()?));
        let room = (AGENTS_MAX as usize).saturating_sub(ids.len());
        match count {
            None => ids.extend(id.parse::<AgentId>().ok()),
            Some(count) => ids.extend((1..=count).take(room).filter_map(|n| format!("{id}-{n}").parse().ok())),
        }
    }
    (agents, ids)
}

/// The agents of one entry. With a `count` they are numbered, so that more of them can be added without a change of the
/// others. Each may also write to its own directory.
fn members<T>(read: &Read<'_, T>, section: &Spanned<AgentSection>, entry: usize) -> Vec<AgentEntry> {
    let acl = section.write_acl.as_ref();
    let Some(NewId(id)) = &section.id else {
        // Only the form of its prefixes can be checked.
        acl.map(|words| write_acl(read, words, None));
        return Vec::new();
    };
    let acl = acl.and_then(|words| write_acl(read, words, Some(id)));
    let Some(count) = section.count else {
        let (agent_id, name) = (id.clone(), section.name.as_ref().map(|name| name.0.clone()));
        return vec![AgentEntry { agent_id, name, write_acl: acl, entry }];
    };
    let one = |n: u64| -> Result<AgentEntry, Refusal> {
        let agent_id: AgentId = format!("{id}-{n}").parse()?;
        let own = |acl: &WriteAcl| {
            let own = WriteAcl::own_directory(&agent_id);
            WriteAcl::of(&agent_id, &[acl.prefixes(), own.prefixes()].concat())
        };
        let write_acl = acl.as_ref().map(own).transpose()?;
        let name = section.name.as_ref().map(|name| format!("{} {n}", name.0));
        Ok(AgentEntry { agent_id, name, write_acl, entry })
    };
    // What is wrong with one is wrong with all, so it is reported once.
    let refused = |refusal: Refusal| {
        read.at(section).error(refusal.message, Hint::of(refusal.hint, "choose a shorter id"));
    };
    (1..=count.0).map(one).collect::<Result<_, _>>().map_err(refused).unwrap_or_default()
}

/// An agent's write prefixes.
pub(super) fn write_acl<T>(
    read: &Read<'_, T>,
    words: &[Spanned<Text<1_024>>],
    agent: Option<&AgentId>,
) -> Option<WriteAcl> {
    let parse = |prefixes: &[String]| match agent {
        Some(agent) => WriteAcl::of(agent, prefixes),
        None => WriteAcl::new(prefixes),
    };
    let mut prefixes = Vec::new();
    for word in words {
        match parse(std::slice::from_ref(&word.0)) {
            Ok(_) => prefixes.push(word.0.clone()),
            Err(refusal) => read.at(word).refused(refusal, "write a directory of the workspace that ends in `/`"),
        }
    }
    parse(&prefixes).ok()
}
