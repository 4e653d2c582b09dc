//! Assembles an answer of Ollama from its lines.
//!
//! This module must never treat the end of the stream as the end of the answer.

use ghost_domain::redact::Redactor;
use ghost_domain::text::clip;
use ghost_domain::transcript::{Block, TokenUsage};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::answer_bounds::AnswerBytes;
use crate::attached::attached;
use crate::blocks::{call, check_call_count, finish_answer, replace_unusable_ids};
use crate::error::{Charge, ErrorKind, ProviderError};
use crate::exchange::{Gather, read};
use crate::http::event_error;
use crate::model::{Deltas, ModelAnswer, ModelRequest, Stop};
use crate::openai::COUNT_MAX;

/// The answer so far.
pub(super) struct Gathered<'r> {
    redactor: &'r Redactor,
    bytes: AnswerBytes,
    text: String,
    thinking: String,
    calls: Vec<Call>,
    last: Option<Last>,
    /// Whether a line of the protocol was received.
    begun: bool,
}

#[derive(Deserialize)]
struct Line {
    message: Option<Message>,
    #[serde(default)]
    done: bool,
    #[serde(flatten)]
    last: Last,
    error: Option<Value>,
}

/// The fields of the last line.
#[derive(Deserialize)]
struct Last {
    done_reason: Option<String>,
    /// Kept as JSON: a value that is not a count is ignored and is no error.
    prompt_eval_count: Option<Value>,
    eval_count: Option<Value>,
}

#[derive(Default, Deserialize)]
struct Message {
    content: Option<String>,
    thinking: Option<String>,
    tool_calls: Option<Vec<Call>>,
}

#[derive(Deserialize)]
struct Call {
    id: Option<String>,
    function: Function,
}

#[derive(Deserialize)]
struct Function {
    name: String,
    arguments: Option<Value>,
}

impl<'r> Gathered<'r> {
    pub(super) fn new(request: &ModelRequest, redactor: &'r Redactor) -> Self {
        let (text, thinking, calls) = (String::new(), String::new(), Vec::new());
        Self { redactor, bytes: AnswerBytes::new(request), text, thinking, calls, last: None, begun: false }
    }

    fn add_line(&mut self, line: Line, deltas: &mut dyn Deltas) -> Result<(), ProviderError> {
        if let Some(error) = line.error {
            let body = if error.is_string() { json!({ "message": error }) } else { error };
            return Err(event_error(&body, self.redactor));
        }
        self.begun |= line.message.is_some() || line.done;
        let Message { content, thinking, tool_calls } = line.message.unwrap_or_default();
        if let Some(more) = thinking.filter(|more| !more.is_empty()) {
            self.bytes.add_text(more.len())?;
            self.thinking.push_str(&more);
            deltas.thinking(&more);
        }
        if let Some(more) = content.filter(|more| !more.is_empty()) {
            self.bytes.add_text(more.len())?;
            self.text.push_str(&more);
            deltas.text(&more);
        }
        for call in tool_calls.unwrap_or_default() {
            check_call_count(self.calls.len() + 1)?;
            let arguments = call.function.arguments.as_ref().map_or(0, |arguments| arguments.to_string().len());
            self.bytes.add_arguments(call.function.name.len() + arguments)?;
            self.calls.push(call);
        }
        // Versions without stop reasons have the counts in their last line only.
        if line.done || line.last.eval_count.is_some() {
            self.last = Some(line.last);
        }
        Ok(())
    }

    /// The answer, if it is complete.
    pub(super) fn finish(self, request: &ModelRequest) -> Result<ModelAnswer, ProviderError> {
        let Some(last) = self.last else {
            let message = "the stream ended without its end marker, in the middle of the answer";
            return Err(ProviderError::new(ErrorKind::BrokenStream, message).charge(Charge::Unknown));
        };
        let mut blocks = Vec::new();
        if !self.thinking.is_empty() {
            blocks.push(attached(request, json!({}).to_string()));
            blocks.push(Block::Thinking { text: self.thinking });
        }
        if !self.text.is_empty() {
            blocks.push(Block::Text { text: self.text });
        }
        for one in self.calls {
            blocks.push(call(
                one.id.unwrap_or_default(),
                &one.function.name,
                one.function.arguments.unwrap_or_default(),
            ));
        }
        replace_unusable_ids(request, &mut blocks);
        let stop = match last.done_reason.as_deref() {
            None | Some("stop") => Stop::EndTurn,
            Some("length") => Stop::MaxTokens,
            Some(other) => Stop::Other(clip(other, 80)),
        };
        finish_answer(request, blocks, last.tokens(), stop)
    }
}

impl Gather for Gathered<'_> {
    fn event(&mut self, data: &str, deltas: &mut dyn Deltas) -> Result<(), ProviderError> {
        if data.trim().is_empty() {
            return Ok(());
        }
        let line = read(data, self.redactor)?;
        self.add_line(line, deltas)
    }

    fn whole(&mut self, body: &str, deltas: &mut dyn Deltas) -> Result<(), ProviderError> {
        self.event(body, deltas)
    }

    fn has_begun(&self) -> bool {
        self.begun
    }

    fn is_done(&self) -> bool {
        self.last.is_some()
    }
}

impl Last {
    /// The token counts; zero for a count that is missing or not plausible. A cached prompt is not read again, and some
    /// versions then omit its count.
    fn tokens(&self) -> TokenUsage {
        let count = |value: &Option<Value>| value.as_ref().and_then(Value::as_u64).filter(|count| *count <= COUNT_MAX);
        let (input, output) = (count(&self.prompt_eval_count), count(&self.eval_count));
        TokenUsage { input: input.unwrap_or(0), output: output.unwrap_or(0), ..TokenUsage::default() }
    }
}
