//! The rim between genai and a provider. genai 0.7.2 holds whatever comes: what has no end yet it keeps in one string, which
//! it copies at every read (`webc/web_stream.rs`, lines 200 and 264), and the body of a failure it reads whole (line 118). It
//! takes nothing but a client of reqwest's, whose connections cannot be wrapped (`Response = Conn`, which nobody can name).
//! So its requests come here first, over a socket that only this process gets through, and go on from here; what comes back
//! is counted before genai has it, and rid of what genai cannot take; what it cannot send is added to a request.
//!
//! Must never: serve another process, judge an answer, or hold more than one event of it.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fmt::Write as _;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use axum::Router;
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::Request;
use axum::http::{StatusCode, Uri};
use axum::response::Response;
use axum::serve::Listener;
use futures_util::{Stream, stream};
use ghost_domain::redact::Redactor;
use ghost_domain::{Code, Refusal};
use reqwest::header::{
    ACCEPT_ENCODING, CONNECTION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HOST, TRANSFER_ENCODING,
};
use serde_json::Value;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::OnceCell;
use tokio::task::JoinHandle;

use crate::error::{Charge, ErrorKind, ProviderError};
use crate::genai_events::Sift;
use crate::genai_protocol::Protocol;
use crate::http::{builder, chain, client, error_body, event_error, packed, transport_error};
use crate::idle::{Chunks, IdleLimit};
use crate::ollama_extras::Extras;
use crate::whole_events::{Ends, Whole};

/// Longest request, in bytes: more than any conversation may have.
const REQUEST_MAX: usize = 64 * 1_024 * 1_024;

/// The status of what is answered from here, because there is no answer of the provider's.
pub(crate) const LOST: u16 = 502;

/// The rim of one provider.
pub(crate) struct Rim {
    shared: Arc<Shared>,
    socket: PathBuf,
    server: OnceCell<Server>,
}

struct Shared {
    client: reqwest::Client,
    base: reqwest::Url,
    protocol: Protocol,
    redactor: Redactor,
    idle: IdleLimit,
    last: AtomicU64,
    /// The calls under way, by number.
    calls: Mutex<BTreeMap<u64, Arc<Known>>>,
}

/// What is known of a call under way.
struct Known {
    /// Why it failed, where that was seen here.
    failure: OnceLock<ProviderError>,
    /// What is added to its request.
    extras: Option<Extras>,
}

/// Ends with the value that holds it.
struct Server(JoinHandle<()>);

impl Drop for Server {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// One call's way through the rim.
pub(crate) struct Passage {
    shared: Arc<Shared>,
    number: u64,
    call: Arc<Known>,
}

impl Passage {
    /// The base URL that stands for the provider's.
    pub(crate) fn url(&self) -> String {
        format!("http://rim/{}/", self.number)
    }

    /// Why the answer, or the way to it, broke off, where that was seen here.
    pub(crate) fn failure(&self) -> Option<ProviderError> {
        self.call.failure.get().cloned()
    }
}

impl Drop for Passage {
    fn drop(&mut self) {
        self.shared.calls().remove(&self.number);
    }
}

impl Rim {
    /// The rim of the provider `name` at `base`, which ends in `/`. Nothing is opened yet.
    pub(crate) fn new(
        name: &str,
        base: reqwest::Url,
        protocol: Protocol,
        redactor: Redactor,
        idle: IdleLimit,
    ) -> Result<Self, Refusal> {
        let client = client(name, &base)?;
        let (last, calls) = (AtomicU64::new(0), Mutex::default());
        let shared = Arc::new(Shared { client, base, protocol, redactor, idle, last, calls });
        Ok(Self { shared, socket: socket(name)?, server: OnceCell::new() })
    }

    /// The client whose requests come here, whatever host they name.
    pub(crate) fn client(&self, name: &str) -> Result<reqwest::Client, Refusal> {
        builder().no_proxy().unix_socket(self.socket.clone()).build().map_err(|error| {
            let what = format!("the HTTP client of provider `{name}` cannot be made: {}", chain(&error));
            Refusal::new(Code::Internal, what)
        })
    }

    /// Lets one call through, with what is to be added to its request.
    pub(crate) async fn open(&self, extras: Option<Extras>) -> Result<Passage, ProviderError> {
        self.server.get_or_try_init(|| async { self.serve() }).await.map_err(|error| {
            let words = format!("the way to the provider cannot be opened within this process: {error}");
            ProviderError::new(ErrorKind::Network, words).charge(Charge::Nothing)
        })?;
        let (shared, call) = (Arc::clone(&self.shared), Arc::new(Known { failure: OnceLock::new(), extras }));
        let number = shared.last.fetch_add(1, Ordering::Relaxed) + 1;
        shared.calls().insert(number, Arc::clone(&call));
        Ok(Passage { shared, number, call })
    }

    fn serve(&self) -> io::Result<Server> {
        let (listener, shared) = (Own(UnixListener::bind(&self.socket)?), Arc::clone(&self.shared));
        let router = Router::new().fallback(move |request: Request| relay(Arc::clone(&shared), request));
        Ok(Server(tokio::spawn(async move {
            if let Err(error) = axum::serve(listener, router).await {
                tracing::error!(%error, "a provider's rim has ended");
            }
        })))
    }
}

/// A name that is in no file system. Other processes of the machine may see it; whoever is not this process is turned away by the
/// look at its credentials.
fn socket(name: &str) -> Result<PathBuf, Refusal> {
    let mut random = [0_u8; 16];
    rustls::crypto::ring::default_provider().secure_random.fill(&mut random).map_err(|_| {
        Refusal::new(Code::Internal, format!("there is no randomness for the socket of provider `{name}`"))
    })?;
    Ok(random
        .iter()
        .fold(String::from("\0ghost-rim-"), |mut text, byte| {
            // Writing to a string cannot fail.
            let _ = write!(text, "{byte:02x}");
            text
        })
        .into())
}

/// Takes connections of this process and of no other.
struct Own(UnixListener);

impl Listener for Own {
    type Io = UnixStream;
    type Addr = tokio::net::unix::SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        loop {
            let (stream, address) = Listener::accept(&mut self.0).await;
            let pid = stream.peer_cred().ok().and_then(|peer| u32::try_from(peer.pid()?).ok());
            if pid == Some(std::process::id()) {
                return (stream, address);
            }
        }
    }

