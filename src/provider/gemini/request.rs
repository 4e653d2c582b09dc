//! Builds a request for Gemini.
//!
//! A request must never contain an id that Gemini did not give. Gemini matches calls without an id
//! by their order.

use std::collections::BTreeMap;
use std::sync::Arc;

use ghost_domain::model_facts::{Thinking, ThinkingControl};
use ghost_domain::tool_catalogue::to_wire;
use ghost_domain::transcript::{Block, Message, Role, ToolSpec};
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::attached::{Part, parts};
use crate::blocks::{sent_arguments, wire_name};
use crate::model::ModelRequest;

/// Gemini requires this value in place of a signature for calls that another model made.
const UNSIGNED: &str = "skip_thought_signature_validator";

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Body<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    system_instruction: Option<Value>,
    contents: Vec<Content<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tools: Option<&'a RawValue>,
    generation_config: Config<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Config<'a> {
    max_output_tokens: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    thinking_config: Option<ThinkingConfig<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ThinkingConfig<'a> {
    include_thoughts: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    thinking_budget: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    thinking_level: Option<&'a str>,
}

#[derive(Serialize)]
struct Content<'a> {
    role: &'static str,
    parts: Vec<Wire<'a>>,
}

/// A part: unchanged as Gemini sent it, or built from a block.
#[derive(Serialize)]
#[serde(untagged)]
enum Wire<'a> {
    Raw(&'a RawValue),
    Built(BTreeMap<&'static str, Value>),
}

impl<'a> Body<'a> {
    pub(super) fn of(request: &'a ModelRequest, tools: Option<&'a RawValue>) -> Self {
        let needs_signature = !matches!(request.facts.thinking, ThinkingControl::Budget | ThinkingControl::Never);
        let content = |message: &'a Message| {
            let role = if message.role == Role::Assistant { "model" } else { "user" };
            let mut parts = parts(request, message);
            if message.role == Role::Tool {
                // All results of a round come first; their pictures follow in the same order.
                parts.sort_by_key(|part| matches!(part, Part::Block(Block::Image { .. }, _)));
            }
            let mut parts: Vec<Wire<'_>> = parts.iter().filter_map(wire).collect();
            let first = parts.iter_mut().find_map(|part| match part {
                Wire::Built(built) if built.contains_key("functionCall") => Some(built),
                _ => None,
            });
            if let Some(call) = first.filter(|call| needs_signature && !call.contains_key("thoughtSignature")) {
                call.insert("thoughtSignature", json!(UNSIGNED));
            }
            Content { role, parts }
        };
        Self {
            system_instruction: (!request.system.is_empty()).then(|| json!({ "parts": [{ "text": request.system }] })),
            contents: request
                .messages
                .iter()
                .map(|message| content(message))
                .filter(|content| !content.parts.is_empty())
                .collect(),
            tools,
            generation_config: Config {
                max_output_tokens: request.max_tokens,
                temperature: request.temperature.filter(|_| request.facts.temperature),
                thinking_config: thinking(request),
            },
        }
    }
}

fn thinking(request: &ModelRequest) -> Option<ThinkingConfig<'_>> {
    let (wanted, facts) = (request.thinking()?, &request.facts);
    let include_thoughts = wanted != Thinking::None;
    let by_level = |level| ThinkingConfig { include_thoughts, thinking_budget: None, thinking_level: Some(level) };
    match facts.thinking {
        ThinkingControl::Never | ThinkingControl::Switch => None,
        ThinkingControl::Budget => {
            let min = facts.thinking_tokens.map_or(0, |(min, _)| min);
            let budget = facts.thinking_budget(wanted).min(request.max_tokens / 2).max(min);
            Some(ThinkingConfig { include_thoughts, thinking_budget: Some(budget), thinking_level: None })
        }
        ThinkingControl::Unknown
        | ThinkingControl::Effort
        | ThinkingControl::Adaptive
        | ThinkingControl::AlwaysAdaptive => facts.effort(wanted).map(by_level),
    }
}

pub(super) fn tools(specs: &Arc<[ToolSpec]>) -> impl Serialize + use<> {
    let declared = specs.iter().map(|spec| {
        json!({
            "name": to_wire(&spec.name), "description": spec.description, "parametersJsonSchema": spec.parameters,
        })
    });
    json!([{ "functionDeclarations": declared.collect::<Vec<_>>() }])
}

/// The part as it is sent; `None` if it is not sent.
fn wire<'a>(part: &Part<'a>) -> Option<Wire<'a>> {
    let (block, attached) = match part {
        Part::Alone(json) => return Some(Wire::Raw(json)),
        Part::Block(block, attached) => (block, attached),
    };
    let id_of = |id: &str| (!is_own(id)).then(|| id.to_owned());
    let mut built: BTreeMap<&'static str, Value> = match block {
        Block::Text { text } if text.is_empty() => return None,
        Block::Text { text } => [("text", json!(text))].into(),
        Block::Thinking { text } if attached.is_some() => [("text", json!(text)), ("thought", json!(true))].into(),
        Block::ToolCall { id, name, arguments } if !id.is_empty() => {
            let mut call = json!({ "name": wire_name(name), "args": sent_arguments(arguments) });
            if let Some(id) = id_of(id) {
                call["id"] = json!(id);
            }
            [("functionCall", call)].into()
        }
        Block::ToolResult { id, name, content, is_error } => {
            let key = if *is_error { "error" } else { "output" };
            let mut response = json!({ "name": wire_name(name), "response": { key: content } });
            if let Some(id) = id_of(id) {
                response["id"] = json!(id);
            }
            [("functionResponse", response)].into()
        }
        Block::Image { media_type, data } => [("inlineData", json!({ "mimeType": media_type, "data": data }))].into(),
        Block::Thinking { .. } | Block::ToolCall { .. } | Block::Opaque(_) | Block::ImageFile(_) => return None,
    };
    let signed = attached.and_then(|json| serde_json::from_str::<BTreeMap<String, Value>>(json.get()).ok());
    if let Some(signature) = signed.and_then(|mut fields| fields.remove("thoughtSignature")) {
        built.insert("thoughtSignature", signature);
    }
    Some(Wire::Built(built))
}

/// Whether Ghost made the id.
fn is_own(id: &str) -> bool {
    id.strip_prefix("call-").is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
}
