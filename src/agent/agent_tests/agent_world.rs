//! A world of three agents without supervision: the tests run the turns themselves.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use ghost_config::plan::Plan;
use ghost_config::testing::WorldFiles;
use ghost_domain::journal::Step;
use ghost_domain::ports::{Signal, Wake};
use ghost_domain::{Agent, AgentKind, Ask, LedgerRow, Refusal, Turn};
use ghost_operations::agents::NewAgent;
use ghost_operations::testing::{OperationWorld, new_agent};
pub(crate) use ghost_operations::testing::{SECRET, id, operator, read, write};
use ghost_provider::ModelRequest;
use ghost_provider::testing::{FakeModel, say};
use ghost_store::memory::MemoryDisk;
use ghost_store::tables::{LedgerFilter, TurnFilter};
use ghost_tools::workspace::Workspace;
use ghost_tools::{LiveTools, ToolTable, WorldServices, builtins};
use serde_json::Value;

use super::fakes::{ActivityLog, NoAgents, ToolState, tools};
use crate::Engine;
use crate::turn::{self, AgentSession};

const WORLD: &str = "\
world: { id: test, name: Test }
access: { default: public }
tool_privileges: { admin: [syscall.agent.stop] }
agents:
AGENTSllm:
  default_provider: test
  default_model: one
  providers: { test: { kind: openai, base_url: 'http://127.0.0.1:1' } }
";

pub(crate) struct AgentWorld {
    rules: OperationWorld,
    pub(crate) engine: Arc<Engine>,
    pub(crate) model: Arc<FakeModel>,
    pub(crate) tool_state: Arc<ToolState>,
    pub(crate) activity: Arc<ActivityLog>,
    pub(crate) session: Arc<AgentSession>,
    pub(crate) disk: MemoryDisk,
    files: WorldFiles,
}

/// Passes signals on to waiting turns and caches, as the world's signal router does.
struct Signals(Arc<Engine>, Arc<AgentSession>);

impl Wake for Signals {
    fn signal(&self, signals: &[Signal]) {
        for signal in signals {
            match signal {
                Signal::BudgetsFreed(scopes) => self.0.queue.freed(scopes),
                Signal::LimitsSet => self.0.queue.limits_set(),
                Signal::Grants(agent_id) => self.0.services.grants.forget(agent_id),
                Signal::ApprovalClosed(_) | Signal::CallSettled(_) => self.1.bell.notify_waiters(),
                _ => {}
            }
        }
    }
}

impl Deref for AgentWorld {
    type Target = OperationWorld;

    fn deref(&self) -> &OperationWorld {
        &self.rules
    }
}

impl AgentWorld {
    pub(crate) async fn new() -> Self {
        Self::with(|_| {}).await
    }

    /// A world with a changed plan; its limits are part of the plan.
    pub(crate) async fn with(change: impl FnOnce(&mut Plan)) -> Self {
        Self::of(&["ada", "bob", "cyd"], change).await
    }

    /// A world of these agents with a changed plan.
    pub(crate) async fn of(names: &[&str], change: impl FnOnce(&mut Plan)) -> Self {
        let agents: String = names.iter().map(|name| format!("  - {{ id: {name}, archetype: worker }}\n")).collect();
        let files = WorldFiles::new(&WORLD.replace("AGENTS", &agents), "## LLM\nprovider: test\nmodel: one\n");
        files.write("tools.md", "Tools are sharp.");
        files.write("archetype/worker/agent.md", "Step by step.");
        let mut plan = files.plan();
        change(&mut plan);
        let disk = MemoryDisk::new();
        let rules = OperationWorld::without_agents(disk.open(), plan.limits.clone());
        let (model, tool_state, activity) =
            (FakeModel::new(|_, _| say("ok")), Arc::new(ToolState::default()), Arc::new(ActivityLog::default()));
        let workspace = Arc::new(Workspace::inline(&files.path("workspace")).unwrap());
        let (ctx, store) = (rules.ctx.clone(), rules.store.clone());
        let services = WorldServices::new(ctx, store, workspace, Arc::new(NoAgents), Arc::new(plan));
        let mut all = builtins::all();
        all.extend(tools(&tool_state));
        let providers = Arc::new(model.providers(3, rules.clock.clone()));
        let table = Arc::new(LiveTools::new(ToolTable::new(all).unwrap()));
        let engine = Arc::new(Engine::new(Arc::new(services), table, activity.clone(), providers));
        let session: Arc<AgentSession> = Arc::default();
        rules.store.on_signal(Arc::new(Signals(Arc::clone(&engine), Arc::clone(&session))));
        for name in names {
            engine.services.workspace.ensure_agent(&id(name)).await.unwrap();
            let new = NewAgent { team: None, kind: AgentKind::Persistent, ..new_agent(&rules.ctx, name) };
            rules.add_agent(new).await;
        }
        Self { rules, engine, model, tool_state, activity, session, disk, files }
    }

