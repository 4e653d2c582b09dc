//! Serves a world in this process over a Unix socket, as the daemon does.

use std::future::pending;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use ghost_config::plan::ProviderKind;
use ghost_control::{ControlOptions, ListenAddress, bind};
use ghost_domain::event::EventFilter;
use ghost_domain::ports::Ports;
use ghost_domain::transcript::{Block, Role, TokenUsage};
use ghost_domain::{Code, EventKind, Refusal};
use ghost_proto::REFUSAL_TRAILER;
use ghost_provider::testing::{Counting, ManualClock, provider_plan, write_world};
use ghost_provider::{Deltas, ModelAnswer, ModelRequest, Provider, ProviderError, Providers, Stop};
use ghost_store::memory::MemoryDisk;
use ghost_tools::workspace::Workspace;
use ghost_tools::{CallContext, Output, OutsideTool, Run, Tool};
use ghost_world::{Boot, World, boot};
use hyper_util::rt::TokioIo;
use schemars::JsonSchema;
use serde::Deserialize;
use tokio::net::UnixStream;
use tokio::sync::oneshot;
use tonic::Status;
use tonic::transport::{Channel, Endpoint};

const CONFIG: &str = "\
world: { id: test, name: Test }
agents:
  - { id: ada, archetype: worker }
  - { id: ben, archetype: worker }
agents_may_create: [worker]
limits: { crashes_max: 1 }
llm:
  default_provider: test
  default_model: test
  providers: { test: { kind: openai, base_url: 'http://127.0.0.1:1' } }
";

/// Panics on `poison`, never answers `please wait`, and answers `heard` otherwise.
struct FakeModel;

#[async_trait]
impl Provider for FakeModel {
    async fn complete(&self, request: &ModelRequest, _: &mut dyn Deltas) -> Result<ModelAnswer, ProviderError> {
        let prompt: String = request
            .messages
            .iter()
            .filter(|message| message.role == Role::User)
            .map(|message| message.visible_text())
            .collect();
        assert!(!prompt.contains("poison"), "the model panics");
        if prompt.contains("please wait") {
            pending::<()>().await;
        }
        Ok(ModelAnswer {
            model: request.model.clone(),
            blocks: vec![Block::Text { text: "heard".into() }],
            usage: Some(TokenUsage { input: 10, output: 5, ..TokenUsage::default() }),
            estimated: false,
            stop: Stop::EndTurn,
        })
    }
}

/// A tool that never ends.
struct NeverEnds;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct NoParams {}

#[async_trait]
impl OutsideTool for NeverEnds {
    type Params = NoParams;

    async fn run(&self, _: &CallContext, _: NoParams) -> Result<Output, Refusal> {
        pending().await
    }
}

/// What survives a daemon: files, disk, clock.
pub struct Ground {
    pub files: tempfile::TempDir,
    disk: MemoryDisk,
    pub clock: Arc<ManualClock>,
    ids: Arc<Counting>,
}

/// A serving daemon and a client of it.
pub struct Rig {
    pub world: Arc<World>,
    pub channel: Channel,
    _stop: oneshot::Sender<()>,
}

impl Ground {
    pub fn new() -> Self {
        let files = tempfile::tempdir().unwrap();
        write_world(&files.path().join("world"), CONFIG, "## LLM\nprovider: test\nmodel: test\n");
        Self { files, disk: MemoryDisk::new(), clock: ManualClock::at(1_000_000), ids: Arc::default() }
    }

    pub fn data(&self) -> PathBuf {
        self.files.path().join("data")
    }

    /// Boots a world on these files and this disk.
    pub async fn boot(&self) -> Arc<World> {
        boot(Boot {
            plan: ghost_config::load(&self.files.path().join("world"), &|_| None).unwrap_or_else(|p| panic!("{p}")),
            store: self.disk.open(),
            ports: Ports { clock: self.clock.clone(), ids: self.ids.clone(), rng: self.ids.clone() },
            providers: Providers::with(
                "test",
                provider_plan(ProviderKind::OpenAi, None),
                Arc::new(FakeModel),
                self.clock.clone(),
            ),
            workspace: Workspace::inline(&self.files.path().join("workspace")).unwrap(),
            data_dir: Some(self.data()),
            secrets: vec!["hush-hush-secret".into()],
            node: "test".into(),
            tools: ghost_tools::builtins::with(vec![Tool::new::<NoParams>(
                "test.hold",
                "Holds.",
                Run::outside(NeverEnds),
            )]),
            reloader: Box::new(|| Err(Refusal::new(Code::Unavailable, "no reload here"))),
        })
        .await
        .unwrap()
    }

    pub async fn serve(&self, socket: &str) -> Rig {
        let world = self.boot().await;
        let path = self.files.path().join(socket);
        let bound = bind(ControlOptions {
            listeners: vec![ListenAddress::Unix(path.clone())],
            http: None,
            data_dir: self.data(),
            token: None,
            tls: None,
            on_shutdown: Arc::new(|_| {}),
        })
        .await
        .unwrap();
        let (stop, stopped) = oneshot::channel();
        let served = Arc::clone(&world);
        tokio::spawn(async move {
            let shutdown = async move {
                // Dropping the rig stops the daemon.
                let _ = stopped.await;
            };
            bound.serve(served, shutdown).await.unwrap();
        });
        let connect = tower::service_fn(move |_| {
            let path = path.clone();
            async move { UnixStream::connect(path).await.map(TokioIo::new) }
        });
        let endpoint = Endpoint::from_static("http://ghost");
        let channel = endpoint.connect_with_connector(connect).await.unwrap();
        Rig { world, channel, _stop: stop }
    }
}

impl Rig {
    /// Waits for the first event of this kind about this agent, from the beginning of the feed.
    pub async fn until(&self, kind: EventKind, agent: &str) {
        let filter =
            EventFilter { kinds: vec![kind.as_str().into()], agent_id: Some(agent.parse().unwrap()), channel: None };
        let mut feed = ghost_rules::feed::Subscription::open(self.world.store(), Some(0), filter, true).await.unwrap();
        feed.next().await.unwrap().unwrap();
    }
}

/// Advances the clock until `done` completes.
pub async fn while_time_passes<T>(clock: &ManualClock, done: impl Future<Output = T>) -> T {
    tokio::pin!(done);
    for _ in 0..200_000 {
        tokio::select! {
            biased;
            done = &mut done => return done,
            () = tokio::task::yield_now() => clock.advance(Duration::from_millis(5)),
        }
    }
    panic!("the future did not complete");
}

/// The refusal in the trailer of a status.
pub fn refusal(status: &Status) -> Refusal {
    let bytes = status.metadata().get_bin(REFUSAL_TRAILER).unwrap_or_else(|| panic!("no trailer: {status:?}"));
    serde_json::from_slice(&bytes.to_bytes().unwrap()).unwrap()
}

/// Asserts that a call failed with this gRPC code, and that the refusal names this field. Returns the
/// refusal.
pub fn refused<T: std::fmt::Debug>(answer: Result<T, Status>, code: tonic::Code, field: Option<&str>) -> Refusal {
    let status = answer.unwrap_err();
    assert_eq!(status.code(), code, "{status:?}");
    let refusal = refusal(&status);
    if let Some(field) = field {
        assert_eq!(refusal.details, Some(serde_json::json!({ "field": field })), "{refusal:?}");
    }
    refusal
}
