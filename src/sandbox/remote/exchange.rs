//! The connection to a toolbox server.
//!
//! Nothing that the server sends must ever be kept without a bound, waited for without a deadline, or shown as it is. The
//! token must never be shown.

use std::io::Read as _;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::BoxStream;
use futures_util::{Stream, StreamExt as _};
use ghost_config::plan::RemotePlan;
use ghost_domain::text::{clip, shown};
use ghost_domain::{Clock, Code, Refusal};
use reqwest::header::{AUTHORIZATION, CONNECTION, HeaderMap, HeaderValue};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::mpsc;

use super::lines::Lines;
use super::protocol::{Health, VERSION};

/// How long a connection may take.
const CONNECT: Duration = Duration::from_secs(10);
/// How long the server may be silent in an answer that is not a command's. It may have to read a large workspace.
const IDLE: Duration = Duration::from_secs(60);
/// Connections that are idle for longer are closed: the server closes them a little later.
const KEPT: Duration = Duration::from_secs(20);
/// Bytes of an answer that is not a stream.
const ANSWER_MAX: usize = 1 << 20;
/// Bytes of a file with certificates.
const CA_MAX: u64 = 1 << 20;
/// Characters of a server's text that are shown.
const SHOWN: usize = 500;

/// A toolbox server.
pub(crate) struct Server {
    client: reqwest::Client,
    url: String,
    clock: Arc<dyn Clock>,
}

/// The streaming answer of a server.
pub(crate) struct Answer {
    lines: Lines<BoxStream<'static, Result<Bytes, reqwest::Error>>>,
    clock: Arc<dyn Clock>,
}

/// The server does not do what it should.
pub(crate) fn unavailable(why: impl std::fmt::Display) -> Refusal {
    Refusal::new(Code::Unavailable, format!("the toolbox server {why}"))
        .hint("try again later; an operator can check the server")
}

/// The text of an error with its causes, without the address.
fn chain(error: reqwest::Error) -> String {
    let error = error.without_url();
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(&error);
    while let Some(inner) = cause {
        let message = inner.to_string();
        if !text.contains(&message) {
            text = format!("{text}: {message}");
        }
        cause = inner.source();
    }
    shown(&text, SHOWN)
}

/// What a server refused, in words that are safe to show.
pub(crate) fn cleaned(refusal: Refusal) -> Refusal {
    let code = match refusal.code {
        code @ (Code::InvalidArguments | Code::NotFound | Code::TooLarge | Code::RateLimited) => code,
        _ => Code::Unavailable,
    };
    let hint = refusal.hint.map(|hint| shown(&hint, SHOWN));
    Refusal { code, message: shown(&refusal.message, SHOWN), hint, details: None }
}

impl Server {
    pub(crate) fn new(plan: &RemotePlan, token: &str, clock: Arc<dyn Clock>) -> Result<Self, String> {
        // `main` installs the process's crypto provider at its start, but tests and other programs may not.
        if rustls::crypto::CryptoProvider::get_default().is_none() {
            drop(rustls::crypto::ring::default_provider().install_default());
        }
        let mut bearer =
            HeaderValue::from_str(&format!("Bearer {token}")).map_err(|_| "its token is no token".to_owned())?;
        bearer.set_sensitive(true);
        let mut builder = reqwest::Client::builder()
            .default_headers(HeaderMap::from_iter([(AUTHORIZATION, bearer)]))
            .no_proxy()
            .no_gzip()
            .no_brotli()
            .no_zstd()
            .no_deflate()
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(CONNECT)
            .pool_idle_timeout(KEPT)
            .tcp_nodelay(true);
        if let Some(file) = &plan.ca_file {
            let failed = |error: &dyn std::fmt::Display| format!("`sandbox.ca_file` {}: {error}", file.display());
            let opened = ghost_config::regular(file).map_err(|error| failed(&error))?;
            let mut pem = Vec::new();
            let opened = opened.ok_or_else(|| failed(&"it is not a regular file"))?;
            opened.take(CA_MAX).read_to_end(&mut pem).map_err(|error| failed(&error))?;
            let certificates = reqwest::Certificate::from_pem_bundle(&pem).map_err(|error| failed(&error))?;
            if certificates.is_empty() {
                return Err(failed(&"it has no certificate in PEM form"));
            }
            builder = builder.tls_certs_only(certificates);
        }
        let client = builder.build().map_err(|error| format!("its client cannot be built: {}", chain(error)))?;
        Ok(Self { client, url: plan.url.clone(), clock })
    }

    /// Waits for `work`, at most `most`.
    pub(crate) async fn within<T>(
        clock: &dyn Clock,
        most: Duration,
        work: impl Future<Output = Result<T, Refusal>>,
    ) -> Result<T, Refusal> {
        tokio::select! {
            biased;
            done = work => done,
            () = clock.sleep(most) => Err(unavailable(format!("did not answer within {} s", most.as_secs()))),
        }
    }

