//! A model server for tests. It speaks OpenAI's chat completions. A function computes each answer from the request,
//! and the server logs all requests.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use ghost_domain::tool_catalogue::from_wire;
use ghost_provider::testing::{FakeAnswer, FakeOpenAi, FakeRequest};
use serde_json::Value;
use sha2::{Digest, Sha256};
use tokio::runtime::Runtime;

use super::wait::Deadline;

/// Maximum number of requests in the log.
const LOG_MAX: usize = 200_000;

/// A logged request.
#[derive(Clone, Debug)]
pub struct Asked {
    /// The number of the answer, from 1. An answer may contain it, so that the journal shows which answer it has.
    pub number: u64,
    /// Id of the agent that asked.
    pub agent: String,
    /// SHA-256 of the whole conversation, system prompt included.
    pub conversation: String,
}

type Log = Arc<(Mutex<Vec<Asked>>, Condvar)>;

/// The model server.
pub struct ModelServer {
    server: FakeOpenAi,
    log: Log,
    // Dropped after the server, because the server runs on it.
    _runtime: Runtime,
}

impl ModelServer {
    /// Starts a server. `answer` gets the request and the number of the answer.
    ///
    /// # Panics
    /// If no port can be bound.
    pub fn start(answer: impl Fn(&FakeRequest, u64) -> FakeAnswer + Send + Sync + 'static) -> Self {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
        let log: Log = Arc::default();
        let shared = Arc::clone(&log);
        let reply = move |request: &FakeRequest| {
            let asked = Asked { number: 0, agent: agent_of(request), conversation: digest(request) };
            let number = {
                let mut log = shared.0.lock().unwrap_or_else(PoisonError::into_inner);
                assert!(log.len() < LOG_MAX, "the world makes too many requests");
                let number = log.len() as u64 + 1;
                log.push(Asked { number, ..asked });
                number
            };
            shared.1.notify_all();
            answer(request, number)
        };
        let server = runtime.block_on(FakeOpenAi::start_unlogged(reply)).expect("a port of this machine");
        Self { server, log, _runtime: runtime }
    }

    /// The value for `--base-url`.
    #[must_use]
    pub fn base_url(&self) -> String {
        self.server.base_url()
    }

    /// All requests so far, in order.
    #[must_use]
    pub fn asked(&self) -> Vec<Asked> {
        self.log.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits until there are `count` requests. Returns false if the deadline passes first.
    pub fn wait_for(&self, count: usize, deadline: Deadline) -> bool {
        let mut log = self.log.0.lock().unwrap_or_else(PoisonError::into_inner);
        while log.len() < count {
            if deadline.passed() {
                return false;
            }
            (log, _) = self.log.1.wait_timeout(log, deadline.left()).unwrap_or_else(PoisonError::into_inner);
        }
        true
    }
}

fn digest(request: &FakeRequest) -> String {
    let mut hasher = Sha256::new();
    for message in request.messages() {
        hasher.update(message.to_string().as_bytes());
        hasher.update([0]);
    }
    hex::encode(hasher.finalize())
}

fn text_of(message: &Value) -> String {
    match &message["content"] {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts.iter().filter_map(|part| part["text"].as_str()).collect::<Vec<_>>().join("\n"),
        _ => String::new(),
    }
}

/// Id of the agent that asks, from the system prompt.
#[must_use]
pub fn agent_of(request: &FakeRequest) -> String {
    let system: String = request.messages().iter().filter(|m| m["role"] == "system").map(text_of).collect();
    agent_in(&system)
}

/// Id of the agent in a system prompt.
#[must_use]
pub fn agent_in(system: &str) -> String {
    let at = system.find("Runtime: agent=").map(|at| at + "Runtime: agent=".len());
    at.and_then(|at| system[at..].split_whitespace().next()).unwrap_or_default().to_owned()
}

/// A message as the prompt shows it.
#[derive(Clone, Debug)]
pub struct Mail {
    /// Kind of the message, such as `message` or `task`.
    pub kind: String,
    /// The sender, such as `agent:a01`.
    pub from: String,
    /// The text of the message.
    pub body: String,
}

/// The messages of the turn that this request belongs to.
#[must_use]
pub fn mail_of(request: &FakeRequest) -> Vec<Mail> {
    let messages = request.messages();
    let texts: Vec<String> = messages.iter().filter(|m| m["role"] == "user").map(text_of).collect();
    let Some(text) = texts.iter().rev().find(|text| text.contains("<inbox>")) else { return Vec::new() };
    let inbox = text.rsplit_once("<inbox>").map_or("", |(_, inbox)| inbox);
    let mut mail = Vec::new();
    for part in inbox.split("<message ").skip(1) {
        let Some((head, rest)) = part.split_once(">\n") else { continue };
        let body = rest.split_once("\n</message>").map_or(rest, |(body, _)| body);
        let attribute = |name: &str| {
            let at = head.find(&format!("{name}=\"")).map(|at| at + name.len() + 2);
            at.and_then(|at| head[at..].split('"').next()).unwrap_or_default().to_owned()
        };
        let body = body.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&");
        mail.push(Mail { kind: attribute("kind"), from: attribute("from"), body });
    }
    mail
}

/// The result of a tool call.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Name of the tool.
    pub tool: String,
    /// The arguments of the call.
    pub arguments: Value,
    /// The result as the model gets it.
    pub content: String,
}

/// The results since the model's last answer, in order.
#[must_use]
pub fn fresh_outcomes(request: &FakeRequest) -> Vec<Outcome> {
    let messages = request.messages();
    let Some(last) = messages.iter().rposition(|m| m["role"] == "assistant") else { return Vec::new() };
    let mut calls: BTreeMap<&str, (String, Value)> = BTreeMap::new();
    for call in messages[last]["tool_calls"].as_array().into_iter().flatten() {
        let name = from_wire(call["function"]["name"].as_str().unwrap_or_default());
        let arguments = call["function"]["arguments"].as_str().unwrap_or("{}");
        let arguments = serde_json::from_str(arguments).unwrap_or(Value::Null);
        calls.insert(call["id"].as_str().unwrap_or_default(), (name, arguments));
    }
    messages[last + 1..]
        .iter()
        .filter(|message| message["role"] == "tool")
        .map(|message| {
            let id = message["tool_call_id"].as_str().unwrap_or_default();
            let (tool, arguments) = calls.get(id).cloned().unwrap_or_default();
            Outcome { tool, arguments, content: text_of(message) }
        })
        .collect()
}
