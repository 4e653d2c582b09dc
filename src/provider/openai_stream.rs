//! The answer of a chat completion, gathered from its events.
//!
//! Must never: make room for what a number in an event says rather than for what has come.

use std::collections::BTreeMap;

use ghost_domain::redact::Redactor;
use ghost_domain::transcript::{Block, TokenUsage};
use serde::Deserialize;
use serde_json::Value;

use crate::blocks::{call, own_ids, settle};
use crate::error::{ErrorKind, ProviderError};
use crate::http::event_error;
use crate::model::{Deltas, ModelAnswer, ModelRequest, Stop};

/// Most calls in one answer.
const CALLS_MAX: usize = 256;

/// An event, or the whole of an answer that was not streamed.
#[derive(Deserialize)]
struct Chunk {
    #[serde(default)]
    choices: Vec<Choice>,
    usage: Option<Usage>,
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
    reasoning: Option<Value>,
    refusal: Option<String>,
    tool_calls: Option<Vec<CallDelta>>,
}

/// Text, or parts with a type of their own as Mistral sends them.
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
}

#[derive(Deserialize)]
struct FunctionDelta {
    name: Option<String>,
    arguments: Option<Value>,
}

#[derive(Deserialize)]
struct Usage {
    #[serde(default)]
    prompt_tokens: u64,
    #[serde(default)]
    completion_tokens: u64,
    prompt_tokens_details: Option<PromptDetails>,
}

#[derive(Deserialize)]
struct PromptDetails {
    cached_tokens: Option<u64>,
}

#[derive(Default)]
struct Partial {
    id: String,
    name: String,
    arguments: String,
}

/// Gathers one answer.
pub(crate) struct Gather<'a> {
    redactor: &'a Redactor,
    text: String,
    thinking: String,
    calls: Vec<Partial>,
    /// Where the call of an index is gathered.
    places: BTreeMap<u64, usize>,
    usage: Option<TokenUsage>,
    reason: Option<String>,
    done: bool,
}

impl<'a> Gather<'a> {
    pub(crate) fn new(redactor: &'a Redactor) -> Self {
        Self {
            redactor,
            text: String::new(),
            thinking: String::new(),
            calls: Vec::new(),
            places: BTreeMap::new(),
            usage: None,
            reason: None,
            done: false,
        }
    }

    /// Whether the end marker has come.
    pub(crate) fn is_done(&self) -> bool {
        self.done
    }

