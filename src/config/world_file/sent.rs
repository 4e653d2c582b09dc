//! What a provider's entry adds to each request: headers, parameters of the address, fields of the body; and which of OpenAI's
//! APIs is spoken.
//!
//! Must never: let through what would break the protocol, or send a key beside the one that the entry names.

use std::collections::{BTreeMap, BTreeSet};

use ghost_domain::model_facts::Api;
use ghost_domain::text::clip;
use serde_json::Value;

use crate::model_list::api;
use crate::plan::ProviderKind;
use crate::reader::{Field, Map};
use crate::substitute::variables;

/// Most headers, and most parameters.
const COUNT_MAX: usize = 32;
/// Most bytes of a name and of a value.
const VALUE_MAX: usize = 4 * 1_024;
/// Most bytes of the fields of a body, as JSON.
const BODY_MAX: usize = 64 * 1_024;

/// Headers that carry keys. Gateways may want one of the first two from who names no key.
const KEYS: [&str; 4] = ["authorization", "api-key", "x-api-key", "x-goog-api-key"];
/// Headers that each request has already, or that would change how it is sent.
const OURS: [&str; 8] =
    ["accept", "accept-encoding", "connection", "content-length", "content-type", "host", "te", "transfer-encoding"];
/// Fields that the protocols hang on: what is asked, of whom, and how the answer comes.
const PROTOCOL: [&str; 8] = ["contents", "input", "messages", "model", "store", "stream", "stream_options", "tools"];
/// Fields that say how much is written, which the budget holds beforehand.
const ROOM: [&str; 8] = [
    "best_of",
    "candidateCount",
    "maxOutputTokens",
    "max_completion_tokens",
    "max_output_tokens",
    "max_tokens",
    "n",
    "num_predict",
];

/// Where keys belong.
const NAME_IT: &str = "name the variable that holds the key with `api_key_env`";

/// What is added.
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
    /// The variables that values of headers and parameters came from: what they hold may be a key.
    pub variables: BTreeSet<String>,
}

/// Reads the keys of `map`, the entry of a provider. Of a `kind` that cannot be read nothing is known to be wrong.
pub fn sent(map: &Map<'_>, kind: Option<ProviderKind>) -> Sent {
    let keyed = map.get("api_key_env").is_some()
        || map.get("base_url").is_none() && kind.is_some_and(|kind| kind.usual_key_env().is_some());
    let of_kind = |key: &'static str, fits: &dyn Fn(ProviderKind) -> bool, hint: &str| {
        let field = map.get(key)?;
        if kind.is_none_or(fits) {
            return Some(field);
        }
        let kind = kind.map_or("", ProviderKind::as_str);
        field.error(format!("`{key}` means nothing to a provider of kind `{kind}`"), hint);
        None
    };
    let http = |key| of_kind(key, &|kind| !kind.is_local(), "take it out: nothing is sent to anyone");
    let openai = |key| of_kind(key, &|kind| kind == ProviderKind::OpenAi, "take it out: it is for kind openai");
    let versioned = |kind| matches!(kind, ProviderKind::OpenAi | ProviderKind::Anthropic);
    let mut sent = Sent::default();
    if let Some(field) = http("headers") {
        headers(&field, keyed, &mut sent);
    }
    if let Some(field) = http("query") {
        query(&field, kind, &mut sent);
    }
    if let Some(field) = http("extra_body") {
        sent.extra_body = body(&field);
    }
    sent.api = openai("api").and_then(|field| api(&field));
    let version = of_kind("api_version", &versioned, "take it out: it is for Azure's openai and for anthropic");
    if let Some((field, version)) = version.and_then(|field| word(&field).map(|word| (field, word))) {
        match kind {
            Some(ProviderKind::Anthropic) => add(&field, "anthropic-version", version, &mut sent.headers, "headers"),
            _ => add(&field, "api-version", version, &mut sent.query, "query"),
        }
    }
    if let Some((field, id)) = openai("organization").and_then(|field| word(&field).map(|word| (field, word))) {
        add(&field, "OpenAI-Organization", id, &mut sent.headers, "headers");
    }
    sent
}

