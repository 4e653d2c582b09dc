//! Fake tools, which do what a test sets, and a log of activities.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use ghost_config::plan::Plan;
use ghost_domain::journal::FilePlan;
use ghost_domain::write_acl::WorkspacePath;
use ghost_domain::{Activity, AgentId, ApprovalPlan, Code, Refusal, Timestamp};
use ghost_operations::Tx;
use ghost_store::StoreError;
use ghost_tools::tool::{AfterCrash, FileTool, FileWork, WorldTool, parse};
use ghost_tools::tool::{Approvable, Need};
use ghost_tools::workspace::sha256_hex;
use ghost_tools::{AgentControl, CallContext, Caller, Output, OutsideTool, ReadTool, Run, Tool, WorldServices};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::Notify;

use crate::ActivityPort;

/// An activity port that records the activities it receives.
#[derive(Default)]
pub(crate) struct ActivityLog(pub(crate) Mutex<Vec<(AgentId, Activity)>>);

impl ActivityPort for ActivityLog {
    fn show(&self, agent_id: &AgentId, activity: Activity) {
        self.0.lock().unwrap().push((agent_id.clone(), activity));
    }

    fn set_waits(&self, _: &AgentId, _: bool) {}

    fn may_begin(&self, _: &AgentId) -> bool {
        true
    }

    fn begin_read(&self, _: &AgentId) -> u64 {
        0
    }

    fn try_rest(&self, _: &AgentId, _: u64) -> bool {
        true
    }

    fn try_sleep(&self, _: &AgentId, _: u64) -> bool {
        false
    }
}

pub(crate) struct NoAgents;

impl AgentControl for NoAgents {
    fn activities(&self) -> BTreeMap<AgentId, Activity> {
        BTreeMap::new()
    }

    fn started_at(&self) -> Timestamp {
        Timestamp(0)
    }
}

/// The effects of the test tools, and whether the tools hang.
#[derive(Default)]
pub(crate) struct ToolState {
    pub(crate) reads: AtomicU32,
    pub(crate) outside: AtomicU32,
    pub(crate) running: AtomicU32,
    pub(crate) max_running: AtomicU32,
    pub(crate) hangs: AtomicBool,
    /// Whether the store is away when a tool needs it next.
    pub(crate) store_is_away: AtomicBool,
    pub(crate) entered: Notify,
}

impl ToolState {
    pub(crate) fn count(&self, counter: fn(&Self) -> &AtomicU32) -> u32 {
        counter(self).load(Ordering::SeqCst)
    }

    /// What a tool gets that needs the store.
    fn store(&self) -> Result<(), Refusal> {
        match self.store_is_away.swap(false, Ordering::SeqCst) {
            true => Err(StoreError::Busy("the connection was lost".to_owned()).into()),
            false => Ok(()),
        }
    }

    async fn run(&self) {
        let now = self.running.fetch_add(1, Ordering::SeqCst) + 1;
        self.max_running.fetch_max(now, Ordering::SeqCst);
        self.entered.notify_one();
        if self.hangs.load(Ordering::SeqCst) {
            std::future::pending::<()>().await;
        }
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        self.running.fetch_sub(1, Ordering::SeqCst);
    }
}

/// The parameters of the test tools: one number.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Number {
    /// Any number.
    n: u32,
}

struct LookTool(Arc<ToolState>);

#[async_trait]
impl ReadTool for LookTool {
    async fn run(&self, _: &CallContext, arguments: Value) -> Result<Output, Refusal> {
        let params: Number = parse(arguments)?;
        self.0.reads.fetch_add(1, Ordering::SeqCst);
        self.0.run().await;
        self.0.store()?;
        Ok(json!({ "n": params.n }).into())
    }
}

/// As `test.act`; a person says what became of a call that a crash cut off.
struct PayTool(Arc<ToolState>);

#[async_trait]
impl OutsideTool for PayTool {
    async fn run(&self, _: &CallContext, arguments: Value) -> Result<Output, Refusal> {
        self.0.outside.fetch_add(1, Ordering::SeqCst);
        self.0.run().await;
        Ok(arguments.into())
    }

