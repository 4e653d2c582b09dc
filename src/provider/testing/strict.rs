//! Fake servers of the providers' documented protocols. They answer 400 to the requests that the
//! providers refuse, and require that opaque state comes back unchanged and in order.
//!
//! A server must never accept a request that the provider refuses.

mod anthropic;
mod chat;
mod common;
mod gemini;
mod ollama;
mod responses;

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use ghost_domain::transcript::Block;
use serde_json::{Value, json};

use super::server::{FakeReply, FakeRequest, FakeServer};
pub use common::{Asked, Wire};
use common::{InputTokens, StrictAnswer, list};

fn read(wire: Wire, request: &FakeRequest) -> Result<Asked, String> {
    match wire {
        Wire::Anthropic => anthropic::read(request),
        Wire::Responses => responses::read(request),
        Wire::Chat => chat::read(request),
        Wire::Gemini => gemini::read(request),
        Wire::Ollama => ollama::read(request),
    }
}

/// The stream of an answer, its content type, and the opaque state attached to it, in order.
fn write(wire: Wire, answer: &StrictAnswer) -> (String, &'static str, Vec<String>) {
    match wire {
        Wire::Anthropic => anthropic::write(answer),
        Wire::Responses => responses::write(answer),
        Wire::Chat => chat::write(answer),
        Wire::Gemini => gemini::write(answer),
        Wire::Ollama => ollama::write(answer),
    }
}

/// A server that checks requests strictly.
pub struct StrictServer {
    server: FakeServer,
    wire: Wire,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    /// The opaque state of each answer so far.
    issued: Mutex<BTreeSet<Vec<String>>>,
    refusals: Mutex<Vec<String>>,
    count: Mutex<u64>,
    prefixes: Mutex<Prefixes>,
    /// What comes back in place of answers.
    broken: Mutex<Option<FakeReply>>,
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl StrictServer {
    /// Starts a server for `wire` that gets its answers, text and calls, from `answer`. Requests
    /// are kept.
    ///
    /// # Errors
    /// If no port of 127.0.0.1 can be bound.
    pub async fn start(wire: Wire, answer: impl Fn(&Asked) -> Vec<Block> + Send + Sync + 'static) -> io::Result<Self> {
        let state = Arc::new(State::default());
        let shared = Arc::clone(&state);
        let server = FakeServer::start(true, move |request| {
            if let Some(reply) = lock(&shared.broken).clone() {
                return reply;
            }
            match read(wire, request).and_then(|asked| shared.check_attached(wire, asked)) {
            Ok(asked) => {
                let input = lock(&shared.prefixes).take(wire, &request.body);
                let strict_answer = shared.strict_answer(&asked, answer(&asked), input);
                let (stream, kind, attached) = write(wire, &strict_answer);
                lock(&shared.issued).insert(attached);
                FakeReply::new(200, kind, stream).in_pieces(997)
            }
            Err(why) => {
                lock(&shared.refusals).push(why.clone());
                let error = json!({ "message": why, "type": "invalid_request_error", "code": 400, "status": "INVALID_ARGUMENT" });
                FakeReply::new(400, "application/json", json!({ "type": "error", "error": error }).to_string())
            }
            }
        })
        .await?;
        Ok(Self { server, wire, state })
    }

    /// The `base_url` for this server.
    #[must_use]
    pub fn base_url(&self) -> String {
        format!("{}{}", self.server.url(), self.wire.path())
    }

    /// Replies so to every request from now on; `None` ends that.
    pub fn break_with(&self, reply: Option<FakeReply>) {
        *lock(&self.state.broken) = reply;
    }

    /// The reasons why requests were refused, in order.
    #[must_use]
    pub fn refusals(&self) -> Vec<String> {
        lock(&self.state.refusals).clone()
    }

    /// All requests so far, in order.
    #[must_use]
    pub fn requests(&self) -> Vec<FakeRequest> {
        self.server.requests()
    }
}

impl State {
    /// Refuses a conversation in which opaque state is missing, changed or moved.
    fn check_attached(&self, wire: Wire, asked: Asked) -> Result<Asked, String> {
        let issued = lock(&self.issued);
        // An answer without state is another model's.
        match asked.attached.iter().find(|attached| !attached.is_empty() && !issued.contains(*attached)) {
            None => Ok(asked),
            Some(attached) => Err(match wire {
                Wire::Anthropic => "messages.1.content.0: Invalid `signature` in `thinking` block".to_owned(),
                Wire::Responses => "The encrypted content for item rs_1 could not be verified.".to_owned(),
                Wire::Chat | Wire::Gemini => "Thought signature is not valid".to_owned(),
                Wire::Ollama => format!("no server says that it misses {attached:?}"),
            }),
        }
    }

