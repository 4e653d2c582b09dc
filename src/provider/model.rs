//! The request to a model and its answer, in one form for all providers.

use std::sync::Arc;

use async_trait::async_trait;
use ghost_domain::model_facts::{ModelFacts, Thinking};
use ghost_domain::text::clip;
#[cfg(doc)]
use ghost_domain::tool_catalogue::DESCRIBE;
use ghost_domain::transcript::{Block, TokenUsage, ToolSpec};
use ghost_domain::{AgentId, TurnId};

use crate::error::ProviderError;
use crate::json::{Form, SharedMessage};
use crate::too_long::is_window_full;

/// One model call.
#[derive(Clone, Debug)]
pub struct ModelRequest {
    /// The agent that makes the call.
    pub agent_id: AgentId,
    /// The turn that makes the call.
    pub turn_id: TurnId,
    /// The provider, as [`crate::Entry::author`] names it.
    pub provider: String,
    /// The model's name at the provider.
    pub model: String,
    /// Capabilities of that model.
    pub facts: Arc<ModelFacts>,
    /// The system part of the prompt.
    pub system: String,
    /// The conversation, oldest first. The first user message is the stable briefing and is marked cacheable where the
    /// provider has a prompt cache.
    pub messages: Arc<Vec<SharedMessage>>,
    /// Number of messages before those of the turn itself: the briefing and the log of earlier turns.
    pub past: usize,
    /// The tools the model may call, by canonical name.
    pub tools: Arc<[ToolSpec]>,
    /// Tools that the briefing lists without their parameters. Each value belongs to one value of `tools`.
    pub deferred: Arc<[ToolSpec]>,
    /// Limit of the answer's tokens.
    pub max_tokens: u64,
    /// Limit of the bytes of all call arguments together. An answer with more is refused. Values
    /// below 1 MiB are raised to 1 MiB, values above 32 MiB are lowered to 32 MiB.
    pub calls_bytes: usize,
    /// Sampling temperature; `None` leaves it to the provider.
    pub temperature: Option<f64>,
    /// How much the model is asked to reason; `None` leaves it to the provider.
    pub thinking: Option<Thinking>,
    /// The context window that the agent's archetype sets, in tokens; `None` leaves it to the
    /// provider. Only providers that allocate a window for each call receive it.
    pub window_tokens: Option<u32>,
}

impl ModelRequest {
    /// The messages, to be changed. They are copied if another request shares them.
    pub fn messages_mut(&mut self) -> &mut Vec<SharedMessage> {
        Arc::make_mut(&mut self.messages)
    }

    /// How many tool calls the model has made in this conversation; ids for new calls continue from
    /// here.
    #[must_use]
    pub fn calls_so_far(&self) -> usize {
        self.messages.iter().map(|message| message.calls().count()).sum()
    }

    /// The form in which a protocol sends the messages of this request.
    pub(crate) fn form(&self, protocol: &'static str, option: bool) -> Arc<Form> {
        Arc::new(Form { protocol, author: self.author(), option })
    }

    /// The author of this model's opaque state; see [`Opaque::author`].
    #[must_use]
    pub fn author(&self) -> String {
        format!("{}/{}", self.provider, self.model)
    }

    /// Whether deferred tools are loaded in the provider's own form: the result of [`DESCRIBE`] adds the tool.
    #[must_use]
    pub fn loads_tools(&self) -> bool {
        self.facts.loads_tools && !self.deferred.is_empty()
    }

    /// How much the model is asked to reason in this call: not at all if the conversation has
    /// opaque state of another model. The reasoning of another model cannot be sent, and providers
    /// refuse a round of calls without the reasoning at its beginning.
    #[must_use]
    pub fn thinking(&self) -> Option<Thinking> {
        let author = self.author();
        let foreign = |block: &Block| matches!(block, Block::Opaque(opaque) if opaque.author != author);
        match self.messages.iter().any(|message| message.blocks.iter().any(foreign)) {
            true => Some(Thinking::None),
            false => self.thinking,
        }
    }
}

/// Why the model stopped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The answer is complete.
    EndTurn,
    /// The model calls tools.
    ToolUse,
    /// The answer reached its token limit and was truncated.
    MaxTokens,
    /// The conversation and the answer fill the model's context window, so the answer was truncated.
    WindowFull,
    /// The provider or the model refused, with the provider's reason if there is one.
    Refused(Option<String>),
    /// Another reason, as the provider names it.
    Other(String),
}

/// The reason in [`Stop::Other`] when a provider paused an answer while it runs tools of its own.
/// The provider expects the answer to be sent back so that it can continue.
pub const PAUSED: &str = "pause_turn";

/// The journal's words for truncated answers.
const MAX_TOKENS: &str = "max_tokens";
const WINDOW_FULL: &str = "model_context_window_exceeded";
/// The journal's word for a refused answer; the provider's reason follows it.
const REFUSED: &str = "refused";

impl Stop {
    /// The reason, if a provider's own word for it says by its shape that the answer was truncated.
    #[must_use]
    pub fn by_shape(self) -> Self {
        let Self::Other(word) = &self else { return self };
        let lower = word.to_ascii_lowercase();
        if is_window_full(&lower) {
            Self::WindowFull
        } else if lower == "length" || lower.contains("max") && (lower.contains("token") || lower.contains("len")) {
            Self::MaxTokens
        } else {
            self
        }
    }

