//! An HTTP proxy for what runs in a sandbox: `CONNECT`, and requests in absolute form. It reaches the hosts that its
//! owner may reach, under the rules of [`crate::address`].
//!
//! A tunnel must never outlive the future that serves it.

use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use ghost_config::plan::web::WebTarget;
use ghost_domain::text::shown;
use ghost_domain::time::BoxFuture;
use ghost_domain::{Clock, Code, Refusal, Timestamp};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Empty, Full};
use hyper::body::Incoming;
use hyper::header::{CONNECTION, HOST, HeaderMap, HeaderName, HeaderValue};
use hyper::service::service_fn;
use hyper::upgrade::OnUpgrade;
use hyper::{Method, Request, Response, StatusCode, Uri};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use url::Host;

use crate::dial::{Dialer, borrowed};

/// Bytes of the head of a request.
const HEAD_MAX: usize = 64 * 1_024;
/// The longest time in which a head arrives.
const HEAD_TIME: Duration = Duration::from_secs(30);
/// How long a listener waits after an error of the machine, such as no free handles.
const PAUSE: Duration = Duration::from_millis(100);

/// Headers of one connection, which do not go on.
const HOP_BY_HOP: [&str; 8] = [
    "connection",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "upgrade",
    "proxy-authenticate",
    "proxy-authorization",
];

/// The hosts that one owner of a proxy may reach.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hosts {
    /// Every host that the rules allow.
    All,
    /// Only these, and only as far as the rules allow them.
    Only(Vec<WebTarget>),
}

/// Bounds of a proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProxyBounds {
    /// Connections at a time.
    pub connections: usize,
    /// Bytes of one connection, both directions together.
    pub bytes: u64,
    /// The longest silence of a connection.
    pub idle: Duration,
}

impl Default for ProxyBounds {
    fn default() -> Self {
        Self { connections: 64, bytes: 1 << 30, idle: Duration::from_secs(60) }
    }
}

/// The proxy of one owner, such as an agent.
pub struct Proxy {
    dialer: Dialer,
    hosts: Hosts,
    bounds: ProxyBounds,
    permits: Semaphore,
    clock: Arc<dyn Clock>,
}

type Body = BoxBody<Bytes, hyper::Error>;
type Upstream = Metered<TcpStream>;

/// What one client's connection holds besides itself.
#[derive(Default)]
struct Held {
    /// The tunnel that the connection becomes.
    tunnel: Option<(OnUpgrade, Upstream)>,
    /// What drives the connection to the server that answers now. It ends when this is dropped.
    driver: JoinSet<()>,
}

impl Proxy {
    /// A proxy that connects with `dialer`, to `hosts`.
    #[must_use]
    pub fn new(dialer: Dialer, hosts: Hosts, bounds: ProxyBounds) -> Arc<Self> {
        let clock = Arc::clone(dialer.clock());
        let permits = Semaphore::new(bounds.connections.min(Semaphore::MAX_PERMITS));
        Arc::new(Self { dialer, hosts, bounds, permits, clock })
    }

    /// Serves a listener until the future is dropped. Then all its connections end.
    pub async fn listen(self: Arc<Self>, listener: TcpListener) {
        let mut serving = JoinSet::new();
        loop {
            match listener.accept().await {
                Ok((stream, _)) => {
                    serving.spawn(Arc::clone(&self).serve_stream(stream));
                }
                Err(error) => {
                    tracing::warn!(%error, "the proxy could not accept a connection");
                    self.clock.sleep(PAUSE).await;
                }
            }
            // Nobody waits for the connections that have ended.
            while serving.try_join_next().is_some() {}
        }
    }