    /// Takes the data of one event.
    pub(crate) fn event(&mut self, data: &str, deltas: &mut dyn Deltas) -> Result<(), ProviderError> {
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

    /// Takes what is left when the stream has ended: half an event is no event.
    pub(crate) fn last_event(&mut self, data: &str, deltas: &mut dyn Deltas) -> Result<(), ProviderError> {
        match self.event(data, deltas) {
            Err(error) if error.kind == ErrorKind::BadAnswer && self.reason.is_none() => {
                Err(ProviderError { kind: ErrorKind::BrokenStream, ..error })
            }
            other => other,
        }
    }

    /// Takes an answer that came in one piece.
    pub(crate) fn whole(&mut self, body: &[u8], deltas: &mut dyn Deltas) -> Result<(), ProviderError> {
        let chunk: Chunk = serde_json::from_slice(body)
            .map_err(|error| self.bad(&error.to_string(), &String::from_utf8_lossy(body)))?;
        self.done = true;
        self.chunk(chunk, deltas)
    }

    fn bad(&self, error: &str, data: &str) -> ProviderError {
        let words = format!("the provider sent what is no chat completion: {error}, in: {}", clip(data));
        ProviderError::redacted(ErrorKind::BadAnswer, &words, self.redactor)
    }

    fn chunk(&mut self, chunk: Chunk, deltas: &mut dyn Deltas) -> Result<(), ProviderError> {
        if let Some(error) = chunk.error.filter(|error| !error.is_null()) {
            return Err(event_error(&error, self.redactor));
        }
        if let Some(usage) = chunk.usage {
            self.usage = Some(TokenUsage {
                input: usage.prompt_tokens,
                output: usage.completion_tokens,
                cache_read: usage.prompt_tokens_details.and_then(|details| details.cached_tokens).unwrap_or(0),
                cache_write: 0,
            });
        }
        // Only one choice is ever asked for.
        let Some(choice) = chunk.choices.into_iter().next() else { return Ok(()) };
        if let Some(delta) = choice.delta {
            self.delta(delta, deltas)?;
        }
        if let Some(reason) = choice.finish_reason.filter(|reason| !reason.is_empty()) {
            self.reason = Some(reason);
        }
        Ok(())
    }

    fn delta(&mut self, delta: Delta, deltas: &mut dyn Deltas) -> Result<(), ProviderError> {
        let reasoning = delta.reasoning_content.or(match delta.reasoning {
            Some(Value::String(text)) => Some(text),
            _ => None,
        });
        if let Some(reasoning) = reasoning {
            self.think(&reasoning, deltas);
        }
        match delta.content {
            Some(Content::Text(text)) => self.say(&text, deltas),
            Some(Content::Parts(parts)) => {
                for part in &parts {
                    self.part(part, deltas);
                }
            }
            None => {}
        }
        if let Some(refusal) = delta.refusal {
            self.say(&refusal, deltas);
            self.reason.get_or_insert_with(|| "refusal".to_owned());
        }
        for call in delta.tool_calls.unwrap_or_default() {
            self.call(call)?;
        }
        Ok(())
    }

    fn say(&mut self, text: &str, deltas: &mut dyn Deltas) {
        if !text.is_empty() {
            self.text.push_str(text);
            deltas.text(text);
        }
    }

    fn think(&mut self, text: &str, deltas: &mut dyn Deltas) {
        if !text.is_empty() {
            self.thinking.push_str(text);
            deltas.thinking(text);
        }
    }

    fn part(&mut self, part: &Value, deltas: &mut dyn Deltas) {
        let text = |value: &Value| value.get("text").and_then(Value::as_str).map(str::to_owned);
        match part.get("type").and_then(Value::as_str) {
            Some("text") => self.say(&text(part).unwrap_or_default(), deltas),
            Some("thinking") => {
                let inner = part.get("thinking").and_then(Value::as_array).cloned().unwrap_or_default();
                for piece in &inner {
                    self.think(&text(piece).unwrap_or_default(), deltas);
                }
            }
            _ => {}
        }
    }

    /// Takes a fragment. It continues the call of its index, unless it brings another id: some servers give every
    /// parallel call the same index, or none.
    fn call(&mut self, delta: CallDelta) -> Result<(), ProviderError> {
        let id = delta.id.filter(|id| !id.is_empty());
        let place = match delta.index {
            Some(index) => self.places.get(&index).copied(),
            None if id.is_none() => self.calls.len().checked_sub(1),
            None => None,
        };
        let same = place.filter(|place| {
            let known = self.calls.get(*place).map_or("", |call| call.id.as_str());
            known.is_empty() || id.as_deref().is_none_or(|id| id == known)
        });
        let place = match same {
            Some(place) => place,
            None => {
                if self.calls.len() >= CALLS_MAX {
                    let words = format!("the answer makes more than {CALLS_MAX} calls");
                    return Err(ProviderError::new(ErrorKind::BadAnswer, words));
                }
                self.calls.push(Partial::default());
                self.calls.len() - 1
            }
        };
        if let Some(index) = delta.index {
            self.places.insert(index, place);
        }
        let Some(call) = self.calls.get_mut(place) else { return Ok(()) };
        if let Some(id) = id {
            call.id = id;
        }
        let Some(function) = delta.function else { return Ok(()) };
        if let Some(name) = function.name {
            // The name comes whole with the first fragment; a server that repeats it means the same call.
            if call.name.is_empty() {
                call.name = name;
            }
        }
        match function.arguments {
            Some(Value::String(fragment)) => call.arguments.push_str(&fragment),
            Some(Value::Null) | None => {}
            Some(whole) => call.arguments = whole.to_string(),
        }
        Ok(())
    }

    /// The answer, if it is whole.
    pub(crate) fn finish(self, request: &ModelRequest) -> Result<ModelAnswer, ProviderError> {
        // Some servers close the connection in place of `[DONE]`; without a reason to finish either, it broke off.
        if !self.done && self.reason.is_none() {
            return Err(ProviderError::new(
                ErrorKind::BrokenStream,
                "the stream ended without its end marker, in the middle of the answer",
            ));
        }
        let mut blocks = Vec::new();
        if !self.thinking.is_empty() {
            blocks.push(Block::Thinking { text: self.thinking, signature: None });
        }
        if !self.text.is_empty() {
            blocks.push(Block::Text { text: self.text });
        }
        for partial in self.calls {
            if partial.name.is_empty() {
                let words = "the answer holds a tool call without a name";
                return Err(ProviderError::new(ErrorKind::BadAnswer, words));
            }
            blocks.push(call(partial.id, &partial.name, Value::String(partial.arguments)));
        }
        own_ids(request, &mut blocks);
        let stop = match self.reason.as_deref() {
            Some("length") => Stop::MaxTokens,
            Some("content_filter" | "refusal") => Stop::Refused,
            Some("tool_calls" | "function_call") => Stop::ToolUse,
            Some("stop") | None => Stop::EndTurn,
            Some(other) => Stop::Other(clip(other)),
        };
        settle(request, blocks, self.usage, stop)
    }
}

fn clip(text: &str) -> String {
    ghost_domain::text::clip(text, 300)
}
