//! A model in this process that replies as a test says.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use ghost_config::plan::{ProviderKind, ProviderPlan};
use ghost_domain::Clock;
use ghost_domain::transcript::{Block, Role, TokenUsage};
use serde_json::Value;
use tokio::sync::{Notify, watch};

use crate::error::{ErrorKind, ProviderError};
use crate::model::{Deltas, ModelAnswer, ModelRequest, Provider, Stop};
use crate::providers::Providers;

/// A plan of `kind` with short pauses, four parallel calls and three attempts.
#[must_use]
pub fn provider_plan(kind: ProviderKind, base_url: Option<String>) -> ProviderPlan {
    ProviderPlan {
        kind,
        base_url,
        api_key_env: None,
        concurrency: 4,
        attempts: 3,
        retry_base: Duration::from_millis(10),
        retry_cap: Duration::from_secs(1),
        idle_timeout: Duration::from_secs(60),
        dir: None,
        headers: Default::default(),
        query: Default::default(),
        extra_body: Default::default(),
        api: None,
    }
}

/// The model's reply to one request.
pub enum Reply {
    /// These blocks, as one piece.
    Answer(Vec<Block>, Stop),
    /// A text that is streamed in pieces.
    Stream(Vec<&'static str>),
    /// A text that is streamed in pieces, and never ends.
    Begin(Vec<&'static str>),
    /// A failure.
    Fail(ProviderError),
    /// No reply.
    Hang,
    /// This answer, once the model is notified.
    After(Arc<Notify>, Box<Reply>),
}

/// Answers with a text.
#[must_use]
pub fn say(text: &str) -> Reply {
    Reply::Answer(vec![Block::Text { text: text.into() }], Stop::EndTurn)
}

/// A tool call.
#[must_use]
pub fn block(id: &str, name: &str, arguments: Value) -> Block {
    Block::ToolCall { id: id.into(), name: name.into(), arguments }
}

/// Answers with one tool call.
#[must_use]
pub fn call(name: &str, arguments: Value) -> Reply {
    calls(vec![block("c1", name, arguments)])
}

/// Answers with these tool calls.
#[must_use]
pub fn calls(blocks: Vec<Block>) -> Reply {
    Reply::Answer(blocks, Stop::ToolUse)
}

/// Fails with an error of this kind.
#[must_use]
pub fn fail(kind: ErrorKind) -> Reply {
    Reply::Fail(ProviderError::new(kind, "no"))
}

/// The tool results in a request.
#[must_use]
pub fn results(request: &ModelRequest) -> Vec<String> {
    let tool = request.messages.iter().filter(|message| message.role == Role::Tool);
    tool.flat_map(|message| &message.blocks)
        .filter_map(|block| if let Block::ToolResult { content, .. } = block { Some(content.clone()) } else { None })
        .collect()
}

type Replies = dyn FnMut(&ModelRequest, usize) -> Reply + Send;

/// A model that records its requests. A test sets its replies and can hold them back.
pub struct FakeModel {
    replies: Mutex<Box<Replies>>,
    requests: Mutex<Vec<ModelRequest>>,
    /// Agents whose requests wait.
    held: watch::Sender<BTreeSet<String>>,
    /// Notified when a reply begins to hang or to wait.
    pub stalled: Notify,
}

impl FakeModel {
    /// A model with these replies. The closure gets the request and the number of requests before it.
    pub fn new(replies: impl FnMut(&ModelRequest, usize) -> Reply + Send + 'static) -> Arc<Self> {
        Arc::new(Self {
            replies: Mutex::new(Box::new(replies)),
            requests: Mutex::default(),
            held: watch::Sender::default(),
            stalled: Notify::new(),
        })
    }

    /// Replaces the replies and clears the recorded requests.
    pub fn reply_with(&self, replies: impl FnMut(&ModelRequest, usize) -> Reply + Send + 'static) {
        *lock(&self.replies) = Box::new(replies);
        lock(&self.requests).clear();
    }

    /// The requests so far.
    pub fn requests(&self) -> Vec<ModelRequest> {
        lock(&self.requests).clone()
    }

    /// The number of requests by an agent.
    pub fn asked_by(&self, agent: &str) -> usize {
        lock(&self.requests).iter().filter(|request| request.agent_id.as_str() == agent).count()
    }

    /// Holds back the replies to an agent.
    pub fn hold(&self, agent: &str) {
        self.held.send_modify(|held| {
            held.insert(agent.to_owned());
        });
    }

    /// Ends [`Self::hold`].
    pub fn release(&self, agent: &str) {
        self.held.send_modify(|held| {
            held.remove(agent);
        });
    }

    /// The only provider of a world, named `test`. It tries a call `attempts` times.
    pub fn providers(self: &Arc<Self>, attempts: u32, clock: Arc<dyn Clock>) -> Providers {
        let plan = ProviderPlan { attempts, ..provider_plan(ProviderKind::OpenAi, None) };
        Providers::with("test", plan, Arc::clone(self) as Arc<dyn Provider>, clock)
    }
}

// The replies of a test may panic; the model goes on.
fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[async_trait]
impl Provider for FakeModel {
    async fn complete(&self, request: &ModelRequest, deltas: &mut dyn Deltas) -> Result<ModelAnswer, ProviderError> {
        let before = {
            let mut requests = lock(&self.requests);
            requests.push(request.clone());
            requests.len() - 1
        };
        // The sender lives as long as the model, so the wait cannot fail.
        let _ = self.held.subscribe().wait_for(|held| !held.contains(request.agent_id.as_str())).await;
        let mut reply = lock(&self.replies)(request, before);
        if let Reply::After(go, then) = reply {
            self.stalled.notify_one();
            go.notified().await;
            reply = *then;
        }
        let (blocks, stop) = match reply {
            Reply::Answer(blocks, stop) => (blocks, stop),
            Reply::Stream(pieces) => {
                pieces.iter().for_each(|piece| deltas.text(piece));
                (vec![Block::Text { text: pieces.concat() }], Stop::EndTurn)
            }
            Reply::Begin(pieces) => {
                pieces.iter().for_each(|piece| deltas.text(piece));
                self.stalled.notify_one();
                std::future::pending().await
            }
            Reply::Fail(error) => return Err(error),
            Reply::Hang | Reply::After(..) => {
                self.stalled.notify_one();
                std::future::pending().await
            }
        };
        let usage = Some(TokenUsage { input: 10, output: 5, ..TokenUsage::default() });
        Ok(ModelAnswer { model: request.model.clone(), blocks, usage, estimated: false, stop })
    }
}
