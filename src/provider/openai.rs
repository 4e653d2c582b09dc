//! OpenAI's chat completions, and everything that speaks them: the request, and the call.
//!
//! Written over reqwest and not through genai, for three reasons that its 0.7.2 leaves no way around. It makes room for
//! as many calls as the `index` in a delta says, so that one hostile number takes all memory; it copies the arguments
//! gathered so far at every fragment and the prompt several times a call, which the measured CPU budget forbids; and
//! it takes a server without a key for a mistake.
//!
//! Must never: retry, or hold more of an answer than its bound.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::FutureExt as _;
use ghost_domain::Refusal;
use ghost_domain::redact::Redactor;
use ghost_domain::tool_catalogue::to_wire;
use ghost_domain::transcript::{Block, Message, Role, ToolSpec};
use reqwest::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue};
use secrecy::{ExposeSecret, SecretString};
use serde::Serialize;
use serde::ser::{SerializeSeq, Serializer};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::answer_bounds::ANSWER_MAX;
use crate::blocks::{sent_arguments, wire_name};
use crate::error::{Charge, ErrorKind, ProviderError};
use crate::http::{base_url, client, error_body, packed, redactor, status_error, transport_error};
use crate::idle::{Chunks, IdleLimit};
use crate::model::{Deltas, ModelAnswer, ModelRequest, Provider};
use crate::openai_stream::Gather;
use crate::sse::Sse;

/// Where OpenAI itself listens.
const HOME: &str = "https://api.openai.com/v1";

/// Most tool lists whose JSON is kept.
const LISTS_MAX: usize = 256;
/// How long the end of a body may take to come after the answer's end marker.
const DRAIN_MAX: Duration = Duration::from_millis(100);
/// Bytes of an answer after which others have their turn, and a deadline too: what is sent as fast as it is read never has to
/// be waited for.
const STRETCH: usize = 256 * 1_024;

/// A tool list with its JSON.
type KeptList = (Arc<[ToolSpec]>, Arc<RawValue>);

/// The adapter.
pub(crate) struct OpenAi {
    client: reqwest::Client,
    url: reqwest::Url,
    headers: HeaderMap,
    redactor: Redactor,
    idle: IdleLimit,
    /// OpenAI itself wants `max_completion_tokens`; most others know only `max_tokens`.
    at_home: bool,
    /// The JSON of tool lists by identity: an agent's list is the same from call to call, and writing its schemas
    /// anew would cost more than the rest of the request.
    lists: Mutex<VecDeque<KeptList>>,
}

impl OpenAi {
    pub(crate) fn new(
        name: &str,
        base: Option<&str>,
        key: Option<SecretString>,
        idle: IdleLimit,
    ) -> Result<Self, Refusal> {
        let mut url = base_url(name, base.unwrap_or(HOME), "v1/")?;
        let client = client(name, &url)?;
        let at_home = url.host_str() == Some("api.openai.com");
        url.set_path(&format!("{}chat/completions", url.path()));
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(ACCEPT, HeaderValue::from_static("text/event-stream"));
        if let Some(key) = &key {
            headers.insert(AUTHORIZATION, bearer(name, key)?);
        }
        Ok(Self { client, url, headers, redactor: redactor(key.as_ref()), idle, at_home, lists: Mutex::default() })
    }

    /// The JSON of the request's tools; `None` if it has none.
    fn tools(&self, request: &ModelRequest) -> Result<Option<Arc<RawValue>>, serde_json::Error> {
        if request.tools.is_empty() {
            return Ok(None);
        }
        let lists = || self.lists.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, json)) = lists().iter().find(|(list, _)| Arc::ptr_eq(list, &request.tools)) {
            return Ok(Some(Arc::clone(json)));
        }
        let json: Arc<RawValue> = serde_json::value::to_raw_value(&Tools(&request.tools))?.into();
        let mut lists = lists();
        if lists.len() >= LISTS_MAX {
            lists.pop_front();
        }
        lists.push_back((Arc::clone(&request.tools), Arc::clone(&json)));
        Ok(Some(json))
    }

    async fn failure(&self, mut response: reqwest::Response) -> ProviderError {
        let (status, headers) = (response.status().as_u16(), std::mem::take(response.headers_mut()));
        let body = error_body(&mut response).await;
        status_error(status, &headers, &String::from_utf8_lossy(&body), self.idle.clock.now(), &self.redactor)
    }
}

