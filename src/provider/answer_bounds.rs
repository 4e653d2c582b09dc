//! How much one answer may be: on its way, in words, and in the arguments of its calls. Whatever is taken is cleaned, redacted,
//! journaled and sent back with every later call, on threads that serve everybody.
//!
//! Must never: depend on what a provider says of its answer's size.

use ghost_domain::transcript::Block;

use crate::error::{ErrorKind, ProviderError};
use crate::model::ModelRequest;

/// Longest answer that is read, in bytes: every few letters come with a few hundred bytes of their event.
pub(crate) const ANSWER_MAX: usize = 32 * 1_024 * 1_024;
/// Most bytes of words and thoughts in an answer, with their signatures. The longest that any model writes, 128,000 tokens,
/// are about a quarter of that.
pub(crate) const WORDS_MAX: usize = 2 * 1_024 * 1_024;
/// The least that the arguments of an answer's calls are bounded to, in bytes: what one call too many says is refused where
/// calls are checked, in words that the model reads.
const CALLS_LEAST: usize = 1_024 * 1_024;

/// Counts what an answer comes to, so that one which never ends ends here.
pub(crate) struct AnswerBytes {
    words: usize,
    calls: usize,
    calls_max: usize,
}

impl AnswerBytes {
    pub(crate) fn of(request: &ModelRequest) -> Self {
        Self { words: 0, calls: 0, calls_max: request.calls_bytes.clamp(CALLS_LEAST, ANSWER_MAX) }
    }

    /// Adds `bytes` of words or thoughts, unless that is too much.
    pub(crate) fn add_words(&mut self, bytes: usize) -> Result<(), ProviderError> {
        self.words = self.words.saturating_add(bytes);
        within("the answer's words", self.words, WORDS_MAX)
    }

    /// Adds `bytes` of a call's arguments, unless that is too much.
    pub(crate) fn add_arguments(&mut self, bytes: usize) -> Result<(), ProviderError> {
        self.calls = self.calls.saturating_add(bytes);
        within("the arguments of the answer's tool calls", self.calls, self.calls_max)
    }
}

/// Refuses what is not within its bound when the answer is whole, however it came.
pub(crate) fn check_words(blocks: &[Block]) -> Result<(), ProviderError> {
    let words = blocks.iter().map(|block| match block {
        Block::Text { text } => text.len(),
        Block::Thinking { text } => text.len(),
        Block::Opaque(opaque) => opaque.json.len(),
        Block::ToolCall { .. } | Block::ToolResult { .. } | Block::Image { .. } => 0,
    });
    within("the answer's words", words.sum(), WORDS_MAX)
}

fn within(what: &str, bytes: usize, most: usize) -> Result<(), ProviderError> {
    if bytes <= most {
        return Ok(());
    }
    Err(ProviderError::new(ErrorKind::BadAnswer, format!("{what} are longer than {most} bytes together")))
}
