//! A server over HTTP. A test gives the answer to each message.

use std::sync::{Arc, Mutex};

use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, Method, Response, StatusCode};
use axum::{Router, routing::any};
use ghost_mcp::{Connection, HttpClient, Limits, Link, OpenError, Options};
use serde_json::{Value, json};

/// A server, and what it got.
pub struct Web {
    /// Its address.
    pub url: String,
    /// The messages, with their headers.
    pub seen: Arc<Mutex<Vec<(HeaderMap, Value)>>>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Web {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The answer to a message, with its headers.
pub type Reply = Response<Body>;

/// A server on this machine that answers with `reply`. It has no stream of its own and no sessions to delete.
pub async fn serve(reply: impl Fn(&Value) -> Reply + Send + Sync + 'static) -> Web {
    let seen: Arc<Mutex<Vec<(HeaderMap, Value)>>> = Arc::default();
    let (log, reply) = (Arc::clone(&seen), Arc::new(reply));
    let handler = move |method: Method, headers: HeaderMap, body: Bytes| async move {
        if method != Method::POST {
            return status(StatusCode::METHOD_NOT_ALLOWED, "");
        }
        let message: Value = serde_json::from_slice(&body).expect("the client sends JSON");
        let answer = reply(&message);
        log.lock().unwrap().push((headers, message));
        answer
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    let task = tokio::spawn(async move {
        axum::serve(listener, Router::new().route("/mcp", any(handler))).await.unwrap();
    });
    Web { url, seen, task }
}

impl Web {
    /// How many messages had this method.
    pub fn count(&self, method: &str) -> usize {
        self.seen.lock().unwrap().iter().filter(|(_, message)| message["method"] == method).count()
    }
}

/// A link to `url`.
pub fn link(url: &str, token: Option<&str>) -> Link {
    // The first test of the process installs it.
    drop(rustls::crypto::ring::default_provider().install_default());
    let client = HttpClient::new(reqwest::Client::builder().no_proxy()).unwrap();
    Link::Http { client, url: url.to_owned(), token: token.map(|token| token.to_owned().into()) }
}

/// Opens a connection to `web`.
pub async fn open(web: &Web, limits: Limits) -> Result<Connection, OpenError> {
    Connection::open(link(&web.url, None), Options { limits, ..Options::default() }).await
}

/// The answer `result` to `request`, as JSON.
pub fn result(request: &Value, result: Value) -> Reply {
    body("application/json", json!({"jsonrpc": "2.0", "id": request["id"], "result": result}).to_string())
}

/// `messages` as a stream of events.
pub fn events(messages: &[Value]) -> Reply {
    let text: String = messages.iter().map(|message| format!("event: message\ndata: {message}\n\n")).collect();
    body("text/event-stream", text)
}

/// A body of this type.
pub fn body(kind: &str, text: String) -> Reply {
    Response::builder().header("content-type", kind).body(Body::from(text)).unwrap()
}

/// An answer with this status.
pub fn status(status: StatusCode, text: &str) -> Reply {
    Response::builder().status(status).body(Body::from(text.to_owned())).unwrap()
}

/// The answers of a server of the older protocol to everything but its tools.
pub fn old(request: &Value) -> Reply {
    let info = json!({"name": "web", "version": "1"});
    match request["method"].as_str().unwrap_or_default() {
        "initialize" => {
            let capabilities = json!({"tools": {}});
            result(request, json!({"protocolVersion": "2025-11-25", "capabilities": capabilities, "serverInfo": info}))
        }
        "server/discover" => status(StatusCode::BAD_REQUEST, "unknown"),
        _ => status(StatusCode::ACCEPTED, ""),
    }
}

/// The answers of a modern server to everything but its tools.
pub fn modern(request: &Value) -> Reply {
    match request["method"].as_str().unwrap_or_default() {
        "server/discover" => result(
            request,
            json!({
                "resultType": "complete", "supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}},
                "ttlMs": 0, "cacheScope": "private",
            }),
        ),
        _ => status(StatusCode::ACCEPTED, ""),
    }
}
