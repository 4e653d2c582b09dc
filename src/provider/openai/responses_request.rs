//! Builds a request for OpenAI's Responses API.
//!
//! This module must never copy the conversation, store it at OpenAI, or send an item that refers to
//! stored state.

use std::borrow::Cow;

use ghost_domain::model_facts::ThinkingControl;
use ghost_domain::tool_catalogue::{DESCRIBE, to_wire};
use ghost_domain::transcript::{Block, Message, Role, ToolSpec, visible_text};
use serde::ser::{Error, SerializeMap, SerializeSeq, Serializer};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

use super::chat_request::{GOOGLE_STATE, effort, fields};
use super::dialect::Dialect;
use crate::attached::{Part, parts};
use crate::blocks::{described, sent_arguments, wire_name};
use crate::model::ModelRequest;

/// The smallest output limit that OpenAI accepts, in tokens.
const OUTPUT_MIN: u64 = 16;
/// Longest call id that OpenAI accepts.
const CALL_ID_MAX: usize = 64;

#[derive(Serialize)]
pub(super) struct Body<'a> {
    model: &'a str,
    stream: bool,
    /// False: OpenAI then returns reasoning encrypted, and Ghost sends it back with the next call.
    store: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    include: Option<[&'static str; 1]>,
    #[serde(skip_serializing_if = "str::is_empty")]
    instructions: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    tools: Option<&'a RawValue>,
    input: Input<'a>,
    max_output_tokens: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning: Option<Reasoning<'a>>,
    /// Routes the calls of one agent to the server that has its prompt in the cache.
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt_cache_key: Option<&'a str>,
}

#[derive(Serialize)]
struct Reasoning<'a> {
    effort: &'a str,
}

impl<'a> Body<'a> {
    pub(super) fn of(request: &'a ModelRequest, tools: Option<&'a RawValue>, dialect: Dialect) -> Self {
        let effort = effort(request);
        // A model that does not reason refuses this setting. For an unknown model, a configured
        // effort shows that it reasons.
        let known = !matches!(request.facts.thinking, ThinkingControl::Never | ThinkingControl::Unknown);
        let reasons = known || effort.is_some();
        let sets_effort = effort.is_some_and(|effort| effort != "none");
        Self {
            model: &request.model,
            stream: true,
            store: false,
            include: reasons.then_some(["reasoning.encrypted_content"]),
            instructions: &request.system,
            tools,
            input: Input(request),
            max_output_tokens: request.max_tokens.max(OUTPUT_MIN),
            temperature: request.temperature.filter(|_| request.facts.temperature && !sets_effort),
            reasoning: effort.map(|effort| Reasoning { effort }),
            prompt_cache_key: (dialect == Dialect::OpenAi).then(|| request.agent_id.as_str()),
        }
    }
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Tool {
    Function {
        name: String,
        description: String,
        parameters: Value,
        /// A strict schema has no optional fields, but Ghost's schemas do.
        strict: bool,
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        defer_loading: bool,
    },
    /// The search for deferred tools, which Ghost answers.
    ToolSearch { execution: &'static str, description: String, parameters: Value },
}

fn function(spec: &ToolSpec, defer_loading: bool) -> Tool {
    let (name, description, parameters) = (to_wire(&spec.name), spec.description.clone(), spec.parameters.clone());
    Tool::Function { name, description, parameters, strict: false, defer_loading }
}

pub(super) fn tools(specs: &[ToolSpec]) -> impl Serialize + use<> {
    specs.iter().map(|spec| function(spec, false)).collect::<Vec<_>>()
}

/// The tools of a request that has deferred ones: [`DESCRIBE`] is the search for them, and its results add them.
pub(super) fn searched(specs: &[ToolSpec]) -> impl Serialize + use<> {
    let tool = |spec: &ToolSpec| match spec.name == DESCRIBE {
        true => Tool::ToolSearch {
            execution: "client",
            description: spec.description.clone(),
            parameters: spec.parameters.clone(),
        },
        false => function(spec, false),
    };
    specs.iter().map(tool).collect::<Vec<_>>()
}

struct Input<'a>(&'a ModelRequest);

/// A message without attached state.
#[derive(Serialize)]
struct Plain<'a> {
    role: &'static str,
    content: Content<'a>,
}

#[derive(Serialize)]
#[serde(tag = "type", rename = "function_call_output")]
struct Output<'a> {
    call_id: Cow<'a, str>,
    output: Content<'a>,
}

