//! A server in JSON lines. A test plays it line by line.

use ghost_mcp::{Connection, Lifecycle, Limits, Link, Options};
use serde_json::{Map, Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, DuplexStream, Lines, ReadHalf, WriteHalf};

/// The server's side of the streams.
pub struct Fake {
    lines: Lines<BufReader<ReadHalf<DuplexStream>>>,
    writer: WriteHalf<DuplexStream>,
}

/// A link, and the server behind it.
pub fn link() -> (Link, Fake) {
    link_with(64 * 1_024)
}

/// A link whose streams hold `bytes`, and the server behind it.
pub fn link_with(bytes: usize) -> (Link, Fake) {
    let (here, there) = tokio::io::duplex(bytes);
    let (reader, writer) = tokio::io::split(here);
    let (fake_reader, fake_writer) = tokio::io::split(there);
    let fake = Fake { lines: BufReader::new(fake_reader).lines(), writer: fake_writer };
    (Link::Streams { reader: Box::new(reader), writer: Box::new(writer) }, fake)
}

impl Fake {
    /// The next message of the client; `None` at its end.
    pub async fn try_next(&mut self) -> Option<Value> {
        let line = self.lines.next_line().await.ok()??;
        Some(serde_json::from_str(&line).expect("the client sends JSON"))
    }

    /// The next message of the client.
    pub async fn next(&mut self) -> Value {
        self.try_next().await.expect("the client sends a message")
    }

    /// The next message of the client, which has to be the request `method`.
    pub async fn expect(&mut self, method: &str) -> Value {
        let message = self.next().await;
        assert_eq!(message["method"], method, "{message}");
        message
    }

    /// Sends text as it is. False if the client is gone.
    pub async fn raw(&mut self, text: &str) -> bool {
        self.writer.write_all(text.as_bytes()).await.is_ok()
    }

    /// Sends a message. False if the client is gone.
    pub async fn send(&mut self, message: Value) -> bool {
        self.raw(&format!("{message}\n")).await
    }

    /// Answers `request`.
    pub async fn reply(&mut self, request: &Value, result: Value) {
        assert!(self.send(json!({"jsonrpc": "2.0", "id": request["id"], "result": result})).await);
    }

    /// Refuses `request`.
    pub async fn refuse(&mut self, request: &Value, code: i32, message: &str) {
        let error = json!({"code": code, "message": message});
        assert!(self.send(json!({"jsonrpc": "2.0", "id": request["id"], "error": error})).await);
    }

    /// Reports progress of the call `request`.
    pub async fn progress(&mut self, request: &Value, done: f64) {
        let params =
            json!({"progressToken": request["params"]["_meta"]["progressToken"], "progress": done, "total": 9});
        assert!(self.send(json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": params})).await);
    }

    /// Plays the older handshake, with a refusal of `server/discover` before it.
    pub async fn start_old(&mut self) -> Value {
        let discover = self.expect("server/discover").await;
        self.refuse(&discover, -32_601, "unknown method").await;
        self.initialize().await
    }

    /// Plays the older handshake.
    pub async fn initialize(&mut self) -> Value {
        let request = self.expect("initialize").await;
        let result = json!({
            "protocolVersion": "2025-11-25",
            "capabilities": {"tools": {"listChanged": true}, "resources": {}, "prompts": {}},
            "serverInfo": {"name": "fake", "version": "1"},
            "instructions": "Be kind.",
        });
        self.reply(&request, result).await;
        self.expect("notifications/initialized").await;
        request
    }

    /// Plays the start of protocol 2026-07-28.
    pub async fn start_modern(&mut self, reports_changes: bool) -> Value {
        let request = self.expect("server/discover").await;
        let result = json!({
            "resultType": "complete",
            "supportedVersions": ["2026-07-28"],
            "capabilities": {"tools": {"listChanged": reports_changes}, "resources": {}, "prompts": {}},
            "ttlMs": 0,
            "cacheScope": "private",
        });
        self.reply(&request, result).await;
        request
    }
}

/// Options that begin with the older handshake at once.
pub fn plain() -> Options {
    Options { lifecycle: Lifecycle::Initialize, ..Options::default() }
}

/// Options with bounds of `limits`.
pub fn limited(limits: Limits) -> Options {
    Options { limits, ..plain() }
}

/// An open connection of the older protocol.
pub async fn open(options: Options) -> (Connection, Fake) {
    let (link, mut fake) = link();
    let (connection, _) = tokio::join!(Connection::open(link, options), fake.initialize());
    (connection.expect("it opens"), fake)
}

/// An open connection of protocol 2026-07-28 without reports of changes.
pub async fn open_modern(options: Options) -> (Connection, Fake) {
    let (link, mut fake) = link();
    let options = Options { lifecycle: Lifecycle::Auto, ..options };
    let (connection, _) = tokio::join!(Connection::open(link, options), fake.start_modern(false));
    (connection.expect("it opens"), fake)
}

/// A tool with this name.
pub fn tool(name: &str) -> Value {
    json!({"name": name, "description": "Does it.", "inputSchema": {"type": "object"}})
}

/// The result of a call with this text.
pub fn text(text: &str) -> Value {
    json!({"content": [{"type": "text", "text": text}]})
}

/// No arguments.
pub fn none() -> Map<String, Value> {
    Map::new()
}
