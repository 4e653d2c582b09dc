//! Assembles the answer of a chat completion from its events. Memory is allocated for the data received, and never by a
//! number in an event.

use std::collections::BTreeMap;

use ghost_domain::transcript::{Block, TokenUsage};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Map, Value, json};

use super::chat_request::{FIELD, GOOGLE_STATE, REASONING_DETAILS};
use crate::answer::{Draft, Gather, check_block_count, check_call_count, first, without_end};
use crate::blocks::{alone, attached, call, finish_answer, normalise};
use crate::error::ProviderError;
use crate::estimate::{count, reported};
use crate::model::{Deltas, ModelAnswer, Stop};

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
pub(super) struct Gathered<'r> {
    draft: Draft<'r>,
    text: String,
    thinking: String,
    /// The field in which the server sends reasoning, if it has sent any.
    field: Option<&'static str>,
    details: Vec<Map<String, Value>>,
    extra_content: Option<Value>,
    calls: Vec<Partial>,
    /// For each index, the position of its call in `calls`.
    positions: BTreeMap<u64, usize>,
    /// The token counts as the server sent them.
    usage: Option<Value>,
    reason: Option<String>,
    done: bool,
}

impl<'r> Gathered<'r> {
    pub(super) fn new(draft: Draft<'r>) -> Self {
        Self {
            draft,
            text: String::new(),
            thinking: String::new(),
            field: None,
            details: Vec::new(),
            extra_content: None,
            calls: Vec::new(),
            positions: BTreeMap::new(),
            usage: None,
            reason: None,
            done: false,
        }
    }

    fn bad(&self, error: &str, data: &str) -> ProviderError {
        let message = format!("the provider sent an invalid chat completion: {error}, in: {}", clip(data));
        self.draft.bad(&message).usage(self.usage_if_ended())
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
            return Err(self.draft.reported(&error).usage(self.usage_if_ended()));
        }
        let Some(choice) = chunk.choices else { return Ok(()) };
        self.draft.begun = true;
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
            (Some(text), _) => Some(("reasoning_content", text)),
            (None, Some(Value::String(text))) => Some(("reasoning", text)),
            (None, _) => None,
        };
        if let Some((field, text)) = reasoning {
            self.field = Some(field);
            self.add_thinking(&text, deltas)?;
        }
        for detail in delta.reasoning_details.unwrap_or_default() {
            self.detail(detail)?;
        }
        if let Some(extra) = delta.extra_content {
            self.draft.bytes.add_text(extra.to_string().len())?;
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
        self.draft.bytes.add_text(piece.iter().map(|(key, value)| key.len() + value.to_string().len()).sum())?;
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
        self.draft.say(&mut self.text, text, deltas)
    }

    fn add_thinking(&mut self, text: &str, deltas: &mut dyn Deltas) -> Result<(), ProviderError> {
        self.draft.think(&mut self.thinking, text, deltas)
    }

    /// Adds a content block, which some servers send instead of text.
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
                self.draft.bytes.add_arguments(arguments.len())?;
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
            self.draft.bytes.add_arguments(extra.to_string().len())?;
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
                self.draft.bytes.add_arguments(fragment.len())?;
                call.arguments.push_str(&fragment);
            }
            Some(Value::Null) | None => {}
            Some(whole) => {
                call.arguments = whole.to_string();
                self.draft.bytes.add_arguments(call.arguments.len())?;
            }
        }
        Ok(())
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
        self.draft.begun
    }

    fn is_done(&self) -> bool {
        self.done
    }

    fn has_ended(&self) -> bool {
        self.reason.is_some()
    }

    fn finish(self) -> Result<ModelAnswer, ProviderError> {
        // Some servers close the connection without `[DONE]`. If the finish reason is missing too,
        // the answer was interrupted.
        if !self.done && self.reason.is_none() {
            return Err(without_end());
        }
        let request = self.draft.request;
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
                return Err(self.draft.bad("the answer has a tool call without a name").usage(unused));
            }
            if let Some(extra) = partial.extra_content {
                blocks.push(attached(request, json!({ GOOGLE_STATE: extra }).to_string()));
            }
            blocks.push(call(partial.id, &partial.name, Value::String(partial.arguments)));
        }
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