    fn strict_answer(&self, asked: &Asked, blocks: Vec<Block>, input: InputTokens) -> StrictAnswer {
        let number = {
            let mut count = lock(&self.count);
            *count += 1;
            *count
        };
        let (mut text, mut calls) = (String::new(), Vec::new());
        for block in blocks {
            match block {
                Block::Text { text: more } => text.push_str(&more),
                Block::ToolCall { name, arguments, .. } => {
                    calls.push((
                        format!("id_{number}_{}", calls.len()),
                        ghost_domain::tool_catalogue::to_wire(&name),
                        arguments,
                    ));
                }
                _ => {}
            }
        }
        StrictAnswer { model: asked.model.clone(), number, text, calls, searches: asked.searches, input }
    }
}

const TOKENS_MIN: u64 = 1_024;
const STEP: u64 = 128;
const LOOK_BACK: usize = 20;
/// Bytes that count as one token.
const TOKEN: u64 = 4;

/// The prompt cache of a provider, by its documented rules: hashes of the cached prefixes. At Anthropic the prefix before
/// each mark is cached, and a later request reads the longest one that ends up to twenty blocks before one of its marks;
/// the others cache the beginnings of requests by themselves, in steps of 128 tokens. The minimum is 1,024 tokens.
#[derive(Default)]
struct Prefixes(BTreeSet<u64>);

/// The end of a prefix: its hash, its tokens, and whether it has a mark.
struct End {
    hash: u64,
    tokens: u64,
    marked: bool,
}

impl Prefixes {
    /// The cache tokens of a request; also stores its prefixes.
    fn take(&mut self, wire: Wire, body: &Value) -> InputTokens {
        let ends = match wire {
            Wire::Anthropic => blocks(body),
            _ => steps(body),
        };
        let all = ends.last().map_or(0, |end| end.tokens) + 1;
        let known = |end: &&End| end.tokens >= TOKENS_MIN && self.0.contains(&end.hash);
        let read = match wire {
            Wire::Anthropic => {
                let marks = ends.iter().enumerate().filter(|(_, end)| end.marked).map(|(at, _)| at);
                let found = marks.filter_map(|at| ends[at.saturating_sub(LOOK_BACK)..=at].iter().rev().find(known));
                found.map(|end| end.tokens).max().unwrap_or(0)
            }
            _ => ends.iter().rev().find(known).map_or(0, |end| end.tokens),
        };
        let kept: Vec<&End> =
            ends.iter().filter(|end| end.tokens >= TOKENS_MIN && (end.marked || wire != Wire::Anthropic)).collect();
        let last = kept.last().map_or(0, |end| end.tokens);
        self.0.extend(kept.iter().map(|end| end.hash));
        // Only Anthropic reports the tokens that it writes to the cache.
        let written = if wire == Wire::Anthropic { last.saturating_sub(read) } else { 0 };
        InputTokens { read, written, uncached: all - read - written }
    }
}

/// The ends of Anthropic's blocks: tools, system part, then messages.
fn blocks(body: &Value) -> Vec<End> {
    let messages = list(body, "messages").iter().flat_map(|message| list(message, "content"));
    let all = list(body, "tools").iter().chain(list(body, "system")).chain(messages);
    let (mut hasher, mut bytes) = (DefaultHasher::new(), 0);
    all.map(|block| {
        let mut block = block.clone();
        let marked = block.as_object_mut().is_some_and(|fields| fields.remove("cache_control").is_some());
        let text = block.to_string();
        text.hash(&mut hasher);
        bytes += text.len() as u64;
        End { hash: hasher.finish(), tokens: bytes / TOKEN, marked }
    })
    .collect()
}

/// The prefixes that the other providers cache, in their order, in steps of 128 tokens.
fn steps(body: &Value) -> Vec<End> {
    let parts = ["tools", "instructions", "systemInstruction", "input", "messages", "contents"];
    let text: String = parts.iter().filter_map(|key| body.get(*key)).map(Value::to_string).collect();
    let mut hasher = DefaultHasher::new();
    let step = usize::try_from(STEP * TOKEN).unwrap_or(512);
    let ends = text.as_bytes().chunks_exact(step).zip(1..);
    ends.map(|(chunk, n)| {
        chunk.hash(&mut hasher);
        End { hash: hasher.finish(), tokens: n * STEP, marked: false }
    })
    .collect()
}
