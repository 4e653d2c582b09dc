//! Assembles the answer of a chat completion from its events.
//!
//! This module must never allocate memory by a number in an event, only by the data received.

use std::collections::BTreeMap;

use ghost_domain::redact::Redactor;
use ghost_domain::transcript::{Block, TokenUsage};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Map, Value, json};

use crate::answer_bounds::AnswerBytes;
use crate::blocks::{call, check_block_count, check_call_count, finish_answer, normalise, replace_unusable_ids};
use crate::error::{ErrorKind, ProviderError};
use crate::estimate::reported;
use crate::http::event_error;
use crate::model::{Deltas, ModelAnswer, ModelRequest, Stop};

use super::chat_request::{FIELD, GOOGLE_STATE, REASONING_DETAILS};
use super::chat_usage::tokens;
use crate::attached::{alone, attached};
use crate::exchange::{Gather, first};

/// An event, or a whole answer that was not streamed.
#[derive(Deserialize)]
struct Chunk {
    /// Ghost asks for one choice only.
    #[serde(default, deserialize_with = "first")]
    choices: Option<Choice>,
    usage: Option<Value>,
    error: Option<Value>,
}

#[derive(Deserialize)]
struct Choice {
    #[serde(alias = "message")]
    delta: Option<Delta>,
    finish_reason: Option<String>,
}

#[derive(Deserialize)]
struct Delta {
    content: Option<Content>,
    reasoning_content: Option<String>,
    /// OpenRouter's reasoning, which must be sent back unchanged.
    reasoning_details: Option<Vec<Map<String, Value>>>,
    /// Google's signature.
    extra_content: Option<Value>,
    reasoning: Option<Value>,
    refusal: Option<String>,
    tool_calls: Option<Vec<CallDelta>>,
}

/// Text, or typed parts as Mistral sends them.
#[derive(Deserialize)]
#[serde(untagged)]
enum Content {
    Text(String),
    Parts(Vec<Value>),
}

#[derive(Deserialize)]
struct CallDelta {
    index: Option<u64>,
    id: Option<String>,
    function: Option<FunctionDelta>,
    extra_content: Option<Value>,
}

#[derive(Deserialize)]
struct FunctionDelta {
    name: Option<String>,
    arguments: Option<Value>,
}

impl FunctionDelta {
    /// Whether the fragment could be a complete call.
    fn is_whole(&self) -> bool {
        let arguments = match &self.arguments {
            Some(Value::String(text)) => !text.trim().is_empty(),
            Some(Value::Null) | None => false,
            Some(_) => true,
        };
        arguments && self.name.as_ref().is_some_and(|name| !name.is_empty())
    }
}

/// Maximum bytes of arguments that are checked for completeness.
const WHOLE_MAX: usize = 32 * 1_024;

#[derive(Default)]
struct Partial {
    id: String,
    name: String,
    arguments: String,
    extra_content: Option<Value>,
}

impl Partial {
    /// Whether everything except the id was received. This is checked for every fragment, so long
    /// arguments are not parsed again and again. Servers that send long arguments mark the next
    /// call by an id or an index.
    fn is_whole(&self) -> bool {
        !self.name.is_empty()
            && self.arguments.len() <= WHOLE_MAX
            && serde_json::from_str::<IgnoredAny>(&self.arguments).is_ok()
    }
}

/// Fields of a reasoning detail whose text comes in pieces.
const TEXTS: [&str; 4] = ["text", "summary", "data", "signature"];

/// The answer so far.
pub(super) struct Gathered<'a> {
    redactor: &'a Redactor,
    text: String,
    thinking: String,
    /// The field in which the server sends reasoning, if it has sent any.
    field: Option<&'static str>,
    details: Vec<Map<String, Value>>,
    extra_content: Option<Value>,
    calls: Vec<Partial>,
    /// For each index, the position of its call in `calls`.
    positions: BTreeMap<u64, usize>,
    bytes: AnswerBytes,
    /// The token counts as the server sent them.
    usage: Option<Value>,
    reason: Option<String>,
    /// Whether a choice was received.
    begun: bool,
    done: bool,
}

