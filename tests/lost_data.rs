//! Damaged, emptied or removed data is reported with a remedy. It is not replaced by new data, and no write is
//! acknowledged that would be lost.

// A failure in a test is a panic with a message.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::fs;
use std::path::{Path, PathBuf};

use ghost_testkit::blackbox::{Database, Deadline, Ran, TestEnvironment};
use rustix::fs::{CWD, FileType, mknodat};
use serde_json::Value;

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

/// Asserts that the world does not start.
fn refused(test_env: &TestEnvironment, world: &Path, code: i32, words: &[&str]) -> Ran {
    let ran = test_env.ghostd(&["up", world.to_str().unwrap()]);
    ran.exits(code).says(words);
    ran
}

fn kept(data: &Path) -> i64 {
    Database::open(data).number("SELECT count(*) FROM messages WHERE body = 'keep me' AND state = 'consumed'")
}

/// Asserts that the world starts and still has its message.
fn assert_nothing_is_lost(test_env: &TestEnvironment, world: &Path) {
    let daemon = test_env.up(world, &[]);
    assert_eq!(test_env.json(&["ask", "ada", "hello"])["reply"], "Here.");
    daemon.stop();
    assert!(kept(&test_env.data("home")) > 0);
}

fn sql(data: &Path, statement: &'static str) {
    let database = rusqlite::Connection::open(data.join("ghost.db")).unwrap();
    database.execute(statement, []).unwrap();
    database.close().unwrap();
}

#[test]
fn an_empty_or_lost_database_is_refused_and_its_log_is_kept() {
    let (test_env, world) = world_with_mail();
    let data = test_env.data("home");
    let (file, log, marker) = (data.join("ghost.db"), data.join("ghost.db-wal"), data.join("world.id"));
    assert_eq!(fs::read_to_string(&marker).unwrap(), "home\n");

    // After an orderly end only `world.id` shows that there was a database.
    let good = fs::read(&file).unwrap();
    fs::write(&file, "").unwrap();
    refused(&test_env, &world, 1, &["ghost.db", "hint: "]);
    assert_eq!(fs::read(&file).unwrap(), b"");
    fs::remove_file(&file).unwrap();
    refused(&test_env, &world, 1, &["ghost.db", "hint: "]);
    assert!(!file.exists() && !log.exists());
    // A pipe in its place does not block the start.
    mknodat(CWD, &file, FileType::Fifo, 0o600.into(), 0).unwrap();
    refused(&test_env, &world, 1, &["ghost.db", "hint: "]);
    fs::remove_file(&file).unwrap();
    fs::write(&file, good).unwrap();
    let lock = data.join("lock");
    fs::remove_file(&lock).unwrap();
    mknodat(CWD, &lock, FileType::Fifo, 0o600.into(), 0).unwrap();
    refused(&test_env, &world, 5, &["lock", "hint: "]);
    fs::remove_file(&lock).unwrap();
    assert_nothing_is_lost(&test_env, &world);

    // After a crash SQLite would delete the log.
    let daemon = test_env.up(&world, &[]);
    test_env.ctl(&["send", "ada", "keep me"]).ok();
    test_env.wait_until_quiet(Deadline::seconds(30));
    daemon.kill();
    let (good, logged) = (fs::read(&file).unwrap(), fs::read(&log).unwrap());
    assert!(!logged.is_empty());
    for marked in [true, false] {
        if !marked {
            fs::remove_file(&marker).unwrap();
        }
        fs::write(&file, "").unwrap();
        refused(&test_env, &world, 1, &["ghost.db-wal", "hint: "]);
        assert!(fs::read(&file).unwrap().is_empty() && fs::read(&log).unwrap() == logged);
        fs::remove_file(&file).unwrap();
        refused(&test_env, &world, 1, &["ghost.db-wal", "hint: "]);
        assert!(!file.exists() && fs::read(&log).unwrap() == logged);
    }
    fs::write(&file, good).unwrap();
    assert_nothing_is_lost(&test_env, &world);
    assert_eq!(kept(&data), 2);
    assert_eq!(fs::read_to_string(&marker).unwrap(), "home\n", "written by the next start");

    // Without any data, the world is a new one.
    fs::rename(&data, test_env.join("old")).unwrap();
    test_env.up(&world, &[]).stop();
    assert_eq!((kept(&data), kept(&test_env.join("old"))), (0, 2));
}

