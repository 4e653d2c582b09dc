//! Builds a request for OpenAI's chat completions API.
//!
//! This module must never copy the conversation.

use ghost_domain::model_facts::{Thinking, ThinkingControl};
use ghost_domain::tool_catalogue::to_wire;
use ghost_domain::transcript::{Block, Message, Role, ToolSpec};
use serde::Serialize;
use serde::ser::{Error, SerializeMap, SerializeSeq, Serializer};
use serde_json::Value;
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use std::sync::Arc;

use super::dialect::Dialect;
use crate::attached::{Part, parts};
use crate::blocks::{PICTURES_OF_RESULTS, sent_arguments, wire_name};
use crate::model::ModelRequest;

/// The state attached to reasoning: the name of the field in which the server sent it.
pub(super) const FIELD: &str = "field";
/// The field in which Google keeps the signature of an answer or a call.
pub(super) const GOOGLE_STATE: &str = "extra_content";
/// The field in which OpenRouter keeps the reasoning of an answer.
pub(super) const REASONING_DETAILS: &str = "reasoning_details";

#[derive(Serialize)]
pub(super) struct Body<'a> {
    model: &'a str,
    stream: bool,
    stream_options: StreamOptions,
    #[serde(skip_serializing_if = "Option::is_none")]
    tools: Option<&'a RawValue>,
    messages: Messages<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_tokens: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_completion_tokens: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_effort: Option<&'a str>,
    /// DeepSeek's form.
    #[serde(skip_serializing_if = "Option::is_none")]
    thinking: Option<Switch>,
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Switch {
    Enabled,
    Disabled,
}

#[derive(Serialize)]
struct StreamOptions {
    include_usage: bool,
}

impl<'a> Body<'a> {
    pub(super) fn of(request: &'a ModelRequest, tools: Option<&'a RawValue>, dialect: Dialect) -> Self {
        let own = dialect == Dialect::OpenAi;
        Self {
            model: &request.model,
            stream: true,
            stream_options: StreamOptions { include_usage: true },
            tools,
            messages: Messages(request),
            max_tokens: (!own).then_some(request.max_tokens),
            max_completion_tokens: own.then_some(request.max_tokens),
            temperature: request.temperature.filter(|_| request.facts.temperature),
            reasoning_effort: effort(request),
            thinking: request.thinking().filter(|_| has_reasoning_switch(request)).map(|wanted| match wanted {
                Thinking::None => Switch::Disabled,
                _ => Switch::Enabled,
            }),
        }
    }
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

pub(crate) fn tools(specs: &Arc<[ToolSpec]>) -> impl Serialize + use<> {
    #[derive(Serialize)]
    struct Tool {
        r#type: &'static str,
        function: Function,
    }
    #[derive(Serialize)]
    struct Function {
        name: String,
        description: String,
        parameters: Value,
    }
    let function = |tool: &ToolSpec| Function {
        name: to_wire(&tool.name),
        description: tool.description.clone(),
        parameters: tool.parameters.clone(),
    };
    specs.iter().map(|tool| Tool { r#type: "function", function: function(tool) }).collect::<Vec<_>>()
}

struct Messages<'a>(&'a ModelRequest);

/// A message that is not an answer.
#[derive(Serialize)]
struct Plain<'a> {
    role: &'static str,
    content: Content<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_call_id: Option<&'a str>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Content<'a> {
    Text(std::borrow::Cow<'a, str>),
    Parts(Vec<ContentPart<'a>>),
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum ContentPart<'a> {
    Text { text: &'a str },
    ImageUrl { image_url: ImageUrl },
}

#[derive(Serialize)]
struct ImageUrl {
    url: String,
}

impl Serialize for Messages<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut list = serializer.serialize_seq(None)?;
        if !self.0.system.is_empty() {
            let content = Content::Text(self.0.system.as_str().into());
            list.serialize_element(&Plain { role: "system", content, tool_call_id: None })?;
        }
        let form = self.0.form("chat", has_reasoning_switch(self.0));
        for message in self.0.messages.iter() {
            let elements = message.elements(&form, |message| elements(self.0, message)).map_err(S::Error::custom)?;
            for element in elements.iter() {
                list.serialize_element(element)?;
            }
        }
        list.end()
    }
}

/// An element of the list of messages.
#[derive(Serialize)]
#[serde(untagged)]
enum Element<'a> {
    Plain(Plain<'a>),
    Answer(Answer<'a>),
}

fn elements<'a>(request: &ModelRequest, message: &'a Message) -> Vec<Element<'a>> {
    let plain = |role, content, tool_call_id| Element::Plain(Plain { role, content, tool_call_id });
    match message.role {
        Role::User => {
            let content = content(&message.blocks).unwrap_or_else(|| Content::Text(text_of(message)));
            vec![plain("user", content, None)]
        }
        Role::Assistant => {
            let (parts, needs_reasoning) = (parts(request, message), has_reasoning_switch(request));
            vec![Element::Answer(Answer { parts, needs_reasoning })]
        }
        Role::Tool => {
            let result = |block: &'a Block| match block {
                Block::ToolResult { id, content, .. } => {
                    Some(plain("tool", Content::Text(content.as_str().into()), Some(id.as_str())))
                }
                _ => None,
            };
            let mut elements: Vec<_> = message.blocks.iter().filter_map(result).collect();
            // Results are text only in this API. Their pictures follow in a message after all results.
            if let Some(Content::Parts(mut parts)) = content(&message.blocks) {
                parts.insert(0, ContentPart::Text { text: PICTURES_OF_RESULTS });
                elements.push(plain("user", Content::Parts(parts), None));
            }
            elements
        }
    }
}

/// Text and pictures, if there are pictures.
fn content(blocks: &[Block]) -> Option<Content<'_>> {
    blocks
        .iter()
        .any(|block| matches!(block, Block::Image { .. }))
        .then(|| Content::Parts(blocks.iter().filter_map(content_part).collect()))
}

