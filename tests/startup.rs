//! Obstacles to a start are reported clearly, each with its exit code. They change and lose nothing.

// A failure in a test is a panic with a message.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use ghost_testkit::blackbox::{Database, Deadline, Ran, TestEnvironment};

fn test_env() -> (TestEnvironment, PathBuf) {
    let test_env = TestEnvironment::new(env!("CARGO_BIN_EXE_ghostd"));
    let world = test_env.world("home");
    world
        .config("agents: [{ id: ada, archetype: clerk }]\nllm: { default_provider: scripted, default_model: clerk }\n")
        .archetype("clerk", "")
        .write("scripts/clerk.yaml", "otherwise: [{ say: Here. }]\n");
    let path = world.path().to_owned();
    (test_env, path)
}

/// An environment whose world has run and has a message that must not get lost.
fn world_with_mail() -> (TestEnvironment, PathBuf) {
    let (test_env, world) = test_env();
    let daemon = test_env.up(&world, &[]);
    test_env.ctl(&["send", "ada", "keep me"]).ok();
    test_env.wait_until_quiet(Deadline::seconds(30));
    daemon.stop();
    (test_env, world)
}

fn up(test_env: &TestEnvironment, world: &Path, args: &[&str]) -> Ran {
    let mut all = vec!["up", world.to_str().unwrap()];
    all.extend_from_slice(args);
    test_env.ghostd(&all)
}

/// Asserts that the world starts and still has its message.
fn assert_nothing_is_lost(test_env: &TestEnvironment, world: &Path) {
    let daemon = test_env.up(world, &[]);
    assert_eq!(test_env.json(&["ask", "ada", "hello"])["reply"], "Here.");
    let events = test_env.ctl(&["--json", "events"]).json_lines();
    assert!(events.iter().zip(1..).all(|(event, seq)| event["seq"] == seq));
    daemon.stop();
    let database = Database::open(&test_env.data("home"));
    assert_eq!(database.number("SELECT count(*) FROM messages WHERE body = 'keep me' AND state = 'consumed'"), 1);
}

#[test]
fn a_data_directory_that_cannot_be_created_or_written_is_refused() {
    let (test_env, world) = test_env();
    std::fs::write(test_env.join("file"), "").unwrap();
    let inside = test_env.join("file/data");
    up(&test_env, &world, &["--data", inside.to_str().unwrap()]).exits(5).says(&["file/data", "hint: ", "--data"]);

    let locked = test_env.join("locked");
    std::fs::create_dir(&locked).unwrap();
    std::fs::set_permissions(&locked, std::fs::Permissions::from_mode(0o555)).unwrap();
    // A privileged user may write everywhere, except in the kernel's file systems.
    let privileged = std::fs::write(locked.join("probe"), "").is_ok();
    let target = if privileged { PathBuf::from("/sys/ghost-data") } else { locked.join("data") };
    up(&test_env, &world, &["--data", target.to_str().unwrap()]).exits(5).says(&[target.to_str().unwrap(), "hint: "]);
    let target = if privileged { PathBuf::from("/sys/kernel") } else { locked };
    up(&test_env, &world, &["--data", target.to_str().unwrap()]).exits(5).says(&[target.to_str().unwrap(), "hint: "]);
}

#[test]
fn daemon_and_client_accept_the_same_tokens() {
    let (mut test_env, world) = test_env();
    test_env.set("GHOST_TOKEN", "x".repeat(4_096));
    let daemon = test_env.up(&world, &["--listen", "127.0.0.1:0"]);
    let line = daemon.wait_for_line("the endpoint", Deadline::seconds(10), |line| line.contains("127.0.0.1:"));
    test_env.ctl(&["--endpoint", &line[line.find("127.0.0.1:").unwrap()..], "status"]).ok();
    daemon.stop();
    for (token, why) in
        [("x".repeat(4_097), "4096"), ("x".repeat(15), "16"), ("fünfzehn und mehr Zeichen".to_owned(), "ASCII")]
    {
        test_env.set("GHOST_TOKEN", token);
        up(&test_env, &world, &["--listen", "127.0.0.1:0"]).exits(2).says(&["GHOST_TOKEN", why]);
    }
}