impl<'a> Gathered<'a> {
    pub(super) fn new(request: &ModelRequest, redactor: &'a Redactor) -> Self {
        Self {
            redactor,
            bytes: AnswerBytes::new(request),
            text: String::new(),
            thinking: String::new(),
            field: None,
            details: Vec::new(),
            extra_content: None,
            calls: Vec::new(),
            positions: BTreeMap::new(),
            usage: None,
            reason: None,
            begun: false,
            done: false,
        }
    }

    fn bad(&self, error: &str, data: &str) -> ProviderError {
        let message = format!("the provider sent an invalid chat completion: {error}, in: {}", clip(data));
        ProviderError::redacted(ErrorKind::BadAnswer, &message, self.redactor).usage(self.usage_if_ended())
    }

    /// The tokens used, if the answer has ended: some servers send counts while they write.
    fn usage_if_ended(&self) -> Option<TokenUsage> {
        let over = self.done || self.reason.is_some();
        let empty = self.text.is_empty() && self.thinking.is_empty() && self.calls.is_empty();
        self.usage.as_ref().filter(|_| over).and_then(|usage| reported(tokens(usage), empty))
    }

    fn chunk(&mut self, chunk: Chunk, deltas: &mut dyn Deltas) -> Result<(), ProviderError> {
        if let Some(usage) = chunk.usage.filter(|usage| !usage.is_null()) {
            self.usage = Some(usage);
        }
        if let Some(error) = chunk.error.filter(|error| !error.is_null()) {
            return Err(event_error(&error, self.redactor).usage(self.usage_if_ended()));
        }
        let Some(choice) = chunk.choices else { return Ok(()) };
        self.begun = true;
        if let Some(delta) = choice.delta {
            self.delta(delta, deltas)?;
        }
        if let Some(reason) = choice.finish_reason.filter(|reason| !reason.is_empty()) {
            self.reason = Some(reason);
        }
        Ok(())
    }

    fn delta(&mut self, delta: Delta, deltas: &mut dyn Deltas) -> Result<(), ProviderError> {
        let reasoning = match (delta.reasoning_content, delta.reasoning) {
            (None, Some(Value::String(text))) => {
                self.field = Some("reasoning");
                Some(text)
            }
            (Some(text), _) => {
                self.field = Some("reasoning_content");
                Some(text)
            }
            (None, _) => None,
        };
        if let Some(reasoning) = reasoning {
            self.add_thinking(&reasoning, deltas)?;
        }
        for detail in delta.reasoning_details.unwrap_or_default() {
            self.detail(detail)?;
        }
        if let Some(extra) = delta.extra_content {
            self.bytes.add_text(extra.to_string().len())?;
            self.extra_content = Some(extra);
        }
        match delta.content {
            Some(Content::Text(text)) => self.add_text(&text, deltas)?,
            Some(Content::Parts(parts)) => {
                for part in &parts {
                    self.part(part, deltas)?;
                }
            }
            None => {}
        }
        if let Some(refusal) = delta.refusal {
            self.add_text(&refusal, deltas)?;
            self.reason.get_or_insert_with(|| "refusal".to_owned());
        }
        for call in delta.tool_calls.unwrap_or_default() {
            self.call(call)?;
        }
        Ok(())
    }