    pub(crate) fn file(&self, path: &str) -> std::path::PathBuf {
        self.files.path("workspace").join(path)
    }

    pub(crate) async fn ask(&self, to: &str) -> Ask {
        self.ask_within(to, Duration::from_secs(600)).await.unwrap()
    }

    /// Works off an agent's mail while time passes.
    pub(crate) async fn work(&self, name: &str) -> Result<(), Refusal> {
        let agent_id = id(name);
        // A new session each time, as after a wake-up.
        self.in_time(turn::work(&self.engine, &agent_id, &Arc::default())).await
    }

    /// Works off an agent's mail until a turn of it is parked; then the work is cancelled, as in a
    /// crash.
    pub(crate) async fn work_until_parked(&self, name: &str) -> Turn {
        let parked = async {
            loop {
                let filter = TurnFilter { agent_id: Some(id(name)), parked: Some(true), ..TurnFilter::default() };
                if let Some(turn) = read!(self, |r| r.turn_list(&filter)?).pop() {
                    return turn;
                }
                tokio::task::yield_now().await;
            }
        };
        let (agent_id, session) = (id(name), Arc::default());
        let parked_or_ended = async {
            tokio::select! {
                biased;
                done = turn::work(&self.engine, &agent_id, &session) => panic!("the work ended: {done:?}"),
                turn = parked => turn,
            }
        };
        self.in_time(parked_or_ended).await
    }

    /// Works until `cut` completes; then the work is cancelled, as in a crash.
    pub(crate) async fn work_until(&self, name: &str, cut: impl Future<Output = ()>) {
        let agent_id = id(name);
        let session = Arc::default();
        tokio::select! {
            biased;
            done = turn::work(&self.engine, &agent_id, &session) => panic!("the work ended: {done:?}"),
            () = cut => {}
        }
    }

    /// Advances the clock until `done` completes.
    pub(crate) async fn in_time<T>(&self, done: impl Future<Output = T>) -> T {
        self.clock.advance_until(Duration::from_millis(250), done).await
    }

    pub(crate) async fn agent(&self, name: &str) -> Agent {
        let agent_id = id(name);
        read!(self, |r| r.agent_get(&agent_id)?).unwrap()
    }

    /// The newest turn of an agent.
    pub(crate) async fn turn(&self, name: &str) -> Turn {
        let filter = TurnFilter { agent_id: Some(id(name)), ..TurnFilter::default() };
        read!(self, |r| r.turn_list(&filter)?).remove(0)
    }

    pub(crate) async fn steps(&self, name: &str) -> Vec<Step> {
        let turn_id = self.turn(name).await.turn_id;
        read!(self, |r| r.journal_of(turn_id)?).into_iter().map(|row| row.step).collect()
    }

    /// The ledger, oldest first.
    pub(crate) async fn ledger(&self) -> Vec<LedgerRow> {
        let filter = LedgerFilter { limit: 1_000, ..LedgerFilter::default() };
        let mut rows = read!(self, |r| r.call_list(&filter)?);
        rows.reverse();
        rows
    }

    pub(crate) async fn asks(&self) -> Vec<Ask> {
        read!(self, |r| r.asks_open()?)
    }
}

/// The tool results in a request, parsed if they are JSON.
pub(crate) fn results(request: &ModelRequest) -> Vec<Value> {
    let texts = ghost_provider::testing::results(request);
    texts.into_iter().map(|text| serde_json::from_str(&text).unwrap_or(Value::from(text))).collect()
}