/// The header that carries a key, marked so that it is never shown.
pub(crate) fn bearer(name: &str, key: &SecretString) -> Result<HeaderValue, Refusal> {
    let mut value = HeaderValue::try_from(format!("Bearer {}", key.expose_secret())).map_err(|_| {
        Refusal::new(
            ghost_domain::Code::InvalidArguments,
            format!("the key of provider `{name}` holds characters that no HTTP header may"),
        )
        .hint("look for a line break or a quote in the environment variable")
    })?;
    value.set_sensitive(true);
    Ok(value)
}

#[async_trait]
impl Provider for OpenAi {
    async fn complete(&self, request: &ModelRequest, deltas: &mut dyn Deltas) -> Result<ModelAnswer, ProviderError> {
        let body = self
            .tools(request)
            .and_then(|tools| serde_json::to_vec(&Body::of(request, tools.as_deref(), self.at_home)))
            .map_err(|error| ProviderError::new(ErrorKind::BadRequest, format!("the request is no JSON: {error}")))?;
        let call = self.client.post(self.url.clone()).headers(self.headers.clone()).body(body);
        let response = call.send().await.map_err(|error| transport_error(error, &self.redactor))?;
        if !response.status().is_success() {
            return Err(self.failure(response).await);
        }
        if let Some(error) = packed(&response) {
            return Err(error);
        }
        let whole = response
            .headers()
            .get(CONTENT_TYPE)
            .and_then(|kind| kind.to_str().ok())
            .is_some_and(|kind| kind.starts_with("application/json"));
        let mut gather = Gather::new(request, &self.redactor);
        let mut chunks = Chunks::new(response, self.idle.clone());
        let (mut sse, mut plain, mut total, mut stretch) = (Sse::default(), Vec::new(), 0, 0);
        loop {
            // A body that breaks off after its end marker is whole; before it, the loss is not a failure of the network
            // but of the answer, which may have been billed.
            let chunk = match chunks.next(&self.redactor).await {
                Ok(Some(chunk)) => chunk,
                Ok(None) => break,
                Err(_) if gather.is_done() => break,
                Err(error) if error.kind == ErrorKind::Timeout => return Err(error),
                Err(error) => return Err(self.broken(&error.message)),
            };
            if stretch >= STRETCH {
                stretch = 0;
                tokio::task::yield_now().await;
            }
            (total, stretch) = (total + chunk.len(), stretch + chunk.len());
            if total > ANSWER_MAX {
                let words = format!("the answer is longer than {ANSWER_MAX} bytes");
                return Err(ProviderError::new(ErrorKind::BadAnswer, words));
            }
            if whole {
                plain.extend_from_slice(&chunk);
                continue;
            }
            sse.push(&chunk);
            while let Some(event) = sse.next_event() {
                gather.event(&self.text(event)?, deltas)?;
            }
            if gather.is_done() {
                break;
            }
        }
        if gather.is_done() {
            self.drain(chunks.into_inner());
        }
        if whole && plain.is_empty() {
            return Err(self.broken("it has no body"));
        }
        if whole {
            gather.whole(&plain, deltas)?;
        } else if !gather.is_done()
            && let Some(event) = sse.finish()
        {
            gather.last_event(&self.text(event)?, deltas)?;
        }
        gather.finish(request)
    }
}

impl OpenAi {
    /// Reads what follows the end marker, so that the connection is used again: one whose body was not read to its end is
    /// closed. Nearly always the end has come with the marker; who does not say it is waited for by nobody, and for so long
    /// that the connection is lost.
    fn drain(&self, mut response: reqwest::Response) {
        if response.chunk().now_or_never().is_some() {
            return;
        }
        let late = self.idle.clock.sleep(DRAIN_MAX);
        tokio::spawn(async move {
            let rest = std::pin::pin!(response.chunk());
            // Whatever comes is no part of the answer.
            let _ = futures_util::future::select(rest, late).await;
        });
    }

