//! What genai leaves out: how many calls an answer may make, how long their arguments and its words may be, and errors that
//! it passes over. How much it may gather at all is the rim's.
//!
//! Must never: hold more of an answer than one error.

use std::sync::OnceLock;

use genai::chat::{ChatFrameSink, FrameCtx, RawFrameRef, ToolCall};
use serde_json::Value;

use crate::answer_bounds::AnswerBytes;
use crate::blocks::count_calls;
use crate::error::ProviderError;
use crate::genai_protocol::Protocol;
use crate::http::ERROR_BODY_MAX;
use crate::model::ModelRequest;

/// Looks at every frame of an answer, for what genai passes over.
#[derive(Default)]
pub(crate) struct Wire {
    error: OnceLock<Value>,
}

impl Wire {
    /// The first frame that is an error and nothing else: genai passes over such lines of Ollama's.
    pub(crate) fn error(&self) -> Option<&Value> {
        self.error.get()
    }
}

impl ChatFrameSink for Wire {
    fn on_frame(&self, _: &FrameCtx, frame: RawFrameRef<'_>) {
        if frame.data.len() <= ERROR_BODY_MAX
            && frame.data.trim_start().starts_with("{\"error\"")
            && let Ok(error) = serde_json::from_str(frame.data)
        {
            // The first one counts.
            self.error.get_or_init(|| error);
        }
    }
}

/// Counts what has come of an answer as genai tells of it. Calls: for Anthropic all that has come of one, again at every
/// fragment and beginning with nothing; for the others each once and whole.
pub(crate) struct Counted {
    grow: bool,
    last: usize,
    calls: usize,
    bytes: AnswerBytes,
}

impl Counted {
    pub(crate) fn of(protocol: Protocol, request: &ModelRequest) -> Self {
        Self { grow: protocol == Protocol::Anthropic, last: 0, calls: 0, bytes: AnswerBytes::of(request) }
    }

    /// Takes words or thoughts, unless they are too many.
    pub(crate) fn words(&mut self, words: &str) -> Result<(), ProviderError> {
        self.bytes.add_words(words.len())
    }

    /// Takes what genai tells of a call, unless it is too much.
    pub(crate) fn call(&mut self, call: &ToolCall) -> Result<(), ProviderError> {
        // Anthropic's begin with an object and grow as text.
        if !self.grow || !call.fn_arguments.is_string() {
            self.calls += 1;
            count_calls(self.calls)?;
        }
        let now = match &call.fn_arguments {
            Value::String(text) => text.len(),
            whole => whole.to_string().len(),
        };
        let more = if self.grow && now >= self.last { now - self.last } else { now };
        self.last = now;
        self.bytes.add_arguments(more)
    }
}
