//! A world of three agents without supervision: the tests run the turns themselves.

use std::sync::Arc;
use std::time::Duration;

use ghost_config::plan::{Plan, ProviderKind};
use ghost_domain::event::EventFilter;
use ghost_domain::journal::Step;
use ghost_domain::ports::{Ports, Signal, Wake};
use ghost_domain::redact::Redactor;
use ghost_domain::transcript::{Block, Role};
use ghost_domain::{
    AgentId, AgentKind, Ask, AskId, Desired, Envelope, Event, Kind, LedgerRow, Limits, Party, Refusal, Turn,
};
use ghost_provider::testing::{Counting, ManualClock, provider_plan};
use ghost_provider::{ModelRequest, Provider, Providers};
use ghost_rules::agents::{self, NewAgent};
use ghost_rules::mail::{self, Chain, NewMessage};
use ghost_rules::{RuleContext, asks};
use ghost_store::Store;
use ghost_store::memory::MemoryDisk;
use ghost_store::tables::{LedgerFilter, TurnFilter};
use ghost_tools::workspace::Workspace;
use ghost_tools::{ToolTable, WorldServices, builtins};
use serde_json::Value;

use super::fakes::{ActivityLog, Model, NoAgents, ToolState, tools};
use crate::turn::{self, AgentSession};
use crate::{BudgetQueue, Engine};

macro_rules! write {
    ($rig:expr, |$w:ident, $ctx:ident| $body:expr) => {{
        let $ctx = $rig.ctx().clone();
        $rig.store()
            .write(move |$w| {
                Box::pin(async move {
                    let _ = &$ctx;
                    $body
                })
            })
            .await
    }};
}
macro_rules! read {
    ($rig:expr, |$r:ident| $body:expr) => {
        $rig.store().read(move |$r| Box::pin(async move { Ok::<_, ghost_domain::Refusal>($body) })).await.unwrap()
    };
}
pub(crate) use {read, write};

/// A value that the redactor knows as a secret.
pub(crate) const SECRET: &str = "hunter2-is-my-password";

const WORLD: &str = "\
world: { id: test, name: Test }
tool_privileges: { admin: [syscall.agent.stop] }
agents:
  - { id: ada, archetype: worker }
  - { id: bob, archetype: worker }
  - { id: cyd, archetype: worker }
llm:
  default_provider: test
  default_model: one
  providers: { test: { kind: openai, base_url: 'http://127.0.0.1:1' } }
";

pub(crate) struct Rig {
    pub(crate) engine: Arc<Engine>,
    pub(crate) model: Arc<Model>,
    pub(crate) tool_state: Arc<ToolState>,
    pub(crate) activity: Arc<ActivityLog>,
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) session: Arc<AgentSession>,
    pub(crate) disk: MemoryDisk,
    files: tempfile::TempDir,
}

/// Passes budget signals on to waiting turns, as the world's signal router does.
struct BudgetSignals(Arc<BudgetQueue>);

impl Wake for BudgetSignals {
    fn signal(&self, signals: &[Signal]) {
        for signal in signals {
            match signal {
                Signal::BudgetsFreed(scopes) => self.0.freed(scopes),
                Signal::LimitsSet => self.0.limits_set(),
                _ => {}
            }
        }
    }
}

pub(crate) fn id(text: &str) -> AgentId {
    text.parse().unwrap()
}

pub(crate) fn operator() -> Party {
    Party::Operator("test".into())
}

impl Rig {
    pub(crate) async fn new() -> Self {
        Self::with(|_| {}).await
    }

