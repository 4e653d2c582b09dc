//! Builds a request for Anthropic's Messages API.
//!
//! A request must never have more than four cache marks. It must never ask for a reasoning budget
//! when the earlier reasoning of the round is missing. Anthropic refuses both.

use ghost_domain::model_facts::{Thinking, ThinkingControl};
use ghost_domain::tool_catalogue::to_wire;
use ghost_domain::transcript::{Block, Message, Role, ToolSpec};
use serde::Serialize;
use serde::ser::{Error, SerializeMap, SerializeSeq, Serializer};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::attached::{Part, parts};
use crate::blocks::{described, sent_arguments, wire_name};
use crate::model::ModelRequest;

/// The smallest reasoning budget that Anthropic accepts, in tokens.
const BUDGET_MIN: u64 = 1_024;

#[derive(Serialize)]
pub(super) struct Body<'a> {
    model: &'a str,
    max_tokens: u64,
    stream: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    thinking: Option<Mode>,
    #[serde(skip_serializing_if = "Option::is_none")]
    output_config: Option<OutputConfig<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tools: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    system: Option<[Text<'a>; 1]>,
    messages: Messages<'a>,
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Mode {
    Adaptive { display: &'static str },
    Enabled { budget_tokens: u64 },
    Disabled,
}

#[derive(Serialize)]
struct OutputConfig<'a> {
    effort: &'a str,
}

/// A cache mark. Anthropic keeps the content before it for five minutes; the next request with the
/// same beginning reads it from the cache.
#[derive(Serialize)]
#[serde(tag = "type", rename = "ephemeral")]
struct Mark {}

#[derive(Serialize)]
#[serde(tag = "type", rename = "text")]
struct Text<'a> {
    text: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    cache_control: Option<Mark>,
}

impl<'a> Body<'a> {
    pub(super) fn of(request: &'a ModelRequest, tools: Option<&'a RawValue>) -> Self {
        let (thinking, effort) = thinking(request);
        let reasons = matches!(thinking, Some(Mode::Adaptive { .. } | Mode::Enabled { .. }));
        Self {
            model: &request.model,
            max_tokens: request.max_tokens,
            stream: true,
            temperature: request.temperature.filter(|_| request.facts.temperature && !reasons),
            thinking,
            output_config: effort.map(|effort| OutputConfig { effort }),
            tools,
            system: (!request.system.is_empty())
                .then_some([Text { text: &request.system, cache_control: Some(Mark {}) }]),
            messages: Messages(request),
        }
    }
}

