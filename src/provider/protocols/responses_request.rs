//! Builds a request for OpenAI's Responses API. Nothing is stored at OpenAI, and no item refers to stored state.

use std::borrow::Cow;

use ghost_domain::model_facts::ThinkingControl;
use ghost_domain::tool_catalogue::{DESCRIBE, to_wire};
use ghost_domain::transcript::{Block, Message, Role, ToolSpec, visible_text};
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

use super::chat_request::{Dialect, GOOGLE_STATE, effort};
use crate::blocks::{Part, described, parts, sent_arguments, wire_name};
use crate::json::{Json, fields, object};
use crate::model::ModelRequest;

/// The smallest output limit that OpenAI accepts, in tokens.
const OUTPUT_MIN: u64 = 16;
/// Longest call id that OpenAI accepts.
const CALL_ID_MAX: usize = 64;

pub(super) fn body<'a>(
    request: &'a ModelRequest,
    tools: Option<&'a RawValue>,
    dialect: Dialect,
) -> serde_json::Result<Json<'a>> {
    let effort = effort(request);
    // A model that does not reason refuses this setting. For an unknown model, a configured
    // effort shows that it reasons.
    let known = !matches!(request.facts.thinking, ThinkingControl::Never | ThinkingControl::Unknown);
    let reasons = known || effort.is_some();
    let sets_effort = effort.is_some_and(|effort| effort != "none");
    Ok(object! {
        "model": &request.model,
        "stream": true,
        // OpenAI then returns reasoning encrypted, and Ghost sends it back with the next call.
        "store": false,
        "include": reasons.then(|| vec![Json::from("reasoning.encrypted_content")]),
        "instructions": (!request.system.is_empty()).then_some(&request.system),
        "tools": tools,
        "input": input(request)?,
        "max_output_tokens": request.max_tokens.max(OUTPUT_MIN),
        "temperature": request.temperature.filter(|_| request.facts.temperature && !sets_effort),
        "reasoning": effort.map(|effort| object! { "effort": effort }),
        // Routes the calls of one agent to the server that has its prompt in the cache.
        "prompt_cache_key": (dialect == Dialect::OpenAi).then(|| request.agent_id.as_str()),
    })
}

fn function<'t>(
    name: &str,
    description: impl Into<Json<'t>>,
    parameters: impl Into<Json<'t>>,
    defer_loading: bool,
) -> Json<'t> {
    object! {
        "type": "function",
        "name": to_wire(name),
        "description": description.into(),
        "parameters": parameters.into(),
        // A strict schema has no optional fields, but Ghost's schemas do.
        "strict": false,
        "defer_loading": defer_loading.then_some(true),
    }
}

pub(super) fn tools(specs: &[ToolSpec]) -> Json<'_> {
    Json::List(specs.iter().map(|spec| function(&spec.name, &spec.description, &spec.parameters, false)).collect())
}

/// The tools of a request that has deferred ones: [`DESCRIBE`] is the search for them, which Ghost answers, and its results
/// add them.
pub(super) fn searched<'t>(specs: &'t [ToolSpec]) -> Json<'t> {
    let tool = |ToolSpec { name, description, parameters }: &'t ToolSpec| match name == DESCRIBE {
        true => object! {
            "type": "tool_search", "execution": "client", "description": description, "parameters": parameters,
        },
        false => function(name, description, parameters, false),
    };
    Json::List(specs.iter().map(tool).collect())
}

fn input(request: &ModelRequest) -> serde_json::Result<Vec<Json<'_>>> {
    let mut list = Vec::with_capacity(request.messages.len());
    let form = request.form("responses", request.loads_tools());
    for message in request.messages.iter() {
        list.extend(message.elements(&form, |message| elements(request, message))?);
    }
    Ok(list)
}

