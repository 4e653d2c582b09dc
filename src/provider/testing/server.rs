//! A fake HTTP server on this machine. It sends the bytes that a test sets: complete, interrupted,
//! or never ending.
//!
//! The server must never listen on an address other than 127.0.0.1 or outlive the value that holds
//! it.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::response::Response;
use futures_util::{StreamExt, stream};
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Longest request that is read, in bytes.
const REQUEST_MAX: usize = 64 * 1_024 * 1_024;
/// Maximum requests that are logged; later ones are served but not logged.
const LOG_MAX: usize = 100_000;

/// A received request.
#[derive(Clone, Debug)]
pub struct FakeRequest {
    /// Path with query.
    pub path: String,
    /// Headers by lower-case name.
    pub headers: BTreeMap<String, String>,
    /// The body as JSON; null if it is not JSON.
    pub body: Value,
    /// The body's bytes.
    pub raw: Bytes,
}

/// How the body of a reply ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FakeEnd {
    /// Normally.
    Whole,
    /// The connection breaks.
    Cut,
    /// Nothing more is sent, and the connection stays open.
    Hang,
}

/// The reply of the server.
#[derive(Clone, Debug)]
pub struct FakeReply {
    /// HTTP status.
    pub status: u16,
    /// Headers.
    pub headers: Vec<(String, String)>,
    /// The body, in pieces that are sent one by one.
    pub chunks: Vec<Bytes>,
    /// How the body ends.
    pub end: FakeEnd,
}

impl FakeReply {
    /// Creates a reply with a content type and a body in one piece.
    #[must_use]
    pub fn new(status: u16, content_type: &str, body: impl Into<Bytes>) -> Self {
        let headers = vec![("content-type".to_owned(), content_type.to_owned())];
        Self { status, headers, chunks: vec![body.into()], end: FakeEnd::Whole }
    }

    /// Adds a header.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Cuts the body into pieces of `size` bytes.
    #[must_use]
    pub fn in_pieces(mut self, size: usize) -> Self {
        let whole: Vec<u8> = self.chunks.concat();
        self.chunks = whole.chunks(size.max(1)).map(Bytes::copy_from_slice).collect();
        self
    }

    /// Sets how the body ends.
    #[must_use]
    pub fn ending(mut self, end: FakeEnd) -> Self {
        self.end = end;
        self
    }
}

type Answer = dyn Fn(&FakeRequest) -> FakeReply + Send + Sync;

/// The fake server. It stops when this is dropped.
pub struct FakeServer {
    address: SocketAddr,
    log: Arc<Mutex<Vec<FakeRequest>>>,
    open: watch::Receiver<usize>,
    task: JoinHandle<()>,
}

impl FakeServer {
    /// Starts a server on a free port that gets its replies from `answer`. With `log`, it keeps the
    /// requests.
    ///
    /// # Errors
    /// If no port of 127.0.0.1 can be bound.
    pub async fn start(
        log: bool,
        answer: impl Fn(&FakeRequest) -> FakeReply + Send + Sync + 'static,
    ) -> io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = listener.local_addr()?;
        let requests = Arc::new(Mutex::new(Vec::new()));
        let (opened, open) = watch::channel(0);
        let state = Arc::new(State { answer: Box::new(answer), log: log.then(|| Arc::clone(&requests)), opened });
        let router = Router::new().fallback(move |request: Request| serve(Arc::clone(&state), request));
        let task = tokio::spawn(async move {
            // The clients see the connection fail.
            drop(axum::serve(listener, router).await);
        });
        Ok(Self { address, log: requests, open, task })
    }

    /// `http://127.0.0.1:<port>`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// All requests so far, if they are kept.
    #[must_use]
    pub fn requests(&self) -> Vec<FakeRequest> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Completes when no body is being sent.
    pub async fn idle(&self) {
        let mut open = self.open.clone();
        // The sender lives as long as the server.
        drop(open.wait_for(|open| *open == 0).await);
    }
}

impl Drop for FakeServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct State {
    answer: Box<Answer>,
    log: Option<Arc<Mutex<Vec<FakeRequest>>>>,
    opened: watch::Sender<usize>,
}

/// Counts a body while it is sent.
struct Open(Arc<State>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.opened.send_modify(|open| *open = open.saturating_sub(1));
    }
}

async fn serve(state: Arc<State>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let body = axum::body::to_bytes(body, REQUEST_MAX).await.unwrap_or_default();
    let headers = parts
        .headers
        .iter()
        .map(|(name, value)| (name.to_string(), String::from_utf8_lossy(value.as_bytes()).into_owned()))
        .collect();
    let path = parts.uri.path_and_query().map_or_else(String::new, ToString::to_string);
    let request = FakeRequest { path, headers, body: serde_json::from_slice(&body).unwrap_or(Value::Null), raw: body };
    let reply = (state.answer)(&request);
    if let Some(log) = &state.log {
        let mut log = log.lock().unwrap_or_else(PoisonError::into_inner);
        if log.len() < LOG_MAX {
            log.push(request);
        }
    }
    state.opened.send_modify(|open| *open += 1);
    let open = Open(Arc::clone(&state));
    let chunks = stream::iter(reply.chunks.into_iter().map(Ok::<_, io::Error>));
    let body = match reply.end {
        FakeEnd::Whole => Body::from_stream(chunks.inspect(move |_| _ = &open)),
        FakeEnd::Cut => {
            // The data sent so far is flushed while the body is pending for a moment. An immediate
            // error would discard it.
            let broken = stream::once(async {
                tokio::task::yield_now().await;
                Err(io::Error::other("cut off"))
            });
            Body::from_stream(chunks.chain(broken).inspect(move |_| _ = &open))
        }
        FakeEnd::Hang => Body::from_stream(chunks.chain(stream::pending()).inspect(move |_| _ = &open)),
    };
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::from_u16(reply.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    for (name, value) in reply.headers {
        if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::try_from(value)) {
            response.headers_mut().append(name, value);
        }
    }
    response
}
