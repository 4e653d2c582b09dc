//! `llm`: providers, prices and defaults. The file names variables that hold keys, never the keys.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use ghost_domain::model_facts::Api;
use ghost_domain::text::clip;
use schemars::JsonSchema;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;

use crate::files::is_plain_relative;
use crate::kinds::{Count, Name, Text, Time, Url, Variable, duration, text_kind};
use crate::plan::{Origin, ProviderKind, ProviderPlan};
use crate::price::PriceSection;
use crate::reader::Field;
use crate::substitute::variables;
use crate::typed::{Read, Spanned};

/// `llm`: providers, models and prices.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LlmSection {
    /// The provider of archetypes that name none.
    #[schemars(title = "provider", extend("default" = "scripted"))]
    pub default_provider: Option<Spanned<Text<200>>>,
    /// The model of agents at the default provider that name no model. The default is `default` for scripted and
    /// recorded; else none.
    #[schemars(title = "model")]
    pub default_model: Option<Spanned<Text<200>>>,
    /// Providers by name. All kinds but `recorded` can be used as names without an entry.
    pub providers: BTreeMap<Name, Spanned<ProviderSection>>,
    /// US dollars for a million tokens, by `<provider>/<model>`, or by `<model>` for all providers. The default is
    /// the list that Ghost ships.
    pub prices: BTreeMap<String, PriceSection>,
    /// A file with more about models.
    pub models_file: Option<Spanned<FileWithin>>,
}

/// A provider whose settings are the defaults of most kinds.
fn usual() -> ProviderPlan {
    ProviderPlan::of_kind(ProviderKind::OpenAi, Path::new(""))
}

/// One entry of `llm.providers`. Absent settings take the defaults of its kind.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ProviderSection {
    /// The protocol. The default is the provider's name.
    kind: Option<ProviderKind>,
    /// Where the server listens. The default is the vendor's address.
    pub base_url: Option<Spanned<Url>>,
    /// The variable that holds the key. The default is `ANTHROPIC_API_KEY`, `OPENAI_API_KEY` or `GEMINI_API_KEY` by
    /// kind; none with a `base_url`.
    pub api_key_env: Option<Spanned<Variable>>,
    /// Calls at the same time. Others wait in order, also across a reload, unless `kind` or `base_url` changes. The
    /// default is 4; for scripted and recorded 64.
    pub concurrency: Option<Count<1, 1_024>>,
    /// Attempts of one call before a fallback model or failure. A refused key is not tried again: the next attempt is
    /// at another provider.
    #[schemars(extend("default" = usual().attempts))]
    pub attempts: Option<Count<1, 10>>,
    /// The wait before the second attempt; it doubles with each further one.
    #[schemars(extend("default" = duration(usual().retry_base)))]
    pub retry_base: Option<Time<1, 3_600_000>>,
    /// The longest wait. If the provider asks for a longer one, there is no further attempt.
    #[schemars(extend("default" = duration(usual().retry_cap)))]
    pub retry_cap: Option<Time<1, 3_600_000>>,
    /// How long an answer that has begun may send nothing. `limits.model_seconds` bounds the wait for its first byte.
    #[schemars(extend("default" = duration(usual().idle_timeout)))]
    pub idle_timeout: Option<Time<1, 3_600_000>>,
    /// Scripted: the directory of the rule files, within the world; the default is `scripts`. Recorded: the data
    /// directory of an earlier run; required.
    #[schemars(title = "directory")]
    pub dir: Option<Spanned<Text<1_024>>>,
    /// Headers of each request, 32 of 4 KB each. Not headers that Ghost sets, nor headers that carry keys;
    /// `Authorization` and `api-key` are allowed if the provider has no key.
    #[schemars(with = "Option<serde_json::Value>", title = "map of names to texts")]
    pub headers: Option<Spanned<IgnoredAny>>,
    /// Query parameters of each request, 32 of 4 KB each; for Gemini not `key` and `alt`.
    #[schemars(with = "Option<serde_json::Value>", title = "map of names to texts")]
    pub query: Option<Spanned<IgnoredAny>>,
    /// Fields of each request body, 64 KB as JSON. An object is merged with Ghost's, any other value replaces
    /// Ghost's. Some are refused.
    #[schemars(with = "Option<serde_json::Value>", title = "map of names to values")]
    pub extra_body: Option<Spanned<IgnoredAny>>,
    /// Kind `openai`: which API. The default follows from the host and the model.
    pub api: Option<Spanned<Api>>,
    /// Kind `openai`: query parameter `api-version` (Azure). Kind `anthropic`: header `anthropic-version`; the
    /// default is `2023-06-01`.
    pub api_version: Option<Spanned<Token>>,
    /// Kind `openai`: header `OpenAI-Organization`.
    pub organization: Option<Spanned<Token>>,
}

