//! A world in this process for the tests of this crate: on the in-memory store, with a clock that the
//! test moves.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use ghost_config::testing::{TWO_AGENTS, WorldFiles};
use ghost_domain::event::{EventKind, NewEvent};
use ghost_domain::testing::ManualClock;
use ghost_domain::{ChatChannel, Code, Event, EventId, Party, Refusal};
use ghost_proto::REFUSAL_TRAILER;
use ghost_provider::Providers;
use ghost_store::Store;
use ghost_store::memory::MemoryDisk;
use ghost_world::testing::TestWorld;
use ghost_world::{Boot, World, boot};
use prost::Message;
use serde_json::json;
use tokio::sync::watch;
use tonic::Status;
use uuid::Uuid;

use crate::control::Control;
use crate::dispatch::Query;
use crate::refusal::to_status;
use crate::services::methods;

/// A world with two agents, `ada` and `ben`.
pub(crate) struct TestControl {
    pub(crate) world: Arc<World>,
    pub(crate) control: Control,
    pub(crate) clock: Arc<ManualClock>,
    /// Stops the control plane.
    pub(crate) closing: watch::Sender<bool>,
    /// How many shutdowns were requested.
    pub(crate) shutdowns: Arc<AtomicUsize>,
    /// The refusal that the next reloads return. Without it they read the files.
    pub(crate) reload: Arc<Mutex<Option<Refusal>>>,
    files: WorldFiles,
}

const MORE: &str = "tool_privileges: { writer: [workspace.write] }\n";

impl TestControl {
    pub(crate) async fn new() -> Self {
        Self::with("").await
    }

    /// A test whose world file ends with the text `more`.
    pub(crate) async fn with(more: &str) -> Self {
        Self::over(MemoryDisk::new().open(), more).await
    }

    /// A test on the given store.
    pub(crate) async fn over(store: Store, more: &str) -> Self {
        let access = "## Tool Access\n- workspace.read\n- workspace.list\n";
        let test_world = TestWorld::with_worker(&format!("{TWO_AGENTS}{MORE}{more}"), access);
        let clock = test_world.clock.clone();
        let path = test_world.files.path("world");
        let load = move || {
            let plan = ghost_config::load(&path, &|_| None)
                .map_err(|problems| Refusal::new(Code::InvalidArguments, problems.to_string()))?;
            let providers = Providers::build(&plan.llm, &|_| None, clock.clone())?;
            Ok::<_, Refusal>((plan, providers))
        };
        let reload: Arc<Mutex<Option<Refusal>>> = Arc::default();
        let refused = Arc::clone(&reload);
        let parts = test_world.to_boot(load().unwrap().1);
        let reloader = Box::new(move || refused.lock().unwrap().clone().map_or_else(&load, Err));
        let data_dir = Some(test_world.files.dir().to_owned());
        let world = boot(Boot { store, data_dir, node: "here".into(), reloader, ..parts }).await.unwrap();
        let (closing, closed) = watch::channel(false);
        let shutdowns = Arc::new(AtomicUsize::new(0));
        let asked = Arc::clone(&shutdowns);
        let on_shutdown = Arc::new(move |_: &ghost_domain::Party| {
            asked.fetch_add(1, Ordering::SeqCst);
        });
        let control = Control::new(Arc::clone(&world), ["unix:/g.sock".to_owned()].into(), on_shutdown, closed);
        Self { world, control, clock: test_world.clock, closing, shutdowns, reload, files: test_world.files }
    }

    /// The directory that holds the world's files in `world/`.
    pub(crate) fn dir(&self) -> &std::path::Path {
        self.files.dir()
    }

    /// Replaces `world-config.yaml`.
    pub(crate) fn rewrite(&self, more: &str) {
        self.files.write("world-config.yaml", &format!("{TWO_AGENTS}{MORE}{more}"));
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
        let write = self.world.store().write(move |w| Ok::<_, Refusal>(w.chat_channel_put(&channel)?));
        write.await.unwrap();
    }

    /// What a handler that reads gets.
    pub(crate) fn query(&self) -> Query {
        Query::new(&self.control, Party::Operator("tester".into()))
    }

    /// The answer of a method, such as `World/Status`.
    pub(crate) async fn call<A: Message + Default>(&self, method: &str, request: impl Message) -> Result<A, Status> {
        let path = format!("/ghost.v1.{method}");
        let answer = methods().answer(&path, self.query(), request.encode_to_vec().into()).await;
        Ok(A::decode(answer.map_err(to_status)?).unwrap())
    }

    /// Writes an event about `agent` in `channel`.
    pub(crate) async fn emit(&self, kind: EventKind, agent: Option<&str>, channel: Option<&str>) {
        let mut event = NewEvent::new(kind, json!({ "n": 1 }));
        event.agent_id = agent.map(|agent| agent.parse().unwrap());
        event.channel = channel.map(str::to_owned);
        self.world.write(move |w| w.emit(event)).await.unwrap();
    }

    /// Writes an event with this payload.
    pub(crate) async fn emit_with(&self, kind: EventKind, payload: serde_json::Value) {
        let event = NewEvent::new(kind, payload);
        self.world.write(move |w| w.emit(event)).await.unwrap();
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

/// The refusal in a status's trailer.
pub(crate) fn refusal_of(status: &Status) -> Refusal {
    let bytes = status.metadata().get_bin(REFUSAL_TRAILER).expect("a refusal travels in a trailer").to_bytes().unwrap();
    serde_json::from_slice(&bytes).unwrap()
}
