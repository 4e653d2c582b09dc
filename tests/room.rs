//! Before the disk is full, turns wait, and `status` says why; they go on by themselves. A file that finds no room
//! costs no mail. Few file descriptors hold nobody up for long.

// A failure in a test is a panic with a message.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::fs::{self, Permissions};
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use ghost_testkit::blackbox::{Database, Deadline, TestEnvironment};
use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};

fn world(test_env: &TestEnvironment, more: &str) -> PathBuf {
    let world = test_env.world("home");
    world
        .config(&format!(
            "agents: [{{ id: ada, archetype: clerk }}]\nllm: {{ default_provider: scripted, default_model: clerk }}\n{more}"
        ))
        .archetype("clerk", "")
        .write(
            "scripts/clerk.yaml",
            format!(
                "rules:\n  - when: {{ round: 0, mail: write }}\n    do:\n      - call: workspace.write\n        with: {{ path: note.md, \
                 content: {} }}\notherwise: [{{ say: Here. }}]\n",
                "x".repeat(60_000)
            ),
        );
    world.path().to_owned()
}

#[test]
fn turns_wait_while_there_is_too_little_room_and_go_on_by_themselves() {
    let test_env = TestEnvironment::new(env!("CARGO_BIN_EXE_ghostd"));
    let much = 1_u64 << 50;
    let path = world(&test_env, &format!("limits: {{ free_bytes_min: {much} }}\n"));
    let daemon = test_env.up(&path, &[]);
    let warned = || test_env.json(&["status"])["warnings"].to_string().contains("free_bytes_min");
    Deadline::seconds(30).until("the warning", || warned().then_some(()).ok_or_else(String::new));
    test_env.ctl(&["send", "ada", "hello"]).ok();
    Deadline::seconds(30).until("an agent that waits", || {
        let status = test_env.json(&["status"]);
        let waits = status["waiting_agents"] == 1 && status["open_turns"] == 0 && status["inbox_total"] == 1;
        if waits { Ok(()) } else { Err(status.to_string()) }
    });
    let asked = test_env.ctl(&["--json", "ask", "ada", "hello", "--timeout", "2s"]);
    assert!(asked.error().to_string().contains("free_bytes_min"), "{}", asked.err);
    // A warning alone holds nobody back.
    world(&test_env, &format!("limits: {{ free_bytes_min: 0, free_bytes_warn: {much} }}\n"));
    test_env.ctl(&["reload"]).ok();
    test_env.wait_until_quiet(Deadline::seconds(30));
    assert!(!test_env.json(&["status"])["warnings"].to_string().contains("no turn goes on until"));
    daemon.stop();
    let finished =
        Database::open(&test_env.data("home")).number("SELECT count(*) FROM turns WHERE status = 'finished'");
    assert!(finished >= 1, "{finished}");
}

/// The workspace is a file system of 1 MiB that only the daemon sees.
#[test]
fn a_file_that_finds_no_room_is_written_when_there_is_room_and_the_mail_waits() {
    let mut test_env = TestEnvironment::new("");
    let (place, program) = (test_env.join("workspace"), test_env.join("ghostd"));
    fs::create_dir(&place).unwrap();
    let script = format!(
        "#!/bin/sh\nexec unshare --user --map-root-user --mount sh -c 'mount -t tmpfs -o size=1m tmpfs {} && exec {} \"$@\"' -- \"$@\"\n",
        place.display(),
        env!("CARGO_BIN_EXE_ghostd")
    );
    fs::write(&program, script).unwrap();
    fs::set_permissions(&program, Permissions::from_mode(0o700)).unwrap();
    test_env.use_daemon(&program);
    if test_env.ghostd(&["--version"]).code != Some(0) {
        // This system lets nobody mount a file system in a namespace, so there is nothing to test.
        return;
    }
    let world = world(&test_env, "limits: { free_bytes_min: 0, free_inodes_min: 0 }\n");
    let daemon = test_env.up(&world, &["--workspace", place.to_str().unwrap()]);
    let inside = PathBuf::from(format!("/proc/{}/root{}", daemon.pid(), place.display()));
    let filler = inside.join("filler");
    let mut file = fs::File::create(&filler).unwrap();
    while file.write_all(&[0; 4_096]).is_ok() {}
    drop(file);
    test_env.ctl(&["send", "ada", "write a note"]).ok();
    Deadline::seconds(30).until("an agent that waits", || {
        let status = test_env.json(&["status"]);
        let waits = status["waiting_agents"] == 1 && status["open_turns"] == 1;
        if waits { Ok(()) } else { Err(status.to_string()) }
    });
    assert!(!inside.join("agents/ada/note.md").exists());
    fs::remove_file(&filler).unwrap();
    test_env.wait_until_quiet(Deadline::seconds(60));
    assert_eq!(fs::metadata(inside.join("agents/ada/note.md")).unwrap().len(), 60_000);
    assert_eq!(test_env.json(&["status"])["waiting_agents"], 0);
    daemon.stop();
    let database = Database::open(&test_env.data("home"));
    assert_eq!(database.number("SELECT count(*) FROM ledger WHERE status <> 'ok'"), 0, "no call failed");
    assert_eq!(database.number("SELECT count(*) FROM turns WHERE status = 'finished'"), 1);
}

#[test]
fn idle_connections_make_room_when_there_are_few_descriptors() {
    let test_env = TestEnvironment::new(env!("CARGO_BIN_EXE_ghostd"));
    let path = world(&test_env, "limits: { free_descriptors_min: 0 }\n");
    let daemon = test_env.up(&path, &[]);
    let pid = i32::try_from(daemon.pid()).ok().and_then(Pid::from_raw);
    let few = Rlimit { current: Some(96), maximum: getrlimit(Resource::Nofile).maximum };
    prlimit(pid, Resource::Nofile, few).unwrap();
    let socket = test_env.data("home").join("ghostd.sock");
    let held: Vec<UnixStream> = (0..80).map(|_| UnixStream::connect(&socket).unwrap()).collect();
    let deadline = Deadline::seconds(8);
    test_env.json(&["status"]);
    assert!(!deadline.passed(), "a call waits until idle connections end by themselves, after 10 s");
    drop(held);
    daemon.stop();
}