#[test]
fn a_start_with_damaged_data_names_the_file_and_the_remedy() {
    for (damage, words) in
        [("UPDATE agents SET record = '{bad'", &["agents", "`{bad`"][..]), ("DROP TABLE messages", &["messages"])]
    {
        let (test_env, world) = world_with_mail();
        sql(&test_env.data("home"), damage);
        let ran = refused(&test_env, &world, 1, words);
        ran.says(&[test_env.data("home").join("ghost.db").to_str().unwrap()]);
    }
}

#[test]
fn a_damaged_event_is_reported_and_can_be_skipped() {
    let (test_env, world) = world_with_mail();
    sql(&test_env.data("home"), "UPDATE events SET payload = '{bad' WHERE seq = 4");
    let daemon = test_env.up(&world, &[]);
    let seqs = |ran: &Ran| -> Vec<i64> {
        let lines = ran.out.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        lines.map(|event| event["seq"].as_i64().unwrap()).collect()
    };
    let ran = test_env.ctl(&["--json", "events"]);
    ran.exits(1).says(&["`4`", "ghostctl events --after 4"]);
    assert_eq!(seqs(&ran), [1, 2, 3]);
    let ran = test_env.ctl(&["--json", "events", "--after", "4"]);
    ran.ok();
    let rest = seqs(&ran);
    assert!(rest.len() > 3 && rest.iter().zip(5..).all(|(seq, wanted)| *seq == wanted), "{rest:?}");
    daemon.stop();
}

#[test]
fn a_daemon_whose_directory_is_removed_acknowledges_nothing_and_ends() {
    let (mut test_env, world) = test_env();
    test_env.set("GHOST_TOKEN", "x".repeat(32));
    let data = test_env.data("home");
    let removals: [fn(&Path); 3] = [
        |data| fs::remove_dir_all(data).unwrap(),
        |data| fs::remove_file(data.join("ghost.db")).unwrap(),
        |data| fs::remove_file(data.join("ghost.db-wal")).unwrap(),
    ];
    for (number, remove) in removals.into_iter().enumerate() {
        drop(fs::remove_dir_all(&data));
        let mut daemon = test_env.up(&world, &["--listen", "127.0.0.1:0"]);
        let line = daemon.wait_for_line("the endpoint", Deadline::seconds(10), |line| line.contains("127.0.0.1:"));
        let endpoint = line[line.find("127.0.0.1:").unwrap()..].to_owned();
        let send = || test_env.ctl(&["--endpoint", &endpoint, "--timeout", "1s", "send", "ada", "keep me"]);
        send().ok();
        test_env.ctl(&["--endpoint", &endpoint, "ask", "ada", "hello"]).ok();
        remove(&data);
        for _ in 0..2 {
            assert_ne!(send().code, Some(0), "{number}");
        }
        assert_eq!(daemon.wait(), 1);
        let reported = daemon.err.text();
        assert!(reported.contains(data.to_str().unwrap()) && reported.contains("hint: "), "{reported}");
        if number == 2 {
            // The orderly end has moved the content of the log into the database.
            assert_eq!(kept(&data), 1);
        }
    }
}

#[test]
fn a_daemon_with_moved_data_leaves_its_successor_alone() {
    let (test_env, world) = test_env();
    let (data, aside) = (test_env.data("home"), test_env.join("aside"));
    let mut first = test_env.up(&world, &[]);
    test_env.ctl(&["send", "ada", "keep me"]).ok();
    test_env.wait_until_quiet(Deadline::seconds(30));
    fs::rename(&data, &aside).unwrap();
    let second = test_env.up(&world, &[]);
    assert_eq!(first.wait(), 1);
    // The first daemon's end removed neither the socket nor the log of the second.
    test_env.ctl(&["send", "ada", "keep me"]).ok();
    test_env.wait_until_quiet(Deadline::seconds(30));
    second.kill();
    assert_nothing_is_lost(&test_env, &world);
    assert_eq!((kept(&data), kept(&aside)), (1, 1));

    // If someone deletes the lock file, the first daemon must end before a second one does harm.
    let mut daemon = test_env.up(&world, &[]);
    fs::remove_file(data.join("lock")).unwrap();
    assert_eq!(daemon.wait(), 1);
    assert!(daemon.err.text().contains(data.join("lock").to_str().unwrap()), "{}", daemon.err.text());
    assert_nothing_is_lost(&test_env, &world);
}