    fn text(&self, event: Result<String, crate::sse::SseError>) -> Result<String, ProviderError> {
        event.map_err(|error| {
            ProviderError::redacted(ErrorKind::BadAnswer, &format!("the stream is broken: {error}"), &self.redactor)
        })
    }

    fn broken(&self, words: &str) -> ProviderError {
        ProviderError::redacted(ErrorKind::BrokenStream, &format!("the answer broke off: {words}"), &self.redactor)
            .charge(Charge::Unknown)
    }
}

/// The request, written straight from the conversation without a copy of it.
#[derive(Serialize)]
struct Body<'a> {
    model: &'a str,
    stream: bool,
    stream_options: StreamOptions,
    #[serde(skip_serializing_if = "Option::is_none")]
    tools: Option<&'a RawValue>,
    messages: Messages<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_tokens: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_completion_tokens: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_effort: Option<&'a str>,
}

#[derive(Serialize)]
struct StreamOptions {
    include_usage: bool,
}

impl<'a> Body<'a> {
    fn of(request: &'a ModelRequest, tools: Option<&'a RawValue>, at_home: bool) -> Self {
        Self {
            model: &request.model,
            stream: true,
            stream_options: StreamOptions { include_usage: true },
            tools,
            messages: Messages(request),
            max_tokens: (!at_home).then_some(request.max_tokens),
            max_completion_tokens: at_home.then_some(request.max_tokens),
            temperature: request.temperature,
            reasoning_effort: request.thinking.as_deref(),
        }
    }
}

struct Tools<'a>(&'a [ToolSpec]);

impl Serialize for Tools<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Tool<'a> {
            r#type: &'static str,
            function: Function<'a>,
        }
        #[derive(Serialize)]
        struct Function<'a> {
            name: String,
            description: &'a str,
            parameters: &'a Value,
        }
        serializer.collect_seq(self.0.iter().map(|tool| Tool {
            r#type: "function",
            function: Function {
                name: to_wire(&tool.name),
                description: &tool.description,
                parameters: &tool.parameters,
            },
        }))
    }
}

struct Messages<'a>(&'a ModelRequest);

#[derive(Serialize)]
struct Wire<'a> {
    role: &'static str,
    content: Option<std::borrow::Cow<'a, str>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tool_calls: Vec<WireCall<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_call_id: Option<&'a str>,
}

#[derive(Serialize)]
struct WireCall<'a> {
    id: &'a str,
    r#type: &'static str,
    function: WireFunction,
}

#[derive(Serialize)]
struct WireFunction {
    name: String,
    arguments: String,
}

impl Serialize for Messages<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut list = serializer.serialize_seq(None)?;
        let plain = |role, text| Wire { role, content: Some(text), tool_calls: Vec::new(), tool_call_id: None };
        if !self.0.system.is_empty() {
            list.serialize_element(&plain("system", self.0.system.as_str().into()))?;
        }
        for message in &self.0.messages {
            match message.role {
                Role::User => list.serialize_element(&plain("user", words(message)))?,
                Role::Assistant => {
                    let text = words(message);
                    let tool_calls: Vec<WireCall<'_>> = message.calls().map(wire_call).collect();
                    let content = (!text.is_empty() || tool_calls.is_empty()).then_some(text);
                    list.serialize_element(&Wire { role: "assistant", content, tool_calls, tool_call_id: None })?;
                }
                Role::Tool => {
                    for block in &message.blocks {
                        if let Block::ToolResult { id, content, .. } = block {
                            let mut wire = plain("tool", content.as_str().into());
                            wire.tool_call_id = Some(id);
                            list.serialize_element(&wire)?;
                        }
                    }
                }
            }
        }
        list.end()
    }
}

/// The text of a message, borrowed where it is one block.
fn words(message: &Message) -> std::borrow::Cow<'_, str> {
    match message.blocks.as_slice() {
        [Block::Text { text }] => text.as_str().into(),
        _ => message.visible_text().into(),
    }
}

fn wire_call<'a>((id, name, arguments): (&'a str, &str, &Value)) -> WireCall<'a> {
    let arguments = sent_arguments(arguments).to_string();
    WireCall { id, r#type: "function", function: WireFunction { name: wire_name(name), arguments } }
}
