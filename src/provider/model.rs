//! What is asked of a model and what it answers, in one form for all providers.
//!
//! Must never: know a provider's wire format.

use std::sync::Arc;

use async_trait::async_trait;
use ghost_domain::model_facts::{ModelFacts, Thinking};
use ghost_domain::text::clip;
use ghost_domain::transcript::{Block, Message, TokenUsage, ToolSpec};
use ghost_domain::{AgentId, TurnId};

use crate::error::ProviderError;

/// One model call.
#[derive(Clone, Debug)]
pub struct ModelRequest {
    /// Whose call.
    pub agent_id: AgentId,
    /// In which turn.
    pub turn_id: TurnId,
    /// Who is asked: [`crate::Entry::author`].
    pub provider: String,
    /// The model's name at the provider.
    pub model: String,
    /// What is known of that model.
    pub facts: Arc<ModelFacts>,
    /// The system part.
    pub system: String,
    /// The conversation, oldest first. The first user message is the stable briefing and is marked cacheable where the
    /// provider has a prompt cache.
    pub messages: Vec<Message>,
    /// The tools the model may call, by canonical name.
    pub tools: Arc<[ToolSpec]>,
    /// Most tokens of the answer.
    pub max_tokens: u64,
    /// Most bytes of the arguments of all the answer's calls together. An answer with more is no answer; at least 1 MiB and at
    /// most 32 MiB are taken, whatever this says.
    pub calls_bytes: usize,
    /// Sampling temperature; `None` leaves it to the provider.
    pub temperature: Option<f64>,
    /// How much the model is to think; `None` leaves it to the provider.
    pub thinking: Option<Thinking>,
    /// The context window that the agent's archetype gives its model, in tokens; `None` leaves it to the provider. Only
    /// providers that make room for each call anew are told of it.
    pub window_tokens: Option<u32>,
}

impl ModelRequest {
    /// How many tool calls the model has made in this conversation; new ids of calls count on from here.
    #[must_use]
    pub fn calls_so_far(&self) -> usize {
        self.messages.iter().map(|message| message.calls().count()).sum()
    }

    /// As whom the model's answers are remembered; see [`Opaque::author`].
    #[must_use]
    pub fn author(&self) -> String {
        format!("{}/{}", self.provider, self.model)
    }

    /// How much the model is to think in this call: not at all once another model's thoughts are in the conversation. Those
    /// cannot be sent, and providers refuse a round of calls that lacks the thoughts it began with.
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
    /// It had said everything.
    EndTurn,
    /// It asks for tools.
    ToolUse,
    /// The answer reached its limit and is cut.
    MaxTokens,
    /// The provider or the model refused; in the provider's words why, if it said so.
    Refused(Option<String>),
    /// Another reason, in the provider's words.
    Other(String),
}

/// What [`Stop::Other`] says of an answer that its provider broke off to be sent it back and go on, in the middle of tools
/// which it runs itself.
pub const PAUSED: &str = "pause_turn";

/// Journals write this of an answer that was refused; the provider's words follow it.
const REFUSED: &str = "refused";

impl Stop {
    /// Whether there is more to the answer than it says, because it was broken off in the middle.
    #[must_use]
    pub fn is_cut(&self) -> bool {
        match self {
            Self::MaxTokens => true,
            Self::Other(word) => word == PAUSED,
            Self::EndTurn | Self::ToolUse | Self::Refused(_) => false,
        }
    }

    /// The journal's word for why an answer stopped, at most 120 characters; `None` if it came to its end.
    #[must_use]
    pub fn word(&self) -> Option<String> {
        match self {
            Self::EndTurn | Self::ToolUse => None,
            Self::MaxTokens => Some("max_tokens".to_owned()),
            Self::Refused(None) => Some(REFUSED.to_owned()),
            Self::Refused(Some(why)) => Some(format!("{REFUSED}: {}", clip(why, 100))),
            Self::Other(word) => Some(clip(word, 100)),
        }
    }

    /// The reason that [`Self::word`] wrote, of an answer with or without `calls`.
    #[must_use]
    pub fn of_word(word: Option<&str>, calls: bool) -> Self {
        match word {
            Some("max_tokens") => Self::MaxTokens,
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

/// A whole answer.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelAnswer {
    /// The model that answered.
    pub model: String,
    /// What it said: thinking, text and calls. Every call has an id that is unique in its conversation, or as unique
    /// as the provider made it.
    pub blocks: Vec<Block>,
    /// What it took; `None` if the provider did not say.
    pub usage: Option<TokenUsage>,
    /// Whether a count of `usage` is an estimate, because the provider left it out.
    pub estimated: bool,
    /// Why it stopped.
    pub stop: Stop,
}

/// Receives an answer while it is made. Ephemeral: what counts is the [`ModelAnswer`].
pub trait Deltas: Send {
    /// More of the visible text.
    fn text(&mut self, text: &str);
    /// More of the reasoning.
    fn thinking(&mut self, text: &str);
}

/// Deltas that nobody reads.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoDeltas;

impl Deltas for NoDeltas {
    fn text(&mut self, _: &str) {}
    fn thinking(&mut self, _: &str) {}
}

/// Something that answers.
#[async_trait]
pub trait Provider: Send + Sync {
    /// Makes one attempt at one call. Never retries. The future may be dropped at any time; the caller keeps the
    /// deadline.
    ///
    /// # Errors
    /// See [`crate::ErrorKind`].
    async fn complete(&self, request: &ModelRequest, deltas: &mut dyn Deltas) -> Result<ModelAnswer, ProviderError>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_journaled_word_is_read_back_as_the_reason_that_it_was_written_for() {
        let refused = |why: &str| Stop::Refused(Some(why.to_owned()));
        for (stop, word, cut) in [
            (Stop::EndTurn, None, false),
            (Stop::MaxTokens, Some("max_tokens"), true),
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
    }
}
