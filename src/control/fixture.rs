//! A world in this process for the tests of this crate: on the in-memory store, with a clock that the
//! test moves.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use ghost_domain::event::{EventKind, NewEvent};
use ghost_domain::ports::Ports;
use ghost_domain::{ChatChannel, Code, Event, EventId, Party, Refusal};
use ghost_proto::REFUSAL_TRAILER;
use ghost_provider::Providers;
use ghost_provider::testing::{Counting, ManualClock, write_file, write_world};
use ghost_store::Store;
use ghost_store::memory::MemoryDisk;
use ghost_tools::workspace::Workspace;
use ghost_world::{Boot, World, boot};
use serde_json::json;
use tokio::sync::watch;
use tonic::{Request, Status};
use uuid::Uuid;

use crate::caller::Principal;
use crate::control::Control;

/// A world with two agents, `ada` and `ben`.
pub(crate) struct Scene {
    pub(crate) world: Arc<World>,
    pub(crate) control: Control,
    pub(crate) clock: Arc<ManualClock>,
    /// Stops the control plane.
    pub(crate) closing: watch::Sender<bool>,
    /// How many shutdowns were requested.
    pub(crate) shutdowns: Arc<AtomicUsize>,
    /// The refusal that the next reloads return. Without it they read the files.
    pub(crate) reload: Arc<Mutex<Option<Refusal>>>,
    dir: tempfile::TempDir,
}

const CONFIG: &str = "\
world: { id: test, name: Test }
agents:
  - { id: ada, archetype: worker }
  - { id: ben, archetype: worker }
llm:
  default_provider: test
  default_model: test
  providers: { test: { kind: openai, base_url: 'http://127.0.0.1:1' } }
tool_privileges: { writer: [workspace.write] }
";

impl Scene {
    pub(crate) async fn new() -> Self {
        Self::with("").await
    }

    /// A scene whose world file ends with the text `more`.
    pub(crate) async fn with(more: &str) -> Self {
        Self::over(MemoryDisk::new().open(), more).await
    }

    /// A scene on the given store.
    pub(crate) async fn over(store: Store, more: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let access = "## Tool Access\n- workspace.read\n- workspace.list\n";
        write_world(&dir.path().join("world"), &format!("{CONFIG}{more}"), access);
        let clock = ManualClock::at(1_000_000);
        let plan = ghost_config::load(&dir.path().join("world"), &|_| None).unwrap_or_else(|p| panic!("{p}"));
        let providers = Providers::build(&plan.llm, &|_| None, clock.clone()).unwrap();
        let counter = Arc::new(Counting::default());
        let reload: Arc<Mutex<Option<Refusal>>> = Arc::default();
        let (refused, path, time) = (Arc::clone(&reload), dir.path().join("world"), clock.clone());
        let world = boot(Boot {
            plan,
            store,
            ports: Ports { clock: clock.clone(), ids: counter.clone(), rng: counter },
            providers,
            workspace: Workspace::inline(&dir.path().join("workspace")).unwrap(),
            data_dir: Some(dir.path().to_owned()),
            secrets: vec![],
            node: "here".into(),
            tools: ghost_tools::builtins::all(),
            reloader: Box::new(move || {
                if let Some(refusal) = refused.lock().unwrap().clone() {
                    return Err(refusal);
                }
                let plan = ghost_config::load(&path, &|_| None)
                    .map_err(|problems| Refusal::new(Code::InvalidArguments, problems.to_string()))?;
                let providers = Providers::build(&plan.llm, &|_| None, time.clone())?;
                Ok((plan, providers))
            }),
        })
        .await
        .unwrap();
        let (closing, closed) = watch::channel(false);
        let shutdowns = Arc::new(AtomicUsize::new(0));
        let asked = Arc::clone(&shutdowns);
        let on_shutdown = Arc::new(move |_: &ghost_domain::Party| {
            asked.fetch_add(1, Ordering::SeqCst);
        });
        let control = Control::new(Arc::clone(&world), ["unix:/g.sock".to_owned()].into(), on_shutdown, closed);
        Self { world, control, clock, closing, shutdowns, reload, dir }
    }

    /// The directory that holds the world's files in `world/`.
    pub(crate) fn dir(&self) -> &std::path::Path {
        self.dir.path()
    }

    /// Replaces `world-config.yaml`.
    pub(crate) fn rewrite(&self, more: &str) {
        write_file(&self.dir().join("world"), "world-config.yaml", &format!("{CONFIG}{more}"));
    }

    /// Creates a chat channel without an event.
    pub(crate) async fn channel(&self, name: &str) {
        let channel = ChatChannel {
            channel: name.parse().unwrap(),
            creator: Party::System,
            gated: true,
            topic: None,
            members: 0,
            last_seq: 0,
            created_at: self.world.ctx().now(),
        };
        let write = self
            .world
            .store()
            .write(move |w| Box::pin(async move { Ok::<_, Refusal>(w.chat_channel_put(&channel).await?) }));
        write.await.unwrap();
    }

    /// Writes an event about `agent` in `channel`.
    pub(crate) async fn emit(&self, kind: EventKind, agent: Option<&str>, channel: Option<&str>) {
        let mut event = NewEvent::new(kind, json!({ "n": 1 }));
        event.agent_id = agent.map(|agent| agent.parse().unwrap());
        event.channel = channel.map(str::to_owned);
        let ctx = self.world.ctx().clone();
        self.world.store().write(move |w| Box::pin(async move { ctx.emit(w, event).await })).await.unwrap();
    }

    /// Writes an event with this payload.
    pub(crate) async fn emit_with(&self, kind: EventKind, payload: serde_json::Value) {
        let (ctx, event) = (self.world.ctx().clone(), NewEvent::new(kind, payload));
        self.world.store().write(move |w| Box::pin(async move { ctx.emit(w, event).await })).await.unwrap();
    }

    /// Writes `count` events.
    pub(crate) async fn emit_many(&self, count: usize) {
        for _ in 0..count {
            self.emit(EventKind::WorldWarning, None, None).await;
        }
    }

    /// Publishes an event that is not stored.
    pub(crate) fn ephemeral(&self, kind: EventKind) {
        self.world.store().publish_ephemeral(Event {
            seq: self.world.store().last_seq(),
            event_id: EventId(Uuid::nil()),
            ts: self.world.ctx().now(),
            kind,
            agent_id: Some("ada".parse().unwrap()),
            channel: None,
            correlation_id: None,
            payload: json!({}).into(),
        });
    }
}

/// A request with an authenticated principal.
pub(crate) fn from_operator<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.extensions_mut().insert(Principal("tester".into()));
    request
}

/// The refusal in a status's trailer.
pub(crate) fn refusal_of(status: &Status) -> Refusal {
    let bytes = status.metadata().get_bin(REFUSAL_TRAILER).expect("a refusal travels in a trailer").to_bytes().unwrap();
    serde_json::from_slice(&bytes).unwrap()
}