text_kind! {
    /// A version or an id: visible ASCII characters.
    pub Token(String), 200, "ASCII text without spaces, 200 bytes", |text| match text.bytes().all(|b| b.is_ascii_graphic()) {
        true => Ok(text.to_owned()),
        false => Err(("it holds spaces, or characters beyond ASCII".into(), "write it as the provider shows it".into())),
    }
}

text_kind! {
    /// The path of a file in the world's directory.
    pub FileWithin(String), 1_024, "file of the world", |text| match is_plain_relative(text) {
        true => Ok(text.to_owned()),
        false => {
            let message = format!("`{text}` does not stay in the world's directory");
            Err((message, "write a relative path such as models.yaml".into()))
        }
    }
}

/// A provider that the file defines.
pub struct ProviderEntry {
    /// Where it is defined.
    pub origin: Origin,
    /// Where `api`, `api_key_env`, `base_url` and `dir` are, if the file contains them.
    pub settings: BTreeMap<&'static str, Origin>,
    /// The protocol.
    pub kind: ProviderKind,
    /// The directory, relative to the world's or absolute.
    pub dir: Option<PathBuf>,
    /// Additions to each request.
    pub sent: Sent,
}

/// The usable entries of `llm.providers`, and the names of those with a problem.
pub(super) fn providers<T>(
    read: &Read<'_, T>,
    llm: &LlmSection,
    root: &Field<'_>,
) -> (BTreeMap<String, ProviderEntry>, BTreeSet<String>) {
    let written = root.node().get("llm").and_then(|llm| llm.get("providers"));
    let mut unread: BTreeSet<String> = written.map(|node| node.keys().map(str::to_owned).collect()).unwrap_or_default();
    let mut found = BTreeMap::new();
    for (name, section) in &llm.providers {
        if let Some(entry) = provider(name, section, read) {
            unread.remove(&name.0);
            found.insert(name.0.clone(), entry);
        }
    }
    (found, unread)
}

fn provider<T>(name: &str, section: &Spanned<ProviderSection>, read: &Read<'_, T>) -> Option<ProviderEntry> {
    let field = read.at(section);
    let written = |key: &str| field.node().get(key).is_some();
    let named = ProviderKind::named(name).filter(|_| !written("kind"));
    let kind = section.kind.or(named);
    if kind.is_none() && !written("kind") {
        let names: Vec<&str> = ProviderKind::ALL.iter().map(|(name, _)| *name).collect();
        field.error("`kind` is missing", format!("it may be: {}", names.join(", ")));
    }
    let dir = section.dir.as_ref().and_then(|dir| directory(dir, kind, read));
    let sent = sent(section, kind, read);
    if kind == Some(ProviderKind::Recorded) && dir.is_none() {
        field.error("a recorded provider needs `dir`", "name the data directory of the earlier run");
    }
    if let (Some(base), Some(cap)) = (section.retry_base, section.retry_cap)
        && cap.0 < base.0
    {
        let hint = "`retry_base` is the first wait, `retry_cap` the longest";
        field.error("`retry_cap` is shorter than `retry_base`", hint);
    }
    let settings = ["api", "api_key_env", "base_url", "dir"];
    let settings = settings.into_iter().filter_map(|key| Some((key, field.get(key)?.origin()))).collect();
    Some(ProviderEntry { origin: field.origin(), settings, kind: kind?, dir, sent })
}

fn directory<T>(dir: &Spanned<Text<1_024>>, kind: Option<ProviderKind>, read: &Read<'_, T>) -> Option<PathBuf> {
    let field = read.at(dir);
    match kind? {
        ProviderKind::Scripted if !is_plain_relative(dir) => {
            let message = format!("`{}` does not stay in the world's directory", field.shown());
            field.error(message, "write a relative path such as scripts");
            None
        }
        ProviderKind::Scripted | ProviderKind::Recorded => Some(PathBuf::from(&dir.0)),
        _ => {
            field.error("only a scripted or recorded provider has a directory", "omit it");
            None
        }
    }
}

/// The largest number of headers, and of parameters.
const COUNT_MAX: usize = 32;
/// The largest size of a name and of a value, in bytes.
const VALUE_MAX: usize = 4 * 1_024;
/// The largest size of the body fields as JSON, in bytes.
const BODY_MAX: usize = 64 * 1_024;