#[test]
fn a_taken_port_starts_nothing() {
    let (test_env, world) = world_with_mail();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    for flag in ["--listen", "--http"] {
        let ran = up(&test_env, &world, &[flag, &address]);
        assert_ne!(ran.code, Some(0));
        ran.says(&[&address]);
        assert!(ran.err.contains("hint: "), "{}", ran.err);
    }
    assert_nothing_is_lost(&test_env, &world);
}

/// The content of a directory: every file with its bytes, and every socket and directory.
fn holds(dir: &Path) -> BTreeMap<PathBuf, Option<Vec<u8>>> {
    let mut found = BTreeMap::new();
    let mut queue = vec![dir.to_owned()];
    while let Some(at) = queue.pop() {
        for entry in std::fs::read_dir(&at).unwrap() {
            let (path, kind) = entry.map(|entry| (entry.path(), entry.file_type().unwrap())).unwrap();
            if kind.is_dir() {
                queue.push(path.clone());
            }
            let text = kind.is_file().then(|| std::fs::read(&path).unwrap());
            found.insert(path, text);
        }
    }
    found
}

#[test]
fn a_refused_start_does_not_change_the_data_directory() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let nowhere = "/nope";
    let (fresh, world) = test_env();
    let socket = fresh.join("own.sock");
    let own = format!("unix:{}", socket.display());
    let refused: [&[&str]; 5] = [
        &["--listen", &address],
        &["--http", &address],
        &["--listen", &own, "--listen", "127.0.0.1:0", "--http", &address],
        &["--listen", "127.0.0.1:0", "--listen", "unix:/nope/nope.sock"],
        &["--input", nowhere],
    ];
    for args in refused {
        assert_ne!(up(&fresh, &world, args).code, Some(0), "{args:?}");
        assert!(!fresh.data("home").exists(), "{args:?} left {:?}", holds(&fresh.data("home")));
        assert!(!socket.exists(), "{args:?}");
    }
    up(&fresh, &world, &["--input", nowhere]).exits(2).says(&["--input"]);

    let (test_env, world) = world_with_mail();
    let before = holds(&test_env.data("home"));
    assert!(before.keys().any(|path| path.ends_with("lock")));
    for args in refused {
        assert_ne!(up(&test_env, &world, args).code, Some(0), "{args:?}");
        let after = holds(&test_env.data("home"));
        // Closing a database may move its content between files. The content is checked below.
        let names = |held: &BTreeMap<PathBuf, Option<Vec<u8>>>| held.keys().cloned().collect::<Vec<_>>();
        assert_eq!(names(&after), names(&before), "{args:?}");
        for name in ["lock", "token"] {
            let file = test_env.data("home").join(name);
            assert_eq!(after.get(&file), before.get(&file), "{args:?} changed {name}");
        }
    }
    assert_nothing_is_lost(&test_env, &world);

    // A running daemon keeps its lock when another one tries.
    let daemon = test_env.up(&world, &[]);
    let lock = test_env.data("home").join("lock");
    let running = holds(&test_env.data("home"))[&lock].clone();
    for args in [&[][..], &["--http", &address][..]] {
        up(&test_env, &world, args).exits(7);
        assert_eq!(holds(&test_env.data("home"))[&lock], running);
    }
    assert_eq!(running.as_deref(), Some(daemon.pid().to_string().as_bytes()));
    daemon.stop();
    assert_nothing_is_lost(&test_env, &world);
}

#[test]
fn a_rule_file_that_was_changed_for_the_worse_keeps_a_world_from_starting() {
    let (test_env, world) = world_with_mail();
    let script = world.join("scripts/clerk.yaml");
    let good = std::fs::read_to_string(&script).unwrap();
    std::fs::write(&script, "otherwize: [{ say: no }]\n").unwrap();
    up(&test_env, &world, &[]).exits(2).says(&["clerk.yaml:1", "otherwize"]);
    std::fs::write(&script, good).unwrap();
    assert_nothing_is_lost(&test_env, &world);
}