fn content_part(block: &Block) -> Option<ContentPart<'_>> {
    match block {
        Block::Text { text } => Some(ContentPart::Text { text }),
        Block::Image { media_type, data } => {
            let url = format!("data:{media_type};base64,{data}");
            Some(ContentPart::ImageUrl { image_url: ImageUrl { url } })
        }
        _ => None,
    }
}

/// The text of a message; borrowed if it is a single block.
fn text_of(message: &Message) -> std::borrow::Cow<'_, str> {
    match message.blocks.as_slice() {
        [Block::Text { text }] => text.as_str().into(),
        _ => message.visible_text().into(),
    }
}

/// An earlier answer.
struct Answer<'a> {
    parts: Vec<Part<'a>>,
    /// Whether it must have a reasoning field.
    needs_reasoning: bool,
}

/// A call, with the state that its server attached to it.
struct Call<'a> {
    id: &'a str,
    name: &'a str,
    arguments: &'a Value,
    attached: Option<&'a RawValue>,
}

impl Serialize for Answer<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (mut text, mut calls) = (Vec::new(), Vec::new());
        for part in &self.parts {
            match part {
                Part::Block(Block::Text { text: more }, _) => text.push(more.as_str()),
                Part::Block(Block::ToolCall { id, name, arguments }, attached) if !id.is_empty() => {
                    calls.push(Call { id, name, arguments, attached: *attached });
                }
                _ => {}
            }
        }
        let mut has_reasoning = false;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("role", "assistant")?;
        let text = text.join("\n");
        map.serialize_entry("content", &(!text.is_empty() || calls.is_empty()).then_some(text))?;
        if !calls.is_empty() {
            map.serialize_entry("tool_calls", &calls)?;
        }
        for part in &self.parts {
            match part {
                Part::Alone(json) => flatten(&mut map, json)?,
                Part::Block(Block::Thinking { text }, Some(attached)) => {
                    let named = serde_json::from_str::<BTreeMap<String, String>>(attached.get()).unwrap_or_default();
                    if let Some(field) = named.get(FIELD) {
                        has_reasoning = true;
                        map.serialize_entry(field, text)?;
                    }
                }
                Part::Block(..) => {}
            }
        }
        if self.needs_reasoning && !has_reasoning {
            map.serialize_entry("reasoning_content", "")?;
        }
        map.end()
    }
}

impl Serialize for Call<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Function {
            name: String,
            arguments: String,
        }
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("id", self.id)?;
        map.serialize_entry("type", "function")?;
        let arguments = sent_arguments(self.arguments).to_string();
        map.serialize_entry("function", &Function { name: wire_name(self.name), arguments })?;
        if let Some(attached) = self.attached {
            flatten(&mut map, attached)?;
        }
        map.end()
    }
}

/// Adds the fields of a JSON object that belong to this API. The object may be from the responses
/// API, if the model was called through that before.
fn flatten<M: SerializeMap>(map: &mut M, object: &RawValue) -> Result<(), M::Error> {
    for (name, value) in
        fields(object).into_iter().filter(|(name, _)| [GOOGLE_STATE, REASONING_DETAILS].contains(&name.as_str()))
    {
        map.serialize_entry(&name, value)?;
    }
    Ok(())
}

/// The fields of a JSON object.
pub(super) fn fields(object: &RawValue) -> BTreeMap<String, &RawValue> {
    serde_json::from_str(object.get()).unwrap_or_default()
}
