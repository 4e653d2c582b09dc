//! What all protocols share of an answer under way: how it is gathered from events, and its limits. An answer is redacted,
//! journaled and sent back with every later call of its turn, so its size is limited by the bytes that arrive, whatever
//! the provider declares.

use ghost_domain::redact::Redactor;
use ghost_domain::transcript::Block;
use serde::Deserialize;
use serde_json::Value;

use crate::error::{ErrorKind, ProviderError};
use crate::failure::event_error;
use crate::model::{Deltas, ModelAnswer, ModelRequest};

/// Longest answer that is read, in bytes. Every few letters arrive in an event of a few hundred
/// bytes.
pub(crate) const ANSWER_MAX: usize = 32 * 1_024 * 1_024;
/// Maximum bytes of text and reasoning in an answer, including signatures. The longest answers of
/// models (128,000 tokens) need about a quarter of that.
pub(crate) const WORDS_MAX: usize = 2 * 1_024 * 1_024;
/// The smallest limit of call arguments, in bytes. A smaller configured limit is enforced later, by
/// argument validation, whose refusal the model can read.
const CALLS_MIN: usize = 1_024 * 1_024;
/// Maximum calls in one answer. No model makes so many at once, and each would be recorded.
const CALLS_MAX: usize = 256;
/// Maximum blocks in one answer: its assembly searches the blocks for each piece.
const BLOCKS_MAX: usize = 1_024;

/// Assembles an answer from its events. Halves of characters are marks in the events (see
/// [`readable_part`](ghost_domain::json_text::readable_part)); what the answer says is joined at its end.
pub(crate) trait Gather: Send {
    /// Adds the data of one event.
    fn event(&mut self, data: &str, deltas: &mut dyn Deltas) -> Result<(), ProviderError>;
    /// Adds an answer that came as one JSON body instead of a stream.
    fn whole(&mut self, body: &str, deltas: &mut dyn Deltas) -> Result<(), ProviderError> {
        self.event(body, deltas)
    }
    /// Whether anything of the protocol was received. Without it, what came back is not an answer, however it ends.
    fn has_begun(&self) -> bool;
    /// Whether the end marker was received.
    fn is_done(&self) -> bool;
    /// Whether the answer is complete although no end marker was received. An unreadable last event
    /// is then a bad answer, not a broken stream.
    fn has_ended(&self) -> bool {
        false
    }
    /// The answer, if it is complete.
    fn finish(self) -> Result<ModelAnswer, ProviderError>
    where
        Self: Sized;
}

/// What belongs to every answer under way.
pub(crate) struct Draft<'r> {
    pub(crate) request: &'r ModelRequest,
    pub(crate) redactor: &'r Redactor,
    pub(crate) bytes: AnswerBytes,
    /// Whether anything of the protocol was received.
    pub(crate) begun: bool,
}

impl<'r> Draft<'r> {
    pub(crate) fn new(request: &'r ModelRequest, redactor: &'r Redactor) -> Self {
        Self { request, redactor, bytes: AnswerBytes::new(request), begun: false }
    }

    /// Parses an event of a provider.
    pub(crate) fn read<'d, T: Deserialize<'d>>(&self, data: &'d str) -> Result<T, ProviderError> {
        serde_json::from_str(data).map_err(|error| match error.classify() {
            serde_json::error::Category::Data => lacks_a_field(),
            _ => self.bad(&format!("the provider sent invalid JSON: {error}")),
        })
    }

    /// The error for an answer that is malformed.
    pub(crate) fn bad(&self, message: &str) -> ProviderError {
        ProviderError::redacted(ErrorKind::BadAnswer, message, self.redactor)
    }

    /// The error for an error event.
    pub(crate) fn reported(&self, error: &Value) -> ProviderError {
        event_error(error, self.redactor)
    }

    /// Adds more of the visible text.
    pub(crate) fn say(
        &mut self,
        so_far: &mut String,
        more: &str,
        deltas: &mut dyn Deltas,
    ) -> Result<(), ProviderError> {
        self.bytes.add_text(more.len())?;
        if !more.is_empty() {
            so_far.push_str(more);
            deltas.text(more);
        }
        Ok(())
    }

