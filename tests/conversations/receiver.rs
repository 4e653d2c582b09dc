//! The other side of a webhook: it receives deliveries and signs its own.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ghost_control::adapters::{sign, verify};
use ghost_testkit::blackbox::{Daemon, Deadline, TestEnvironment};
use serde_json::Value;

use crate::desk::{SECRET, desk};

/// A request that the receiver got.
#[derive(Clone, Debug)]
pub struct Got {
    pub headers: Vec<(String, String)>,
    pub body: String,
}

impl Got {
    pub fn header(&self, name: &str) -> &str {
        let found = self.headers.iter().find(|(key, _)| key.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str()).unwrap_or_default()
    }

    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap()
    }
}

#[derive(Default)]
pub struct Desk {
    pub got: Vec<Got>,
    pub answers: VecDeque<u16>,
}

/// The other side of a webhook. It keeps all requests and answers with the given statuses, then with 200.
pub struct Receiver {
    pub port: u16,
    pub state: Arc<(Mutex<Desk>, Condvar)>,
}

impl Receiver {
    pub fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let state: Arc<(Mutex<Desk>, Condvar)> = Arc::default();
        let shared = Arc::clone(&state);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(stream) = stream else { return };
                serve(stream, &shared);
            }
        });
        Self { port, state }
    }

    pub fn answer(&self, statuses: &[u16]) {
        self.state.0.lock().unwrap().answers.extend(statuses);
    }

    /// Waits until there are `count` requests.
    pub fn wait_for(&self, count: usize) -> Vec<Got> {
        self.wait_until(|got| got.len() >= count)
    }

    /// Waits until `enough` accepts the requests.
    pub fn wait_until(&self, enough: impl Fn(&[Got]) -> bool) -> Vec<Got> {
        let deadline = Deadline::seconds(60);
        let mut desk = self.state.0.lock().unwrap();
        while !enough(&desk.got) {
            assert!(!deadline.passed(), "only these came: {:?}", desk.got);
            desk = self.state.1.wait_timeout(desk, deadline.left()).unwrap().0;
        }
        desk.got.clone()
    }
}

pub fn serve(stream: TcpStream, shared: &(Mutex<Desk>, Condvar)) {
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let mut reader = BufReader::new(stream);
    let (mut headers, mut line) = (Vec::new(), String::new());
    while reader.read_line(&mut line).is_ok_and(|read| read > 0) && !line.trim().is_empty() {
        if let Some((key, value)) = line.split_once(':') {
            headers.push((key.trim().to_owned(), value.trim().to_owned()));
        }
        line.clear();
    }
    let got = Got { headers, body: String::new() };
    let length: usize = got.header("content-length").parse().unwrap_or(0);
    let mut body = vec![0; length];
    if reader.read_exact(&mut body).is_err() {
        return;
    }
    let status = {
        let mut desk = shared.0.lock().unwrap();
        desk.got.push(Got { body: String::from_utf8(body).unwrap(), ..got });
        desk.answers.pop_front().unwrap_or(200)
    };
    // The daemon may have been killed.
    let _ = reader.into_inner().write_all(
        format!(
            "HTTP/1.1 {status} X\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        )
        .as_bytes(),
    );
    shared.1.notify_all();
}

pub fn now() -> u64 {
    // Webhooks use real time.
    #[allow(clippy::disallowed_methods)]
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

/// Posts to the daemon's HTTP port. Returns status and body.
pub fn post(address: &str, path: &str, headers: &[(&str, &str)], body: &str) -> (u16, Value) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let mut head = format!(
        "POST {path} HTTP/1.1\r\nHost: hooks.example\r\nConnection: close\r\nContent-Length: {}\r\n",
        body.len()
    );
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    stream.write_all(format!("{head}\r\n{body}").as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.split_whitespace().nth(1).unwrap().parse().unwrap();
    (status, serde_json::from_str(body).unwrap_or_else(|_| answer.clone().into()))
}

/// Posts a signed delivery.
pub fn deliver(address: &str, id: &str, at: u64, body: &str) -> (u16, Value) {
    let at = at.to_string();
    let signature = sign(SECRET.as_bytes(), &at, id, body.as_bytes());
    let headers = [("X-Ghost-Delivery", id), ("X-Ghost-Timestamp", &at), ("X-Ghost-Signature", &signature)];
    post(address, "/hooks/shop", &headers, body)
}

pub fn http_of(daemon: &Daemon) -> String {
    let line = daemon.wait_for_line("the HTTP address", Deadline::seconds(30), |line| line.contains("REST http://"));
    let rest = line.split("REST http://").nth(1).unwrap();
    rest.split(|c: char| c.is_whitespace() || c == ',').next().unwrap().to_owned()
}

pub fn hooked(receiver: &Receiver) -> (TestEnvironment, PathBuf) {
    hooked_with(receiver, "timestamp_tolerance_s: 300")
}

/// The same with another webhook setting.
pub fn hooked_with(receiver: &Receiver, more: &str) -> (TestEnvironment, PathBuf) {
    desk(&format!(
        "channels: {{ webhooks: {{ shop: {{ url: 'http://127.0.0.1:{}/in', secret_env: HOOK_SECRET, agent: ada, {more} }} }} }}\n",
        receiver.port
    ))
}

pub fn check(got: &Got) {
    let (at, id) = (got.header("x-ghost-timestamp"), got.header("x-ghost-delivery"));
    let signature = got.header("x-ghost-signature");
    assert!(verify(SECRET.as_bytes(), at, id, got.body.as_bytes(), signature), "{got:?}");
    assert_eq!(got.json()["message_id"], id);
}
