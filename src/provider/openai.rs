//! OpenAI and servers with its APIs: chat completions and responses.
//!
//! This adapter must never retry a call. It must never use the responses API at other hosts unless
//! `world-config.yaml` says so.

mod chat_answer;
mod chat_request;
mod chat_usage;
mod dialect;
mod responses_answer;
mod responses_request;

use async_trait::async_trait;
use ghost_domain::Refusal;
use ghost_domain::model_facts::{Api, ModelFacts};
use reqwest::header::{AUTHORIZATION, HeaderName};

use dialect::Dialect;

use crate::error::{ErrorKind, ProviderError};
use crate::exchange::{Address, Exchange, key_header};
use crate::model::{Deltas, ModelAnswer, ModelRequest, Provider};
use crate::sse::Framing;
use crate::tool_lists::ToolLists;

pub(crate) use chat_request::tools as chat_tools;
pub(crate) use chat_usage::COUNT_MAX;

const HOME: (&str, &str) = ("https://api.openai.com/v1/", "v1/");

/// The adapter for OpenAI's APIs.
pub(crate) struct OpenAi {
    exchange: Exchange,
    dialect: Dialect,
    /// The API that `world-config.yaml` sets.
    api: Option<Api>,
    chat_lists: ToolLists,
    responses_lists: ToolLists,
}

impl OpenAi {
    pub(crate) fn new(address: Address<'_>, api: Option<Api>) -> Result<Self, Refusal> {
        // Azure expects a key in a header of its own. For a directory token, the user sets the
        // header in the world file.
        let azure = |host: &str| host.ends_with(".openai.azure.com") || host.ends_with(".services.ai.azure.com");
        let host = address.base.and_then(|base| reqwest::Url::parse(base).ok());
        let at_azure = host.as_ref().and_then(|url| url.host_str()).is_some_and(azure);
        let (name, prefix) = match at_azure {
            true => (HeaderName::from_static("api-key"), ""),
            false => (AUTHORIZATION, "Bearer "),
        };
        let key = address.key.as_ref().map(|key| key_header(address.name, name, prefix, key)).transpose()?;
        let exchange = Exchange::new(address, HOME, key)?;
        let host = exchange.host();
        let own = host == "api.openai.com" || host.ends_with(".api.openai.com") || at_azure;
        let dialect = if own { Dialect::OpenAi } else { Dialect::Compatible };
        Ok(Self { exchange, dialect, api, chat_lists: ToolLists::default(), responses_lists: ToolLists::default() })
    }

    /// The API that is used for a model. Few servers other than OpenAI's have the responses API;
    /// the world file names them.
    fn api(&self, facts: &ModelFacts) -> Api {
        self.api.unwrap_or(match self.dialect {
            Dialect::OpenAi => facts.api.unwrap_or(Api::Responses),
            Dialect::Compatible => Api::Chat,
        })
    }
}

#[async_trait]
impl Provider for OpenAi {
    async fn complete(&self, request: &ModelRequest, deltas: &mut dyn Deltas) -> Result<ModelAnswer, ProviderError> {
        let serialisation_error =
            |error: serde_json::Error| ProviderError::new(ErrorKind::BadRequest, error.to_string());
        let redactor = self.exchange.redactor();
        match self.api(&request.facts) {
            Api::Responses => {
                let tools = match request.loads_tools() {
                    true => {
                        self.responses_lists.json(&request.deferred, |_| responses_request::searched(&request.tools))
                    }
                    false => self.responses_lists.json(&request.tools, |tools| responses_request::tools(tools)),
                };
                let tools = tools.map_err(serialisation_error)?;
                let body = responses_request::Body::of(request, tools.as_deref(), self.dialect);
                let mut gather = responses_answer::Gathered::new(request, redactor);
                self.exchange.call("responses", &body, Framing::Events, &mut gather, deltas).await?;
                gather.finish()
            }
            Api::Chat => {
                let tools = self.chat_lists.json(&request.tools, chat_request::tools).map_err(serialisation_error)?;
                let body = chat_request::Body::of(request, tools.as_deref(), self.dialect);
                let mut gather = chat_answer::Gathered::new(request, redactor);
                self.exchange.call("chat/completions", &body, Framing::Events, &mut gather, deltas).await?;
                gather.finish(request)
            }
        }
    }
}