    /// Sends a request. One whose body is no stream only asks, and is sent again if the server closed the connection just
    /// when it was used again. Streams, which run commands and change files, are sent once.
    async fn sent(&self, request: reqwest::RequestBuilder, most: Duration) -> Result<reqwest::Response, Refusal> {
        let again = request.try_clone();
        let send = async {
            let sent = match (request.send().await, again) {
                (Err(error), Some(again)) if !error.is_connect() => again.send().await,
                (sent, _) => sent,
            };
            let response = sent.map_err(|error| unavailable(format!("cannot be reached: {}", chain(error))))?;
            if response.status().is_success() {
                return Ok(response);
            }
            let status = response.status();
            let body = whole(response).await?;
            let refused = match serde_json::from_slice::<Refusal>(&body) {
                _ if status == reqwest::StatusCode::UNAUTHORIZED => {
                    return Err(unavailable("refuses the token")
                        .hint("an operator must check the variable `sandbox.token_env`"));
                }
                Ok(refusal) => cleaned(refusal),
                Err(_) => unavailable(format!("answered with the status {}", status.as_u16())),
            };
            Err(refused)
        };
        Self::within(&*self.clock, most, send).await
    }

    /// Asks for the server's state. `world` is the name that the server knows.
    pub(crate) async fn health(&self, world: &str) -> Result<Health, Refusal> {
        let request = self.client.get(format!("{}/health?world={world}", self.url));
        let response = self.sent(request, IDLE).await?;
        let body = Self::within(&*self.clock, IDLE, whole(response)).await?;
        let wrong = |error: &dyn std::fmt::Display| unavailable(format!("is none of this kind: {error}"));
        let version =
            serde_json::from_slice::<super::protocol::Versioned>(&body).map_err(|error| wrong(&error))?.version;
        if version != VERSION {
            let why = format!("speaks version {version} of the protocol, and ghostd speaks {VERSION}");
            return Err(unavailable(why).hint("use ghostd and ghost-toolbox of the same release"));
        }
        serde_json::from_slice(&body).map_err(|error| wrong(&error))
    }

    /// Asks for something, which changes nothing there. The answer is a stream.
    pub(crate) async fn ask(&self, path: &str, body: &impl Serialize) -> Result<Answer, Refusal> {
        let response = self.sent(self.client.post(format!("{}{path}", self.url)).json(body), IDLE).await?;
        Ok(self.answer(response))
    }

    fn answer(&self, response: reqwest::Response) -> Answer {
        Answer { lines: Lines::new(response.bytes_stream().boxed()), clock: Arc::clone(&self.clock) }
    }

    /// Sends a stream. The answer is one object, for which the server may need `most`.
    pub(crate) async fn send<T: DeserializeOwned>(
        &self,
        path: &str,
        body: mpsc::Receiver<Bytes>,
        most: Duration,
    ) -> Result<T, Refusal> {
        let request = self.client.post(format!("{}{path}", self.url)).body(reqwest::Body::wrap_stream(stream(body)));
        let response = self.sent(request, most).await?;
        let body = Self::within(&*self.clock, IDLE, whole(response)).await?;
        serde_json::from_slice(&body).map_err(|_| unavailable("gave an answer that cannot be read"))
    }

    /// Sends a stream. The answer is one, too, and begins before the other has ended.
    pub(crate) async fn converse(&self, path: &str, body: mpsc::Receiver<Bytes>) -> Result<Answer, Refusal> {
        let request = self.client.post(format!("{}{path}", self.url)).body(reqwest::Body::wrap_stream(stream(body)));
        // The end of the answer may come before that of the request, so nothing else can follow on this connection.
        Ok(self.answer(self.sent(request.header(CONNECTION, "close"), IDLE).await?))
    }
}

fn stream(body: mpsc::Receiver<Bytes>) -> impl Stream<Item = Result<Bytes, std::io::Error>> + Send {
    futures_util::stream::unfold(body, |mut body| async move { body.recv().await.map(|piece| (Ok(piece), body)) })
}

/// A body that is not a stream.
async fn whole(response: reqwest::Response) -> Result<Vec<u8>, Refusal> {
    let (mut body, mut pieces) = (Vec::new(), response.bytes_stream());
    while let Some(piece) = pieces.next().await {
        let piece = piece.map_err(|error| unavailable(format!("broke off: {}", chain(error))))?;
        if body.len() + piece.len() > ANSWER_MAX {
            return Err(unavailable("gave an answer that is too long"));
        }
        body.extend_from_slice(&piece);
    }
    Ok(body)
}

impl Answer {
    /// The next line of at most `max` bytes; `None` at the end. Dropping the future loses nothing.
    pub(crate) async fn next<T: DeserializeOwned>(&mut self, max: usize, idle: Duration) -> Result<Option<T>, Refusal> {
        let line = tokio::select! {
            biased;
            line = self.lines.next(max) => line,
            () = self.clock.sleep(idle) => return Err(unavailable(format!("was silent for {} s", idle.as_secs()))),
        };
        let Some(line) =
            line.map_err(|error| unavailable(format!("broke off: {}", shown(&error.to_string(), SHOWN))))?
        else {
            return Ok(None);
        };
        let garbled = |error: serde_json::Error| {
            unavailable(format!("sent something that is not of the protocol: {}", clip(&error.to_string(), 200)))
        };
        serde_json::from_slice(&line).map(Some).map_err(garbled)
    }

    /// The next line of an answer that is not a command's, and has not ended.
    pub(crate) async fn part<T: DeserializeOwned>(&mut self, max: usize) -> Result<T, Refusal> {
        self.next(max, IDLE).await?.ok_or_else(|| unavailable("broke off"))
    }
}
