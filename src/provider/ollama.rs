//! Ollama's own chat API.
//!
//! This adapter must never retry a call. It must never let Ollama truncate a conversation that is
//! too long: Ollama would do so without notice and remove the beginning, which has the agent's
//! instructions.

mod answer;
mod request;

use async_trait::async_trait;
use ghost_domain::Refusal;
use reqwest::header::AUTHORIZATION;

use crate::error::{ErrorKind, ProviderError};
use crate::exchange::{Address, Exchange, key_header};
use crate::model::{Deltas, ModelAnswer, ModelRequest, Provider};
use crate::sse::Framing;
use crate::tool_lists::ToolLists;

const HOME: (&str, &str) = ("http://localhost:11434/", "");

/// The adapter for Ollama's API.
pub(crate) struct Ollama {
    exchange: Exchange,
    lists: ToolLists,
}

impl Ollama {
    pub(crate) fn new(address: Address<'_>) -> Result<Self, Refusal> {
        let key =
            address.key.as_ref().map(|key| key_header(address.name, AUTHORIZATION, "Bearer ", key)).transpose()?;
        Ok(Self { exchange: Exchange::new(address, HOME, key)?, lists: ToolLists::default() })
    }
}

#[async_trait]
impl Provider for Ollama {
    async fn complete(&self, request: &ModelRequest, deltas: &mut dyn Deltas) -> Result<ModelAnswer, ProviderError> {
        let tools = self.lists.json(&request.tools, crate::openai::chat_tools);
        let tools = tools.map_err(|error| ProviderError::new(ErrorKind::BadRequest, error.to_string()))?;
        let body = request::body(request, tools.as_deref());
        let mut gather = answer::Gathered::new(request, self.exchange.redactor());
        self.exchange.call("api/chat", &body, Framing::Lines, &mut gather, deltas).await?;
        gather.finish(request)
    }
}
