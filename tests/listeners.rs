//! Connections that cannot be accepted are logged, but not each of them.

// A failure in a test is a panic with a message.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use ghost_testkit::blackbox::{Daemon, Deadline, TestEnvironment};
use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};

fn test_env(limits: &str) -> (TestEnvironment, PathBuf) {
    let test_env = TestEnvironment::new(env!("CARGO_BIN_EXE_ghostd"));
    let world = test_env.world("listeners");
    world
        .config(&format!(
            "agents: [{{ id: ada, archetype: clerk }}]\nllm: {{ default_provider: scripted, default_model: clerk }}\n{limits}"
        ))
        .archetype("clerk", "")
        .write("scripts/clerk.yaml", "otherwise: [{ say: Here. }]\n");
    let path = world.path().to_owned();
    (test_env, path)
}

fn connect(test_env: &TestEnvironment) -> UnixStream {
    UnixStream::connect(test_env.data("listeners").join("ghostd.sock")).unwrap()
}

/// Counts log warnings with these words, up to 4 seconds after the first one.
fn warnings(daemon: &Daemon, words: &str) -> usize {
    let count = || daemon.err.all().iter().filter(|line| line.contains("WARN") && line.contains(words)).count();
    assert!(daemon.err.find(0, Deadline::seconds(30), |line| line.contains(words)).is_some(), "{}", daemon.err.text());
    // The daemon tries again every second.
    assert!(daemon.err.find(0, Deadline::after(Duration::from_secs(4)), |_| false).is_none());
    count()
}

#[test]
fn connections_over_the_limit_are_logged_once() {
    let (test_env, world) = test_env("limits: { connections_max: 2 }\n");
    let daemon = test_env.up(&world, &[]);
    let held: Vec<UnixStream> = (0..6).map(|_| connect(&test_env)).collect();
    assert_eq!(warnings(&daemon, "connections_max=2"), 1, "{}", daemon.err.text());
    drop(held);
    test_env.json(&["status"]);
    daemon.stop();
}

#[test]
fn failed_accepts_are_logged_once() {
    let (test_env, world) = test_env("");
    let daemon = test_env.up(&world, &[]);
    let pid = i32::try_from(daemon.pid()).ok().and_then(Pid::from_raw);
    let open = std::fs::read_dir(format!("/proc/{}/fd", daemon.pid())).unwrap().count();
    let few = Rlimit { current: u64::try_from(open).ok(), maximum: getrlimit(Resource::Nofile).maximum };
    let before = prlimit(pid, Resource::Nofile, few).unwrap();
    let held: Vec<UnixStream> = (0..40).map(|_| connect(&test_env)).collect();
    assert_eq!(warnings(&daemon, "(os error 24)"), 1, "{}", daemon.err.text());
    prlimit(pid, Resource::Nofile, before).unwrap();
    drop(held);
    test_env.json(&["status"]);
    daemon.stop();
}