    /// Adds a piece of a reasoning detail. Pieces with the same index and type belong together.
    fn detail(&mut self, piece: Map<String, Value>) -> Result<(), ProviderError> {
        self.bytes.add_text(piece.iter().map(|(key, value)| key.len() + value.to_string().len()).sum())?;
        let same = |one: &Map<String, Value>, key| one.get(key) == piece.get(key);
        let last = self.details.last_mut().filter(|last| {
            piece.get("index").is_some_and(|index| !index.is_null()) && same(last, "index") && same(last, "type")
        });
        let Some(last) = last else {
            check_block_count(self.details.len() + 1)?;
            self.details.push(piece);
            return Ok(());
        };
        for (key, value) in piece {
            match (last.get_mut(&key), value) {
                (Some(Value::String(before)), Value::String(more)) if TEXTS.contains(&key.as_str()) => {
                    before.push_str(&more)
                }
                (Some(_), Value::Null) => {}
                (_, value) => drop(last.insert(key, value)),
            }
        }
        Ok(())
    }

    fn add_text(&mut self, text: &str, deltas: &mut dyn Deltas) -> Result<(), ProviderError> {
        self.bytes.add_text(text.len())?;
        if !text.is_empty() {
            self.text.push_str(text);
            deltas.text(text);
        }
        Ok(())
    }

    fn add_thinking(&mut self, text: &str, deltas: &mut dyn Deltas) -> Result<(), ProviderError> {
        self.bytes.add_text(text.len())?;
        if !text.is_empty() {
            self.thinking.push_str(text);
            deltas.thinking(text);
        }
        Ok(())
    }

    /// Adds a content block, which some servers send instead of text (TOOL-10).
    fn part(&mut self, part: &Value, deltas: &mut dyn Deltas) -> Result<(), ProviderError> {
        // Mistral's reasoning is a list of text blocks.
        if let Some(inner) = part.get("thinking").and_then(Value::as_array) {
            for piece in inner {
                self.add_thinking(piece.get("text").and_then(Value::as_str).unwrap_or_default(), deltas)?;
            }
            return Ok(());
        }
        match normalise(part) {
            Some(Block::Text { text }) => self.add_text(&text, deltas)?,
            Some(Block::Thinking { text, .. }) => self.add_thinking(&text, deltas)?,
            Some(Block::ToolCall { id, name, arguments }) => {
                let arguments = arguments.to_string();
                self.bytes.add_arguments(arguments.len())?;
                let position = self.new_call()?;
                if let Some(call) = self.calls.get_mut(position) {
                    *call = Partial { id, name, arguments, extra_content: None };
                }
            }
            Some(Block::ToolResult { .. } | Block::Opaque(_) | Block::Image { .. } | Block::ImageFile(_)) | None => {}
        }
        Ok(())
    }

    /// Adds an empty call and returns its position.
    fn new_call(&mut self) -> Result<usize, ProviderError> {
        check_call_count(self.calls.len() + 1)?;
        self.calls.push(Partial::default());
        Ok(self.calls.len() - 1)
    }

    /// Adds a fragment of a call. It continues the call with the same index, unless it has another
    /// id, or unless it brings a name and arguments while that call is complete. Some servers give
    /// every parallel call the same index or none, and some of them give no id.
    fn call(&mut self, delta: CallDelta) -> Result<(), ProviderError> {
        let id = delta.id.filter(|id| !id.is_empty());
        let position = match delta.index {
            Some(index) => self.positions.get(&index).copied(),
            None if id.is_none() => self.calls.len().checked_sub(1),
            None => None,
        };
        let same = position.filter(|position| {
            let known = self.calls.get(*position).map_or("", |call| call.id.as_str());
            let other =
                known.is_empty() && id.is_none() && delta.function.as_ref().is_some_and(FunctionDelta::is_whole);
            (known.is_empty() || id.as_deref().is_none_or(|id| id == known))
                && !(other && self.calls.get(*position).is_some_and(Partial::is_whole))
        });
        let position = match same {
            Some(position) => position,
            None => self.new_call()?,
        };
        if let Some(index) = delta.index {
            self.positions.insert(index, position);
        }
        let Some(call) = self.calls.get_mut(position) else { return Ok(()) };
        if let Some(id) = id {
            call.id = id;
        }
        if let Some(extra) = delta.extra_content {
            self.bytes.add_arguments(extra.to_string().len())?;
            call.extra_content = Some(extra);
        }
        let Some(function) = delta.function else { return Ok(()) };
        if let Some(name) = function.name {
            // The first fragment has the whole name; a server that repeats it means the same call.
            if call.name.is_empty() {
                call.name = name;
            }
        }
        match function.arguments {
            Some(Value::String(fragment)) => {
                self.bytes.add_arguments(fragment.len())?;
                call.arguments.push_str(&fragment);
            }
            Some(Value::Null) | None => {}
            Some(whole) => {
                call.arguments = whole.to_string();
                self.bytes.add_arguments(call.arguments.len())?;
            }
        }
        Ok(())
    }

