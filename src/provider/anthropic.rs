//! Anthropic's Messages API (version 2023-06-01).
//!
//! This adapter must never retry a call or change the order of an answer's blocks.

mod answer;
mod request;

use async_trait::async_trait;
use ghost_domain::Refusal;
use reqwest::header::{HeaderName, HeaderValue};

use crate::error::{ErrorKind, ProviderError};
use crate::exchange::{Address, Exchange, key_header};
use crate::model::{Deltas, ModelAnswer, ModelRequest, Provider};
use crate::sse::Framing;
use crate::tool_lists::ToolLists;

const HOME: (&str, &str) = ("https://api.anthropic.com/v1/", "v1/");

/// The adapter for Anthropic's API.
pub(crate) struct Anthropic {
    exchange: Exchange,
    lists: ToolLists,
}

impl Anthropic {
    pub(crate) fn new(address: Address<'_>) -> Result<Self, Refusal> {
        let version = (HeaderName::from_static("anthropic-version"), HeaderValue::from_static("2023-06-01"));
        let name = HeaderName::from_static("x-api-key");
        let key = address.key.as_ref().map(|key| key_header(address.name, name, "", key)).transpose()?;
        let exchange = Exchange::new(address, HOME, [version].into_iter().chain(key))?;
        Ok(Self { exchange, lists: ToolLists::default() })
    }
}

#[async_trait]
impl Provider for Anthropic {
    async fn complete(&self, request: &ModelRequest, deltas: &mut dyn Deltas) -> Result<ModelAnswer, ProviderError> {
        let tools = match request.loads_tools() {
            true => self.lists.json(&request.deferred, |deferred| request::tools(&request.tools, deferred)),
            false => self.lists.json(&request.tools, |tools| request::tools(tools, &[])),
        };
        let tools = tools.map_err(|error| ProviderError::new(ErrorKind::BadRequest, error.to_string()))?;
        let body = request::Body::of(request, tools.as_deref());
        let mut gather = answer::Gathered::new(request, self.exchange.redactor());
        self.exchange.call("messages", &body, Framing::Events, &mut gather, deltas).await?;
        gather.finish(request)
    }
}
