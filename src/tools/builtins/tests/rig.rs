//! A test world: two agents, an open turn of the first, and a clock that does not move.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ghost_config::access::Groups;
use ghost_config::plan::{Archetype, ArchetypeConfig, LlmPlan, Origins, Plan};
use ghost_domain::ports::{Ids, Ports, Rng};
use ghost_domain::redact::Redactor;
use ghost_domain::restart::Intensity;
use ghost_domain::time::BoxFuture;
use ghost_domain::write_acl::WriteAcl;
use ghost_domain::{
    Activity, AgentId, AgentKind, CallId, Clock, Code, Desired, EventKind, Kind, Limits, Party, Refusal, RootId,
    Timestamp,
};
use ghost_rules::agents::{self, NewAgent};
use ghost_rules::mail::{self, Chain, NewMessage};
use ghost_rules::{RuleContext, turns};
use ghost_store::Store;
use ghost_store::memory::MemoryStore;
use serde_json::Value;
use tempfile::TempDir;
use uuid::Uuid;

use crate::builtins;
use crate::context::{AgentControl, CallContext, Caller, WorldServices};
use crate::registry::ToolTable;
use crate::tool::{Output, Run, Tool};
use crate::workspace::Workspace;

/// A secret known to the world's redactor.
pub(crate) const SECRET: &str = "hunter2-is-my-password";

struct Still;

impl Clock for Still {
    fn now(&self) -> Timestamp {
        Timestamp(1_795_298_880_000)
    }

    fn sleep_until(&self, _: Timestamp) -> BoxFuture<'static, ()> {
        Box::pin(std::future::ready(()))
    }
}

struct Count(AtomicU64);

impl Ids for Count {
    fn next(&self) -> Uuid {
        Uuid::from_u128(u128::from(self.0.fetch_add(1, Ordering::Relaxed)))
    }
}

struct Zero;

impl Rng for Zero {
    fn below(&self, _: u64) -> u64 {
        0
    }
}

struct Quiet;

impl AgentControl for Quiet {
    fn activities(&self) -> BTreeMap<AgentId, Activity> {
        BTreeMap::from([(id("ada"), Activity::Acting), (id("bob"), Activity::Asleep)])
    }

    fn started_at(&self) -> Timestamp {
        Timestamp(1_795_298_820_000)
    }
}

pub(super) fn id(text: &str) -> AgentId {
    text.parse().unwrap()
}

pub(super) fn code<T: std::fmt::Debug>(result: Result<T, Refusal>) -> Code {
    let refusal = result.unwrap_err();
    assert!(refusal.hint.is_some(), "a refusal without a hint: {refusal}");
    refusal.code
}

pub(super) fn archetype(name: &str) -> Arc<Archetype> {
    let empty = String::new;
    let config = ArchetypeConfig { timezone: Some("Europe/Berlin".into()), ..ArchetypeConfig::default() };
    Arc::new(Archetype { name: name.into(), soul: empty(), goal: empty(), agent: empty(), user: empty(), config })
}

fn plan(dir: &TempDir) -> Plan {
    let archetypes = ["writer", "editor"].map(|name| (name.to_owned(), archetype(name)));
    Plan {
        world_id: "test".into(),
        name: "Test".into(),
        dir: dir.path().to_owned(),
        laws: String::new(),
        tools_md: String::new(),
        archetypes: BTreeMap::from(archetypes),
        archetype_access: BTreeMap::new(),
        creatable: BTreeSet::from(["writer".to_owned()]),
        agents: Vec::new(),
        teams: Vec::new(),
        root_intensity: Intensity::default(),
        groups: Groups::default(),
        llm: LlmPlan { default_provider: "p".into(), default_model: "m".into(), ..LlmPlan::default() },
        origins: Origins::default(),
        limits: Limits::default(),
        budgets: Vec::new(),
        chat_wake: ghost_domain::ChatWake::Mentions,
        owner_may_update_tasks: true,
        knowledge: Vec::new(),
        skill_roots: vec![dir.path().join("skills")],
        secret_env: BTreeSet::new(),
        job: None,
        metrics_open: false,
        http: ghost_config::plan::HttpPlan::default(),
        reactions: ghost_domain::Reactions::Minimal,
        webhooks: BTreeMap::new(),
        heartbeats: BTreeMap::new(),
        declared: ghost_domain::Declared::default(),
        warnings: Vec::new(),
    }
}

