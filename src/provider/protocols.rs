//! The protocols of model providers over HTTP. For each there is a builder of requests and a gatherer of answers; this file
//! says where they go, with which key, and over which API. A call is never retried here.

mod anthropic_answer;
mod anthropic_request;
mod chat_answer;
mod chat_request;
mod gemini;
mod ollama;
mod responses_answer;
mod responses_request;

use async_trait::async_trait;
use ghost_domain::Refusal;
use ghost_domain::model_facts::{Api, ModelFacts};
use reqwest::header::{HeaderName, HeaderValue};

use self::chat_request::Dialect;
use crate::answer::Draft;
use crate::error::{ErrorKind, ProviderError};
use crate::exchange::{Address, Exchange, key_header};
use crate::http::Framing;
use crate::json::ToolLists;
use crate::model::{Deltas, ModelAnswer, ModelRequest, Provider};

/// The protocol of a provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    /// Anthropic's Messages API (version 2023-06-01).
    Anthropic,
    /// OpenAI's APIs, chat completions and responses, which other servers have too.
    OpenAi,
    /// Gemini's `streamGenerateContent`.
    Gemini,
    /// Ollama's own chat API.
    Ollama,
}

/// A provider that is called over HTTP.
pub(crate) struct HttpProvider {
    protocol: Protocol,
    exchange: Exchange,
    dialect: Dialect,
    /// The API that `world-config.yaml` sets.
    api: Option<Api>,
    lists: ToolLists,
    responses_lists: ToolLists,
}

impl HttpProvider {
    pub(crate) fn new(protocol: Protocol, address: Address<'_>, api: Option<Api>) -> Result<Self, Refusal> {
        // Azure expects a key in a header of its own. For a directory token, the user sets the
        // header in the world file.
        let azure = |host: &str| host.ends_with(".openai.azure.com") || host.ends_with(".services.ai.azure.com");
        let host = address.base.and_then(|base| reqwest::Url::parse(base).ok());
        let at_azure = host.as_ref().and_then(|url| url.host_str()).is_some_and(azure);
        let (home, (name, prefix)) = match protocol {
            Protocol::Anthropic => (("https://api.anthropic.com/v1/", "v1/"), ("x-api-key", "")),
            Protocol::Gemini => {
                (("https://generativelanguage.googleapis.com/v1beta/", "v1beta/"), ("x-goog-api-key", ""))
            }
            Protocol::Ollama => (("http://localhost:11434/", ""), ("authorization", "Bearer ")),
            Protocol::OpenAi if at_azure => (("https://api.openai.com/v1/", "v1/"), ("api-key", "")),
            Protocol::OpenAi => (("https://api.openai.com/v1/", "v1/"), ("authorization", "Bearer ")),
        };
        let header = (HeaderName::from_static("anthropic-version"), HeaderValue::from_static("2023-06-01"));
        let version = (protocol == Protocol::Anthropic).then_some(header);
        let key_header = |key| key_header(address.name, HeaderName::from_static(name), prefix, key);
        let key = address.key.as_ref().map(key_header).transpose()?;
        let exchange = Exchange::new(address, home, version.into_iter().chain(key))?;
        let host = exchange.host();
        let own = host == "api.openai.com" || host.ends_with(".api.openai.com") || at_azure;
        let dialect = if own { Dialect::OpenAi } else { Dialect::Compatible };
        let (lists, responses_lists) = (ToolLists::default(), ToolLists::default());
        Ok(Self { protocol, exchange, dialect, api, lists, responses_lists })
    }

    /// OpenAI's API that is used for a model. Few servers other than OpenAI's have the responses API;
    /// the world file names them.
    fn api(&self, facts: &ModelFacts) -> Api {
        self.api.unwrap_or(match self.dialect {
            Dialect::OpenAi => facts.api.unwrap_or(Api::Responses),
            Dialect::Compatible => Api::Chat,
        })
    }
}

#[async_trait]
impl Provider for HttpProvider {
    async fn complete(&self, request: &ModelRequest, deltas: &mut dyn Deltas) -> Result<ModelAnswer, ProviderError> {
        let (exchange, lists) = (&self.exchange, &self.lists);
        let draft = Draft::new(request, exchange.redactor());
        let unwritable = |error: serde_json::Error| ProviderError::new(ErrorKind::BadRequest, error.to_string());
        match self.protocol {
            Protocol::Anthropic => {
                let tools = match request.loads_tools() {
                    true => lists.json(&request.deferred, |more| anthropic_request::tools(&request.tools, more)),
                    false => lists.json(&request.tools, |tools| anthropic_request::tools(tools, &[])),
                };
                let tools = tools.map_err(unwritable)?;
                let body = anthropic_request::body(request, tools.as_deref()).map_err(unwritable)?;
                let answer = anthropic_answer::Gathered::new(draft);
                exchange.call("messages", &body, Framing::Events, answer, deltas).await
            }
            Protocol::OpenAi if self.api(&request.facts) == Api::Responses => {
                let lists = &self.responses_lists;
                let tools = match request.loads_tools() {
                    true => lists.json(&request.deferred, |_| responses_request::searched(&request.tools)),
                    false => lists.json(&request.tools, responses_request::tools),
                };
                let tools = tools.map_err(unwritable)?;
                let body = responses_request::body(request, tools.as_deref(), self.dialect).map_err(unwritable)?;
                let answer = responses_answer::Gathered::new(draft);
                exchange.call("responses", &body, Framing::Events, answer, deltas).await
            }
            Protocol::OpenAi => {
                let tools = lists.json(&request.tools, chat_request::tools).map_err(unwritable)?;
                let body = chat_request::body(request, tools.as_deref(), self.dialect).map_err(unwritable)?;
                let answer = chat_answer::Gathered::new(draft);
                exchange.call("chat/completions", &body, Framing::Events, answer, deltas).await
            }
            Protocol::Gemini => {
                let tools = lists.json(&request.tools, gemini::tools).map_err(unwritable)?;
                let kind = if request.model.contains('/') { "" } else { "models/" };
                let path = format!("{kind}{}:streamGenerateContent?alt=sse", request.model);
                let body = gemini::body(request, tools.as_deref());
                exchange.call(&path, &body, Framing::Events, gemini::Gathered::new(draft), deltas).await
            }
            Protocol::Ollama => {
                let tools = lists.json(&request.tools, chat_request::tools).map_err(unwritable)?;
                let body = ollama::body(request, tools.as_deref());
                exchange.call("api/chat", &body, Framing::Lines, ollama::Gathered::new(draft), deltas).await
            }
        }
    }
}
