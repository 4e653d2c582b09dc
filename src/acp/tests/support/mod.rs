//! A host that remembers everything, and an agent that says what a test makes it say.
// These tests drive a real program in real time; a failure is a panic with a message.
#![allow(clippy::disallowed_methods, dead_code, clippy::unwrap_used, clippy::expect_used)]

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use ghost_acp::{
    Capabilities, Host, HostError, Outcome, Permission, PermissionAsk, Session, SessionId, Streams, Task, Terminal,
    TerminalCommand, TerminalExit, TerminalOutput, Timeouts, Update, UpdateKind, Usage,
};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, DuplexStream, Lines, ReadHalf, WriteHalf};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

#[derive(Default)]
pub struct TestHost {
    pub offers: Capabilities,
    /// The answer to questions; without one, they wait for ever.
    pub permission: Option<Permission>,
    pub panics: bool,
    pub never_journals: bool,
    pub asks: Mutex<Vec<PermissionAsk>>,
    pub asked: Notify,
    pub files: Mutex<HashMap<String, String>>,
    pub commands: Mutex<Vec<TerminalCommand>>,
    pub sessions: Mutex<Vec<String>>,
    pub updates: Mutex<Vec<Update>>,
    pub usages: Mutex<Vec<Usage>>,
    pub terminals: Arc<AtomicUsize>,
}

pub const ALL: Capabilities = Capabilities { read_text: true, write_text: true, terminal: true };

impl TestHost {
    pub fn notes(&self, kind: UpdateKind) -> Vec<String> {
        let updates = self.updates.lock().unwrap();
        updates.iter().filter(|update| update.kind == kind).map(|update| update.text.clone()).collect()
    }
}

#[async_trait]
impl Host for TestHost {
    fn capabilities(&self) -> Capabilities {
        self.offers
    }

    async fn permission(&self, ask: PermissionAsk) -> Permission {
        self.asks.lock().unwrap().push(ask);
        self.asked.notify_one();
        match self.permission {
            Some(permission) => permission,
            None => std::future::pending().await,
        }
    }

    async fn read_text(&self, path: &str, line: Option<u32>, limit: Option<u32>) -> Result<String, HostError> {
        let files = self.files.lock().unwrap();
        let text = files.get(path).cloned().ok_or_else(|| HostError::NotFound(path.to_owned()))?;
        let skip = line.unwrap_or(1).saturating_sub(1) as usize;
        let take = limit.map_or(usize::MAX, |limit| limit as usize);
        Ok(text.split_inclusive('\n').skip(skip).take(take).collect())
    }

    async fn write_text(&self, path: &str, content: String) -> Result<(), HostError> {
        if path.ends_with("secret") {
            return Err(HostError::Refused(path.to_owned()));
        }
        self.files.lock().unwrap().insert(path.to_owned(), content);
        Ok(())
    }

    async fn terminal(&self, command: TerminalCommand) -> Result<Box<dyn Terminal>, HostError> {
        self.commands.lock().unwrap().push(command);
        self.terminals.fetch_add(1, Ordering::SeqCst);
        Ok(Box::new(TestTerminal { open: Arc::clone(&self.terminals), killed: Notify::new() }))
    }

    async fn session(&self, id: &SessionId) {
        self.sessions.lock().unwrap().push(id.0.clone());
        if self.never_journals {
            std::future::pending::<()>().await;
        }
    }

    fn progress(&self, update: Update) {
        assert!(!self.panics, "the host panics, as the test wants");
        self.updates.lock().unwrap().push(update);
    }

    fn usage(&self, usage: Usage) {
        self.usages.lock().unwrap().push(usage);
    }
}

/// A terminal whose command runs until it is killed.
struct TestTerminal {
    open: Arc<AtomicUsize>,
    killed: Notify,
}

#[async_trait]
impl Terminal for TestTerminal {
    async fn output(&self) -> TerminalOutput {
        TerminalOutput { output: "x".repeat(3_000_000), truncated: false, exit: None }
    }

    async fn wait(&self) -> TerminalExit {
        self.killed.notified().await;
        TerminalExit { code: None, signal: Some("SIGKILL".to_owned()) }
    }

    async fn kill(&self) {
        self.killed.notify_one();
    }

    async fn release(&self) {}
}