    /// A rig with a changed plan; its limits are part of the plan.
    pub(crate) async fn with(change: impl FnOnce(&mut Plan)) -> Self {
        let files = tempfile::tempdir().unwrap();
        for (path, text) in [
            ("world-config.yaml", WORLD),
            ("laws.md", "Be exact."),
            ("tools.md", "Tools are sharp."),
            ("archetype/worker/soul.md", "You work."),
            ("archetype/worker/goal.md", "Finish."),
            ("archetype/worker/agent.md", "Step by step."),
            ("archetype/worker/config.md", "## LLM\nprovider: test\nmodel: one\n"),
        ] {
            let path = files.path().join("world").join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let mut plan = ghost_config::load(&files.path().join("world"), &|_| None).unwrap_or_else(|p| panic!("{p}"));
        change(&mut plan);
        let (clock, count) = (ManualClock::at(1_795_298_880_000), Arc::new(Counting::default()));
        let ports = Ports { clock: clock.clone(), ids: count.clone(), rng: count };
        let ctx = RuleContext::new(ports, Redactor::new([SECRET.to_owned()]), "node", 1, plan.limits.clone());
        let (model, tool_state, activity) =
            (Model::new(), Arc::new(ToolState::default()), Arc::new(ActivityLog::default()));
        let workspace = Arc::new(Workspace::inline(&files.path().join("workspace")).unwrap());
        let disk = MemoryDisk::new();
        let services = WorldServices::new(ctx, disk.open(), workspace, Arc::new(NoAgents), Arc::new(plan));
        let mut all = builtins::all();
        all.extend(tools(&tool_state));
        let provider = provider_plan(ProviderKind::OpenAi, None);
        let providers = Providers::with("test", provider, Arc::clone(&model) as Arc<dyn Provider>, clock.clone());
        let table = Arc::new(ToolTable::new(all).unwrap());
        let engine = Engine::new(Arc::new(services), table, activity.clone(), Arc::new(providers));
        let (engine, session) = (Arc::new(engine), Arc::new(AgentSession::default()));
        engine.services.store.on_signal(Arc::new(BudgetSignals(Arc::clone(&engine.queue))));
        let rig = Self { engine, model, tool_state, activity, clock, session, disk, files };
        for name in ["ada", "bob", "cyd"] {
            rig.engine.services.workspace.ensure_agent(&id(name)).await.unwrap();
            let new = NewAgent {
                agent_id: id(name),
                archetype: "worker".into(),
                name: name.into(),
                team: None,
                kind: AgentKind::Persistent,
                desired: Desired::Running,
                overrides: Value::Null,
                daily_money: None,
                goal: None,
                chain: Chain::root(rig.ctx()),
            };
            write!(rig, |w, ctx| agents::create(w, &ctx, &operator(), new).await).unwrap();
        }
        rig
    }

    pub(crate) fn ctx(&self) -> &RuleContext {
        &self.engine.services.ctx
    }

    pub(crate) fn store(&self) -> &Store {
        &self.engine.services.store
    }

    pub(crate) fn limits(&self, change: impl FnOnce(&mut Limits)) {
        let mut limits = (*self.ctx().limits()).clone();
        change(&mut limits);
        self.ctx().set_limits(limits);
    }

    pub(crate) fn file(&self, path: &str) -> std::path::PathBuf {
        self.files.path().join("workspace").join(path)
    }

    pub(crate) async fn send(&self, to: &str, body: &str) -> Envelope {
        let new_message = NewMessage::new(&id(to), operator(), Kind::Message, body, Chain::root(self.ctx()));
        write!(self, |w, ctx| mail::deliver(w, &ctx, new_message).await).unwrap()
    }

    pub(crate) async fn ask(&self, to: &str) -> Ask {
        let (to, wait) = (id(to), Duration::from_secs(600));
        write!(self, |w, ctx| {
            let chain = Chain::root(&ctx);
            asks::open(w, &ctx, operator(), None, &to, "how many?".into(), wait, chain).await
        })
        .unwrap()
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
                if let Some(turn) = read!(self, |r| r.turn_list(&filter).await?).pop() {
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
        let passing = async {
            for _ in 0..20_000 {
                for _ in 0..60 {
                    tokio::task::yield_now().await;
                }
                self.clock.advance(Duration::from_millis(250));
            }
        };
        tokio::select! {
            biased;
            done = done => done,
            () = passing => panic!("the work did not complete in time"),
        }
    }

    /// The newest turn of an agent.
    pub(crate) async fn turn(&self, name: &str) -> Turn {
        let filter = TurnFilter { agent_id: Some(id(name)), ..TurnFilter::default() };
        read!(self, |r| r.turn_list(&filter).await?).remove(0)
    }

    pub(crate) async fn steps(&self, name: &str) -> Vec<Step> {
        let turn_id = self.turn(name).await.turn_id;
        read!(self, |r| r.journal_of(turn_id).await?).into_iter().map(|row| row.step).collect()
    }

    /// The ledger, oldest first.
    pub(crate) async fn ledger(&self) -> Vec<LedgerRow> {
        let filter = LedgerFilter { limit: 1_000, ..LedgerFilter::default() };
        let mut rows = read!(self, |r| r.call_list(&filter).await?);
        rows.reverse();
        rows
    }

    pub(crate) async fn ask_row(&self, ask_id: AskId) -> Ask {
        read!(self, |r| r.ask_get(ask_id).await?.unwrap())
    }

    pub(crate) async fn asks(&self) -> Vec<Ask> {
        read!(self, |r| r.asks_open().await?)
    }

    pub(crate) async fn inbox(&self, name: &str) -> Vec<Envelope> {
        let agent_id = id(name);
        read!(self, |r| r.inbox_pending(&agent_id, 100).await?)
    }

    pub(crate) async fn events(&self) -> Vec<Event> {
        read!(self, |r| r.event_list(0, &EventFilter::default(), 10_000).await?.0)
    }
}

/// The tool results in a request, parsed if they are JSON.
pub(crate) fn results(request: &ModelRequest) -> Vec<Value> {
    let tool = request.messages.iter().filter(|message| message.role == Role::Tool);
    tool.flat_map(|message| &message.blocks)
        .filter_map(|block| match block {
            Block::ToolResult { content, .. } => {
                Some(serde_json::from_str(content).unwrap_or_else(|_| Value::from(content.as_str())))
            }
            _ => None,
        })
        .collect()
}
