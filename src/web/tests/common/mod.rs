//! A server that does what it is told, a resolver that answers as it likes, and a web with both.

#![allow(dead_code, reason = "each test file uses a part")]

use std::collections::BTreeMap;
use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use ghost_config::plan::WebPlan;
use ghost_config::plan::web::WebTarget;
use ghost_domain::testing::{ManualClock, START_MS};
use ghost_domain::{Code, Refusal};
use ghost_web::address::Rules;
use ghost_web::dial::{Dialer, Resolve};
use ghost_web::proxy::{Hosts, Proxy, ProxyBounds};
use ghost_web::{FetchRequest, Fetched, Outside, Web, machine_tls};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpListener;

/// A stream to a client.
pub trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Stream for T {}

/// What a server does with a request: its first line and headers, its body, and the stream to answer on.
pub type Handler = dyn Fn(Asked, Box<dyn Stream>) -> Pin<Box<dyn Future<Output = ()> + Send>> + Send + Sync;

/// A request that a server got.
#[derive(Clone, Debug)]
pub struct Asked {
    pub head: String,
    pub body: Vec<u8>,
}

impl Asked {
    pub fn path(&self) -> &str {
        self.head.split(' ').nth(1).unwrap()
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().skip(1).find_map(|line| {
            let (found, value) = line.split_once(':')?;
            found.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }
}

/// A server on this machine. It closes the connection after each answer.
pub struct Server {
    pub address: SocketAddr,
    asked: Arc<Mutex<Vec<Asked>>>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn request(stream: &mut (dyn Stream + '_)) -> Option<Asked> {
    let mut bytes = Vec::new();
    let end = loop {
        if let Some(at) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            break at + 4;
        }
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    };
    let asked = Asked { head: String::from_utf8(bytes[..end].to_vec()).ok()?, body: Vec::new() };
    let length = asked.header("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
    let mut body = bytes[end..].to_vec();
    while body.len() < length {
        if stream.read_buf(&mut body).await.ok()? == 0 {
            return None;
        }
    }
    Some(Asked { body, ..asked })
}

impl Server {
    pub async fn start(handler: Arc<Handler>) -> Self {
        Self::with(handler, None).await
    }

    /// A server that speaks TLS if there is a configuration.
    pub async fn with(handler: Arc<Handler>, tls: Option<Arc<rustls::ServerConfig>>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let asked: Arc<Mutex<Vec<Asked>>> = Arc::default();
        let log = Arc::clone(&asked);
        let task = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (handler, log, tls) = (Arc::clone(&handler), Arc::clone(&log), tls.clone());
                tokio::spawn(async move {
                    let mut stream: Box<dyn Stream> = match tls {
                        None => Box::new(stream),
                        Some(tls) => match tokio_rustls::TlsAcceptor::from(tls).accept(stream).await {
                            Ok(stream) => Box::new(stream),
                            Err(_) => return,
                        },
                    };
                    if let Some(asked) = request(&mut *stream).await {
                        log.lock().unwrap().push(asked.clone());
                        handler(asked, stream).await;
                    }
                });
            }
        });
        Self { address, asked, task }
    }

    /// A server that answers with what `answer` returns, byte for byte.
    pub async fn answering(answer: impl Fn(&Asked) -> Vec<u8> + Send + Sync + 'static) -> Self {
        Self::start(answers(answer)).await
    }

    pub fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }
}

/// A handler that answers with what `answer` returns, byte for byte.
pub fn answers(answer: impl Fn(&Asked) -> Vec<u8> + Send + Sync + 'static) -> Arc<Handler> {
    let answer = Arc::new(answer);
    Arc::new(move |asked, mut stream| {
        let answer = Arc::clone(&answer);
        Box::pin(async move {
            // The client may have gone away, which some tests are about.
            let _ = stream.write_all(&answer(&asked)).await;
            let _ = stream.shutdown().await;
        })
    })
}

