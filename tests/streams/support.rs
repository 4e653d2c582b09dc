//! Shared support of the stream tests: a world with two clerks, its daemon, and waits with a time limit.

use std::path::PathBuf;
use std::time::Duration;

use ghost_testkit::blackbox::{Daemon, Deadline, TestEnvironment, ghostd_testing};
use serde_json::Value;
use tokio::runtime::Runtime;

use crate::wires::{Reader, Received, Site};

pub fn test_env(limits: &str) -> (TestEnvironment, PathBuf) {
    let test_env = TestEnvironment::new(ghostd_testing());
    let world = test_env.world("open");
    world
        .config(&format!(
            "agents: [{{ id: ada, archetype: clerk }}, {{ id: ben, archetype: clerk }}]\n\
             llm: {{ default_provider: scripted, default_model: clerk }}\nlimits: {{ {limits} }}\n"
        ))
        .archetype("clerk", "")
        .write("scripts/clerk.yaml", "otherwise: [{ say: Here. }]\n");
    let path = world.path().to_owned();
    (test_env, path)
}

pub fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

/// Starts the daemon with HTTP.
pub fn up(test_env: &TestEnvironment, world: &std::path::Path) -> (Daemon, Site) {
    let daemon = test_env.up(world, &["--http", "127.0.0.1:0"]);
    let line = daemon.wait_for_line("the endpoint", Deadline::seconds(10), |line| line.contains("http://127.0.0.1:"));
    let http = line[line.find("127.0.0.1:").unwrap()..].trim().trim_end_matches('/').to_owned();
    let data = test_env.data("open");
    let token = std::fs::read_to_string(data.join("token")).unwrap().trim().to_owned();
    (daemon, Site { socket: data.join("ghostd.sock"), http, token })
}

/// Waits for a future with a time limit.
#[allow(clippy::disallowed_methods)] // real daemons, real time; nothing is passed by waiting
pub async fn soon<T>(what: &str, coming: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(120), coming)
        .await
        .unwrap_or_else(|_| panic!("waited too long for {what}"))
}

/// Reads `count` events.
pub async fn take(reader: &mut Reader, count: usize) -> Vec<Value> {
    let mut events = Vec::new();
    while events.len() < count {
        match reader.next().await {
            Received::Event(event) => events.push(event),
            other => panic!("{other:?} after {} of {count}", events.len()),
        }
    }
    events
}
