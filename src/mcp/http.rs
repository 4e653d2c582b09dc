//! The transport over streamable HTTP. It follows no redirect: the token would reach
//! another host.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::BoxStream;
use ghost_domain::json_text::readable;
use reqwest::header::{HeaderName, HeaderValue};
use reqwest::redirect::Policy;
use rmcp::model::ClientJsonRpcMessage;
use rmcp::transport::common::client_side_sse::ExponentialBackoff;
use rmcp::transport::streamable_http_client::{
    SseError, StreamableHttpClient, StreamableHttpClientTransport, StreamableHttpClientTransportConfig,
    StreamableHttpError, StreamableHttpPostResponse, StreamableHttpResponseLimits,
};
use secrecy::{ExposeSecret as _, SecretString};
use sse_stream::Sse;

use crate::gate::Gate;
use crate::incoming::message;

/// Time for the connection to a host.
const CONNECT: Duration = Duration::from_secs(10);
/// Times that an interrupted stream of events is opened again.
const RECONNECTS: usize = 5;
/// Longest pause before that.
const RECONNECT_PAUSE: Duration = Duration::from_secs(30);
/// Bytes of an error page that are read.
const ERROR_PAGE: usize = 4 * 1_024;

/// An HTTP client that follows no redirect.
#[derive(Clone, Debug)]
pub struct HttpClient(reqwest::Client);

/// The HTTP client cannot be built.
#[derive(Debug, thiserror::Error)]
#[error("the HTTP client cannot be built: {detail}")]
pub struct HttpClientError {
    /// What is wrong with its settings.
    pub detail: String,
}

impl HttpClient {
    /// The client with the settings of `builder`: its trusted roots, its resolver, its proxy. The redirect policy, the
    /// connection pool and the connect timeout (10 seconds) are set here. Do not set a total timeout: streams live
    /// long. The process needs a default crypto provider of `rustls` (or the builder its own configuration).
    ///
    /// # Errors
    /// If the settings do not fit together.
    pub fn new(builder: reqwest::ClientBuilder) -> Result<Self, HttpClientError> {
        // Pooled connections cost 40 ms per call with some servers (the default of `rmcp` avoids them as well).
        let builder =
            builder.redirect(Policy::none()).pool_max_idle_per_host(0).connect_timeout(CONNECT).referer(false);
        builder.build().map(Self).map_err(|error| HttpClientError { detail: error.to_string() })
    }
}

/// A client that hands on events of which every one can be read. `rmcp` skips the others, and the calls that they answer
/// would wait for their time-out.
#[derive(Clone)]
pub(crate) struct Reading {
    client: reqwest::Client,
    gate: Arc<Gate>,
}

type Events = BoxStream<'static, Result<Sse, SseError>>;
type Failed = StreamableHttpError<reqwest::Error>;
type Headers = HashMap<HeaderName, HeaderValue>;

impl Reading {
    fn events(&self, events: Events) -> Events {
        let gate = Arc::clone(&self.gate);
        let read = move |mut event: Sse| {
            event.data = event.data.map(|data| data_of(&gate, data));
            event
        };
        events.map(move |event| event.map(&read)).boxed()
    }
}

/// The data of an event, or an error in its place if it stands for an answer that cannot be read.
fn data_of(gate: &Gate, data: String) -> String {
    match message(data.as_bytes(), |_| false) {
        Ok(_) => readable(&data).into_owned(),
        Err(unread) => {
            let id = gate.answered_by(unread.id, unread.is_answer);
            let error = id.and_then(|id| serde_json::to_string(&unread.error(id)).ok());
            error.unwrap_or(data)
        }
    }
}

impl StreamableHttpClient for Reading {
    type Error = reqwest::Error;

    async fn post_message(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session_id: Option<Arc<str>>,
        token: Option<String>,
        headers: Headers,
    ) -> Result<StreamableHttpPostResponse, Failed> {
        let limits = StreamableHttpResponseLimits::default();
        self.post_message_with_response_limits(uri, message, session_id, token, headers, limits).await
    }

    async fn post_message_with_response_limits(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session_id: Option<Arc<str>>,
        token: Option<String>,
        headers: Headers,
        limits: StreamableHttpResponseLimits,
    ) -> Result<StreamableHttpPostResponse, Failed> {
        let post = self.client.post_message_with_response_limits(uri, message, session_id, token, headers, limits);
        Ok(match post.await? {
            StreamableHttpPostResponse::Sse(events, session) => {
                StreamableHttpPostResponse::Sse(self.events(events), session)
            }
            other => other,
        })
    }

    async fn delete_session(
        &self,
        uri: Arc<str>,
        session_id: Arc<str>,
        token: Option<String>,
        headers: Headers,
    ) -> Result<(), Failed> {
        self.client.delete_session(uri, session_id, token, headers).await
    }

    async fn get_stream(
        &self,
        uri: Arc<str>,
        session_id: Option<Arc<str>>,
        last_event: Option<String>,
        token: Option<String>,
        headers: Headers,
    ) -> Result<Events, Failed> {
        let stream = self.client.get_stream(uri, session_id, last_event, token, headers).await?;
        Ok(self.events(stream))
    }

    async fn get_stream_with_max_sse_event_size(
        &self,
        uri: Arc<str>,
        session_id: Option<Arc<str>>,
        last_event: Option<String>,
        token: Option<String>,
        headers: Headers,
        max: usize,
    ) -> Result<Events, Failed> {
        let stream =
            self.client.get_stream_with_max_sse_event_size(uri, session_id, last_event, token, headers, max).await?;
        Ok(self.events(stream))
    }
}

/// The transport to the server at `url`.
pub(crate) fn transport(
    client: HttpClient,
    url: &str,
    token: Option<&SecretString>,
    gate: Arc<Gate>,
) -> StreamableHttpClientTransport<Reading> {
    let mut backoff = ExponentialBackoff::default();
    backoff.max_times = Some(RECONNECTS);
    backoff.max_delay = Some(RECONNECT_PAUSE);
    let limits = &gate.limits;
    // A call is never sent twice, so a forgotten session ends the connection.
    let mut config = StreamableHttpClientTransportConfig::with_uri(url)
        .max_sse_event_size(limits.http_bytes)
        .max_json_response_size(limits.http_bytes)
        .max_error_response_size(ERROR_PAGE.min(limits.http_bytes))
        .reinit_on_expired_session(false);
    config.retry_config = Arc::new(backoff);
    if let Some(token) = token {
        config = config.auth_header(token.expose_secret());
    }
    StreamableHttpClientTransport::with_client(Reading { client: client.0, gate }, config)
}
