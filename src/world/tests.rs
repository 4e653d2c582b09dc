//! Whole worlds in this process, on the in-memory store, under a clock that the test moves.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use ghost_commons::{asks, mail};
use ghost_config::plan::ProviderKind;
use ghost_domain::envelope::Kind;
use ghost_domain::ports::{Ids, Ports, Rng};
use ghost_domain::transcript::{Block, Role, TokenUsage};
use ghost_domain::{AgentId, AgentStatus, Ask, AskStatus, DeadLetterStatus, EventKind, Party, Refusal, TurnStatus};
use ghost_provider::testing::{ManualClock, provider_plan};
use ghost_provider::{Deltas, ErrorKind, ModelAnswer, ModelRequest, Provider, ProviderError, Providers, Stop};
use ghost_store::Store;
use ghost_store::memory::MemoryDisk;
use ghost_store::tables::TurnFilter;
use ghost_tools::workspace::Workspace;
use ghost_tools::{CallCx, Output, OutsideTool, Run, Tool};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::{Boot, World, boot};

/// What the test model does: one answer, or a failure.
type Think = dyn Fn(&ModelRequest) -> Result<Vec<Block>, ProviderError> + Send + Sync;

struct TestModel {
    think: Box<Think>,
    asked: Mutex<Vec<String>>,
}

#[async_trait]
impl Provider for TestModel {
    async fn complete(&self, request: &ModelRequest, _: &mut dyn Deltas) -> Result<ModelAnswer, ProviderError> {
        self.asked.lock().unwrap().push(request.agent_id.to_string());
        let blocks = (self.think)(request)?;
        Ok(ModelAnswer {
            model: request.model.clone(),
            blocks,
            usage: Some(TokenUsage { input: 10, output: 5, ..TokenUsage::default() }),
            stop: Stop::EndTurn,
        })
    }
}

#[derive(Default)]
struct Counter(AtomicU64);

impl Ids for Counter {
    fn next(&self) -> Uuid {
        Uuid::from_u128(u128::from(self.0.fetch_add(1, Ordering::Relaxed)) + 1)
    }
}

impl Rng for Counter {
    fn below(&self, _: u64) -> u64 {
        0
    }
}

/// A world's files, its disk and its clock: what outlives a daemon.
struct Ground {
    files: tempfile::TempDir,
    disk: MemoryDisk,
    clock: Arc<ManualClock>,
    ids: Arc<Counter>,
}

impl Ground {
    fn new(config: &str) -> Self {
        let files = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = files.path().join("world").join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write("world-config.yaml", config);
        write("laws.md", "Be exact.");
        write("archetype/worker/soul.md", "You work.");
        write("archetype/worker/goal.md", "Work.");
        write("archetype/worker/config.md", "## LLM\nprovider: test\nmodel: test\n");
        Self { files, disk: MemoryDisk::new(), clock: ManualClock::at(1_000_000), ids: Arc::new(Counter::default()) }
    }

