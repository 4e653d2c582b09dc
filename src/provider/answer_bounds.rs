//! Limits of one answer: bytes read, bytes of text, and bytes of call arguments. An answer is
//! redacted, journaled and sent back with every later call of its turn, so its size must be
//! limited.
//!
//! This module must never trust the size that a provider declares. It counts the bytes that arrive.

use ghost_domain::transcript::Block;

use crate::error::{ErrorKind, ProviderError};
use crate::model::ModelRequest;

/// Longest answer that is read, in bytes. Every few letters arrive in an event of a few hundred
/// bytes.
pub(crate) const ANSWER_MAX: usize = 32 * 1_024 * 1_024;
/// Maximum bytes of text and reasoning in an answer, including signatures. The longest answers of
/// models (128,000 tokens) need about a quarter of that.
pub(crate) const WORDS_MAX: usize = 2 * 1_024 * 1_024;
/// The smallest limit of call arguments, in bytes. A smaller configured limit is enforced later, by
/// argument validation, whose refusal the model can read.
const CALLS_MIN: usize = 1_024 * 1_024;

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
        within("the answer's text has", self.text, WORDS_MAX)
    }

    /// Adds `bytes` of call arguments. Fails past the limit.
    pub(crate) fn add_arguments(&mut self, bytes: usize) -> Result<(), ProviderError> {
        self.calls = self.calls.saturating_add(bytes);
        within("the arguments of the answer's tool calls have", self.calls, self.calls_max)
    }
}

/// Checks the size of a whole answer's text.
pub(crate) fn check_text(blocks: &[Block]) -> Result<(), ProviderError> {
    let text = blocks.iter().map(|block| match block {
        Block::Text { text } => text.len(),
        Block::Thinking { text } => text.len(),
        Block::Opaque(opaque) => opaque.json.len(),
        Block::ToolCall { .. } | Block::ToolResult { .. } | Block::Image { .. } | Block::ImageFile(_) => 0,
    });
    within("the answer's text has", text.sum(), WORDS_MAX)
}

fn within(what: &str, bytes: usize, limit: usize) -> Result<(), ProviderError> {
    if bytes <= limit {
        return Ok(());
    }
    Err(ProviderError::new(ErrorKind::BadAnswer, format!("{what} more than {limit} bytes")))
}
