//! Gemini's `streamGenerateContent`.
//!
//! This adapter must never retry a call or change a part that carries a signature.

mod answer;
mod request;

use async_trait::async_trait;
use ghost_domain::Refusal;
use reqwest::header::HeaderName;

use crate::error::{ErrorKind, ProviderError};
use crate::exchange::{Address, Exchange, key_header};
use crate::model::{Deltas, ModelAnswer, ModelRequest, Provider};
use crate::sse::Framing;
use crate::tool_lists::ToolLists;

const HOME: (&str, &str) = ("https://generativelanguage.googleapis.com/v1beta/", "v1beta/");

/// The adapter for Gemini's API.
pub(crate) struct Gemini {
    exchange: Exchange,
    lists: ToolLists,
}

impl Gemini {
    pub(crate) fn new(address: Address<'_>) -> Result<Self, Refusal> {
        let name = HeaderName::from_static("x-goog-api-key");
        let key = address.key.as_ref().map(|key| key_header(address.name, name, "", key)).transpose()?;
        Ok(Self { exchange: Exchange::new(address, HOME, key)?, lists: ToolLists::default() })
    }
}

#[async_trait]
impl Provider for Gemini {
    async fn complete(&self, request: &ModelRequest, deltas: &mut dyn Deltas) -> Result<ModelAnswer, ProviderError> {
        let tools = self.lists.json(&request.tools, request::tools);
        let tools = tools.map_err(|error| ProviderError::new(ErrorKind::BadRequest, error.to_string()))?;
        let body = request::Body::of(request, tools.as_deref());
        let mut gather = answer::Gathered::new(request, self.exchange.redactor());
        let kind = if request.model.contains('/') { "" } else { "models/" };
        let path = format!("{kind}{}:streamGenerateContent?alt=sse", request.model);
        self.exchange.call(&path, &body, Framing::Events, &mut gather, deltas).await?;
        gather.finish(request)
    }
}