/// The result of a search for deferred tools.
#[derive(Serialize)]
#[serde(tag = "type", rename = "tool_search_output")]
struct Found<'a> {
    call_id: Cow<'a, str>,
    execution: &'static str,
    status: &'static str,
    tools: Vec<Tool>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Content<'a> {
    Text(Cow<'a, str>),
    Parts(Vec<ContentPart<'a>>),
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum ContentPart<'a> {
    InputText { text: &'a str },
    InputImage { image_url: String, detail: &'static str },
}

impl Serialize for Input<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut list = serializer.serialize_seq(None)?;
        let form = self.0.form("responses", self.0.loads_tools());
        for message in self.0.messages.iter() {
            let elements = message.elements(&form, |message| elements(self.0, message)).map_err(S::Error::custom)?;
            for element in elements.iter() {
                list.serialize_element(element)?;
            }
        }
        list.end()
    }
}

/// An element of the input.
#[derive(Serialize)]
#[serde(untagged)]
enum Element<'a> {
    Plain(Plain<'a>),
    Item(Item<'a>),
    Found(Found<'a>),
    Output(Output<'a>),
}

fn elements<'a>(request: &ModelRequest, message: &'a Message) -> Vec<Element<'a>> {
    let result = |group: &'a [Block]| match group {
        [block @ Block::ToolResult { id, name, .. }] if name == DESCRIBE && request.loads_tools() => {
            let tools = described(block).iter().map(|spec| function(spec, true)).collect();
            Some(Element::Found(Found { call_id: wire_id(id), execution: "client", status: "completed", tools }))
        }
        [Block::ToolResult { id, .. }, ..] => {
            Some(Element::Output(Output { call_id: wire_id(id), output: content(group) }))
        }
        _ => None,
    };
    match message.role {
        Role::User => vec![Element::Plain(Plain { role: "user", content: content(&message.blocks) })],
        Role::Assistant => items(request, message).into_iter().map(Element::Item).collect(),
        // A picture after a result is part of the result.
        Role::Tool => {
            message.blocks.chunk_by(|_, next| matches!(next, Block::Image { .. })).filter_map(result).collect()
        }
    }
}

/// Text, or text and pictures.
fn content(blocks: &[Block]) -> Content<'_> {
    match blocks {
        [Block::Text { text } | Block::ToolResult { content: text, .. }] => Content::Text(text.into()),
        _ if !blocks.iter().any(|block| matches!(block, Block::Image { .. })) => {
            Content::Text(visible_text(blocks).into())
        }
        _ => Content::Parts(blocks.iter().filter_map(part).collect()),
    }
}

fn part(block: &Block) -> Option<ContentPart<'_>> {
    match block {
        Block::Text { text } | Block::ToolResult { content: text, .. } if !text.is_empty() => {
            Some(ContentPart::InputText { text })
        }
        Block::Image { media_type, data } => {
            let image_url = format!("data:{media_type};base64,{data}");
            Some(ContentPart::InputImage { image_url, detail: "auto" })
        }
        _ => None,
    }
}

/// An item of an earlier answer.
struct Item<'a> {
    part: Part<'a>,
    /// Whether a call of [`DESCRIBE`] is a search for deferred tools.
    searches: bool,
}

/// The items of an earlier answer, in order.
fn items<'a>(request: &ModelRequest, message: &'a Message) -> Vec<Item<'a>> {
    let sent = |part: &Part<'_>| match part {
        // State without a type belongs to the chat completions API.
        Part::Alone(json) => kind(json).is_some(),
        Part::Block(Block::Text { text }, attached) => !text.is_empty() || attached.is_some(),
        Part::Block(Block::ToolCall { id, .. }, _) => !id.is_empty(),
        // Reasoning is sent as the item that it came in.
        Part::Block(..) => false,
    };
    let searches = request.loads_tools();
    let item = |part| Item { part, searches };
    let mut items: Vec<Item<'_>> = parts(request, message).into_iter().filter(sent).map(item).collect();
    // OpenAI refuses reasoning without the item after it.
    let reasons =
        |item: &Item<'_>| matches!(item.part, Part::Alone(json) if kind(json).as_deref() == Some("reasoning"));
    let used = items.iter().rposition(|item| !reasons(item)).map_or(0, |last| last + 1);
    items.truncate(used);
    items
}

fn kind(item: &RawValue) -> Option<Cow<'_, str>> {
    #[derive(Deserialize)]
    struct Typed<'i> {
        #[serde(borrow)]
        r#type: Cow<'i, str>,
    }
    serde_json::from_str::<Typed<'_>>(item.get()).ok().map(|item| item.r#type)
}

impl Serialize for Item<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (block, attached) = match &self.part {
            Part::Alone(json) => return json.serialize(serializer),
            Part::Block(block, attached) => (block, attached.map(fields).unwrap_or_default()),
        };
        let mut map = serializer.serialize_map(None)?;
        match block {
            Block::Text { text } if attached.is_empty() => {
                map.serialize_entry("role", "assistant")?;
                map.serialize_entry("content", text)?;
            }
            Block::Text { text } => {
                map.serialize_entry("type", "message")?;
                map.serialize_entry("role", "assistant")?;
                // Content that is more than plain text is attached unchanged.
                if !attached.contains_key("content") {
                    map.serialize_entry("content", &[OutputText { text, annotations: [] }])?;
                }
            }
            Block::ToolCall { id, name, arguments } if self.searches && name == DESCRIBE => {
                map.serialize_entry("type", "tool_search_call")?;
                map.serialize_entry("call_id", &wire_id(id))?;
                map.serialize_entry("execution", "client")?;
                map.serialize_entry("status", "completed")?;
                map.serialize_entry("arguments", &sent_arguments(arguments))?;
                // What was attached to the call of a function is not part of a search.
                return map.end();
            }
            Block::ToolCall { id, name, arguments } => {
                map.serialize_entry("type", "function_call")?;
                map.serialize_entry("call_id", &wire_id(id))?;
                map.serialize_entry("name", &wire_name(name))?;
                map.serialize_entry("arguments", &sent_arguments(arguments).to_string())?;
            }
            _ => {}
        }
        for (name, value) in attached.iter().filter(|(name, _)| name.as_str() != GOOGLE_STATE) {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

#[derive(Serialize)]
#[serde(tag = "type", rename = "output_text")]
struct OutputText<'a> {
    text: &'a str,
    annotations: [(); 0],
}

/// An id that OpenAI accepts: other providers have longer ones.
fn wire_id(id: &str) -> Cow<'_, str> {
    if id.len() <= CALL_ID_MAX {
        return id.into();
    }
    hex::encode(Sha256::digest(id)).into()
}