    /// Whether the provider's word for the reason is unknown here.
    #[must_use]
    pub fn is_unknown(&self) -> bool {
        matches!(self, Self::Other(word) if word != PAUSED)
    }

    /// Whether the answer was interrupted before its end.
    #[must_use]
    pub fn is_cut(&self) -> bool {
        match self {
            Self::MaxTokens | Self::WindowFull => true,
            Self::Other(word) => word == PAUSED,
            Self::EndTurn | Self::ToolUse | Self::Refused(_) => false,
        }
    }

    /// The journal's word for the reason, at most 120 characters; `None` if the answer is complete.
    #[must_use]
    pub fn word(&self) -> Option<String> {
        match self {
            Self::EndTurn | Self::ToolUse => None,
            Self::MaxTokens => Some(MAX_TOKENS.to_owned()),
            Self::WindowFull => Some(WINDOW_FULL.to_owned()),
            Self::Refused(None) => Some(REFUSED.to_owned()),
            Self::Refused(Some(why)) => Some(format!("{REFUSED}: {}", clip(why, 100))),
            Self::Other(word) => Some(clip(word, 100)),
        }
    }

    /// Reads back a word that [`Self::word`] wrote, for an answer with or without `calls`.
    #[must_use]
    pub fn of_word(word: Option<&str>, calls: bool) -> Self {
        match word {
            Some(MAX_TOKENS) => Self::MaxTokens,
            Some(WINDOW_FULL) => Self::WindowFull,
            Some(REFUSED) => Self::Refused(None),
            Some(word) => match word.strip_prefix(REFUSED).and_then(|rest| rest.strip_prefix(": ")) {
                Some(why) => Self::Refused(Some(why.to_owned())),
                None => Self::Other(word.to_owned()),
            },
            None if calls => Self::ToolUse,
            None => Self::EndTurn,
        }
    }
}

/// A complete answer.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelAnswer {
    /// The model that answered.
    pub model: String,
    /// Reasoning, text and calls. Call ids are unique in the conversation, unless the provider
    /// repeats them.
    pub blocks: Vec<Block>,
    /// Tokens used; `None` if the provider did not report them and the answer was cut.
    pub usage: Option<TokenUsage>,
    /// Whether part of `usage` is an estimate, because the provider left it out or counted nothing.
    pub estimated: bool,
    /// Why it stopped.
    pub stop: Stop,
}

/// Receives an answer while it is written. The pieces are only for display; the result of the call
/// is the [`ModelAnswer`].
pub trait Deltas: Send {
    /// More of the visible text.
    fn text(&mut self, text: &str);
    /// More of the reasoning.
    fn thinking(&mut self, text: &str);
}

/// Discards all pieces.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoDeltas;

impl Deltas for NoDeltas {
    fn text(&mut self, _: &str) {}
    fn thinking(&mut self, _: &str) {}
}

/// A model provider.
#[async_trait]
pub trait Provider: Send + Sync {
    /// Makes one attempt at one call; never retries. The caller enforces the deadline and may drop
    /// the future at any time.
    ///
    /// # Errors
    /// See [`crate::ErrorKind`].
    async fn complete(&self, request: &ModelRequest, deltas: &mut dyn Deltas) -> Result<ModelAnswer, ProviderError>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_journaled_word_reads_back_as_its_reason() {
        let refused = |why: &str| Stop::Refused(Some(why.to_owned()));
        for (stop, word, cut) in [
            (Stop::EndTurn, None, false),
            (Stop::MaxTokens, Some("max_tokens"), true),
            (Stop::WindowFull, Some("model_context_window_exceeded"), true),
            (Stop::Refused(None), Some("refused"), false),
            (refused("SAFETY"), Some("refused: SAFETY"), false),
            (Stop::Other(PAUSED.to_owned()), Some("pause_turn"), true),
            (Stop::Other("refused_by".to_owned()), Some("refused_by"), false),
        ] {
            assert_eq!((stop.word().as_deref(), stop.is_cut()), (word, cut));
            assert_eq!(Stop::of_word(word, false), stop);
        }
        assert_eq!((Stop::ToolUse.word(), Stop::of_word(None, true)), (None, Stop::ToolUse));
        assert!(refused(&"x".repeat(1_000)).word().unwrap().len() <= 120);
        for (word, stop) in [
            ("model_context_window_exceeded", Stop::WindowFull),
            ("REASON_MAX_CONTEXT", Stop::WindowFull),
            ("model_length", Stop::WindowFull),
            ("MAX_TOKENS", Stop::MaxTokens),
            ("max_len", Stop::MaxTokens),
            ("FUNCTION_CALL", Stop::Other("FUNCTION_CALL".to_owned())),
            (PAUSED, Stop::Other(PAUSED.to_owned())),
        ] {
            assert_eq!(Stop::Other(word.to_owned()).by_shape(), stop);
            assert_eq!(stop.is_unknown(), word == "FUNCTION_CALL");
        }
    }
}