#[test]
fn a_database_copied_without_its_log_is_refused_beside_files() {
    let (test_env, world) = test_env();
    let data = test_env.data("home");
    let daemon = test_env.up(&world, &[]);
    test_env.ctl(&["send", "ada", "keep me"]).ok();
    test_env.wait_until_quiet(Deadline::seconds(30));
    daemon.kill();
    let aside = test_env.join("aside");
    fs::rename(&data, &aside).unwrap();
    fs::create_dir(&data).unwrap();
    fs::copy(aside.join("ghost.db"), data.join("ghost.db")).unwrap();
    fs::create_dir_all(data.join("workspace/shared")).unwrap();
    let before = fs::read(data.join("ghost.db")).unwrap();
    refused(&test_env, &world, 1, &["ghost.db", "workspace", "hint: "]);
    assert_eq!(fs::read(data.join("ghost.db")).unwrap(), before);
    fs::write(data.join("ghost.db"), "").unwrap();
    refused(&test_env, &world, 1, &["ghost.db", "workspace", "hint: "]);

    // With its log the copy is complete.
    fs::copy(aside.join("ghost.db"), data.join("ghost.db")).unwrap();
    fs::copy(aside.join("ghost.db-wal"), data.join("ghost.db-wal")).unwrap();
    assert_nothing_is_lost(&test_env, &world);
    // Files without a database may have been prepared for a new world.
    fs::rename(&data, test_env.join("second")).unwrap();
    fs::create_dir_all(data.join("workspace/shared")).unwrap();
    test_env.up(&world, &[]).stop();
    assert_eq!(kept(&data), 0);
}

#[test]
fn a_killed_first_start_is_completed_beside_prepared_files() {
    let (test_env, world) = test_env();
    let data = test_env.data("home");
    let brief = data.join("workspace/shared/brief.md");
    let lay_out = || {
        drop(fs::remove_dir_all(&data));
        fs::create_dir_all(brief.parent().unwrap()).unwrap();
        fs::write(&brief, "Count.").unwrap();
    };
    let goes_on = || {
        let daemon = test_env.up(&world, &[]);
        assert!(!data.join("ghost.db-new").exists());
        assert_eq!(test_env.json(&["ask", "ada", "hello"])["reply"], "Here.");
        daemon.stop();
        assert_eq!(fs::read_to_string(&brief).unwrap(), "Count.");
    };
    // Killed when it had created an empty file.
    lay_out();
    fs::write(data.join("ghost.db-new"), "").unwrap();
    fs::write(data.join("ghost.db"), "").unwrap();
    goes_on();
    // After that, the file belongs to the world.
    fs::write(data.join("ghost.db"), "").unwrap();
    fs::remove_file(data.join("world.id")).unwrap();
    refused(&test_env, &world, 1, &["ghost.db", "workspace", "hint: "]);

    // Killed as soon as a file exists, at whatever step.
    for name in ["ghost.db-new", "ghost.db", "ghost.db-wal"].into_iter().cycle().take(12) {
        lay_out();
        let daemon = test_env.start(&world, &[]);
        // The log stays longest. The other files may be gone before they are seen.
        let begun = || data.join(name).exists() || data.join("ghost.db-wal").exists();
        Deadline::seconds(30).until(name, || begun().then_some(()).ok_or_else(String::new));
        daemon.kill();
        goes_on();
    }
}

#[test]
fn a_workspace_that_is_removed_while_the_daemon_runs_is_reported() {
    let (test_env, world) = test_env();
    let daemon = test_env.up(&world, &[]);
    let (workspace, aside) = (test_env.data("home").join("workspace"), test_env.join("aside"));
    let reported = || test_env.json(&["status"])["warnings"].to_string().contains("workspace");
    assert!(!reported());
    fs::rename(&workspace, &aside).unwrap();
    assert!(reported());
    Deadline::seconds(30).until("the warning in the feed", || {
        let reported = test_env.ctl(&["--json", "events", "--kind", "world.warning"]).ok().out.clone();
        if reported.contains("workspace") { Ok(()) } else { Err(reported) }
    });
    // Moved back, it is the same directory.
    fs::rename(&aside, &workspace).unwrap();
    assert!(!reported());
    daemon.stop();
}