#[test]
fn a_wrong_template_is_logged_after_the_start_and_refused_by_a_reload() {
    let (test_env, world) = world_with_mail();
    let script = world.join("scripts/clerk.yaml");
    let good = std::fs::read_to_string(&script).unwrap();
    std::fs::write(&script, "otherwise: [{ say: '{{ nobody }}' }]\n").unwrap();
    let daemon = test_env.up(&world, &[]);
    let logged = daemon.err.find(0, Deadline::seconds(30), |line| line.contains("clerk.yaml:1"));
    assert!(logged.is_some(), "{}", daemon.err.text());
    let refused = test_env.ctl(&["reload"]);
    refused.exits(2);
    assert!(refused.out.contains("clerk.yaml:1"), "{}", refused.out);
    std::fs::write(&script, good).unwrap();
    test_env.ctl(&["reload"]).ok();
    daemon.stop();
    assert_nothing_is_lost(&test_env, &world);
}

#[test]
fn an_input_that_does_not_fit_into_the_workspace_starts_nothing() {
    let (test_env, world) = world_with_mail();
    let config = world.join("world-config.yaml");
    let text = std::fs::read_to_string(&config).unwrap();
    let job = "job: { input: input, lead: ada, brief: 'Do {input}.', result: output/reports }\n";
    std::fs::write(&config, format!("{text}{job}")).unwrap();
    std::fs::create_dir(world.join("input")).unwrap();
    std::fs::write(world.join("input/a.md"), "words").unwrap();
    let data = test_env.data("home");
    let inputs = data.join("workspace/inputs");
    if inputs.exists() {
        std::fs::remove_dir_all(&inputs).unwrap();
    }
    std::fs::write(&inputs, "in the way").unwrap();
    let starts = |data: &Path| Database::open(data).number("SELECT count(*) FROM events WHERE kind = 'world.started'");
    let (before, lock) = (starts(&data), std::fs::read(data.join("lock")).unwrap());
    let ran = up(&test_env, &world, &[]);
    ran.exits(5).says(&["workspace/inputs", "hint: "]);
    assert_eq!((starts(&data), std::fs::read(data.join("lock")).unwrap()), (before, lock));

    std::fs::remove_file(&inputs).unwrap();
    assert_nothing_is_lost(&test_env, &world);
    // Input that is already there needs no permission to write.
    assert_nothing_is_lost(&test_env, &world);
}

#[test]
fn a_stale_socket_is_replaced() {
    let (test_env, world) = world_with_mail();
    let daemon = test_env.up(&world, &[]);
    daemon.kill();
    let socket = test_env.data("home").join("ghostd.sock");
    assert!(socket.exists(), "a daemon that was killed leaves its socket");
    assert_nothing_is_lost(&test_env, &world);
    // So is a socket of another program that has ended.
    drop(std::fs::remove_file(&socket));
    drop(UnixListener::bind(&socket).unwrap());
    assert_nothing_is_lost(&test_env, &world);
    // A socket that is in use is not replaced.
    drop(std::fs::remove_file(&socket));
    let alive = UnixListener::bind(&socket).unwrap();
    let ran = up(&test_env, &world, &[]);
    assert_ne!(ran.code, Some(0));
    ran.says(&["ghostd.sock"]);
    drop(alive);
    assert_nothing_is_lost(&test_env, &world);
}

#[test]
fn a_second_daemon_on_the_same_data_is_refused_and_the_first_keeps_running() {
    let (test_env, world) = world_with_mail();
    let daemon = test_env.up(&world, &[]);
    up(&test_env, &world, &[]).exits(7).says(&[&daemon.pid().to_string(), "hint: "]);
    assert_eq!(test_env.json(&["ask", "ada", "hello"])["reply"], "Here.");
    daemon.stop();
    assert_nothing_is_lost(&test_env, &world);
}

