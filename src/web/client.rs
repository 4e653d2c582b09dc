//! One exchange over HTTP/1: a request out, a bounded answer back. Follows no redirect.
//!
//! Connections come from [`crate::dial`] alone. An answer must never be held beyond its bound, nor waited for in silence.

use std::error::Error;
use std::sync::{Arc, LazyLock, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use ghost_domain::text::clip;
use ghost_domain::{Clock, Code, Refusal};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Body as _;
use hyper::header::{CONTENT_LENGTH, HeaderMap};
use hyper::{Method, Request, Uri};
use hyper_rustls::{HttpsConnector, MaybeHttpsStream};
use hyper_util::client::legacy;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{DigitallySignedStruct, SignatureScheme};
use rustls_platform_verifier::Verifier;
use tokio::net::TcpStream;
use tower::util::BoxCloneSyncService;
use tower::{Service as _, service_fn};
use url::{Host, Url};

use crate::body::too_large;
use crate::dial::{Dialer, borrowed, slow, within};
use crate::requests::shown_url;

/// The longest time to connect, with the handshake of TLS.
const CONNECT_TIME: Duration = Duration::from_secs(15);
/// How long an unused connection is kept.
const IDLE_TIME: Duration = Duration::from_secs(30);
/// Unused connections to one host.
const IDLE_MAX: usize = 8;
/// Bytes of the head of an answer.
const HEAD_MAX: usize = 64 * 1_024;

type BoxError = Box<dyn Error + Send + Sync>;

/// The settings of TLS: the certificates that this machine trusts.
///
/// # Errors
/// If this machine's TLS has no usable settings.
pub fn machine_tls() -> Result<Arc<rustls::ClientConfig>, String> {
    let trust = Arc::clone(&TRUST);
    let config = rustls::ClientConfig::builder_with_provider(Arc::clone(&trust.provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| format!("TLS cannot be used: {error}"))?
        // The verifier is the machine's own; only its certificates are read later.
        .dangerous()
        .with_custom_certificate_verifier(trust);
    Ok(Arc::new(config.with_no_client_auth()))
}

/// Reads the certificates that this machine trusts, unless that was done.
///
/// # Errors
/// If there are none, or they cannot be read. The next connection with TLS tries again.
pub fn read_certificates() -> Result<(), String> {
    let unusable = |error| format!("the certificates of this machine cannot be used: {error}");
    TRUST.verifier().map(|_| ()).map_err(unusable)
}

/// The machine's verifier. It reads some 150 files, a tenth of the time of a start, so it does that later.
#[derive(Debug)]
struct MachineTrust {
    provider: Arc<CryptoProvider>,
    verifier: OnceLock<Verifier>,
}

static TRUST: LazyLock<Arc<MachineTrust>> = LazyLock::new(|| {
    Arc::new(MachineTrust { provider: Arc::new(rustls::crypto::ring::default_provider()), verifier: OnceLock::new() })
});

impl MachineTrust {
    fn verifier(&self) -> Result<&Verifier, rustls::Error> {
        match self.verifier.get() {
            Some(verifier) => Ok(verifier),
            None => {
                let verifier = Verifier::new(Arc::clone(&self.provider))?;
                Ok(self.verifier.get_or_init(|| verifier))
            }
        }
    }
}

impl ServerCertVerifier for MachineTrust {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        chain: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        self.verifier()?.verify_server_cert(certificate, chain, name, ocsp, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.verifier()?.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.verifier()?.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// A client. Clones share its connections.
#[derive(Clone)]
pub struct Client {
    inner: legacy::Client<Connector, Full<Bytes>>,
    clock: Arc<dyn Clock>,
}

/// Bounds of one exchange.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Bytes of the body as it is sent.
    pub max_bytes: usize,
    /// The longest silence.
    pub idle: Duration,
}

/// A request, checked.
#[derive(Clone, Debug)]
pub struct Outgoing<'r> {
    /// Where to.
    pub url: &'r Url,
    /// The method.
    pub method: Method,
    /// All headers but `Host` and those of the framing.
    pub headers: HeaderMap,
    /// The body.
    pub body: Bytes,
}

/// An answer. The body is as it was sent, still compressed.
#[derive(Clone, Debug)]
pub struct Reply {
    /// The status.
    pub status: u16,
    /// The headers.
    pub headers: HeaderMap,
    /// The body.
    pub body: Vec<u8>,
}

impl Reply {
    /// A header as text.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim)
    }
}

impl Client {
    /// A client whose connections come from `dialer`.
    #[must_use]
    pub fn new(dialer: Dialer, tls: Arc<rustls::ClientConfig>) -> Self {
        let clock = Arc::clone(dialer.clock());
        let inner = legacy::Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_TIME)
            .pool_max_idle_per_host(IDLE_MAX)
            .http1_max_buf_size(HEAD_MAX)
            .build(connector(dialer, tls));
        Self { inner, clock }
    }

    /// Sends a request and reads the answer. The caller limits the whole time.
    ///
    /// # Errors
    /// The refusal of the address; `TooLarge`; `Timeout`; `Unavailable`; `ExecFailed` for an answer that is not HTTP.
    /// `OutcomeUnknown` if a request that may have an effect was perhaps sent.
    pub async fn exchange(&self, outgoing: Outgoing<'_>, bounds: Bounds) -> Result<Reply, Refusal> {
        let (url, safe) = (outgoing.url, matches!(outgoing.method, Method::GET | Method::HEAD));
        let sent = |refusal: Refusal| if safe { refusal } else { unknown(url, &refusal) };
        let uri: Uri = url.as_str().parse().map_err(|error| {
            Refusal::new(Code::InvalidArguments, format!("`{}` cannot be requested: {error}", shown_url(url)))
                .hint("write the address in plain characters")
        })?;
        let mut request = Request::new(Full::new(outgoing.body));
        *request.method_mut() = outgoing.method;
        *request.uri_mut() = uri;
        *request.headers_mut() = outgoing.headers;
        let answer = match within(&*self.clock, CONNECT_TIME + bounds.idle, self.inner.request(request)).await {
            Some(Ok(answer)) => answer,
            Some(Err(error)) if error.is_connect() => return Err(failed(url, &error)),
            Some(Err(error)) => return Err(sent(failed(url, &error))),
            None => return Err(sent(slow(&shown_url(url)))),
        };
        let (head, mut body) = answer.into_parts();
        let declared = head.headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
        let is_above = declared.is_some_and(|length| length > u64::try_from(bounds.max_bytes).unwrap_or(u64::MAX));
        // An answer to HEAD declares the length that it leaves out.
        if is_above && !body.is_end_stream() {
            return Err(sent(too_large(bounds.max_bytes)));
        }
        let mut bytes = Vec::new();
        loop {
            match within(&*self.clock, bounds.idle, body.frame()).await {
                None => return Err(sent(slow(&shown_url(url)))),
                Some(None) => break,
                Some(Some(Err(error))) => return Err(sent(failed(url, &error))),
                Some(Some(Ok(frame))) => {
                    let Ok(data) = frame.into_data() else { continue };
                    if bytes.len() + data.len() > bounds.max_bytes {
                        return Err(sent(too_large(bounds.max_bytes)));
                    }
                    bytes.extend_from_slice(&data);
                }
            }
        }
        Ok(Reply { status: head.status.as_u16(), headers: head.headers, body: bytes })
    }
}

