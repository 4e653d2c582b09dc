//! Builds a request for Anthropic's Messages API. It has at most four cache marks, and asks for no reasoning budget when the
//! earlier reasoning of the round is missing: Anthropic refuses both.

use ghost_domain::model_facts::{Thinking, ThinkingControl};
use ghost_domain::tool_catalogue::to_wire;
use ghost_domain::transcript::{Block, Message, Role, ToolSpec};
use serde_json::value::RawValue;

use crate::blocks::{Part, described, parts, sent_arguments, wire_name};
use crate::json::{Json, object};
use crate::model::ModelRequest;

/// The smallest reasoning budget that Anthropic accepts, in tokens.
const BUDGET_MIN: u64 = 1_024;

pub(super) fn body<'a>(request: &'a ModelRequest, tools: Option<&'a RawValue>) -> serde_json::Result<Json<'a>> {
    let (thinking, effort) = thinking(request);
    let reasons = matches!(thinking, Some(Mode::Adaptive | Mode::Enabled(_)));
    let system = || object! { "type": "text", "text": &request.system, "cache_control": mark() };
    Ok(object! {
        "model": &request.model,
        "max_tokens": request.max_tokens,
        "stream": true,
        "temperature": request.temperature.filter(|_| request.facts.temperature && !reasons),
        "thinking": thinking.map(|mode| match mode {
            // Newer models omit summaries unless the request asks for them.
            Mode::Adaptive => object! { "type": "adaptive", "display": "summarized" },
            Mode::Enabled(budget) => object! { "type": "enabled", "budget_tokens": budget },
            Mode::Disabled => object! { "type": "disabled" },
        }),
        "output_config": effort.map(|effort| object! { "effort": effort }),
        "tools": tools,
        "system": (!request.system.is_empty()).then(|| vec![system()]),
        "messages": messages(request)?,
    })
}

/// A cache mark. Anthropic keeps the content before it for five minutes; the next request with the
/// same beginning reads it from the cache.
fn mark() -> Json<'static> {
    object! { "type": "ephemeral" }
}

enum Mode {
    Adaptive,
    Enabled(u64),
    Disabled,
}

/// The settings for reasoning and for effort.
fn thinking(request: &ModelRequest) -> (Option<Mode>, Option<&str>) {
    let Some(wanted) = request.thinking() else { return (None, None) };
    match (request.facts.thinking, wanted) {
        (ThinkingControl::Never | ThinkingControl::Switch | ThinkingControl::Effort, _) => (None, None),
        (ThinkingControl::AlwaysAdaptive, Thinking::None) => (None, request.facts.effort(Thinking::Low)),
        (_, Thinking::None) => (Some(Mode::Disabled), None),
        (ThinkingControl::Budget, _) => {
            // The answer itself needs tokens too.
            let most = request.max_tokens.saturating_sub(1).min((request.max_tokens / 2).max(BUDGET_MIN));
            let budget = request.facts.thinking_budget(wanted).min(most);
            match budget >= BUDGET_MIN && budget < request.max_tokens && thought_before(request) {
                true => (Some(Mode::Enabled(budget)), None),
                false => (Some(Mode::Disabled), None),
            }
        }
        (ThinkingControl::Adaptive | ThinkingControl::AlwaysAdaptive | ThinkingControl::Unknown, _) => {
            (Some(Mode::Adaptive), request.facts.effort(wanted))
        }
    }
}

/// Whether a running round of calls began with reasoning. Otherwise Anthropic refuses a fixed
/// budget.
fn thought_before(request: &ModelRequest) -> bool {
    let is_running = request.messages.last().is_some_and(|message| message.role == Role::Tool);
    let last = request.messages.iter().rev().find(|message| message.role == Role::Assistant);
    let thought = |part: &Part<'_>| matches!(part, Part::Alone(_) | Part::Block(Block::Thinking { .. }, Some(_)));
    !is_running || last.is_none_or(|message| parts(request, message).first().is_some_and(thought))
}

/// The tools; the last one that is not deferred has a cache mark. A deferred tool is outside of the cached prefix and of
/// the input until a `tool_reference` names it.
pub(super) fn tools<'t>(specs: &'t [ToolSpec], deferred: &'t [ToolSpec]) -> Json<'t> {
    let (sent, last) = (specs.len(), specs.len().saturating_sub(1));
    let tool = |(at, spec): (usize, &'t ToolSpec)| {
        object! {
            "name": to_wire(&spec.name),
            "description": &spec.description,
            "input_schema": &spec.parameters,
            "cache_control": (at == last).then(mark),
            "defer_loading": (at >= sent).then_some(true),
        }
    };
    Json::List(specs.iter().chain(deferred).enumerate().map(tool).collect())
}