pub(super) struct Rig {
    pub(super) dir: TempDir,
    pub(super) services: Arc<WorldServices>,
    pub(super) tools: BTreeMap<String, Tool>,
    pub(super) ada: CallContext,
    calls: AtomicU64,
}

impl Rig {
    pub(super) async fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        for (path, text) in [
            ("skills/git/SKILL.md", "---\nname: git\ndescription: work with git\n---\n# Git\nCommit often.\n"),
            ("skills/tooled/SKILL.md", "# Tooled\n"),
            ("skills/tooled/schema.json", "[]"),
            ("data/agents/bob/memory/days/1.md", "one\ntwo\n"),
        ] {
            let file = dir.path().join(path);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, text).unwrap();
        }
        let ports = Ports { clock: Arc::new(Still), ids: Arc::new(Count(AtomicU64::new(1))), rng: Arc::new(Zero) };
        let ctx = RuleContext::new(ports, Redactor::new([SECRET.to_owned()]), "node", 1, Limits::default());
        let store = MemoryStore::open();
        let workspace = Arc::new(Workspace::inline(&dir.path().join("data/workspace")).unwrap());
        let services = WorldServices::new(ctx.clone(), store.clone(), workspace, Arc::new(Quiet), Arc::new(plan(&dir)));
        let services = Arc::new(services.with_data_dir(&dir.path().join("data")));
        for (name, archetype) in [("ada", "editor"), ("bob", "writer")] {
            services.workspace.ensure_agent(&id(name)).await.unwrap();
            add_agent(&ctx, &store, name, archetype).await;
        }
        let ada = caller(&services, "ada").await;
        let tools = builtins::all().into_iter().map(|tool| (tool.spec.name.clone(), tool)).collect();
        Self { dir, services, tools, ada, calls: AtomicU64::new(1) }
    }

    /// Runs a call by ada, as a turn does.
    pub(super) async fn call(&self, tool: &str, arguments: Value) -> Result<Output, Refusal> {
        self.call_as(&self.ada, tool, None, arguments).await
    }

    pub(super) async fn content(&self, tool: &str, arguments: Value) -> Value {
        self.call(tool, arguments).await.unwrap().content
    }

    pub(super) async fn call_as(
        &self,
        ctx: &CallContext,
        tool: &str,
        alias: Option<&str>,
        arguments: Value,
    ) -> Result<Output, Refusal> {
        let tool = &self.tools[tool];
        let arguments = tool.normalise(alias, arguments);
        tool.validate(&arguments)?;
        self.run(ctx, tool, arguments).await
    }

    /// Runs a call without validating its arguments.
    pub(super) async fn run(&self, ctx: &CallContext, tool: &Tool, arguments: Value) -> Result<Output, Refusal> {
        let call_id = CallId(Uuid::from_u128(u128::from(self.calls.fetch_add(1, Ordering::Relaxed)) << 64));
        let ctx = CallContext { call_id, ..ctx.clone() };
        let store = &self.services.store;
        let output = match tool.run.resolve(&arguments) {
            Run::Read(tool) => tool.run(&ctx, arguments).await,
            Run::World(tool) => {
                let arguments = tool.look(&ctx, arguments).await?;
                let done = store.write(move |w| Box::pin(async move { tool.apply(&ctx, arguments, w).await })).await;
                match done {
                    Err(refusal) => Err(ghost_rules::mail::with_nearest(store, refusal).await),
                    done => done,
                }
            }
            Run::File(tool) => {
                let work = tool.prepare(&ctx, &arguments).await?;
                self.services.workspace.carry_out(&work.plan, &work.bytes).await?;
                store.write(move |w| Box::pin(async move { tool.record(&ctx, arguments, &work.plan, w).await })).await
            }
            Run::Ask(tool) => {
                let ask = store.write(move |w| Box::pin(async move { tool.open(&ctx, arguments, w).await })).await?;
                Ok(serde_json::to_value(ask).unwrap().into())
            }
            Run::Outside(_) | Run::Choose(_) => unreachable!("no built-in of this stage"),
        }?;
        let (rule_ctx, events) = (self.services.ctx.clone(), output.events.clone());
        store
            .write(move |w| {
                Box::pin(async move {
                    for event in events {
                        rule_ctx.emit(w, event).await?;
                    }
                    Ok::<_, Refusal>(())
                })
            })
            .await?;
        Ok(output)
    }

    /// The kinds of all events so far.
    pub(super) async fn events(&self) -> Vec<(EventKind, Value)> {
        let read = self
            .services
            .store
            .read(|r| Box::pin(async move { Ok::<_, Refusal>(r.event_list(0, &Default::default(), 1_000).await?) }));
        read.await.unwrap().0.into_iter().map(|event| (event.kind, (*event.payload).clone())).collect()
    }

    /// Mail to ada that has not been taken.
    pub(super) async fn mail_to_ada(&self, kind: Kind, body: &str) {
        deliver(&self.services, "ada", kind, body).await;
    }

    pub(super) async fn inbox(&self, name: &str) -> Vec<ghost_domain::Envelope> {
        let name = id(name);
        let read = self
            .services
            .store
            .read(move |r| Box::pin(async move { Ok::<_, Refusal>(r.inbox_pending(&name, 100).await?) }));
        read.await.unwrap()
    }

    pub(super) fn table(&self) -> Arc<ToolTable> {
        Arc::new(ToolTable::new(builtins::all()).unwrap())
    }
}

