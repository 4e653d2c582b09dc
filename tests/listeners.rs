//! Connections that cannot be taken, whatever keeps the daemon from it, are told in the log once in a while and not each.

// A black-box test has nothing to recover to: what goes wrong is told by the panic that fails it.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use ghost_testkit::blackbox::{Daemon, Deadline, TestEnvironment};
use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};

fn test_env(limits: &str) -> (TestEnvironment, PathBuf) {
    let test_env = TestEnvironment::new(env!("CARGO_BIN_EXE_ghostd"));
    let world = test_env.world("doors");
    world
        .config(&format!(
            "agents: [{{ id: ada, archetype: clerk }}]\nllm: {{ default_provider: scripted, default_model: clerk }}\n{limits}"
        ))
        .archetype("clerk", "")
        .write("scripts/clerk.yaml", "otherwise: [{ say: Here. }]\n");
    let path = world.path().to_owned();
    (test_env, path)
}

fn knock(test_env: &TestEnvironment) -> UnixStream {
    UnixStream::connect(test_env.data("doors").join("ghostd.sock")).unwrap()
}

/// How often the log says this within the seconds after it has said it first.
fn told(daemon: &Daemon, words: &str) -> usize {
    let said = || daemon.err.all().iter().filter(|line| line.contains("WARN") && line.contains(words)).count();
    assert!(daemon.err.find(0, Deadline::seconds(30), |line| line.contains(words)).is_some(), "{}", daemon.err.text());
    // It is tried again every second.
    assert!(daemon.err.find(0, Deadline::after(Duration::from_secs(4)), |_| false).is_none());
    said()
}

#[test]
fn connections_that_wait_for_a_place_are_told_once() {
    let (test_env, world) = test_env("limits: { connections_max: 2 }\n");
    let daemon = test_env.up(&world, &[]);
    let held: Vec<UnixStream> = (0..6).map(|_| knock(&test_env)).collect();
    assert_eq!(told(&daemon, "no more connections"), 1, "{}", daemon.err.text());
    drop(held);
    test_env.json(&["status"]);
    daemon.stop();
}

#[test]
fn connections_that_the_system_refuses_to_give_are_told_once() {
    let (test_env, world) = test_env("");
    let daemon = test_env.up(&world, &[]);
    let pid = i32::try_from(daemon.pid()).ok().and_then(Pid::from_raw);
    let open = std::fs::read_dir(format!("/proc/{}/fd", daemon.pid())).unwrap().count();
    let few = Rlimit { current: u64::try_from(open).ok(), maximum: getrlimit(Resource::Nofile).maximum };
    let before = prlimit(pid, Resource::Nofile, few).unwrap();
    let held: Vec<UnixStream> = (0..40).map(|_| knock(&test_env)).collect();
    assert_eq!(told(&daemon, "a connection could not be taken"), 1, "{}", daemon.err.text());
    prlimit(pid, Resource::Nofile, before).unwrap();
    drop(held);
    test_env.json(&["status"]);
    daemon.stop();
}