    /// Serves one client's connection, such as a stream from a sandbox, until it ends.
    pub async fn serve_stream<S>(self: Arc<Self>, mut stream: S)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let Ok(_permit) = self.permits.try_acquire() else {
            // The client may be gone already.
            let _ = stream
                .write_all(b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
                .await;
            let _ = stream.shutdown().await;
            return;
        };
        let stream = Metered::new(stream, self.bounds.bytes, self.bounds.idle, Arc::clone(&self.clock));
        let held = Arc::new(Mutex::new(Held::default()));
        let service = service_fn(|request| {
            let (proxy, held) = (Arc::clone(&self), Arc::clone(&held));
            async move { Ok::<_, Infallible>(proxy.answer(request, &held).await) }
        });
        let connection = hyper::server::conn::http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_TIME)
            .max_buf_size(HEAD_MAX)
            .serve_connection(TokioIo::new(stream), service)
            .with_upgrades();
        if let Err(error) = connection.await {
            tracing::debug!(%error, "a client of the proxy went away");
        }
        let tunnel = lock(&held).tunnel.take();
        if let Some((upgrade, mut upstream)) = tunnel
            && let Ok(client) = upgrade.await
        {
            // Either side may close at any time; both ends are closed then.
            let _ = tokio::io::copy_bidirectional(&mut TokioIo::new(client), &mut upstream).await;
        }
    }

    async fn answer(&self, request: Request<Incoming>, held: &Mutex<Held>) -> Response<Body> {
        let answered = match *request.method() {
            Method::CONNECT => self.tunnel(request, held).await,
            _ => self.forward(request, held).await,
        };
        answered.unwrap_or_else(|refusal| refused(&refusal))
    }

    /// Opens a tunnel.
    async fn tunnel(&self, request: Request<Incoming>, held: &Mutex<Held>) -> Result<Response<Body>, Refusal> {
        let uri = request.uri();
        let port = uri.port_u16().ok_or_else(|| bad("CONNECT names no port"))?;
        let upstream = self.dial(uri, port).await?;
        lock(held).tunnel = Some((hyper::upgrade::on(request), upstream));
        Ok(Response::new(Empty::new().map_err(|never: Infallible| match never {}).boxed()))
    }

    /// Sends a request on, and its answer back.
    async fn forward(&self, request: Request<Incoming>, held: &Mutex<Held>) -> Result<Response<Body>, Refusal> {
        if request.uri().scheme_str() != Some("http") {
            return Err(bad("a request to a proxy has a whole http address, or is CONNECT"));
        }
        let uri = request.uri().clone();
        let Some(authority) = uri.authority() else { return Err(bad("the address names no host")) };
        let upstream = self.dial(&uri, uri.port_u16().unwrap_or(80)).await?;
        let lost = |error: hyper::Error| {
            Refusal::new(Code::Unavailable, format!("{} failed: {error}", shown(authority.as_str(), 120)))
                .hint("try again later")
        };
        let (mut sender, connection) = hyper::client::conn::http1::Builder::new()
            .max_buf_size(HEAD_MAX)
            .handshake(TokioIo::new(upstream))
            .await
            .map_err(lost)?;
        {
            let mut held = lock(held);
            // The answer before this one is complete, so its connection is of no more use.
            held.driver = JoinSet::new();
            held.driver.spawn(async move {
                // The client learns of a broken connection from its request.
                let _ = connection.await;
            });
        }
        let (mut head, body) = request.into_parts();
        for_one_hop(&mut head.headers);
        let host = HeaderValue::from_str(authority.as_str()).map_err(|_| bad("the address names no host"))?;
        head.headers.insert(HOST, host);
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        head.uri = path.parse().map_err(|_| bad("the address has no path"))?;
        let answer = sender.send_request(Request::from_parts(head, body)).await.map_err(lost)?;
        let (mut head, body) = answer.into_parts();
        if head.status == StatusCode::SWITCHING_PROTOCOLS {
            return Err(bad("the server changed the protocol, which this proxy does only with CONNECT"));
        }
        for_one_hop(&mut head.headers);
        Ok(Response::from_parts(head, body.boxed()))
    }

    async fn dial(&self, uri: &Uri, port: u16) -> Result<Upstream, Refusal> {
        if uri.authority().is_some_and(|authority| authority.as_str().contains('@')) {
            return Err(bad("the address has a user or a password in it"));
        }
        let text = uri.host().unwrap_or_default();
        let host = Host::parse(text).map_err(|error| bad(&format!("`{}` is no host: {error}", shown(text, 100))))?;
        let host = borrowed(&host);
        self.check(&host, port)?;
        let stream = self.dialer.dial(&host, port).await?;
        Ok(Metered::new(stream, u64::MAX, self.bounds.idle, Arc::clone(&self.clock)))
    }

    /// Whether this owner may reach the host.
    fn check(&self, host: &Host<&str>, port: u16) -> Result<(), Refusal> {
        let Hosts::Only(hosts) = &self.hosts else { return Ok(()) };
        let listed = match host {
            Host::Domain(name) => {
                let name = name.trim_end_matches('.').to_ascii_lowercase();
                hosts.iter().any(|target| target.names(&name, port))
            }
            Host::Ipv4(address) => hosts.iter().any(|target| target.contains((*address).into(), port)),
            Host::Ipv6(address) => {
                let address = std::net::IpAddr::V6(*address).to_canonical();
                hosts.iter().any(|target| target.contains(address, port))
            }
        };
        if listed {
            return Ok(());
        }
        let what =
            format!("{}:{port} is not among the hosts that may be reached from here", shown(&host.to_string(), 120));
        Err(Refusal::new(Code::PolicyDenied, what).hint("the operator lists them in the world file"))
    }
}