/// An answer with a length.
pub fn http(status: &str, headers: &str, body: &[u8]) -> Vec<u8> {
    let head = format!("HTTP/1.1 {status}\r\n{headers}Content-Length: {}\r\nConnection: close\r\n\r\n", body.len());
    [head.as_bytes(), body].concat()
}

pub fn page(kind: &str, body: &[u8]) -> Vec<u8> {
    http("200 OK", &format!("Content-Type: {kind}\r\n"), body)
}

pub fn redirect(to: &str) -> Vec<u8> {
    http("302 Found", &format!("Location: {to}\r\n"), b"")
}

/// Names with the addresses of each look-up in turn; the last one stays.
#[derive(Default)]
pub struct Names {
    known: BTreeMap<String, Vec<Vec<IpAddr>>>,
    pub looked_up: AtomicUsize,
}

impl Names {
    pub fn of(list: &[(&str, &[&[&str]])]) -> Arc<Self> {
        let addresses = |list: &&[&str]| list.iter().map(|text| text.parse().unwrap()).collect();
        let known = list.iter().map(|(name, turns)| ((*name).to_owned(), turns.iter().map(addresses).collect()));
        Arc::new(Self { known: known.collect(), looked_up: AtomicUsize::new(0) })
    }
}

#[async_trait]
impl Resolve for Names {
    async fn resolve(&self, name: &str) -> io::Result<Vec<IpAddr>> {
        let turn = self.looked_up.fetch_add(1, Ordering::SeqCst);
        let turns = self.known.get(name).ok_or_else(|| io::Error::other("no such name"))?;
        Ok(turns.get(turn).or(turns.last()).cloned().unwrap_or_default())
    }
}

/// A web with a clock that stands still.
pub struct TestWeb {
    pub web: Web,
    pub dialer: Dialer,
    pub clock: Arc<ManualClock>,
}

pub fn plan(allow: &[&str]) -> WebPlan {
    WebPlan { allow: allow.iter().map(|text| WebTarget::parse(text).unwrap()).collect(), ..WebPlan::default() }
}

/// The entry for everything on this machine at the ports of these servers.
pub fn open_for(servers: &[&Server]) -> WebPlan {
    let allow: Vec<String> = servers.iter().map(|server| server.address.to_string()).collect();
    plan(&allow.iter().map(String::as_str).collect::<Vec<_>>())
}

impl TestWeb {
    pub fn new(plan: &WebPlan) -> Self {
        Self::with(plan, Names::of(&[]), machine_tls().unwrap(), &|_| None)
    }

    pub fn with(
        plan: &WebPlan,
        resolver: Arc<Names>,
        tls: Arc<rustls::ClientConfig>,
        env: &dyn Fn(&str) -> Option<String>,
    ) -> Self {
        let clock = ManualClock::at(START_MS);
        let dialer = Dialer::new(Rules::new(plan), resolver.clone(), clock.clone());
        let web = Web::open_with(plan, Outside { env, clock: clock.clone(), resolver, tls }).unwrap();
        Self { web, dialer, clock }
    }

    pub fn proxy(&self, hosts: Hosts, bounds: ProxyBounds) -> Arc<Proxy> {
        Proxy::new(self.dialer.clone(), hosts, bounds)
    }

    pub async fn fetch(&self, request: FetchRequest) -> Result<Fetched, Refusal> {
        let done = self.web.fetcher.fetch(request).await;
        if let Err(refusal) = &done {
            assert!(refusal.hint.is_some(), "a refusal without a hint: {refusal}");
        }
        done
    }

    pub async fn get(&self, url: &str) -> Result<Fetched, Refusal> {
        self.fetch(get(url)).await
    }

    pub async fn code(&self, url: &str) -> Code {
        self.get(url).await.expect_err(url).code
    }
}

pub fn get(url: &str) -> FetchRequest {
    FetchRequest { url: url.to_owned(), max_length: 10_000, ..FetchRequest::default() }
}