/// The settings for reasoning and for effort.
fn thinking(request: &ModelRequest) -> (Option<Mode>, Option<&str>) {
    let Some(wanted) = request.thinking() else { return (None, None) };
    let effort = || request.facts.effort(wanted);
    match (request.facts.thinking, wanted) {
        (ThinkingControl::Never | ThinkingControl::Switch | ThinkingControl::Effort, _) => (None, None),
        (ThinkingControl::AlwaysAdaptive, Thinking::None) => (None, request.facts.effort(Thinking::Low)),
        (_, Thinking::None) => (Some(Mode::Disabled), None),
        (ThinkingControl::Budget, _) => {
            // The answer itself needs tokens too.
            let half = request.max_tokens / 2;
            let budget = request
                .facts
                .thinking_budget(wanted)
                .min(request.max_tokens.saturating_sub(1).min(half.max(BUDGET_MIN)));
            match budget >= BUDGET_MIN && budget < request.max_tokens && thought_before(request) {
                true => (Some(Mode::Enabled { budget_tokens: budget }), None),
                false => (Some(Mode::Disabled), None),
            }
        }
        // Newer models omit summaries unless the request asks for them.
        (ThinkingControl::Adaptive | ThinkingControl::AlwaysAdaptive | ThinkingControl::Unknown, _) => {
            (Some(Mode::Adaptive { display: "summarized" }), effort())
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
pub(super) fn tools(specs: &[ToolSpec], deferred: &[ToolSpec]) -> impl Serialize + use<> {
    #[derive(Serialize)]
    struct Tool {
        name: String,
        description: String,
        input_schema: Value,
        #[serde(skip_serializing_if = "Option::is_none")]
        cache_control: Option<Mark>,
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        defer_loading: bool,
    }
    let (sent, last) = (specs.len(), specs.len().saturating_sub(1));
    let tool = |(at, spec): (usize, &ToolSpec)| Tool {
        name: to_wire(&spec.name),
        description: spec.description.clone(),
        input_schema: spec.parameters.clone(),
        cache_control: (at == last).then_some(Mark {}),
        defer_loading: at >= sent,
    };
    specs.iter().chain(deferred).enumerate().map(tool).collect::<Vec<_>>()
}

struct Messages<'a>(&'a ModelRequest);

impl Serialize for Messages<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let request = self.0;
        let mut list = serializer.serialize_seq(None)?;
        let briefing = request.messages.iter().position(|message| message.role == Role::User);
        let last = request.messages.len().saturating_sub(1);
        let form = request.form("messages", false);
        for (at, message) in request.messages.iter().enumerate() {
            let marked = at == last || briefing == Some(at);
            // Marks move, and which tools are deferred may change.
            if marked || request.loads_tools() {
                for turn in turn(request, message, marked) {
                    list.serialize_element(&turn)?;
                }
                continue;
            }
            let elements =
                message.elements(&form, |message| turn(request, message, false)).map_err(S::Error::custom)?;
            for element in elements.iter() {
                list.serialize_element(element)?;
            }
        }
        list.end()
    }
}

/// A message as it is sent, unless it would be empty.
fn turn<'a>(request: &'a ModelRequest, message: &'a Message, marked: bool) -> Vec<Turn<'a>> {
    let role = if message.role == Role::Assistant { "assistant" } else { "user" };
    let content = Content { request, message, marked };
    if content.is_empty() { Vec::new() } else { vec![Turn { role, content }] }
}

#[derive(Serialize)]
struct Turn<'a> {
    role: &'static str,
    content: Content<'a>,
}

/// The blocks of one message; the last one has a cache mark if `marked` is set.
struct Content<'a> {
    request: &'a ModelRequest,
    message: &'a Message,
    marked: bool,
}

impl<'a> Content<'a> {
    /// The parts to send, without reasoning at the end, which Anthropic refuses.
    fn sent(&self) -> Vec<Part<'a>> {
        let mut parts = parts(self.request, self.message);
        parts.retain(is_sent);
        while parts.last().is_some_and(is_thought) {
            parts.pop();
        }
        parts
    }

    fn is_empty(&self) -> bool {
        !self.sent().iter().any(is_sent)
    }
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

impl Serialize for Content<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let parts = self.sent();
        let mut sent = parts.iter().enumerate();
        let mut list = serializer.serialize_seq(None)?;
        while let Some((at, part)) = sent.next() {
            match part {
                Part::Alone(json) => list.serialize_element(json)?,
                // A picture after a result is sent as part of the result.
                Part::Block(Block::Image { .. }, _) if self.message.role == Role::Tool && at > 0 => {}
                Part::Block(block, attached) => {
                    let pictures = parts.get(at + 1..).unwrap_or_default().iter().map_while(picture).collect();
                    let is_last =
                        sent.clone().all(|(_, part)| picture(part).is_some() && self.message.role == Role::Tool);
                    // Reasoning cannot have a cache mark.
                    let marked = self.marked && is_last && !matches!(block, Block::Thinking { .. });
                    let loaded = loaded(self.request, block);
                    list.serialize_element(&Wire { block, attached: *attached, pictures, loaded, marked })?;
                }
            }
        }
        list.end()
    }
}