    async fn boot(
        &self,
        think: impl Fn(&ModelRequest) -> Result<Vec<Block>, ProviderError> + Send + Sync + 'static,
    ) -> (Arc<World>, Arc<TestModel>) {
        let plan = ghost_config::load(&self.files.path().join("world"), &|_| None).unwrap_or_else(|p| panic!("{p}"));
        let model = Arc::new(TestModel { think: Box::new(think), asked: Mutex::default() });
        let store: Store = self.disk.open();
        let mut provider = provider_plan(ProviderKind::OpenAi, None);
        provider.attempts = 2;
        let world = boot(Boot {
            providers: Providers::with("test", provider, Arc::clone(&model) as Arc<dyn Provider>, self.clock.clone()),
            plan,
            store,
            ports: Ports { clock: self.clock.clone(), ids: self.ids.clone(), rng: self.ids.clone() },
            workspace: Workspace::inline(&self.files.path().join("workspace")).unwrap(),
            data_dir: None,
            secrets: vec![],
            node: "test".into(),
            extra_tools: vec![Tool::new::<Nothing>("test.panic", "Panics.", Run::outside(Panics))],
            reloader: Box::new(|| Err(Refusal::new(ghost_domain::Code::Unavailable, "no reload here"))),
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

    async fn run(&self, _: &CallCx, _: Nothing) -> Result<Output, Refusal> {
        panic!("the tool fell over")
    }
}

const TWO: &str = "\
world: { id: test, name: Test }
agents:
  - { id: ada, archetype: worker }
  - { id: ben, archetype: worker }
llm:
  default_provider: test
  default_model: test
  providers: { test: { kind: openai, base_url: 'http://127.0.0.1:1' } }
";

fn id(text: &str) -> AgentId {
    text.parse().unwrap()
}

fn say(text: &str) -> Result<Vec<Block>, ProviderError> {
    Ok(vec![Block::Text { text: text.into() }])
}

fn call(name: &str, arguments: Value) -> Result<Vec<Block>, ProviderError> {
    Ok(vec![Block::ToolCall { id: "c1".into(), name: name.into(), arguments }])
}

/// The results that the model has been shown since its mail.
fn results(request: &ModelRequest) -> Vec<String> {
    request
        .messages
        .iter()
        .filter(|message| message.role == Role::Tool)
        .flat_map(|message| &message.blocks)
        .filter_map(|block| if let Block::ToolResult { content, .. } = block { Some(content.clone()) } else { None })
        .collect()
}

fn mail_of(request: &ModelRequest) -> String {
    let user = request.messages.iter().filter(|message| message.role == Role::User);
    user.map(|message| message.visible_text()).filter(|text| text.contains("<inbox>")).collect()
}

async fn ask(world: &World, target: &str, text: &str) -> Ask {
    let (cx, target, text) = (world.cx().clone(), id(target), text.to_owned());
    let ask = world
        .store()
        .write(move |w| {
            Box::pin(async move {
                let chain = mail::Chain::root(&cx);
                let by = Party::Operator("test".into());
                asks::open(w, &cx, by, None, &target, text, Duration::from_secs(600), chain).await
            })
        })
        .await
        .unwrap();
    world.wait_for_ask(ask.ask_id).await.unwrap()
}

async fn send(world: &World, to: &str, text: &str) {
    let (cx, to, text) = (world.cx().clone(), id(to), text.to_owned());
    world
        .store()
        .write(move |w| {
            Box::pin(async move {
                let draft =
                    mail::Draft::new(&to, Party::Operator("t".into()), Kind::Message, text, mail::Chain::root(&cx));
                mail::deliver(w, &cx, draft).await
            })
        })
        .await
        .unwrap();
}

/// Waits for an event of this kind about this agent.
async fn until(world: &World, kind: EventKind, agent: &str) {
    let filter = ghost_domain::event::EventFilter {
        kinds: vec![kind.as_str().into()],
        agent_id: Some(id(agent)),
        channel: None,
    };
    let mut feed = ghost_commons::feed::Subscription::open(world.store(), Some(0), filter, true).await.unwrap();
    feed.next().await.unwrap().unwrap();
}

#[tokio::test]
async fn an_ask_is_answered_and_an_agent_can_ask_another() {
    let ground = Ground::new(TWO);
    let (world, _) = ground
        .boot(|request| match (request.agent_id.as_str(), results(request).first()) {
            ("ada", None) => call("syscall.ask", json!({ "agent_id": "ben", "message": "how many?" })),
            ("ada", Some(result)) => say(&format!("ben says {result}")),
            _ => say("seven"),
        })
        .await;
    let ask = ask(&world, "ada", "find out").await;
    assert_eq!(ask.status, AskStatus::Answered);
    assert!(ask.reply.as_ref().unwrap().contains("seven"), "{ask:?}");
}

#[tokio::test]
async fn a_panicking_tool_crashes_one_agent_and_its_turn_goes_on() {
    let ground = Ground::new(TWO);
    let (world, model) = ground
        .boot(|request| match (request.agent_id.as_str(), results(request).first()) {
            ("ada", None) => call("test.panic", json!({})),
            ("ada", Some(result)) => say(result),
            _ => say("fine"),
        })
        .await;
    let asking = tokio::spawn({
        let world = Arc::clone(&world);
        async move { ask(&world, "ada", "fall over").await }
    });
    until(&world, EventKind::AgentCrashed, "ada").await;
    assert_eq!(ask(&world, "ben", "are you well?").await.reply.unwrap(), "fine");
    let answer = while_time_passes(&ground, asking).await.unwrap();
    assert!(answer.reply.as_ref().unwrap().contains("outcome_unknown"), "{answer:?}");
    let asked = model.asked.lock().unwrap().iter().filter(|agent| *agent == "ada").count();
    assert_eq!(asked, 2, "what had been answered is not asked again");
    assert_eq!(world.directory().card(&id("ada")).unwrap().restarts, 1);
}

/// Moves time on until `done` completes.
async fn while_time_passes<T>(ground: &Ground, done: impl Future<Output = T>) -> T {
    let passing = async {
        for _ in 0..10_000 {
            ground.clock.advance(Duration::from_millis(500));
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

#[tokio::test]
async fn a_poisoned_message_becomes_a_dead_letter_and_the_agent_lives() {
    let ground = Ground::new(TWO);
    let (world, _) = ground
        .boot(|request| {
            let mail = mail_of(request);
            assert!(!(request.agent_id.as_str() == "ada" && mail.contains("poison")), "the model falls over");
            say("ok")
        })
        .await;
    send(&world, "ada", "poison").await;
    while_time_passes(&ground, until(&world, EventKind::DeadLetterHeld, "ada")).await;
    let answer = while_time_passes(&ground, ask(&world, "ada", "and now?")).await;
    assert_eq!(answer.reply.unwrap(), "ok");
    let dead = world
        .store()
        .read(|r| Box::pin(async move { r.dead_letter_list(None, Some(DeadLetterStatus::Held)).await }))
        .await
        .map_err(Refusal::from)
        .unwrap();
    assert_eq!(dead.len(), 1);
    assert_eq!(dead[0].crashes, 3);
}

#[tokio::test]
async fn a_provider_outage_fails_the_turn_and_not_the_agent() {
    let ground = Ground::new(TWO);
    let (world, _) = ground
        .boot(|request| match request.agent_id.as_str() {
            "ada" => Err(ProviderError::new(ErrorKind::Unauthorized, "no key")),
            _ => say("fine"),
        })
        .await;
    let answer = ask(&world, "ada", "hello").await;
    assert_eq!(answer.status, AskStatus::Failed);
    assert!(answer.error.unwrap().contains("no model answered"));
    assert_eq!(world.directory().card(&id("ada")).unwrap().status, AgentStatus::Running);
    assert_eq!(ask(&world, "ben", "hello").await.reply.unwrap(), "fine");
}

#[tokio::test]
async fn a_daemon_that_dies_in_a_turn_goes_on_with_it() {
    let ground = Ground::new(TWO);
    let (world, _) = ground
        .boot(|request| match (request.agent_id.as_str(), results(request).len()) {
            ("ben", _) => say("thanks"),
            (_, 0) => call("syscall.message.send", json!({ "to": "ben", "content": "once" })),
            _ => Err(ProviderError::new(ErrorKind::Server, "later").retry_after(Some(Duration::from_secs(1)))),
        })
        .await;
    send(&world, "ada", "tell ben").await;
    until(&world, EventKind::ModelFailed, "ada").await;
    // The daemon is gone; its disk is not.
    drop(world);
    let (world, model) = ground
        .boot(|request| match (request.agent_id.as_str(), results(request).len()) {
            ("ada", 0) => panic!("the first answer was journaled"),
            _ => say("done"),
        })
        .await;
    until(&world, EventKind::TurnFinished, "ada").await;
    until(&world, EventKind::TurnFinished, "ben").await;
    let turns = world
        .store()
        .read(|r| Box::pin(async move { r.turn_list(&TurnFilter::default()).await }))
        .await
        .map_err(Refusal::from)
        .unwrap();
    assert!(turns.iter().all(|turn| turn.status == TurnStatus::Finished), "{turns:?}");
    let sent = world
        .store()
        .read(|r| Box::pin(async move { r.messages_recent(&id("ben"), 10).await }))
        .await
        .map_err(Refusal::from)
        .unwrap();
    assert_eq!(sent.len(), 1, "the message was sent once");
    assert!(!model.asked.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_stopped_agent_refuses_asks_and_works_its_mail_off_when_started() {
    let ground = Ground::new(TWO);
    let (world, _) = ground.boot(|_| say("here")).await;
    let by = Party::Operator("test".into());
    let stopped = world.stop_agent(&by, &id("ada"), None).await.unwrap();
    assert_eq!(stopped.status, AgentStatus::Stopped);
    send(&world, "ada", "while you were out").await;
    let (cx, target) = (world.cx().clone(), id("ada"));
    let refused = world
        .store()
        .write(move |w| {
            Box::pin(async move {
                let chain = mail::Chain::root(&cx);
                asks::open(w, &cx, Party::System, None, &target, "?".into(), Duration::from_secs(1), chain).await
            })
        })
        .await
        .unwrap_err();
    assert_eq!(refused.code, ghost_domain::Code::Conflict);
    let cx = world.cx().clone();
    world
        .store()
        .write(move |w| Box::pin(async move { ghost_commons::agents::start(w, &cx, &by, &id("ada")).await }))
        .await
        .unwrap();
    until(&world, EventKind::TurnFinished, "ada").await;
}

#[tokio::test]
async fn idle_agents_sleep_and_wake_with_their_next_message() {
    let ground = Ground::new(TWO);
    let (world, _) = ground.boot(|_| say("awake")).await;
    ask(&world, "ada", "hello").await;
    let asleep = || world.directory().card(&id("ada")).unwrap().activity == ghost_domain::Activity::Asleep;
    let mut beats = 0;
    while !asleep() {
        ground.clock.advance(Duration::from_secs(5));
        for _ in 0..50 {
            tokio::task::yield_now().await;
        }
        beats += 1;
        assert!(beats < 100, "it never sleeps");
    }
    assert_eq!(ask(&world, "ada", "hello again").await.reply.unwrap(), "awake");
}

#[tokio::test]
async fn a_paused_world_keeps_its_mail_and_goes_on() {
    let ground = Ground::new(TWO);
    let (world, model) = ground.boot(|_| say("now")).await;
    let by = Party::Operator("test".into());
    world.set_paused(&by, true).await.unwrap();
    send(&world, "ada", "wait").await;
    for _ in 0..200 {
        tokio::task::yield_now().await;
    }
    assert!(model.asked.lock().unwrap().is_empty());
    world.set_paused(&by, false).await.unwrap();
    until(&world, EventKind::TurnFinished, "ada").await;
}
