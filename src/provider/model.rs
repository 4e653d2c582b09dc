//! What is asked of a model and what it answers, in one form for all providers.
//!
//! Must never: know a provider's wire format.

use std::sync::Arc;

use async_trait::async_trait;
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
    /// The model's name at the provider.
    pub model: String,
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
    /// Reasoning effort: `low`, `medium` or `high`; `None` leaves it to the provider.
    pub thinking: Option<String>,
}

impl ModelRequest {
    /// How many tool calls the model has made in this conversation; new ids of calls count on from here.
    #[must_use]
    pub fn calls_so_far(&self) -> usize {
        self.messages.iter().map(|message| message.calls().count()).sum()
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
    /// The provider or the model refused.
    Refused,
    /// Another reason, in the provider's words.
    Other(String),
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
