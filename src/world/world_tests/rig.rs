//! Support for tests of whole worlds: files, disk and clock, a model, and short helpers.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use ghost_config::plan::{Plan, ProviderKind};
use ghost_domain::envelope::Kind;
use ghost_domain::ports::Ports;
use ghost_domain::transcript::{Block, Role, TokenUsage};
use ghost_domain::{AgentId, Ask, EventKind, Party, Refusal};
use ghost_provider::testing::{Counting, ManualClock, provider_plan, write_file, write_world};
use ghost_provider::{Deltas, ModelAnswer, ModelRequest, Provider, ProviderError, Providers, Stop};
use ghost_rules::{asks, mail};
use ghost_store::Store;
use ghost_store::memory::MemoryDisk;
use ghost_tools::workspace::Workspace;
use ghost_tools::{CallContext, Output, OutsideTool, Run, Tool};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use tokio::sync::watch;

use crate::world::Reloader;
use crate::{Boot, World, boot};

/// The behaviour of the test model: an answer or a failure.
type Think = dyn Fn(&ModelRequest) -> Result<Vec<Block>, ProviderError> + Send + Sync;

/// A model whose answers a test can hold back.
pub(super) struct TestModel {
    think: Box<Think>,
    pub(super) asked: Mutex<Vec<String>>,
    /// Agents whose calls are held back.
    held: watch::Sender<BTreeSet<String>>,
}

impl TestModel {
    pub(super) fn new(
        think: impl Fn(&ModelRequest) -> Result<Vec<Block>, ProviderError> + Send + Sync + 'static,
    ) -> Arc<Self> {
        Arc::new(Self { think: Box::new(think), asked: Mutex::default(), held: watch::Sender::default() })
    }

    pub(super) fn hold(&self, agent: &str) {
        self.held.send_modify(|held| {
            held.insert(agent.to_owned());
        });
    }

    pub(super) fn release(&self, agent: &str) {
        self.held.send_modify(|held| {
            held.remove(agent);
        });
    }

    /// Number of requests by an agent.
    pub(super) fn asked_by(&self, agent: &str) -> usize {
        self.asked.lock().unwrap().iter().filter(|asked| *asked == agent).count()
    }

    /// The only provider of a world, named `test`.
    pub(super) fn provider(self: &Arc<Self>, test_world: &TestWorld) -> Providers {
        let mut provider = provider_plan(ProviderKind::OpenAi, None);
        provider.attempts = 2;
        Providers::with("test", provider, Arc::clone(self) as Arc<dyn Provider>, test_world.clock.clone())
    }
}

#[async_trait]
impl Provider for TestModel {
    async fn complete(&self, request: &ModelRequest, _: &mut dyn Deltas) -> Result<ModelAnswer, ProviderError> {
        self.asked.lock().unwrap().push(request.agent_id.to_string());
        let free = |held: &BTreeSet<String>| !held.contains(request.agent_id.as_str());
        // The sender lives as long as the model, so the wait cannot fail.
        let _ = self.held.subscribe().wait_for(free).await;
        let blocks = (self.think)(request)?;
        Ok(ModelAnswer {
            model: request.model.clone(),
            blocks,
            usage: Some(TokenUsage { input: 10, output: 5, ..TokenUsage::default() }),
            estimated: false,
            stop: Stop::EndTurn,
        })
    }
}

/// A world's files, its disk and its clock. They survive the daemon.
pub(super) struct TestWorld {
    files: tempfile::TempDir,
    disk: MemoryDisk,
    pub(super) clock: Arc<ManualClock>,
    ids: Arc<Counting>,
}

impl TestWorld {
    pub(super) fn new(config: &str) -> Self {
        let files = tempfile::tempdir().unwrap();
        let clock = ManualClock::at(1_000_000);
        write_world(&files.path().join("world"), config, "## LLM\nprovider: test\nmodel: test\n");
        Self { files, disk: MemoryDisk::new(), clock, ids: Arc::default() }
    }

    pub(super) fn write(&self, path: &str, text: &str) {
        write_file(&self.files.path().join("world"), path, text);
    }

    /// A path in the workspace.
    pub(super) fn workspace(&self, path: &str) -> std::path::PathBuf {
        self.files.path().join("workspace").join(path)
    }

    /// The plan of another `world-config.yaml` with the same archetypes.
    pub(super) fn plan(&self, config: &str) -> Plan {
        self.write("world-config.yaml", config);
        ghost_config::load(&self.files.path().join("world"), &|_| None).unwrap_or_else(|p| panic!("{p}"))
    }

    pub(super) async fn boot(
        &self,
        think: impl Fn(&ModelRequest) -> Result<Vec<Block>, ProviderError> + Send + Sync + 'static,
    ) -> (Arc<World>, Arc<TestModel>) {
        let no = || Err(Refusal::new(ghost_domain::Code::Unavailable, "no reload here"));
        self.boot_to_reload(think, Box::new(no)).await
    }

    /// Boots with a store of the test.
    pub(super) async fn boot_over(
        &self,
        store: Store,
        think: impl Fn(&ModelRequest) -> Result<Vec<Block>, ProviderError> + Send + Sync + 'static,
    ) -> (Arc<World>, Arc<TestModel>) {
        let no = || Err(Refusal::new(ghost_domain::Code::Unavailable, "no reload here"));
        self.boot_with(store, think, Box::new(no)).await
    }

    pub(super) async fn boot_to_reload(
        &self,
        think: impl Fn(&ModelRequest) -> Result<Vec<Block>, ProviderError> + Send + Sync + 'static,
        reloader: Reloader,
    ) -> (Arc<World>, Arc<TestModel>) {
        self.boot_with(self.disk.open(), think, reloader).await
    }