async fn add_agent(ctx: &RuleContext, store: &Store, name: &str, archetype: &str) {
    let new = NewAgent {
        agent_id: id(name),
        archetype: archetype.into(),
        name: name.into(),
        team: None,
        kind: AgentKind::Dynamic,
        desired: Desired::Running,
        overrides: Value::Null,
        daily_money: None,
        goal: None,
        chain: Chain::root(ctx),
    };
    let ctx = ctx.clone();
    store.write(move |w| Box::pin(async move { agents::create(w, &ctx, &Party::System, new).await })).await.unwrap();
}

async fn deliver(services: &WorldServices, to: &str, kind: Kind, body: &str) {
    let new_message = NewMessage::new(&id(to), Party::System, kind, body, Chain::root(&services.ctx));
    let ctx = services.ctx.clone();
    services.store.write(move |w| Box::pin(async move { mail::deliver(w, &ctx, new_message).await })).await.unwrap();
}

/// A call of the agent in a turn opened by mail.
pub(super) async fn caller(services: &Arc<WorldServices>, name: &str) -> CallContext {
    deliver(services, name, Kind::Message, "begin").await;
    let (ctx, agent_id) = (services.ctx.clone(), id(name));
    let taken = services
        .store
        .write(move |w| Box::pin(async move { turns::take(w, &ctx, &agent_id, None).await }))
        .await
        .unwrap()
        .unwrap();
    let agent_id = id(name);
    CallContext {
        services: Arc::clone(services),
        caller: Arc::new(Caller {
            write_acl: WriteAcl::new(&[format!("agents/{agent_id}/"), "output/reports/".into()]).unwrap(),
            agent_id,
            manages_tasks: false,
            updates_own_tasks: true,
            archetype: "writer".into(),
            groups: BTreeSet::new(),
            skills: None,
            channel: None,
        }),
        turn_id: taken.turn.turn_id,
        root_id: RootId(Uuid::nil()),
        hop: taken.turn.hop,
        call_id: CallId(Uuid::nil()),
        provider_call_id: "c".into(),
    }
}

/// The same call with a changed caller.
pub(super) fn with(ctx: &CallContext, change: impl FnOnce(&mut Caller)) -> CallContext {
    let mut caller = (*ctx.caller).clone();
    change(&mut caller);
    CallContext { caller: Arc::new(caller), ..ctx.clone() }
}