    /// Adds more of the reasoning.
    pub(crate) fn think(
        &mut self,
        so_far: &mut String,
        more: &str,
        deltas: &mut dyn Deltas,
    ) -> Result<(), ProviderError> {
        self.bytes.add_text(more.len())?;
        if !more.is_empty() {
            so_far.push_str(more);
            deltas.thinking(more);
        }
        Ok(())
    }
}

/// The error for a stream that has no end.
pub(crate) fn without_end() -> ProviderError {
    let message = "the stream ended without its end marker, in the middle of the answer";
    ProviderError::new(ErrorKind::BrokenStream, message)
}

pub(crate) fn lacks_a_field() -> ProviderError {
    ProviderError::new(ErrorKind::BadAnswer, "the provider sent an event that lacks a field of its protocol")
}

/// Counts the bytes of an answer and refuses it when it grows past a limit.
pub(crate) struct AnswerBytes {
    text: usize,
    calls: usize,
    calls_max: usize,
}

impl AnswerBytes {
    pub(crate) fn new(request: &ModelRequest) -> Self {
        Self { text: 0, calls: 0, calls_max: request.calls_bytes.clamp(CALLS_MIN, ANSWER_MAX) }
    }

    /// Adds `bytes` of text or reasoning. Fails past the limit.
    pub(crate) fn add_text(&mut self, bytes: usize) -> Result<(), ProviderError> {
        self.text = self.text.saturating_add(bytes);
        within(self.text, WORDS_MAX, "the answer's text has", "bytes")
    }

    /// Adds `bytes` of call arguments. Fails past the limit.
    pub(crate) fn add_arguments(&mut self, bytes: usize) -> Result<(), ProviderError> {
        self.calls = self.calls.saturating_add(bytes);
        within(self.calls, self.calls_max, "the arguments of the answer's tool calls have", "bytes")
    }
}

/// Checks the size of a whole answer's text.
pub(crate) fn check_text(blocks: &[Block]) -> Result<(), ProviderError> {
    let text = blocks.iter().map(|block| match block {
        Block::Text { text } | Block::Thinking { text } => text.len(),
        Block::Opaque(opaque) => opaque.json.len(),
        Block::ToolCall { .. } | Block::ToolResult { .. } | Block::Image { .. } | Block::ImageFile(_) => 0,
    });
    within(text.sum(), WORDS_MAX, "the answer's text has", "bytes")
}

/// Fails if there are too many blocks.
pub(crate) fn check_block_count(blocks: usize) -> Result<(), ProviderError> {
    within(blocks, BLOCKS_MAX, "the answer has", "blocks")
}

/// Fails if there are too many calls.
pub(crate) fn check_call_count(calls: usize) -> Result<(), ProviderError> {
    within(calls, CALLS_MAX, "the answer makes", "calls")
}

fn within(number: usize, limit: usize, subject: &str, unit: &str) -> Result<(), ProviderError> {
    if number <= limit {
        return Ok(());
    }
    Err(ProviderError::new(ErrorKind::BadAnswer, format!("{subject} more than {limit} {unit}")))
}

/// Parses only the first element of a list, without memory for the others.
pub(crate) fn first<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: serde::Deserializer<'de>,
    T: serde::Deserialize<'de>,
{
    struct First<T>(std::marker::PhantomData<T>);

    impl<'de, T: serde::Deserialize<'de>> serde::de::Visitor<'de> for First<T> {
        type Value = Option<T>;

        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("a list")
        }

        fn visit_unit<E>(self) -> Result<Option<T>, E> {
            Ok(None)
        }

        fn visit_seq<A: serde::de::SeqAccess<'de>>(self, mut list: A) -> Result<Option<T>, A::Error> {
            let first = list.next_element()?;
            while list.next_element::<serde::de::IgnoredAny>()?.is_some() {}
            Ok(first)
        }
    }
    deserializer.deserialize_any(First(std::marker::PhantomData))
}