    fn after_crash(&self) -> AfterCrash {
        AfterCrash::WaitsForPerson
    }
}

struct ActTool(Arc<ToolState>);

#[async_trait]
impl OutsideTool for ActTool {
    async fn run(&self, _: &CallContext, arguments: Value) -> Result<Output, Refusal> {
        let params: Number = parse(arguments)?;
        self.0.outside.fetch_add(1, Ordering::SeqCst);
        assert!(params.n != 666, "the tool panicked");
        self.0.run().await;
        Ok(json!({ "n": params.n }).into())
    }
}

/// The number for which the files of `test.act` ask for an approval.
pub(crate) const ASKING: u32 = 77;

struct ActRules;

#[async_trait]
impl Approvable for ActRules {
    fn need(&self, _: &Plan, _: &Caller, _: &Value) -> Need {
        Need::Nothing
    }

    async fn closer(&self, _: &WorldServices, _: &Caller, arguments: &Value) -> Result<Option<String>, Refusal> {
        Ok((arguments["n"] == ASKING).then(|| "its files say so".to_owned()))
    }

    async fn plan(&self, _: &CallContext, arguments: &Value) -> Result<ApprovalPlan, Refusal> {
        Ok(ApprovalPlan { tool: "test.act".into(), arguments: arguments.clone(), ..ApprovalPlan::default() })
    }
}

struct NumberFileTool(Arc<ToolState>);

#[async_trait]
impl FileTool for NumberFileTool {
    async fn prepare(&self, call: &CallContext, arguments: &Value) -> Result<FileWork, Refusal> {
        let params: Number = parse(arguments.clone())?;
        self.0.run().await;
        let path = WorkspacePath::parse(FILE, false)?;
        let before = call.services.workspace.hash(&path).await?;
        let bytes = params.n.to_string().into_bytes();
        let plan = FilePlan { path: FILE.into(), before, after: Some(sha256_hex(&bytes)), grant_id: None };
        Ok(FileWork::one(plan, bytes))
    }

    fn record(&self, _: &CallContext, arguments: Value, _: &[FilePlan], _: &mut Tx) -> Result<Output, Refusal> {
        let params: Number = parse(arguments)?;
        self.0.store()?;
        match params.n {
            13 => Err(Refusal::new(Code::InboxFull, "no place").hint("wait")),
            n => Ok(json!({ "n": n }).into()),
        }
    }
}

struct ChangeTool(Arc<ToolState>);

#[async_trait]
impl WorldTool for ChangeTool {
    async fn prepare(&self, _: &CallContext, arguments: Value) -> Result<Value, Refusal> {
        self.0.run().await;
        Ok(arguments)
    }

    fn apply(&self, _: &CallContext, arguments: Value, _: &mut Tx) -> Result<Output, Refusal> {
        let params: Number = parse(arguments)?;
        self.0.store()?;
        Ok(json!({ "n": params.n }).into())
    }
}

/// The file that `test.file` writes.
pub(crate) const FILE: &str = "agents/ada/notes/number.md";

/// `test.look` has no effect. `test.act` has an outside effect, and panics with 666. `test.file`
/// writes [`FILE`], and its record is refused with 13. `test.change` reads something outside the
/// transaction first.
pub(crate) fn tools(tool_state: &Arc<ToolState>) -> [Tool; 5] {
    [
        Tool::new::<Number>("test.file", "Writes.", Run::file(NumberFileTool(Arc::clone(tool_state)))),
        Tool::new::<Number>("test.change", "Changes.", Run::world(ChangeTool(Arc::clone(tool_state)))),
        Tool::new::<Number>("test.pay", "Pays.", Run::outside(PayTool(Arc::clone(tool_state)))),
        Tool::new::<Number>("test.look", "Looks.", Run::read(LookTool(Arc::clone(tool_state)))),
        Tool::new::<Number>("test.act", "Acts.", Run::outside(ActTool(Arc::clone(tool_state)))).approved_by(ActRules),
    ]
}