fn clip(text: &str) -> String {
    ghost_domain::text::clip(text, 300)
}

/// The tokens that `usage` reports; zero for a count that it does not report.
fn tokens(usage: &Value) -> TokenUsage {
    let (prompt, completion, total) =
        (count(usage, "prompt_tokens"), count(usage, "completion_tokens"), count(usage, "total_tokens"));
    let input = prompt.or_else(|| Some(total?.saturating_sub(completion?))).unwrap_or(0);
    // Some servers omit reasoning from `completion_tokens`, but not from the total.
    let rest = prompt.and(total).map(|total| total.saturating_sub(input));
    let output = completion.max(rest).unwrap_or(0);
    let reasoning = usage.get("completion_tokens_details").and_then(|details| count(details, "reasoning_tokens"));
    // If there is more reasoning than output, reasoning is counted separately.
    let output = match reasoning {
        Some(reasoning) if reasoning > output => output.saturating_add(reasoning),
        _ => output,
    };
    let cached = usage.get("prompt_tokens_details").and_then(|details| count(details, "cached_tokens"));
    TokenUsage { input, output, cache_read: cached.unwrap_or(0).min(input), cache_write: 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn missing_counts_are_zero() {
        for (missing, known) in [
            (json!({}), (0, 0)),
            (json!([]), (0, 0)),
            (json!("many"), (0, 0)),
            (json!({ "total_tokens": 105 }), (0, 0)),
            (json!({ "prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0 }), (0, 0)),
            (json!({ "prompt_tokens": 100, "completion_tokens": null }), (100, 0)),
            (json!({ "completion_tokens": 5 }), (0, 5)),
            (json!({ "prompt_tokens": "100", "completion_tokens": 5 }), (0, 5)),
            (json!({ "prompt_tokens": u64::MAX, "completion_tokens": 5 }), (0, 5)),
            (json!({ "prompt_tokens": -100, "completion_tokens": -5 }), (0, 0)),
        ] {
            let tokens = tokens(&missing);
            assert_eq!((tokens.input, tokens.output), known, "{missing}");
        }
    }

    #[test]
    fn the_larger_count_is_used() {
        let tokens_of = |input, output| TokenUsage { input, output, ..TokenUsage::default() };
        for (usage, expected) in [
            (json!({ "prompt_tokens": 100, "completion_tokens": 5 }), tokens_of(100, 5)),
            (json!({ "prompt_tokens": 100.0, "completion_tokens": 5.0 }), tokens_of(100, 5)),
            (json!({ "prompt_tokens": 100, "completion_tokens": 5, "total_tokens": null }), tokens_of(100, 5)),
            (json!({ "prompt_tokens": 100, "completion_tokens": null, "total_tokens": 105 }), tokens_of(100, 5)),
            (json!({ "completion_tokens": 5, "total_tokens": 105 }), tokens_of(100, 5)),
            // Reasoning that is not part of the completion count, within the total and outside it.
            (json!({ "prompt_tokens": 100, "completion_tokens": 5, "total_tokens": 605 }), tokens_of(100, 505)),
            (
                json!({ "prompt_tokens": 100, "completion_tokens": 5, "total_tokens": 605,
                    "completion_tokens_details": { "reasoning_tokens": 500 } }),
                tokens_of(100, 505),
            ),
            (
                json!({ "prompt_tokens": 100, "completion_tokens": 5,
                    "completion_tokens_details": { "reasoning_tokens": 500 } }),
                tokens_of(100, 505),
            ),
            (
                json!({ "prompt_tokens": 100, "completion_tokens": 505, "total_tokens": 605,
                    "completion_tokens_details": { "reasoning_tokens": 500 } }),
                tokens_of(100, 505),
            ),
        ] {
            assert_eq!(tokens(&usage), expected, "{usage}");
        }
    }
}