fn picture<'a>(part: &Part<'a>) -> Option<(&'a str, &'a str)> {
    match part {
        Part::Block(Block::Image { media_type, data }, _) => Some((media_type, data)),
        _ => None,
    }
}

/// One block as it is sent.
struct Wire<'a> {
    block: &'a Block,
    attached: Option<&'a RawValue>,
    /// For a result: media type and data of each picture.
    pictures: Vec<(&'a str, &'a str)>,
    /// For a description of a deferred tool: its name.
    loaded: Option<&'a str>,
    marked: bool,
}

/// The deferred tool that a result describes.
fn loaded<'a>(request: &'a ModelRequest, block: &Block) -> Option<&'a str> {
    let spec = described(block).filter(|_| request.loads_tools())?;
    // A reference to a tool that the request does not have is refused.
    request.deferred.iter().map(|known| known.name.as_str()).find(|name| *name == spec.name)
}

#[derive(Serialize)]
#[serde(tag = "type", rename = "tool_reference")]
struct Reference {
    tool_name: String,
}

#[derive(Serialize)]
#[serde(tag = "type", rename = "image")]
struct Picture<'a> {
    source: Source<'a>,
}

#[derive(Serialize)]
#[serde(tag = "type", rename = "base64")]
struct Source<'a> {
    media_type: &'a str,
    data: &'a str,
}

fn picture_of<'a>((media_type, data): (&'a str, &'a str)) -> Picture<'a> {
    Picture { source: Source { media_type, data } }
}

impl Serialize for Wire<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        match self.block {
            Block::Text { text } => {
                map.serialize_entry("type", "text")?;
                map.serialize_entry("text", text)?;
            }
            Block::Thinking { text } => {
                map.serialize_entry("type", "thinking")?;
                map.serialize_entry("thinking", text)?;
            }
            Block::ToolCall { id, name, arguments } => {
                map.serialize_entry("type", "tool_use")?;
                map.serialize_entry("id", &wire_id(id))?;
                map.serialize_entry("name", &wire_name(name))?;
                map.serialize_entry("input", &sent_arguments(arguments))?;
            }
            Block::ToolResult { id, content, is_error, .. } => {
                map.serialize_entry("type", "tool_result")?;
                map.serialize_entry("tool_use_id", &wire_id(id))?;
                if let Some(name) = self.loaded {
                    map.serialize_entry("content", &[Reference { tool_name: to_wire(name) }])?;
                } else if self.pictures.is_empty() {
                    map.serialize_entry("content", content)?;
                } else {
                    let text = Text { text: content, cache_control: None };
                    map.serialize_entry("content", &WithPictures(text, &self.pictures))?;
                }
                if *is_error {
                    map.serialize_entry("is_error", &true)?;
                }
            }
            Block::Image { media_type, data } => {
                map.serialize_entry("type", "image")?;
                map.serialize_entry("source", &Source { media_type, data })?;
            }
            Block::Opaque(_) | Block::ImageFile(_) => {}
        }
        if let Some(attached) = self.attached
            && let Ok(fields) = serde_json::from_str::<std::collections::BTreeMap<String, &RawValue>>(attached.get())
        {
            for (name, value) in fields {
                map.serialize_entry(&name, value)?;
            }
        }
        if self.marked {
            map.serialize_entry("cache_control", &Mark {})?;
        }
        map.end()
    }
}

struct WithPictures<'a>(Text<'a>, &'a [(&'a str, &'a str)]);

impl Serialize for WithPictures<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut list = serializer.serialize_seq(None)?;
        if !self.0.text.is_empty() {
            list.serialize_element(&self.0)?;
        }
        for picture in self.1 {
            list.serialize_element(&picture_of(*picture))?;
        }
        list.end()
    }
}

/// An id in the form that Anthropic accepts: other providers use characters that it refuses.
fn wire_id(id: &str) -> String {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    id.chars().map(|c| if is_allowed(c) { c } else { '_' }).collect()
}