fn elements<'m>(request: &ModelRequest, message: &'m Message) -> Vec<Json<'m>> {
    let found = |spec: ToolSpec| function(&spec.name, spec.description, spec.parameters, true);
    let result = |group: &'m [Block]| match group {
        [block @ Block::ToolResult { id, name, .. }] if name == DESCRIBE && request.loads_tools() => Some(object! {
            "type": "tool_search_output",
            "call_id": wire_id(id),
            "execution": "client",
            "status": "completed",
            "tools": described(block).map(found).into_iter().collect::<Vec<_>>(),
        }),
        [Block::ToolResult { id, .. }, ..] => Some(object! {
            "type": "function_call_output", "call_id": wire_id(id), "output": content(group),
        }),
        _ => None,
    };
    match message.role {
        Role::User => vec![object! { "role": "user", "content": content(&message.blocks) }],
        Role::Assistant => items(request, message),
        // A picture after a result is part of the result.
        Role::Tool => {
            message.blocks.chunk_by(|_, next| matches!(next, Block::Image { .. })).filter_map(result).collect()
        }
    }
}

/// Text, or text and pictures.
fn content<'b>(blocks: &'b [Block]) -> Json<'b> {
    let part = |block: &'b Block| match block {
        Block::Text { text } | Block::ToolResult { content: text, .. } if !text.is_empty() => {
            Some(object! { "type": "input_text", "text": text })
        }
        Block::Image { media_type, data } => {
            let image_url = format!("data:{media_type};base64,{data}");
            Some(object! { "type": "input_image", "image_url": image_url, "detail": "auto" })
        }
        _ => None,
    };
    match blocks {
        [Block::Text { text } | Block::ToolResult { content: text, .. }] => text.into(),
        _ if !blocks.iter().any(|block| matches!(block, Block::Image { .. })) => visible_text(blocks).into(),
        _ => Json::List(blocks.iter().filter_map(part).collect()),
    }
}

/// The items of an earlier answer, in order.
fn items<'m>(request: &ModelRequest, message: &'m Message) -> Vec<Json<'m>> {
    let kind =
        |state: &RawValue| fields(state).get("type").and_then(|kind| serde_json::from_str::<String>(kind.get()).ok());
    let mut parts = parts(request, message);
    parts.retain(|part| match part {
        // State without a type belongs to the chat completions API.
        Part::Alone(state) => kind(state).is_some(),
        Part::Block(Block::Text { text }, attached) => !text.is_empty() || attached.is_some(),
        Part::Block(Block::ToolCall { id, .. }, _) => !id.is_empty(),
        // Reasoning is sent as the item that it came in.
        Part::Block(..) => false,
    });
    // OpenAI refuses reasoning without the item after it.
    let reasons = |part: &Part<'_>| matches!(part, Part::Alone(state) if kind(state).as_deref() == Some("reasoning"));
    let used = parts.iter().rposition(|part| !reasons(part)).map_or(0, |last| last + 1);
    parts.truncate(used);
    parts.into_iter().map(|part| item(part, request.loads_tools())).collect()
}

/// An item of an earlier answer. `searches` says whether a call of [`DESCRIBE`] is a search for deferred tools.
fn item(part: Part<'_>, searches: bool) -> Json<'_> {
    let (block, attached) = match part {
        Part::Alone(state) => return state.into(),
        Part::Block(block, attached) => (block, attached),
    };
    let has = |name: &str| attached.is_some_and(|attached| fields(attached).contains_key(name));
    let mut json = match block {
        Block::Text { text } if attached.is_none_or(|attached| fields(attached).is_empty()) => {
            object! { "role": "assistant", "content": text }
        }
        Block::Text { text } => {
            let text = || vec![object! { "type": "output_text", "text": text, "annotations": Vec::new() }];
            // Content that is more than plain text is attached unchanged.
            object! { "type": "message", "role": "assistant", "content": (!has("content")).then(text) }
        }
        Block::ToolCall { id, name, arguments } if searches && name == DESCRIBE => {
            // What was attached to the call of a function is not part of a search.
            return object! {
                "type": "tool_search_call",
                "call_id": wire_id(id),
                "execution": "client",
                "status": "completed",
                "arguments": sent_arguments(arguments),
            };
        }
        Block::ToolCall { id, name, arguments } => object! {
            "type": "function_call",
            "call_id": wire_id(id),
            "name": wire_name(name),
            "arguments": sent_arguments(arguments).to_string(),
        },
        _ => object! {},
    };
    json.attach(attached, |name| name != GOOGLE_STATE);
    json
}

/// An id that OpenAI accepts: other providers have longer ones.
fn wire_id(id: &str) -> Cow<'_, str> {
    if id.len() <= CALL_ID_MAX { id.into() } else { hex::encode(Sha256::digest(id)).into() }
}
