//! Builds a request for Ollama.
//!
//! A request must never omit the setting that makes Ollama refuse a conversation which is too long.

use ghost_domain::model_facts::{Thinking, ThinkingControl};
use ghost_domain::transcript::{Block, Message, Role};
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::attached::{Part, parts};
use crate::blocks::{PICTURES_OF_RESULTS, sent_arguments, wire_name};
use crate::model::ModelRequest;

#[derive(Serialize)]
pub(super) struct Body<'a> {
    model: &'a str,
    messages: Vec<Value>,
    stream: bool,
    /// False. Versions before 0.12.6 do not know the setting and truncate.
    truncate: bool,
    options: Options,
    #[serde(skip_serializing_if = "Option::is_none")]
    tools: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    think: Option<Value>,
}

#[derive(Serialize)]
struct Options {
    num_predict: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    num_ctx: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<f64>,
}

pub(super) fn body<'a>(request: &'a ModelRequest, tools: Option<&'a RawValue>) -> Body<'a> {
    let mut messages = Vec::with_capacity(request.messages.len() + 1);
    if !request.system.is_empty() {
        messages.push(json!({ "role": "system", "content": request.system }));
    }
    for message in request.messages.iter() {
        match message.role {
            Role::User => {
                messages.push(with_pictures(json!({ "role": "user", "content": message.visible_text() }), message));
            }
            Role::Assistant => messages.push(answer(request, message)),
            Role::Tool => {
                messages.extend(message.blocks.iter().filter_map(result));
                if message.blocks.iter().any(|block| matches!(block, Block::Image { .. })) {
                    messages.push(with_pictures(json!({ "role": "user", "content": PICTURES_OF_RESULTS }), message));
                }
            }
        }
    }
    Body {
        model: &request.model,
        messages,
        stream: true,
        truncate: false,
        options: Options {
            num_predict: request.max_tokens,
            num_ctx: request.window_tokens,
            temperature: request.temperature.filter(|_| request.facts.temperature),
        },
        tools,
        think: think(request),
    }
}

fn think(request: &ModelRequest) -> Option<Value> {
    let wanted = request.thinking()?;
    match (request.facts.thinking, wanted) {
        (ThinkingControl::Never, _) => None,
        // Most models accept only on and off, and refuse effort levels.
        (ThinkingControl::Switch | ThinkingControl::Budget | ThinkingControl::Unknown, _) => {
            Some(json!(wanted != Thinking::None))
        }
        _ => request.facts.effort(wanted).map(Value::from),
    }
}

fn answer(request: &ModelRequest, message: &Message) -> Value {
    let mut answer = json!({ "role": "assistant", "content": message.visible_text() });
    let mut calls = Vec::new();
    for part in parts(request, message) {
        match part {
            Part::Block(Block::ToolCall { id, name, arguments }, _) if !id.is_empty() => {
                let function = json!({ "name": wire_name(name), "arguments": sent_arguments(arguments) });
                calls.push(json!({ "id": id, "function": function }));
            }
            // Reasoning is sent back only to its author, which has state attached to it.
            Part::Block(Block::Thinking { text }, Some(_)) => answer["thinking"] = json!(text),
            Part::Block(..) | Part::Alone(_) => {}
        }
    }
    if !calls.is_empty() {
        answer["tool_calls"] = Value::Array(calls);
    }
    answer
}

fn result(block: &Block) -> Option<Value> {
    match block {
        Block::ToolResult { id, name, content, .. } => {
            Some(json!({ "role": "tool", "tool_name": wire_name(name), "tool_call_id": id, "content": content }))
        }
        _ => None,
    }
}

fn with_pictures(mut wire: Value, message: &Message) -> Value {
    let picture = |block: &Block| match block {
        Block::Image { data, .. } => Some(Value::from(data.as_str())),
        _ => None,
    };
    let pictures: Vec<Value> = message.blocks.iter().filter_map(picture).collect();
    if !pictures.is_empty() {
        wire["images"] = Value::Array(pictures);
    }
    wire
}