    /// The answer, if it is complete.
    pub(super) fn finish(self, request: &ModelRequest) -> Result<ModelAnswer, ProviderError> {
        // Some servers close the connection without `[DONE]`. If the finish reason is missing too,
        // the answer was interrupted.
        if !self.done && self.reason.is_none() {
            return Err(ProviderError::new(
                ErrorKind::BrokenStream,
                "the stream ended without its end marker, in the middle of the answer",
            ));
        }
        let usage = self.usage.as_ref().map(tokens).unwrap_or_default();
        let unused = self.usage_if_ended();
        let mut blocks = Vec::new();
        if !self.details.is_empty() {
            blocks.push(alone(request, json!({ REASONING_DETAILS: self.details }).to_string()));
        }
        if let Some(extra) = self.extra_content {
            blocks.push(alone(request, json!({ GOOGLE_STATE: extra }).to_string()));
        }
        if !self.thinking.is_empty() {
            // Servers that send reasoning details want those back instead of the text.
            if let Some(field) = self.field.filter(|_| self.details.is_empty()) {
                blocks.push(attached(request, json!({ FIELD: field }).to_string()));
            }
            blocks.push(Block::Thinking { text: self.thinking });
        }
        if !self.text.is_empty() {
            blocks.push(Block::Text { text: self.text });
        }
        for partial in self.calls {
            if partial.name.is_empty() {
                let message = "the answer has a tool call without a name";
                return Err(ProviderError::new(ErrorKind::BadAnswer, message).usage(unused));
            }
            if let Some(extra) = partial.extra_content {
                blocks.push(attached(request, json!({ GOOGLE_STATE: extra }).to_string()));
            }
            blocks.push(call(partial.id, &partial.name, Value::String(partial.arguments)));
        }
        replace_unusable_ids(request, &mut blocks);
        let stop = match self.reason.as_deref() {
            Some("length") => Stop::MaxTokens,
            Some("content_filter" | "refusal") => Stop::Refused(None),
            Some("tool_calls" | "function_call") => Stop::ToolUse,
            Some("stop") | None => Stop::EndTurn,
            Some(other) => Stop::Other(clip(other)),
        };
        finish_answer(request, blocks, usage, stop)
    }
}

impl Gather for Gathered<'_> {
    fn event(&mut self, data: &str, deltas: &mut dyn Deltas) -> Result<(), ProviderError> {
        let data = data.trim();
        if self.done || data.is_empty() {
            return Ok(());
        }
        if data == "[DONE]" {
            self.done = true;
            return Ok(());
        }
        let chunk: Chunk = serde_json::from_str(data).map_err(|error| self.bad(&error.to_string(), data))?;
        self.chunk(chunk, deltas)
    }

    fn whole(&mut self, body: &str, deltas: &mut dyn Deltas) -> Result<(), ProviderError> {
        let chunk: Chunk = serde_json::from_str(body).map_err(|error| self.bad(&error.to_string(), body))?;
        self.done = true;
        self.chunk(chunk, deltas)
    }

    fn has_begun(&self) -> bool {
        self.begun
    }

    fn is_done(&self) -> bool {
        self.done
    }

    fn has_ended(&self) -> bool {
        self.reason.is_some()
    }
}

fn clip(text: &str) -> String {
    ghost_domain::text::clip(text, 300)
}