fn messages(request: &ModelRequest) -> serde_json::Result<Vec<Json<'_>>> {
    let briefing = request.messages.iter().position(|message| message.role == Role::User);
    let last = request.messages.len().saturating_sub(1);
    let form = request.form("messages", false);
    let mut list = Vec::with_capacity(request.messages.len());
    for (at, message) in request.messages.iter().enumerate() {
        let marked = at == last || briefing == Some(at);
        // Marks move, and which tools are deferred may change.
        if marked || request.loads_tools() {
            list.extend(turn(request, message, marked));
        } else {
            list.extend(message.elements(&form, |message| turn(request, message, false).into_iter().collect())?);
        }
    }
    Ok(list)
}

/// A message as it is sent, unless it would be empty. Its last block has a cache mark if `marked` is set.
fn turn<'m>(request: &ModelRequest, message: &'m Message, marked: bool) -> Option<Json<'m>> {
    let mut parts = parts(request, message);
    parts.retain(is_sent);
    // Anthropic refuses reasoning at the end.
    while parts.last().is_some_and(is_thought) {
        parts.pop();
    }
    let of_results = message.role == Role::Tool;
    let mut content = Vec::with_capacity(parts.len());
    for (at, part) in parts.iter().enumerate() {
        match *part {
            Part::Alone(json) => content.push(json.into()),
            // A picture after a result is sent as part of the result.
            Part::Block(Block::Image { .. }, _) if of_results && at > 0 => {}
            Part::Block(block, attached) => {
                let rest = parts.get(at + 1..).unwrap_or_default();
                let mut json = wire(request, block, rest.iter().map_while(picture).collect());
                json.attach(attached, |_| true);
                let is_last = rest.is_empty() || of_results && rest.iter().all(|part| picture(part).is_some());
                // Reasoning cannot have a cache mark.
                if marked && is_last && !matches!(block, Block::Thinking { .. }) {
                    json.push("cache_control", mark());
                }
                content.push(json);
            }
        }
    }
    let role = if message.role == Role::Assistant { "assistant" } else { "user" };
    (!parts.is_empty()).then(|| object! { "role": role, "content": content })
}

fn is_thought(part: &Part<'_>) -> bool {
    match part {
        Part::Alone(json) => json.get().contains("\"redacted_thinking\""),
        Part::Block(block, _) => matches!(block, Block::Thinking { .. }),
    }
}

fn is_sent(part: &Part<'_>) -> bool {
    match part {
        Part::Alone(_) => true,
        // Anthropic refuses text that is only white space.
        Part::Block(Block::Text { text }, _) => !text.trim().is_empty(),
        Part::Block(Block::Thinking { .. }, attached) => attached.is_some(),
        Part::Block(Block::ToolCall { id, .. }, _) => !id.is_empty(),
        Part::Block(Block::ToolResult { .. } | Block::Image { .. }, _) => true,
        Part::Block(Block::Opaque(_) | Block::ImageFile(_), _) => false,
    }
}

fn picture<'m>(part: &Part<'m>) -> Option<Json<'m>> {
    match *part {
        Part::Block(Block::Image { media_type, data }, _) => {
            let source = object! { "type": "base64", "media_type": media_type, "data": data };
            Some(object! { "type": "image", "source": source })
        }
        _ => None,
    }
}

/// A block as it is sent. `pictures` are those of a result.
fn wire<'m>(request: &ModelRequest, block: &'m Block, pictures: Vec<Json<'m>>) -> Json<'m> {
    match block {
        Block::Text { text } => object! { "type": "text", "text": text },
        Block::Thinking { text } => object! { "type": "thinking", "thinking": text },
        Block::ToolCall { id, name, arguments } => object! {
            "type": "tool_use", "id": wire_id(id), "name": wire_name(name), "input": sent_arguments(arguments),
        },
        Block::ToolResult { id, content, is_error, .. } => {
            let text = (!content.is_empty()).then(|| object! { "type": "text", "text": content });
            let content = match loaded(request, block) {
                Some(tool_name) => Json::List(vec![object! { "type": "tool_reference", "tool_name": tool_name }]),
                None if pictures.is_empty() => content.into(),
                None => Json::List(text.into_iter().chain(pictures).collect()),
            };
            let is_error = is_error.then_some(true);
            object! { "type": "tool_result", "tool_use_id": wire_id(id), "content": content, "is_error": is_error }
        }
        Block::Image { .. } => picture(&Part::Block(block, None)).into(),
        Block::Opaque(_) | Block::ImageFile(_) => object! {},
    }
}

/// The deferred tool that a result describes.
fn loaded(request: &ModelRequest, block: &Block) -> Option<String> {
    let spec = described(block).filter(|_| request.loads_tools())?;
    // A reference to a tool that the request does not have is refused.
    request.deferred.iter().any(|known| known.name == spec.name).then(|| to_wire(&spec.name))
}

/// An id in the form that Anthropic accepts: other providers use characters that it refuses.
fn wire_id(id: &str) -> String {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    id.chars().map(|c| if is_allowed(c) { c } else { '_' }).collect()
}