    async fn boot_with(
        &self,
        store: Store,
        think: impl Fn(&ModelRequest) -> Result<Vec<Block>, ProviderError> + Send + Sync + 'static,
        reloader: Reloader,
    ) -> (Arc<World>, Arc<TestModel>) {
        let plan = ghost_config::load(&self.files.path().join("world"), &|_| None).unwrap_or_else(|p| panic!("{p}"));
        let model = TestModel::new(think);
        let world = boot(Boot {
            providers: model.provider(self),
            plan,
            store,
            ports: Ports { clock: self.clock.clone(), ids: self.ids.clone(), rng: self.ids.clone() },
            workspace: Workspace::inline(&self.files.path().join("workspace")).unwrap(),
            data_dir: None,
            secrets: vec![],
            node: "test".into(),
            tools: ghost_tools::builtins::with(vec![Tool::new::<Nothing>(
                "test.panic",
                "Panics.",
                Run::outside(Panics),
            )]),
            reloader,
        })
        .await
        .unwrap();
        (world, model)
    }
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Nothing {}

struct Panics;

#[async_trait]
impl OutsideTool for Panics {
    type Params = Nothing;

    async fn run(&self, _: &CallContext, _: Nothing) -> Result<Output, Refusal> {
        panic!("the tool fell over")
    }
}

pub(super) const TWO: &str = "\
world: { id: test, name: Test }
agents:
  - { id: ada, archetype: worker }
  - { id: ben, archetype: worker }
llm:
  default_provider: test
  default_model: test
  providers: { test: { kind: openai, base_url: 'http://127.0.0.1:1' } }
";

pub(super) fn id(text: &str) -> AgentId {
    text.parse().unwrap()
}

pub(super) fn say(text: &str) -> Result<Vec<Block>, ProviderError> {
    Ok(vec![Block::Text { text: text.into() }])
}

pub(super) fn call(name: &str, arguments: Value) -> Result<Vec<Block>, ProviderError> {
    Ok(vec![Block::ToolCall { id: "c1".into(), name: name.into(), arguments }])
}

/// The tool results in the request since the turn's mail.
pub(super) fn results(request: &ModelRequest) -> Vec<String> {
    request
        .messages
        .iter()
        .filter(|message| message.role == Role::Tool)
        .flat_map(|message| &message.blocks)
        .filter_map(|block| if let Block::ToolResult { content, .. } = block { Some(content.clone()) } else { None })
        .collect()
}

pub(super) fn mail_of(request: &ModelRequest) -> String {
    let user = request.messages.iter().filter(|message| message.role == Role::User);
    user.map(|message| message.visible_text()).filter(|text| text.contains("<inbox>")).collect()
}

pub(super) async fn ask(world: &World, target: &str, text: &str) -> Ask {
    let (ctx, target, text) = (world.ctx().clone(), id(target), text.to_owned());
    let ask = world
        .store()
        .write(move |w| {
            Box::pin(async move {
                let chain = mail::Chain::root(&ctx);
                let by = Party::Operator("test".into());
                asks::open(w, &ctx, by, None, &target, text, Duration::from_secs(600), chain).await
            })
        })
        .await
        .unwrap();
    world.wait_for_ask(ask.ask_id).await.unwrap()
}

pub(super) async fn send(world: &World, to: &str, text: &str) {
    let (ctx, to, text) = (world.ctx().clone(), id(to), text.to_owned());
    world
        .store()
        .write(move |w| {
            Box::pin(async move {
                let new_message = mail::NewMessage::new(
                    &to,
                    Party::Operator("t".into()),
                    Kind::Message,
                    text,
                    mail::Chain::root(&ctx),
                );
                mail::deliver(w, &ctx, new_message).await
            })
        })
        .await
        .unwrap();
}

/// Waits for an event of this kind about this agent.
pub(super) async fn until(world: &World, kind: EventKind, agent: &str) {
    let filter = ghost_domain::event::EventFilter {
        kinds: vec![kind.as_str().into()],
        agent_id: Some(id(agent)),
        channel: None,
    };
    let mut feed = ghost_rules::feed::Subscription::open(world.store(), Some(0), filter, true).await.unwrap();
    feed.next().await.unwrap().unwrap();
}

/// Advances time until `done` completes.
pub(super) async fn while_time_passes<T>(test_world: &TestWorld, done: impl Future<Output = T>) -> T {
    let passing = async {
        for _ in 0..10_000 {
            test_world.clock.advance(Duration::from_millis(500));
            for _ in 0..50 {
                tokio::task::yield_now().await;
            }
        }
        panic!("nothing came of it");
    };
    tokio::select! {
        biased;
        done = done => done,
        () = passing => unreachable!("it panics"),
    }
}

/// Lets all tasks run that can run without time passing.
pub(super) async fn settle() {
    for _ in 0..500 {
        tokio::task::yield_now().await;
    }
}

/// Waits until `done` returns true, without time passing.
pub(super) async fn soon(what: &str, done: impl Fn() -> bool) {
    for _ in 0..10_000 {
        if done() {
            return;
        }
        tokio::task::yield_now().await;
    }
    panic!("nothing came of it: {what}");
}

/// Runs one transaction with the world's context.
macro_rules! write {
    ($world:expr, |$w:ident, $ctx:ident| $body:expr) => {{
        let $ctx = $world.ctx().clone();
        $world.store().write(move |$w| Box::pin(async move { $body })).await
    }};
}
pub(super) use write;