    fn local_addr(&self) -> io::Result<Self::Addr> {
        self.0.local_addr()
    }
}

impl Shared {
    fn calls(&self) -> MutexGuard<'_, BTreeMap<u64, Arc<Known>>> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The call that a request is of, and where it goes.
    fn target(&self, uri: &Uri) -> Option<(Arc<Known>, reqwest::Url)> {
        let (number, path) = uri.path().strip_prefix('/')?.split_once('/')?;
        let call = Arc::clone(self.calls().get(&number.parse::<u64>().ok()?)?);
        let mut url = self.base.clone();
        url.set_path(&format!("{}{path}", self.base.path()));
        url.set_query(uri.query());
        Some((call, url))
    }

    /// Whether a success is JSON where events were asked for: some servers tell an error so. genai would find no event in it.
    fn is_no_stream(&self, response: &reqwest::Response) -> bool {
        let kind = response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
        self.protocol.ends() == Ends::EmptyLine
            && response.status().is_success()
            && kind.is_some_and(|kind| kind.starts_with("application/json"))
    }

    async fn forward(
        &self,
        url: reqwest::Url,
        request: Request,
        extras: Option<&Extras>,
    ) -> Result<reqwest::Response, ProviderError> {
        let (mut parts, body) = request.into_parts();
        let body = to_bytes(body, REQUEST_MAX).await.map_err(|error| {
            ProviderError::new(ErrorKind::BadRequest, format!("the request cannot be sent: {error}"))
        })?;
        let body = extras.and_then(|extras| extras.add(&body)).map_or(body, Bytes::from);
        // What belongs to the connection that it came over.
        for name in [HOST, CONTENT_LENGTH, CONNECTION, TRANSFER_ENCODING, ACCEPT_ENCODING] {
            parts.headers.remove(name);
        }
        let call = self.client.request(parts.method, url).headers(parts.headers).body(body);
        call.send().await.map_err(|error| transport_error(error, &self.redactor))
    }
}

async fn relay(shared: Arc<Shared>, request: Request) -> Response {
    let mut answer = Response::default();
    let lost = StatusCode::from_u16(LOST).unwrap_or(StatusCode::BAD_GATEWAY);
    let Some((known, url)) = shared.target(request.uri()) else {
        *answer.status_mut() = StatusCode::NOT_FOUND;
        return answer;
    };
    let response = shared.forward(url, request, known.extras.as_ref()).await;
    let refused = response.as_ref().ok().filter(|response| response.status().is_success()).and_then(packed);
    match refused.map_or(response, Err) {
        Ok(mut response) if shared.is_no_stream(&response) => {
            *answer.status_mut() = lost;
            let body = error_body(&mut response).await;
            let error = match serde_json::from_slice::<Value>(&body) {
                Ok(body) if body.get("error").is_some() => event_error(&body, &shared.redactor),
                _ => ProviderError::new(
                    ErrorKind::BadAnswer,
                    "the provider answered with one JSON text in place of a stream",
                ),
            };
            // One call is one request, so nothing was put there yet.
            let _ = known.failure.set(error);
        }
        Ok(mut response) => {
            *answer.status_mut() = response.status();
            *answer.headers_mut() = std::mem::take(response.headers_mut());
            for name in [CONTENT_LENGTH, CONNECTION, TRANSFER_ENCODING, CONTENT_ENCODING] {
                answer.headers_mut().remove(name);
            }
            *answer.body_mut() = match response.status().is_success() {
                true => Body::from_stream(events(response, &shared, known)),
                false => Body::from(error_body(&mut response).await),
            };
        }
        Err(error) => {
            *answer.status_mut() = lost;
            // One call is one request, so nothing was put there yet.
            let _ = known.failure.set(error);
        }
    }
    answer
}

/// A response as whole events that genai can take, until it ends or is too much.
fn events(
    response: reqwest::Response,
    shared: &Shared,
    known: Arc<Known>,
) -> impl Stream<Item = Result<Bytes, Infallible>> + use<> {
    let (whole, sift) = (Whole::new(shared.protocol.ends()), Sift::of(shared.protocol));
    let chunks = Chunks::new(response, shared.idle.clone());
    stream::unfold(Some((chunks, whole, sift, shared.redactor.clone(), known)), |state| async {
        let (mut chunks, mut whole, mut sift, redactor, known) = state?;
        loop {
            let error = match chunks.next(&redactor).await {
                Ok(Some(chunk)) => match whole.push(&chunk).map(|events| sift.pass(events)) {
                    Ok(events) if events.is_empty() => continue,
                    Ok(events) => return Some((Ok(events.into()), Some((chunks, whole, sift, redactor, known)))),
                    Err(error) => error,
                },
                // A last event may have no end.
                Ok(None) => return Some((Ok(sift.pass(whole.rest()).into()), None)),
                Err(error) => error,
            };
            // One call is one request, so nothing was put there yet.
            let _ = known.failure.set(error);
            // A body that ended in an error would take along what is on its way.
            return None;
        }
    })
}