/// Headers that carry keys. The first two are allowed if the entry itself sends no key: gateways may need them.
const KEY_HEADERS: [&str; 4] = ["authorization", "api-key", "x-api-key", "x-goog-api-key"];
/// Headers that Ghost sets itself, or that would change how a request is sent.
const SET_BY_GHOST: [&str; 8] =
    ["accept", "accept-encoding", "connection", "content-length", "content-type", "host", "te", "transfer-encoding"];
/// Body fields that the protocols depend on.
const PROTOCOL: [&str; 8] = ["contents", "input", "messages", "model", "store", "stream", "stream_options", "tools"];
/// Body fields that set the length of the answer. The budget reserves that length in advance.
const ANSWER_LENGTH: [&str; 8] = [
    "best_of",
    "candidateCount",
    "maxOutputTokens",
    "max_completion_tokens",
    "max_output_tokens",
    "max_tokens",
    "n",
    "num_predict",
];

/// The hint for a key in the wrong place.
const NAME_THE_VARIABLE: &str = "name the variable that holds the key with `api_key_env`";

/// Additions to each request.
#[derive(Debug, Default)]
pub struct Sent {
    /// `headers`, `api_version` and `organization`.
    pub headers: BTreeMap<String, String>,
    /// `query` and `api_version`.
    pub query: BTreeMap<String, String>,
    /// `extra_body`.
    pub extra_body: serde_json::Map<String, Value>,
    /// `api`.
    pub api: Option<Api>,
    /// The variables used in headers and parameters. Their values may be keys.
    pub variables: BTreeSet<String>,
}

/// The additions of a provider's entry. If `kind` is unknown, all keys are accepted.
fn sent<T>(section: &Spanned<ProviderSection>, kind: Option<ProviderKind>, read: &Read<'_, T>) -> Sent {
    let entry = read.at(section);
    let written = |key: &str| entry.node().get(key).is_some();
    let keyed =
        written("api_key_env") || !written("base_url") && kind.is_some_and(|kind| kind.usual_key_env().is_some());
    let fits = |key: &str, fits: &dyn Fn(ProviderKind) -> bool, hint: &str| -> bool {
        let Some(field) = entry.get(key) else { return false };
        let Some(kind) = kind.filter(|kind| !fits(*kind)) else { return true };
        field.error(format!("`{key}` has no meaning for a provider of kind `{}`", kind.as_str()), hint);
        false
    };
    let http = |key| fits(key, &|kind| !kind.is_local(), "remove it: this kind sends no requests");
    let openai = |key| fits(key, &|kind| kind == ProviderKind::OpenAi, "remove it: it is for kind openai");
    let versioned = |kind| matches!(kind, ProviderKind::OpenAi | ProviderKind::Anthropic);
    let mut sent = Sent::default();
    if let Some(field) = section.headers.as_ref().filter(|_| http("headers")) {
        headers(read.at(field), keyed, &mut sent);
    }
    if let Some(field) = section.query.as_ref().filter(|_| http("query")) {
        query(read.at(field), kind, &mut sent);
    }
    if let Some(field) = section.extra_body.as_ref().filter(|_| http("extra_body")) {
        sent.extra_body = body(read.at(field));
    }
    sent.api = section.api.as_ref().filter(|_| openai("api")).map(|api| api.value);
    let version = section.api_version.as_ref();
    if let Some(version) =
        version.filter(|_| fits("api_version", &versioned, "remove it: it is for Azure's openai and for anthropic"))
    {
        let (field, version) = (read.at(version), version.0.clone());
        match kind {
            Some(ProviderKind::Anthropic) => add(field, "anthropic-version", version, &mut sent.headers, "headers"),
            _ => add(field, "api-version", version, &mut sent.query, "query"),
        }
    }
    if let Some(id) = section.organization.as_ref().filter(|_| openai("organization")) {
        add(read.at(id), "OpenAI-Organization", id.0.clone(), &mut sent.headers, "headers");
    }
    sent
}

/// Adds a setting with a key of its own, unless the same name is also in the map.
fn add(field: &Field<'_>, name: &str, value: String, to: &mut BTreeMap<String, String>, other: &str) {
    if to.keys().any(|there| there.eq_ignore_ascii_case(name)) {
        field.error(format!("`{name}` is set under `{other}` too"), "keep one of the two");
    } else {
        to.insert(name.to_owned(), value);
    }
}