/// Changes the database, asserts that the start is refused with these words and leaves the file unchanged, and
/// restores the database.
fn with_database(change: impl Fn(&Path), words: &[&str]) {
    let (test_env, world) = world_with_mail();
    let file = test_env.data("home").join("ghost.db");
    let good = std::fs::read(&file).unwrap();
    change(&file);
    let before = std::fs::read(&file).unwrap();
    let ran = up(&test_env, &world, &[]);
    assert!(matches!(ran.code, Some(1..=8)), "{:?} {}", ran.code, ran.err);
    ran.says(words).says(&["ghost.db"]);
    assert!(std::fs::read(&file).unwrap() == before, "the file was changed");
    for left in ["ghost.db-wal", "ghost.db-shm"] {
        drop(std::fs::remove_file(test_env.data("home").join(left)));
    }
    std::fs::write(&file, good).unwrap();
    assert_nothing_is_lost(&test_env, &world);
}

// covers: STORE-01
#[test]
fn a_damaged_database_is_refused_and_kept() {
    with_database(|file| std::fs::write(file, "this is no database at all, but it is long enough").unwrap(), &[]);
    with_database(
        |file| {
            // The header is correct, the rest is not.
            let mut bytes = std::fs::read(file).unwrap();
            let end = bytes.len();
            bytes[4_096..end / 2].fill(0x5a);
            std::fs::write(file, bytes).unwrap();
        },
        &[],
    );
}

/// Overwrites a big-endian number in SQLite's header.
fn patch(file: &Path, at: usize, number: u32) {
    let mut bytes = std::fs::read(file).unwrap();
    bytes[at..at + 4].copy_from_slice(&number.to_be_bytes());
    std::fs::write(file, bytes).unwrap();
}

// covers: STORE-01
#[test]
fn a_newer_database_is_refused_and_kept() {
    // `user_version` is at byte 60, `application_id` at byte 68 (SQLite's file format, section 1.3).
    with_database(|file| patch(file, 60, 9_999), &["9999"]);
}

#[test]
fn a_database_of_another_program_is_refused_and_kept() {
    with_database(|file| patch(file, 68, 0x1234_5678), &[]);
}

#[test]
fn the_data_of_another_world_is_refused_and_kept() {
    let (test_env, world) = world_with_mail();
    let other = test_env.world("away");
    other
        .config("agents: [{ id: bob, archetype: clerk }]\nllm: { default_provider: scripted, default_model: clerk }\n")
        .archetype("clerk", "")
        .write("scripts/clerk.yaml", "otherwise: [{ say: Away. }]\n");
    let data = test_env.data("home");
    let ran = up(&test_env, other.path(), &["--data", data.to_str().unwrap()]);
    ran.exits(7).says(&["home", "away"]);
    assert_nothing_is_lost(&test_env, &world);
}

// covers: WORLD-15
#[test]
fn one_signal_ends_the_daemon_in_order() {
    let (test_env, world) = test_env();
    let mut daemon = test_env.up(&world, &[]);
    daemon.terminate();
    assert_eq!(daemon.wait(), 0);
    assert!(!test_env.data("home").join("ghostd.sock").exists(), "an orderly end takes its socket along");
    let database = Database::open(&test_env.data("home"));
    assert_eq!(database.texts("SELECT kind FROM events ORDER BY seq DESC LIMIT 1"), ["world.stopped"]);
}

#[test]
fn a_second_signal_ends_the_daemon_at_once() {
    let (test_env, world) = test_env();
    std::fs::write(world.join("scripts/clerk.yaml"), "otherwise: [{ wait: 600s }, { say: Here. }]\n").unwrap();
    let mut daemon = test_env.up(&world, &[]);
    test_env.ctl(&["send", "ada", "take your time"]).ok();
    Deadline::seconds(30).until("a turn to begin", || match test_env.json(&["turn", "list"])[0]["status"].as_str() {
        Some("open") => Ok(()),
        other => Err(format!("{other:?}")),
    });
    daemon.terminate();
    daemon.wait_for_line("the first to be heard", Deadline::seconds(10), |line| line.contains("(signal)"));
    assert!(!daemon.has_ended());
    daemon.terminate();
    assert_eq!(daemon.wait(), 130);
}

