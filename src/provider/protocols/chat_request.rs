//! Builds a request for OpenAI's chat completions API.

use std::collections::BTreeMap;

use ghost_domain::model_facts::{Thinking, ThinkingControl};
use ghost_domain::tool_catalogue::to_wire;
use ghost_domain::transcript::{Block, Message, Role, ToolSpec, visible_text};
use serde_json::value::RawValue;

use crate::blocks::{PICTURES_OF_RESULTS, Part, parts, sent_arguments, wire_name};
use crate::json::{Json, object};
use crate::model::ModelRequest;

/// The state attached to reasoning: the name of the field in which the server sent it.
pub(super) const FIELD: &str = "field";
/// The field in which Google keeps the signature of an answer or a call.
pub(super) const GOOGLE_STATE: &str = "extra_content";
/// The field in which OpenRouter keeps the reasoning of an answer.
pub(super) const REASONING_DETAILS: &str = "reasoning_details";

/// Which fields and roles a host understands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dialect {
    /// OpenAI's own, on its hosts and on Azure.
    OpenAi,
    /// The form that most other servers understand.
    Compatible,
}

pub(super) fn body<'a>(
    request: &'a ModelRequest,
    tools: Option<&'a RawValue>,
    dialect: Dialect,
) -> serde_json::Result<Json<'a>> {
    let own = dialect == Dialect::OpenAi;
    // DeepSeek's form.
    let switch = |wanted| object! { "type": if wanted == Thinking::None { "disabled" } else { "enabled" } };
    Ok(object! {
        "model": &request.model,
        "stream": true,
        "stream_options": object! { "include_usage": true },
        "tools": tools,
        "messages": messages(request)?,
        "max_tokens": (!own).then_some(request.max_tokens),
        "max_completion_tokens": own.then_some(request.max_tokens),
        "temperature": request.temperature.filter(|_| request.facts.temperature),
        "reasoning_effort": effort(request),
        "thinking": request.thinking().filter(|_| has_reasoning_switch(request)).map(switch),
    })
}

/// Whether reasoning is switched on or off for this model. Such a model wants a reasoning field in
/// each earlier answer, even if empty.
fn has_reasoning_switch(request: &ModelRequest) -> bool {
    request.facts.thinking == ThinkingControl::Switch
}

/// The value of the effort setting, if the model accepts one.
pub(super) fn effort(request: &ModelRequest) -> Option<&str> {
    let wanted = request.thinking()?;
    match request.facts.thinking {
        ThinkingControl::Never | ThinkingControl::Switch => None,
        // Not every model knows `none`, so it is omitted for unknown models.
        ThinkingControl::Unknown if wanted == Thinking::None => None,
        _ => request.facts.effort(wanted),
    }
}

pub(super) fn tools<'t>(specs: &'t [ToolSpec]) -> Json<'t> {
    let tool = |ToolSpec { name, description, parameters }: &'t ToolSpec| {
        let function = object! { "name": to_wire(name), "description": description, "parameters": parameters };
        object! { "type": "function", "function": function }
    };
    Json::List(specs.iter().map(tool).collect())
}

fn messages(request: &ModelRequest) -> serde_json::Result<Vec<Json<'_>>> {
    let mut list = Vec::with_capacity(request.messages.len() + 1);
    if !request.system.is_empty() {
        list.push(object! { "role": "system", "content": &request.system });
    }
    let form = request.form("chat", has_reasoning_switch(request));
    for message in request.messages.iter() {
        list.extend(message.elements(&form, |message| elements(request, message))?);
    }
    Ok(list)
}

fn elements<'m>(request: &ModelRequest, message: &'m Message) -> Vec<Json<'m>> {
    let has_pictures = message.blocks.iter().any(|block| matches!(block, Block::Image { .. }));
    let pictures = || message.blocks.iter().filter_map(content_part);
    match message.role {
        Role::User => {
            let content = match message.blocks.as_slice() {
                _ if has_pictures => Json::List(pictures().collect()),
                [Block::Text { text }] => text.into(),
                blocks => visible_text(blocks).into(),
            };
            vec![object! { "role": "user", "content": content }]
        }
        Role::Assistant => vec![answer(request, message)],
        Role::Tool => {
            let result = |block: &'m Block| match block {
                Block::ToolResult { id, content, .. } => {
                    Some(object! { "role": "tool", "content": content, "tool_call_id": id })
                }
                _ => None,
            };
            let mut elements: Vec<_> = message.blocks.iter().filter_map(result).collect();
            // Results are text only in this API. Their pictures follow in a message after all results.
            if has_pictures {
                let title = object! { "type": "text", "text": PICTURES_OF_RESULTS };
                let content: Vec<_> = std::iter::once(title).chain(pictures()).collect();
                elements.push(object! { "role": "user", "content": content });
            }
            elements
        }
    }
}

fn content_part(block: &Block) -> Option<Json<'_>> {
    match block {
        Block::Text { text } => Some(object! { "type": "text", "text": text }),
        Block::Image { media_type, data } => {
            let url = object! { "url": format!("data:{media_type};base64,{data}") };
            Some(object! { "type": "image_url", "image_url": url })
        }
        _ => None,
    }
}

/// An earlier answer.
fn answer<'m>(request: &ModelRequest, message: &'m Message) -> Json<'m> {
    // The state may be from the responses API, if the model was called through that before.
    let is_own = |name: &str| [GOOGLE_STATE, REASONING_DETAILS].contains(&name);
    let parts = parts(request, message);
    let (mut text, mut calls) = (Vec::new(), Vec::new());
    for part in &parts {
        match *part {
            Part::Block(Block::Text { text: more }, _) => text.push(more.as_str()),
            Part::Block(Block::ToolCall { id, name, arguments }, attached) if !id.is_empty() => {
                let arguments = sent_arguments(arguments).to_string();
                let function = object! { "name": wire_name(name), "arguments": arguments };
                let mut call = object! { "id": id, "type": "function", "function": function };
                call.attach(attached, is_own);
                calls.push(call);
            }
            _ => {}
        }
    }
    let text = text.join("\n");
    let content = if !text.is_empty() || calls.is_empty() { text.into() } else { Json::NULL };
    let calls = (!calls.is_empty()).then_some(calls);
    let mut json = object! { "role": "assistant", "content": content, "tool_calls": calls };
    let mut has_reasoning = false;
    for part in &parts {
        match *part {
            Part::Alone(state) => json.attach(Some(state), is_own),
            Part::Block(Block::Thinking { text }, Some(attached)) => {
                let mut named = serde_json::from_str::<BTreeMap<String, String>>(attached.get()).unwrap_or_default();
                if let Some(field) = named.remove(FIELD) {
                    has_reasoning = true;
                    json.push(field, text);
                }
            }
            Part::Block(..) => {}
        }
    }
    if has_reasoning_switch(request) && !has_reasoning {
        json.push("reasoning_content", "");
    }
    json
}
