//! A model and tools that do what a test says.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use ghost_domain::journal::FilePlan;
use ghost_domain::transcript::{Block, TokenUsage};
use ghost_domain::write_acl::WorkspacePath;
use ghost_domain::{Activity, AgentId, Code, Refusal, Timestamp};
use ghost_provider::{Deltas, ModelAnswer, ModelRequest, Provider, ProviderError, Stop};
use ghost_store::Writes;
use ghost_tools::tool::{FileTool, FileWork, WorldTool};
use ghost_tools::workspace::sha256_hex;
use ghost_tools::{AgentControl, CallContext, Output, OutsideTool, ReadTool, Run, Tool};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::Notify;

use crate::ActivityPort;

/// What the model does with one request.
pub(crate) enum Reply {
    Say(Vec<Block>, Stop),
    Stream(Vec<&'static str>),
    Fail(ProviderError),
    Hang,
    /// Says `ok` when it is let go.
    Until(Arc<Notify>),
    /// Calls `test.look` with this when it is let go.
    UntilCall(Arc<Notify>, Value),
}

pub(crate) fn say(text: &str) -> Reply {
    Reply::Say(vec![Block::Text { text: text.into() }], Stop::EndTurn)
}

pub(crate) fn block(id: &str, name: &str, arguments: Value) -> Block {
    Block::ToolCall { id: id.into(), name: name.into(), arguments }
}

pub(crate) fn call(name: &str, arguments: Value) -> Reply {
    calls(vec![block("c1", name, arguments)])
}

pub(crate) fn calls(blocks: Vec<Block>) -> Reply {
    Reply::Say(blocks, Stop::ToolUse)
}

type Think = dyn FnMut(&ModelRequest, usize) -> Reply + Send;

pub(crate) struct Model {
    think: Mutex<Box<Think>>,
    pub(crate) requests: Mutex<Vec<ModelRequest>>,
    pub(crate) hung: Notify,
}

impl Model {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            think: Mutex::new(Box::new(|_, _| say("ok"))),
            requests: Mutex::default(),
            hung: Notify::new(),
        })
    }

    /// Says what the model does: the request, and how many requests came before it since this was said.
    pub(crate) fn does(&self, think: impl FnMut(&ModelRequest, usize) -> Reply + Send + 'static) {
        *self.think.lock().unwrap() = Box::new(think);
        self.requests.lock().unwrap().clear();
    }

    pub(crate) fn asked(&self) -> Vec<ModelRequest> {
        self.requests.lock().unwrap().clone()
    }
}

#[async_trait]
impl Provider for Model {
    async fn complete(&self, request: &ModelRequest, deltas: &mut dyn Deltas) -> Result<ModelAnswer, ProviderError> {
        let before = {
            let mut requests = self.requests.lock().unwrap();
            requests.push(request.clone());
            requests.len() - 1
        };
        let reply = self.think.lock().unwrap()(request, before);
        let (blocks, stop) = match reply {
            Reply::Say(blocks, stop) => (blocks, stop),
            Reply::Stream(pieces) => {
                pieces.iter().for_each(|piece| deltas.text(piece));
                (vec![Block::Text { text: pieces.concat() }], Stop::EndTurn)
            }
            Reply::Fail(error) => return Err(error),
            Reply::Hang => {
                self.hung.notify_one();
                std::future::pending().await
            }
            Reply::UntilCall(go, arguments) => {
                self.hung.notify_one();
                go.notified().await;
                (vec![block("c1", "test.look", arguments)], Stop::ToolUse)
            }
            Reply::Until(go) => {
                self.hung.notify_one();
                go.notified().await;
                (vec![Block::Text { text: "ok".into() }], Stop::EndTurn)
            }
        };
        let usage = Some(TokenUsage { input: 10, output: 5, ..TokenUsage::default() });
        Ok(ModelAnswer { model: request.model.clone(), blocks, usage, estimated: false, stop })
    }
}

/// A board that keeps what it is shown.
#[derive(Default)]
pub(crate) struct Seen(pub(crate) Mutex<Vec<(AgentId, Activity)>>);

impl ActivityPort for Seen {
    fn show(&self, agent_id: &AgentId, activity: Activity) {
        self.0.lock().unwrap().push((agent_id.clone(), activity));
    }

    fn may_begin(&self, _: &AgentId) -> bool {
        true
    }

    fn look(&self, _: &AgentId) -> u64 {
        0
    }

