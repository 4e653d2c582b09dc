//! Serves a world in this process over a Unix socket, as the daemon does.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use ghost_config::testing::TWO_AGENTS;
use ghost_control::{ControlOptions, ListenAddress, bind};
use ghost_domain::testing::ManualClock;
use ghost_domain::transcript::Role;
use ghost_domain::{EventKind, Refusal};
use ghost_proto::REFUSAL_TRAILER;
use ghost_provider::ModelRequest;
use ghost_provider::testing::{FakeModel, Reply, say};
use ghost_tools::{CallContext, Output, OutsideTool, Run, Tool};
use ghost_world::testing::TestWorld;
use ghost_world::{Boot, World};
use hyper_util::rt::TokioIo;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use tokio::net::UnixStream;
use tokio::sync::oneshot;
use tonic::Status;
use tonic::transport::{Channel, Endpoint};

const MORE: &str = "agents_may_create: [worker]\naccess: { default: public }\nlimits: { crashes_max: 1 }\n";

/// Panics on `poison`, never answers `please wait`, and answers `heard` otherwise.
fn reply(request: &ModelRequest) -> Reply {
    let user = request.messages.iter().filter(|message| message.role == Role::User);
    let prompt: String = user.map(|message| message.visible_text()).collect();
    assert!(!prompt.contains("poison"), "the model panics");
    if prompt.contains("please wait") { Reply::Hang } else { say("heard") }
}

/// A tool that never ends.
struct NeverEnds;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct NoParams {}

#[async_trait]
impl OutsideTool for NeverEnds {
    async fn run(&self, _: &CallContext, _: Value) -> Result<Output, Refusal> {
        pending().await
    }
}

/// A serving daemon and a client of it.
pub struct TestDaemon {
    pub world: Arc<World>,
    pub channel: Channel,
    _stop: oneshot::Sender<()>,
}

/// A world from which several daemons can boot, one after another.
pub fn new_world() -> TestWorld {
    TestWorld::new(&format!("{TWO_AGENTS}{MORE}"))
}

/// Boots a world on these files and this disk.
pub async fn boot_world(test_world: &TestWorld) -> Arc<World> {
    let hold = Tool::new::<NoParams>("test.hold", "Holds.", Run::outside(NeverEnds));
    let providers = FakeModel::new(|request, _| reply(request)).providers(3, test_world.clock.clone());
    let boot = Boot {
        data_dir: Some(test_world.files.path("data")),
        secrets: vec!["hush-hush-secret".into()],
        tools: ghost_tools::builtins::with(vec![hold]),
        ..test_world.to_boot(providers)
    };
    ghost_world::boot(boot).await.unwrap()
}

impl TestDaemon {
    pub async fn serve(test_world: &TestWorld, socket: &str) -> Self {
        let world = boot_world(test_world).await;
        let path = test_world.files.path(socket);
        let bound = bind(ControlOptions {
            listeners: vec![ListenAddress::Unix(path.clone())],
            http: None,
            data_dir: test_world.files.path("data"),
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
                // Dropping the daemon stops the daemon.
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
        Self { world, channel, _stop: stop }
    }

    /// Waits for the first event of this kind about this agent, from the beginning of the feed.
    pub async fn until(&self, kind: EventKind, agent: &str) {
        ghost_operations::testing::until(self.world.store(), kind, agent).await;
    }
}

/// Advances the clock until `done` completes.
pub async fn while_time_passes<T>(clock: &ManualClock, done: impl Future<Output = T>) -> T {
    clock.advance_until(Duration::from_millis(5), done).await
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
