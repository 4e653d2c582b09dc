//! The transports: the streams of a process, with one message on each line, and streamable HTTP.
//!
//! A line that is too long ends the connection: if it were skipped, the request that it answers would wait for ever. No
//! redirect is followed: the token would reach another host.

use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::BoxStream;
use ghost_domain::json_text::readable;
use reqwest::header::{HeaderName, HeaderValue};
use reqwest::redirect::Policy;
use rmcp::RoleClient;
use rmcp::model::{ClientJsonRpcMessage, ClientRequest, JsonRpcMessage};
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use rmcp::transport::common::client_side_sse::ExponentialBackoff;
use rmcp::transport::streamable_http_client::{
    SseError, StreamableHttpClient, StreamableHttpClientTransport, StreamableHttpClientTransportConfig,
    StreamableHttpError, StreamableHttpPostResponse, StreamableHttpResponseLimits,
};
use secrecy::{ExposeSecret as _, SecretString};
use sse_stream::Sse;
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, BufReader};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::error::ClosedReason;
use crate::gate::Gate;
use crate::incoming::{message, number};
use crate::limits::within;

/// Bytes that are read at once.
const READ: usize = 32 * 1_024;
/// Bytes of the line buffer that are kept for the next line.
const KEPT: usize = 256 * 1_024;

/// The transport over two streams.
pub(crate) struct Lines<R> {
    reader: BufReader<R>,
    /// What was read of the current line. A dropped `receive` goes on with it.
    line: Vec<u8>,
    writer: Writer,
    gate: Arc<Gate>,
    /// Requests whose answers `rmcp` reads itself.
    typed: HashSet<i64>,
}

impl<R: AsyncRead + Send + Unpin> Lines<R> {
    pub(crate) fn new<W>(reader: R, stream: W, gate: Arc<Gate>) -> Self
    where
        W: AsyncWrite + Send + Unpin + 'static,
    {
        let writer = Writer::start(stream, Arc::clone(&gate));
        let reader = BufReader::with_capacity(READ, reader);
        Self { reader, line: Vec::new(), writer, gate, typed: HashSet::new() }
    }

    /// Reads to the next line break.
    async fn read(&mut self) -> Result<(), ClosedReason> {
        let limit = self.gate.limits.line_bytes;
        let room = limit.saturating_add(1).saturating_sub(self.line.len());
        let mut bounded = (&mut self.reader).take(u64::try_from(room).unwrap_or(u64::MAX));
        match bounded.read_until(b'\n', &mut self.line).await {
            Err(error) => Err(ClosedReason::Broken { detail: error.to_string() }),
            Ok(_) if self.line.len() > limit => Err(ClosedReason::LineTooLong { limit }),
            Ok(_) if self.line.ends_with(b"\n") => Ok(()),
            Ok(_) => Err(ClosedReason::Ended),
        }
    }
}

impl<R: AsyncRead + Send + Unpin> Transport<RoleClient> for Lines<R> {
    type Error = io::Error;

    fn send(
        &mut self,
        item: TxJsonRpcMessage<RoleClient>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        if let JsonRpcMessage::Request(request) = &item
            && matches!(
                request.request,
                ClientRequest::InitializeRequest(_)
                    | ClientRequest::DiscoverRequest(_)
                    | ClientRequest::SubscriptionsListenRequest(_)
            )
        {
            self.typed.extend(number(&request.id));
        }
        let push = serde_json::to_vec(&item).map(|mut line| {
            line.push(b'\n');
            self.writer.push(line)
        });
        async move { push.map_err(io::Error::from)?.await }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        loop {
            if let Err(reason) = self.read().await {
                self.gate.closing.set(reason);
                return None;
            }
            let text = self.line.trim_ascii();
            let is_empty = text.is_empty();
            let message = message(text, |id| number(id).is_some_and(|id| self.typed.remove(&id)));
            self.line.clear();
            self.line.shrink_to(KEPT);
            match message {
                Ok(message) => return Some(message),
                Err(unread) => {
                    if let Some(id) = self.gate.answered_by(unread.id, unread.is_answer) {
                        return Some(unread.error(id));
                    }
                }
            }
            if !is_empty && !self.gate.count() {
                return None;
            }
        }
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        self.writer.finish(self.gate.limits.close_timeout / 2).await;
        Ok(())
    }
}

/// A queue of lines, and the task that writes them.
struct Writer {
    queue: Option<mpsc::Sender<Vec<u8>>>,
    task: JoinHandle<()>,
}

impl Writer {
    /// Starts the task.
    fn start<W>(stream: W, gate: Arc<Gate>) -> Self
    where
        W: AsyncWrite + Send + Unpin + 'static,
    {
        let (queue, waiting) = mpsc::channel(gate.limits.outgoing_messages.max(1));
        Self { queue: Some(queue), task: tokio::spawn(write(stream, waiting, gate)) }
    }

    /// Puts a line into the queue. Waits while it is full.
    fn push(&self, line: Vec<u8>) -> impl Future<Output = io::Result<()>> + Send + 'static {
        let queue = self.queue.clone();
        async move {
            match queue {
                Some(queue) => queue.send(line).await.map_err(|_| io::ErrorKind::BrokenPipe.into()),
                None => Err(io::ErrorKind::NotConnected.into()),
            }
        }
    }

    /// Writes what waits, and closes the stream. Takes at most `limit`.
    async fn finish(&mut self, limit: Duration) {
        self.queue = None;
        if within(limit, &mut self.task).await.is_none() {
            self.task.abort();
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn write<W>(mut stream: W, mut waiting: mpsc::Receiver<Vec<u8>>, gate: Arc<Gate>)
where
    W: AsyncWrite + Send + Unpin,
{
    let limit = gate.limits.write_timeout;
    while let Some(line) = waiting.recv().await {
        let written = async {
            stream.write_all(&line).await?;
            stream.flush().await
        };
        match within(limit, written).await {
            Some(Ok(())) => {}
            Some(Err(_)) => return gate.closing.set(ClosedReason::Ended),
            None => return gate.closing.set(ClosedReason::NotReading { after: limit }),
        }
    }
    drop(within(limit, stream.shutdown()).await);
}

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