fn lock(held: &Mutex<Held>) -> std::sync::MutexGuard<'_, Held> {
    held.lock().unwrap_or_else(PoisonError::into_inner)
}

fn bad(why: &str) -> Refusal {
    Refusal::new(Code::InvalidArguments, why).hint("send a request as to a proxy")
}

/// Removes what belongs to one connection: also the headers that `Connection` names.
fn for_one_hop(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .collect();
    for name in named {
        headers.remove(name);
    }
    for name in HOP_BY_HOP {
        headers.remove(name);
    }
}

/// The answer of the proxy itself.
fn refused(refusal: &Refusal) -> Response<Body> {
    let status = match refusal.code {
        Code::InvalidArguments => StatusCode::BAD_REQUEST,
        Code::PolicyDenied => StatusCode::FORBIDDEN,
        Code::Timeout => StatusCode::GATEWAY_TIMEOUT,
        _ => StatusCode::BAD_GATEWAY,
    };
    let text = format!("ghost: {}\n", refusal.in_words());
    let body = Full::new(Bytes::from(text)).map_err(|never: Infallible| match never {}).boxed();
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response.headers_mut().insert("x-ghost-refusal", HeaderValue::from_static(refusal.code.as_str()));
    // What a client sends next might be meant for the tunnel that it did not get.
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    response
}

/// A stream that fails once its bytes are used up, or when neither side has sent anything for a while.
pub(crate) struct Metered<S> {
    stream: S,
    left: u64,
    idle: Duration,
    active: Timestamp,
    alarm: BoxFuture<'static, ()>,
    clock: Arc<dyn Clock>,
}

impl<S> Metered<S> {
    pub(crate) fn new(stream: S, bytes: u64, idle: Duration, clock: Arc<dyn Clock>) -> Self {
        Self { stream, left: bytes, idle, active: clock.steady(), alarm: clock.sleep(idle), clock }
    }

    /// Counts bytes that went through.
    fn count(&mut self, bytes: usize) -> io::Result<()> {
        self.active = self.clock.steady();
        let left = self.left.checked_sub(u64::try_from(bytes).unwrap_or(u64::MAX));
        self.left = left.unwrap_or(0);
        left.map(|_| ()).ok_or_else(used_up)
    }

    /// Fails if nothing has happened for too long.
    fn silent<T>(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<T>> {
        while self.alarm.as_mut().poll(cx).is_ready() {
            let silent = self.clock.steady().since(self.active);
            if silent >= self.idle {
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            }
            self.alarm = self.clock.sleep(self.idle.saturating_sub(silent));
        }
        Poll::Pending
    }
}

fn used_up() -> io::Error {
    io::Error::other("the connection has used its bytes")
}

impl<S: AsyncRead + Unpin> AsyncRead for Metered<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        match Pin::new(&mut self.stream).poll_read(cx, buf) {
            Poll::Ready(done) => Poll::Ready(done.and_then(|()| self.count(buf.filled().len() - before))),
            Poll::Pending => self.silent(cx),
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Metered<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        if self.left == 0 {
            return Poll::Ready(Err(used_up()));
        }
        let allowed = usize::try_from(self.left).unwrap_or(usize::MAX).min(buf.len());
        match Pin::new(&mut self.stream).poll_write(cx, &buf[..allowed]) {
            Poll::Ready(done) => Poll::Ready(done.and_then(|count| self.count(count).map(|()| count))),
            Poll::Pending => self.silent(cx),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