/// Creates a pipe without a writer.
fn pipe(path: &Path) {
    rustix::fs::mknodat(rustix::fs::CWD, path, rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR, 0).unwrap();
}

#[test]
fn a_start_that_waits_for_a_file_can_be_stopped() {
    let (mut test_env, world) = test_env();
    let key = test_env.join("key");
    pipe(&key);
    test_env.set("GHOST_TLS_CERT", &key).set("GHOST_TLS_KEY", &key).set("GHOST_TLS_CA", &key);
    let mut daemon = test_env.start(&world, &["--listen", "127.0.0.1:0"]);
    let lock = test_env.data("home").join("lock");
    Deadline::seconds(30).until("the start", || if lock.exists() { Ok(()) } else { Err("no lock".to_owned()) });
    daemon.terminate();
    assert_eq!(daemon.wait(), 0);
    assert!(!test_env.data("home").join("ghostd.sock").exists());
}

#[test]
fn a_pipe_among_the_files_does_not_block_start_reload_or_check() {
    let (test_env, world) = test_env();
    let (rules, dir) = (world.join("scripts/extra.yaml"), world.to_str().unwrap());
    let tells = |ran: Ran, expected: &[&str]| {
        let all = format!("{}{}", ran.exits(2).out, ran.err);
        assert!(expected.iter().all(|words| all.contains(words)), "{}: {all}", ran.call);
        all
    };
    let daemon = test_env.up(&world, &[]);
    pipe(&rules);
    let expected = ["scripts/extra.yaml"];
    tells(test_env.ctl(&["reload", "--dry-run"]), &expected);
    tells(test_env.ctl(&["reload"]), &expected);
    tells(test_env.ghostd(&["check", dir]), &expected);
    assert_eq!(test_env.json(&["ask", "ada", "hello"])["reply"], "Here.");
    std::fs::remove_file(&rules).unwrap();
    test_env.ctl(&["reload"]).ok();
    daemon.stop();

    pipe(&rules);
    tells(up(&test_env, &world, &[]), &expected);
    std::fs::remove_file(&rules).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", &rules).unwrap();
    let all = tells(test_env.ghostd(&["check", dir]), &expected);
    assert!(!all.contains("root:"), "{all}");
    std::fs::remove_file(&rules).unwrap();
    let token = test_env.data("home").join("token");
    // The token file exists only if this world has listened on TCP.
    drop(std::fs::remove_file(&token));
    pipe(&token);
    up(&test_env, &world, &["--listen", "127.0.0.1:0"]).exits(5).says(&["token"]);
}

#[test]
fn a_closed_output_is_ignored_and_a_failed_write_is_reported() {
    let (test_env, world) = test_env();
    let run = |args: &[&str], out: Stdio| {
        // The command reads only its arguments, and the environment sets nothing that it needs.
        #[allow(clippy::disallowed_methods)]
        let mut command = Command::new(env!("CARGO_BIN_EXE_ghostd"));
        let ended = command.args(args).stdin(Stdio::null()).stdout(out).output().unwrap();
        (ended.status.code().unwrap(), String::from_utf8(ended.stderr).unwrap())
    };
    let (world, new) = (world.to_str().unwrap(), test_env.join("new"));
    for (number, args) in [vec!["check", world], vec!["check", "--json", world], vec!["init"]].into_iter().enumerate() {
        let dirs = ["gone", "full"].map(|name| new.join(format!("{name}{number}")));
        let with = |at: usize| {
            let dir = (args[0] == "init").then(|| dirs[at].to_str().unwrap());
            args.iter().copied().chain(dir).collect::<Vec<_>>()
        };
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let (code, err) = run(&with(0), writer.into());
        assert!(code == 0 && !err.contains("panicked") && !err.contains("output"), "{args:?}: {code} {err}");
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let (code, err) = run(&with(1), full.into());
        assert_eq!(code, 1, "{args:?}");
        assert!(err.contains("error: ") && !err.contains("panicked"), "{args:?}: {err}");
    }
}