/// Adds what has a key of its own, unless it stands among the others, too.
fn add(field: &Field<'_>, name: &str, value: String, to: &mut BTreeMap<String, String>, other: &str) {
    if to.keys().any(|there| there.eq_ignore_ascii_case(name)) {
        field.error(format!("`{name}` stands under `{other}`, too"), "keep one of the two");
    } else {
        to.insert(name.to_owned(), value);
    }
}

fn headers(field: &Field<'_>, keyed: bool, sent: &mut Sent) {
    for (name, field) in few(field, "headers") {
        let lower = name.to_ascii_lowercase();
        let token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
        if name.is_empty() || name.len() > VALUE_MAX || !name.bytes().all(token) {
            field.error("HTTP takes no header of this name", "use letters, digits and `-`");
        } else if OURS.contains(&lower.as_str()) {
            field.error(format!("the header `{name}` is set by Ghost"), "take it out");
        } else if let Some(at) = KEYS.iter().position(|key| *key == lower).filter(|at| keyed || *at > 1) {
            let gateway = "with a `base_url` and without `api_key_env` it may stand here";
            let hint = if at > 1 { NAME_IT.to_owned() } else { format!("{NAME_IT}; {gateway}") };
            field.error(format!("the header `{name}` carries the key"), hint);
        } else if sent.headers.keys().any(|there| there.eq_ignore_ascii_case(name)) {
            field.error(format!("the header `{name}` stands here a second time"), "keep one: case makes no difference");
        } else if let Some(value) = field.text(VALUE_MAX) {
            if !value.bytes().all(|b| matches!(b, b'\t' | b' '..=b'~')) {
                let hint = "write ASCII on one line; look for a line break in the variable, if it is from one";
                field.error("the value holds characters that no HTTP header may", hint);
                continue;
            }
            let from = variables(field.written());
            if from.is_empty() && KEYS.contains(&lower.as_str()) {
                field.warn("a key stands in the file, for all who may read it", "put it into a variable: `${NAME}`");
            }
            sent.variables.extend(from);
            sent.headers.insert(name.to_owned(), value.to_owned());
        }
    }
}

fn query(field: &Field<'_>, kind: Option<ProviderKind>, sent: &mut Sent) {
    for (name, field) in few(field, "parameters") {
        let gemini = kind == Some(ProviderKind::Gemini);
        if name.is_empty() || name.len() > VALUE_MAX || name.chars().any(char::is_control) {
            field.error("this is not the name of a parameter", "write what stands before the `=` of the address");
        } else if gemini && name == "key" {
            field.error("the parameter `key` carries the key", NAME_IT);
        } else if gemini && name == "alt" {
            field.error("the parameter `alt` is set by Ghost", "take it out");
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

/// The entries of a map that may have only so many.
fn few<'n>(field: &Field<'n>, what: &str) -> Vec<(&'n str, Field<'n>)> {
    if field.length() > COUNT_MAX {
        field.error(format!("there are {} {what}; at most {COUNT_MAX} are sent", field.length()), "take some out");
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
                _ => "take it out",
            };
            field.error(format!("`{name}` is set by Ghost for each request"), hint);
        } else if let Some(room) = room_in(&key.text, &field.json()) {
            let hint = "write `max_tokens` in the archetype's `## LLM`, or under `overrides` of an agent";
            field.error(format!("`{room}` says how much is written, which budgets hold beforehand"), hint);
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

/// The field that says how much is written: this one, or one in it.
fn room_in(name: &str, value: &Value) -> Option<&'static str> {
    let known = |name: &str| ROOM.into_iter().find(|room| *room == name);
    let within = matches!(name, "generationConfig" | "options").then(|| value.as_object()).flatten();
    known(name).or_else(|| within?.keys().find_map(|key| known(key)))
}

/// A version or an id: visible ASCII.
fn word(field: &Field<'_>) -> Option<String> {
    let text = field.text(200)?;
    if text.bytes().all(|b| b.is_ascii_graphic()) {
        return Some(text.to_owned());
    }
    field.error("it holds spaces, or characters beyond ASCII", "write it as the provider shows it");
    None
}

#[cfg(test)]
#[path = "sent_tests.rs"]
mod tests;