fn headers(field: &Field<'_>, keyed: bool, sent: &mut Sent) {
    for (name, field) in limited_entries(field, "headers") {
        let lower = name.to_ascii_lowercase();
        let token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
        if name.is_empty() || name.len() > VALUE_MAX || !name.bytes().all(token) {
            field.error("this is not a valid name of an HTTP header", "use letters, digits and `-`");
        } else if SET_BY_GHOST.contains(&lower.as_str()) {
            field.error(format!("the header `{name}` is set by Ghost"), "remove it");
        } else if let Some(index) = KEY_HEADERS.iter().position(|key| *key == lower).filter(|index| keyed || *index > 1)
        {
            let gateway = "with a `base_url` and without `api_key_env` it is allowed here";
            let hint = if index > 1 { NAME_THE_VARIABLE.to_owned() } else { format!("{NAME_THE_VARIABLE}; {gateway}") };
            field.error(format!("the header `{name}` carries the key"), hint);
        } else if sent.headers.keys().any(|there| there.eq_ignore_ascii_case(name)) {
            field.error(format!("the header `{name}` is repeated"), "keep one: case makes no difference");
        } else if let Some(value) = field.text(VALUE_MAX) {
            if !value.bytes().all(|b| matches!(b, b'\t' | b' '..=b'~')) {
                let hint = "write ASCII on one line; look for a line break in the variable, if it is from one";
                field.error("the value has characters that are not allowed in an HTTP header", hint);
                continue;
            }
            let from = variables(field.written());
            if from.is_empty() && KEY_HEADERS.contains(&lower.as_str()) {
                field.warn(
                    "the file contains a key, visible to everyone who may read the file",
                    "put it into a variable: `${NAME}`",
                );
            }
            sent.variables.extend(from);
            sent.headers.insert(name.to_owned(), value.to_owned());
        }
    }
}

fn query(field: &Field<'_>, kind: Option<ProviderKind>, sent: &mut Sent) {
    for (name, field) in limited_entries(field, "parameters") {
        let gemini = kind == Some(ProviderKind::Gemini);
        if name.is_empty() || name.len() > VALUE_MAX || name.chars().any(char::is_control) {
            field.error("this is not the name of a parameter", "write the text before the `=` in the address");
        } else if gemini && name == "key" {
            field.error("the parameter `key` carries the key", NAME_THE_VARIABLE);
        } else if gemini && name == "alt" {
            field.error("the parameter `alt` is set by Ghost", "remove it");
        } else if let Some(value) = field.text(VALUE_MAX) {
            if value.chars().any(char::is_control) {
                field.error("the value holds control characters", "write it on one line");
                continue;
            }
            sent.variables.extend(variables(field.written()));
            sent.query.insert(name.to_owned(), value.to_owned());
        }
    }
}

/// The entries of a map with a limited number of entries.
fn limited_entries<'n>(field: &Field<'n>, what: &str) -> Vec<(&'n str, Field<'n>)> {
    if field.length() > COUNT_MAX {
        field.error(format!("there are {} {what}; at most {COUNT_MAX} are sent", field.length()), "remove some");
        return Vec::new();
    }
    field.entries().into_iter().map(|(key, field)| (key.text.as_str(), field)).collect()
}

fn body(field: &Field<'_>) -> serde_json::Map<String, Value> {
    let mut fields = serde_json::Map::new();
    for (key, field) in field.entries() {
        let name = clip(&key.text, 60);
        if PROTOCOL.contains(&key.text.as_str()) {
            let hint = match key.text.as_str() {
                "model" => "name models with `model` of the agents, or `llm.default_model`",
                "tools" => "an agent's tools are what `tool_privileges` and its archetype allow",
                _ => "remove it",
            };
            field.error(format!("`{name}` is set by Ghost for each request"), hint);
        } else if let Some(length_field) = answer_length_in(&key.text, &field.json()) {
            let hint = "write `max_tokens` in the archetype's `## LLM`, or under `overrides` of an agent";
            field.error(
                format!("`{length_field}` sets the length of the answer, which budgets reserve in advance"),
                hint,
            );
        } else {
            fields.insert(key.text.clone(), field.json());
        }
    }
    let bytes = serde_json::to_string(&fields).map_or(usize::MAX, |text| text.len());
    if bytes > BODY_MAX {
        field.error(format!("these fields have {bytes} bytes as JSON; at most {BODY_MAX} are sent"), "shorten them");
        fields.clear();
    }
    fields
}

/// The field that sets the length of the answer: `name` itself or a field inside it.
fn answer_length_in(name: &str, value: &Value) -> Option<&'static str> {
    let known = |name: &str| ANSWER_LENGTH.into_iter().find(|length_field| *length_field == name);
    let within = matches!(name, "generationConfig" | "options").then(|| value.as_object()).flatten();
    known(name).or_else(|| within?.keys().find_map(|key| known(key)))
}

#[cfg(test)]
#[path = "sent_tests.rs"]
mod tests;