    fn try_rest(&self, _: &AgentId, _: u64) -> bool {
        true
    }

    fn try_sleep(&self, _: &AgentId, _: u64) -> bool {
        false
    }
}

pub(crate) struct Quiet;

impl AgentControl for Quiet {
    fn activities(&self) -> BTreeMap<AgentId, Activity> {
        BTreeMap::new()
    }

    fn started_at(&self) -> Timestamp {
        Timestamp(0)
    }
}

/// What the test tools have seen, and what they are to do.
#[derive(Default)]
pub(crate) struct Probe {
    pub(crate) reads: AtomicU32,
    pub(crate) outside: AtomicU32,
    pub(crate) together: AtomicU32,
    pub(crate) most_together: AtomicU32,
    pub(crate) hangs: AtomicBool,
    pub(crate) entered: Notify,
}

impl Probe {
    pub(crate) fn of(&self, counter: fn(&Self) -> &AtomicU32) -> u32 {
        counter(self).load(Ordering::SeqCst)
    }

    async fn run(&self) {
        let now = self.together.fetch_add(1, Ordering::SeqCst) + 1;
        self.most_together.fetch_max(now, Ordering::SeqCst);
        self.entered.notify_one();
        if self.hangs.load(Ordering::SeqCst) {
            std::future::pending::<()>().await;
        }
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        self.together.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Nothing but a number.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Number {
    /// Any number.
    n: u32,
}

struct Looks(Arc<Probe>);

#[async_trait]
impl ReadTool for Looks {
    type Params = Number;

    async fn run(&self, _: &CallContext, params: Number) -> Result<Output, Refusal> {
        self.0.reads.fetch_add(1, Ordering::SeqCst);
        self.0.run().await;
        Ok(json!({ "n": params.n }).into())
    }
}

struct Acts(Arc<Probe>);

#[async_trait]
impl OutsideTool for Acts {
    type Params = Number;

    async fn run(&self, _: &CallContext, params: Number) -> Result<Output, Refusal> {
        self.0.outside.fetch_add(1, Ordering::SeqCst);
        assert!(params.n != 666, "the tool fell over");
        self.0.run().await;
        Ok(json!({ "n": params.n }).into())
    }
}

struct Files(Arc<Probe>);

#[async_trait]
impl FileTool for Files {
    type Params = Number;

    async fn prepare(&self, call: &CallContext, params: &Number) -> Result<FileWork, Refusal> {
        self.0.run().await;
        let path = WorkspacePath::parse(FILE, false)?;
        let before = call.services.workspace.hash(&path).await?;
        let bytes = params.n.to_string().into_bytes();
        Ok(FileWork { plan: FilePlan { path: FILE.into(), before, after: sha256_hex(&bytes) }, bytes })
    }

    async fn record(
        &self,
        _: &CallContext,
        params: Number,
        _: &FilePlan,
        _: &mut dyn Writes,
    ) -> Result<Output, Refusal> {
        match params.n {
            13 => Err(Refusal::new(Code::InboxFull, "no place").hint("wait")),
            n => Ok(json!({ "n": n }).into()),
        }
    }
}

struct Changes(Arc<Probe>);

#[async_trait]
impl WorldTool for Changes {
    type Params = Number;

    async fn look(&self, _: &CallContext, arguments: Value) -> Result<Value, Refusal> {
        self.0.run().await;
        Ok(arguments)
    }

    async fn apply(&self, _: &CallContext, params: Number, _: &mut dyn Writes) -> Result<Output, Refusal> {
        Ok(json!({ "n": params.n }).into())
    }
}

/// What `test.file` writes.
pub(crate) const FILE: &str = "agents/ada/notes/number.md";

/// `test.look` changes nothing; `test.act` has an effect outside, and panics when given 666; `test.file` writes [`FILE`], and
/// will not record it when given 13; `test.change` looks outside first.
pub(crate) fn tools(probe: &Arc<Probe>) -> [Tool; 4] {
    [
        Tool::new::<Number>("test.file", "Writes.", Run::file(Files(Arc::clone(probe)))),
        Tool::new::<Number>("test.change", "Changes.", Run::world(Changes(Arc::clone(probe)))),
        Tool::new::<Number>("test.look", "Looks.", Run::read(Looks(Arc::clone(probe)))),
        Tool::new::<Number>("test.act", "Acts.", Run::outside(Acts(Arc::clone(probe)))),
    ]
}