/// The refusal of a request that may have had an effect.
pub(crate) fn unknown(url: &Url, why: &Refusal) -> Refusal {
    let what = format!("the request to {} was sent and may have had its effect: {}", shown_url(url), why.message);
    Refusal::new(Code::OutcomeUnknown, what).hint("check what it did before you send it again")
}

/// The refusal of the dialer in an error of the client, else one that tells the error's causes.
fn failed(url: &Url, error: &(dyn Error + 'static)) -> Refusal {
    let (mut cause, mut told) = (Some(error), Vec::new());
    while let Some(inner) = cause {
        if let Some(refusal) = inner.downcast_ref::<Refusal>() {
            return refusal.clone();
        }
        told.push(inner.to_string());
        cause = inner.source();
    }
    told.dedup();
    // The outer error says only "client error (SendRequest)".
    let why = told.get(1..).filter(|inner| !inner.is_empty()).unwrap_or(&told).join(": ");
    Refusal::new(Code::Unavailable, format!("{} failed: {}", shown_url(url), clip(&why, 300)))
        .hint("try again later, or another source")
}

/// What connects, with TLS for https, within a bound: the client may go on connecting after its request was given up.
type Connector = BoxCloneSyncService<Uri, MaybeHttpsStream<TokioIo<TcpStream>>, BoxError>;

fn connector(dialer: Dialer, tls: Arc<rustls::ClientConfig>) -> Connector {
    let clock = Arc::clone(dialer.clock());
    let https = HttpsConnector::from((service_fn(move |uri: Uri| dial(dialer.clone(), uri)), tls));
    BoxCloneSyncService::new(service_fn(move |uri: Uri| {
        let (clock, connecting) = (Arc::clone(&clock), https.clone().call(uri));
        async move {
            match within(&*clock, CONNECT_TIME, connecting).await {
                Some(done) => done,
                None => Err(Refusal::new(Code::Timeout, "the server did not finish the handshake in time")
                    .hint("try again later, or another source")
                    .into()),
            }
        }
    }))
}

async fn dial(dialer: Dialer, uri: Uri) -> Result<TokioIo<TcpStream>, Refusal> {
    let text = uri.host().unwrap_or_default();
    let host = Host::parse(text).map_err(|error| {
        Refusal::new(Code::InvalidArguments, format!("`{}` is no host: {error}", clip(text, 100)))
            .hint("write the address in plain characters")
    })?;
    let port = uri.port_u16().unwrap_or(if uri.scheme_str() == Some("https") { 443 } else { 80 });
    dialer.dial(&borrowed(&host), port).await.map(TokioIo::new)
}