impl Drop for TestTerminal {
    fn drop(&mut self) {
        self.open.fetch_sub(1, Ordering::SeqCst);
    }
}

pub fn task(prompt: &str) -> Task {
    let timeouts =
        Timeouts { start: Duration::from_secs(10), total: Duration::from_secs(60), grace: Duration::from_secs(5) };
    Task { cwd: "/w".to_owned(), prompt: prompt.to_owned(), resume: None, timeouts }
}

/// The agent's end of the pipes.
pub struct Fake {
    pub lines: Lines<BufReader<ReadHalf<DuplexStream>>>,
    pub out: WriteHalf<DuplexStream>,
}

pub struct Run {
    pub agent: Fake,
    pub cancel: CancellationToken,
    pub outcome: JoinHandle<Outcome>,
}

/// Starts a run with pipes of so many bytes.
pub fn start_with(host: &Arc<TestHost>, task: Task, pipe: usize) -> Run {
    let (ours, theirs) = tokio::io::duplex(pipe);
    let (output, input) = tokio::io::split(ours);
    let (read, out) = tokio::io::split(theirs);
    let streams = Streams { output: Box::new(output), input: Box::new(input) };
    let cancel = CancellationToken::new();
    let outcome = tokio::spawn(Session::run(streams, task, Arc::clone(host) as Arc<dyn Host>, cancel.clone()));
    Run { agent: Fake { lines: BufReader::new(read).lines(), out }, cancel, outcome }
}

pub fn start(host: &Arc<TestHost>, task: Task) -> Run {
    start_with(host, task, 64 * 1024)
}

impl Fake {
    /// The next message of the client.
    pub async fn next(&mut self) -> Value {
        serde_json::from_str(&self.lines.next_line().await.unwrap().expect("the client closed the pipe")).unwrap()
    }

    /// The next message, which must be this request or notification.
    pub async fn expect(&mut self, method: &str) -> Value {
        let message = self.next().await;
        assert_eq!(message["method"], method, "{message}");
        message
    }

    pub async fn raw(&mut self, bytes: &[u8]) {
        self.out.write_all(bytes).await.unwrap();
    }

    pub async fn send(&mut self, message: Value) {
        self.raw(format!("{message}\n").as_bytes()).await;
    }

    pub async fn answer(&mut self, request: &Value, result: Value) {
        self.send(json!({"jsonrpc": "2.0", "id": request["id"], "result": result})).await;
    }

    pub async fn refuse(&mut self, request: &Value, code: i32, message: &str) {
        let error = json!({"code": code, "message": message});
        self.send(json!({"jsonrpc": "2.0", "id": request["id"], "error": error})).await;
    }

    /// Sends a request of session `s`.
    pub async fn request(&mut self, id: u64, method: &str, mut params: Value) {
        params["sessionId"] = "s".into();
        self.send(json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})).await;
    }

    /// Sends a request, and waits for its answer, which is the next message.
    pub async fn ask(&mut self, id: u64, method: &str, params: Value) -> Value {
        self.request(id, method, params).await;
        let answer = self.next().await;
        assert_eq!(answer["id"], id, "{answer}");
        answer
    }

    pub async fn update(&mut self, update: Value) {
        let params = json!({"sessionId": "s", "update": update});
        self.send(json!({"jsonrpc": "2.0", "method": "session/update", "params": params})).await;
    }

    pub async fn say(&mut self, text: &str) {
        let content = json!({"type": "text", "text": text});
        self.update(json!({"sessionUpdate": "agent_message_chunk", "content": content})).await;
    }

    pub async fn initialized(&mut self, can: Value) -> Value {
        let request = self.expect("initialize").await;
        self.answer(&request, json!({"protocolVersion": 1, "agentCapabilities": can})).await;
        request
    }

    /// Answers everything up to the prompt, with the session `s`. Returns the prompt.
    pub async fn prompted(&mut self) -> Value {
        self.initialized(json!({})).await;
        let request = self.expect("session/new").await;
        self.answer(&request, json!({"sessionId": "s"})).await;
        self.expect("session/prompt").await
    }

    pub async fn stops(&mut self, prompt: &Value, reason: &str) {
        self.answer(prompt, json!({"stopReason": reason})).await;
    }
}
