//! A world for tests of the built-in tools: two agents and an open turn of the first.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ghost_config::skills::SkillSet;
use ghost_config::testing::WorldFiles;
use ghost_domain::testing::START_MS;
use ghost_domain::write_acl::WriteAcl;
use ghost_domain::{Activity, AgentId, CallId, Code, Kind, Limits, Party, Refusal, RootId, Timestamp};
use ghost_operations::agents::NewAgent;
use ghost_operations::mail::{Chain, NewMessage};
use ghost_operations::testing::{OperationWorld, new_agent};
pub(super) use ghost_operations::testing::{SECRET, id, read, write};
use ghost_store::memory::MemoryStore;
use serde_json::Value;
use uuid::Uuid;

use crate::builtins;
use crate::context::{AgentControl, CallContext, Caller, WorldServices};
use crate::registry::ToolTable;
use crate::tool::{Output, Run, Tool};
use crate::workspace::Workspace;

const WORLD: &str = "\
world: { id: test, name: Test }
agents: [{ id: ada, archetype: editor }]
agents_may_create: [writer]
llm:
  default_provider: p
  default_model: m
  providers: { p: { kind: openai, base_url: 'http://127.0.0.1:1' } }
";

/// Ada acts and bob sleeps. The daemon started a minute ago.
struct FixedActivities;

impl AgentControl for FixedActivities {
    fn activities(&self) -> BTreeMap<AgentId, Activity> {
        BTreeMap::from([(id("ada"), Activity::Acting), (id("bob"), Activity::Asleep)])
    }

    fn started_at(&self) -> Timestamp {
        Timestamp(START_MS - 60_000)
    }
}

pub(super) fn code<T: std::fmt::Debug>(result: Result<T, Refusal>) -> Code {
    let refusal = result.unwrap_err();
    assert!(refusal.hint.is_some(), "a refusal without a hint: {refusal}");
    refusal.code
}

pub(super) struct ToolWorld {
    rules: OperationWorld,
    pub(super) files: WorldFiles,
    pub(super) services: Arc<WorldServices>,
    pub(super) tools: BTreeMap<String, Tool>,
    pub(super) ada: CallContext,
    calls: AtomicU64,
}

impl Deref for ToolWorld {
    type Target = OperationWorld;

    fn deref(&self) -> &OperationWorld {
        &self.rules
    }
}

impl ToolWorld {
    pub(super) async fn new() -> Self {
        let files = WorldFiles::new(WORLD, "");
        for archetype in ["writer", "editor"] {
            files.archetype(archetype, "## Prompt\ntimezone: Europe/Berlin\n");
        }
        for (path, text) in [
            ("../skills/git/SKILL.md", "---\nname: git\ndescription: work with git\n---\n# Git\nCommit often.\n"),
            ("../skills/tooled/SKILL.md", "# Tooled\n"),
            ("../skills/git/more/FORMS.md", "one\ntwo\n"),
            ("../skills/needy/SKILL.md", "---\nmetadata: { ghost: { requires: { bins: [no-such] } } }\n---\n# Needy\n"),
            ("../skills/tooled/schema.json", "[]"),
            ("../data/agents/bob/memory/days/1.md", "one\ntwo\n"),
        ] {
            files.write(path, text);
        }
        let mut plan = files.plan();
        plan.skills = Arc::new(SkillSet::read(&[files.path("skills")], &|_| None));
        let rules = OperationWorld::without_agents(MemoryStore::open(), Limits::default());
        let (ctx, store) = (rules.ctx.clone(), rules.store.clone());
        let workspace = Arc::new(Workspace::inline(&files.path("data/workspace")).unwrap());
        let services = WorldServices::new(ctx, store, workspace, Arc::new(FixedActivities), Arc::new(plan));
        let services = Arc::new(services.with_data_dir(&files.path("data")));
        for (name, archetype) in [("ada", "editor"), ("bob", "writer")] {
            services.workspace.ensure_agent(&id(name)).await.unwrap();
            let new = NewAgent { archetype: archetype.into(), team: None, ..new_agent(&rules.ctx, name) };
            rules.add_agent(new).await;
        }
        let ada = call_by(&services, &rules, "ada").await;
        let tools = builtins::all().into_iter().map(|tool| (tool.spec.name.clone(), tool)).collect();
        Self { rules, files, services, tools, ada, calls: AtomicU64::new(1) }
    }

    /// A call of the agent in a turn opened by mail.
    pub(super) async fn call_by(&self, name: &str) -> CallContext {
        call_by(&self.services, &self.rules, name).await
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
        let output = match tool.run.resolve(&arguments) {
            Run::Read(tool) => tool.run(&ctx, arguments).await,
            Run::World(tool) => {
                let arguments = tool.prepare(&ctx, arguments).await?;
                match write!(self, |w| tool.apply(&ctx, arguments, w)) {
                    Err(refusal) => Err(ghost_operations::mail::with_nearest(&self.store, refusal).await),
                    done => done,
                }
            }
            Run::File(tool) => {
                let work = tool.prepare(&ctx, &arguments).await?;
                let plans = work.plans();
                self.services.workspace.carry_out(work.writes).await?;
                write!(self, |w| tool.record(&ctx, arguments, &plans, w))
            }
            Run::Ask(tool) => {
                let ask = write!(self, |w| tool.open(&ctx, arguments, w))?;
                Ok(serde_json::to_value(ask).unwrap().into())
            }
            Run::Outside(tool) => tool.run(&ctx, arguments).await,
            Run::Choose(_) => unreachable!("resolved before"),
        }?;
        let events = output.events.clone();
        write!(self, |w| {
            for event in events {
                w.emit(event)?;
            }
            Ok::<_, Refusal>(())
        })?;
        Ok(output)
    }

    pub(super) async fn mail_to_ada(&self, kind: Kind, body: &str) {
        mail_to(&self.rules, "ada", kind, body).await;
    }

    pub(super) fn table(&self) -> Arc<ToolTable> {
        Arc::new(ToolTable::new(builtins::all()).unwrap())
    }
}

async fn mail_to(rules: &OperationWorld, to: &str, kind: Kind, body: &str) {
    rules.deliver(NewMessage::new(&id(to), Party::System, kind, body, Chain::root(&rules.ctx))).await.unwrap();
}

async fn call_by(services: &Arc<WorldServices>, rules: &OperationWorld, name: &str) -> CallContext {
    mail_to(rules, name, Kind::Message, "begin").await;
    let turn = rules.take(name).await.turn;
    CallContext {
        services: Arc::clone(services),
        caller: Arc::new(Caller {
            write_acl: WriteAcl::new(&[format!("agents/{name}/"), "output/reports/".into()]).unwrap(),
            agent_id: id(name),
            manages_tasks: false,
            updates_own_tasks: true,
            archetype: "writer".into(),
            groups: BTreeSet::new(),
            skills: None,
            context_bytes: 600_000,
            channel: None,
        }),
        tools: builtins::all().into_iter().map(|tool| tool.spec).collect(),
        turn_id: turn.turn_id,
        root_id: RootId(Uuid::nil()),
        hop: turn.hop,
        conversation_id: turn.conversation_id,
        call_id: CallId(Uuid::nil()),
        provider_call_id: "c".into(),
        approved: false,
        progress: None,
    }
}

/// The same call with a changed caller.
pub(super) fn with(ctx: &CallContext, change: impl FnOnce(&mut Caller)) -> CallContext {
    let mut caller = (*ctx.caller).clone();
    change(&mut caller);
    CallContext { caller: Arc::new(caller), ..ctx.clone() }
}