/// Output that cannot be written does not change the effect or the exit code.
#[test]
fn unwritable_output_changes_nothing() {
    let (mut test_env, world) = test_env();
    let full = || std::fs::File::options().write(true).open("/dev/full").unwrap();
    for log in ["debug", "loud=very"] {
        test_env.set("GHOST_LOG", log);
        let mut daemon = test_env.start_into(&world, full(), full());
        Deadline::seconds(60).until("an answer", || {
            let asked = test_env.ctl(&["--json", "ask", "ada", "hello"]);
            if asked.code == Some(0) && asked.out.contains("Here.") { Ok(()) } else { Err(asked.err) }
        });
        daemon.terminate();
        assert_eq!(daemon.wait(), 0, "GHOST_LOG={log}");
    }
    // Refusals keep their exit codes.
    test_env.set("GHOST_DATABASE_PAGES", "abc");
    assert_eq!(test_env.start_into(&world, full(), full()).wait(), 2);
    test_env.unset("GHOST_DATABASE_PAGES");
    assert_eq!(test_env.start_into(&test_env.join("nothing"), full(), full()).wait(), 3);
    test_env.world("home").config("agents: 7\n");
    assert_eq!(test_env.start_into(&world, full(), full()).wait(), 2);
    let ctl = test_env.ctl_command(&["status"]).stdout(full()).stderr(full()).status().unwrap();
    assert_eq!(ctl.code(), Some(5));
}

#[test]
fn an_invalid_environment_variable_is_reported() {
    let (mut test_env, world) = test_env();
    for pages in ["abc", "-1", "0", "4294967296"] {
        test_env.set("GHOST_DATABASE_PAGES", pages);
        up(&test_env, &world, &[]).exits(2).says(&["GHOST_DATABASE_PAGES", &format!("`{pages}`"), "hint: "]);
    }
    test_env.set("GHOST_DATABASE_PAGES", "").set("GHOST_LOG", "loud=very");
    let daemon = test_env.up(&world, &[]);
    daemon.err.find(0, Deadline::seconds(10), |line| line.contains("GHOST_LOG `loud=very`")).unwrap();
    daemon.stop();
}

#[test]
fn two_worlds_of_the_same_name_share_no_data() {
    let (test_env, first) = world_with_mail();
    let second = test_env.world("elsewhere/home");
    second
        .config("agents: [{ id: bob, archetype: clerk }]\nllm: { default_provider: scripted, default_model: clerk }\n")
        .archetype("clerk", "")
        .write("scripts/clerk.yaml", "otherwise: [{ say: Here. }]\n");
    let before = holds(&test_env.data("home"));
    up(&test_env, second.path(), &[]).exits(7).says(&["elsewhere/home", "--data", "--adopt"]);
    assert_eq!(holds(&test_env.data("home")), before, "a start that was refused changed the data");
    // With its own data it runs, also a second time.
    for _ in 0..2 {
        test_env.up(second.path(), &["--data", test_env.join("own").to_str().unwrap()]).stop();
    }
    assert_nothing_is_lost(&test_env, &first);

    // A moved world takes its data along with `--adopt`, which is needed only once.
    let moved = test_env.join("moved/home");
    std::fs::create_dir_all(moved.parent().unwrap()).unwrap();
    std::fs::rename(&first, &moved).unwrap();
    up(&test_env, &moved, &[]).exits(7);
    test_env.up(&moved, &["--adopt"]).stop();
    assert_nothing_is_lost(&test_env, &moved);
}
