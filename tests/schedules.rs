//! Timers, cron jobs and watches through `ghostctl`, over `kill -9`: every command, the exit codes of bad input,
//! and that every slot ends in exactly one recorded run.

// A failure in a test is a panic with a message.
#![allow(clippy::unwrap_used, clippy::expect_used)]
// The daemon under test uses the system's clock, so the test waits for that clock.
#![allow(clippy::disallowed_methods)]

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use ghost_testkit::blackbox::{AHEAD, Daemon, Database, Deadline, TestEnvironment, WALL_OFF, ghostd_testing};
use serde_json::Value;

const SCRIPT: &str = r#"about: Sets timers and says what it was reminded of.
rules:
  # First, because a reminder recalls what was asked for.
  - name: reminded
    when: { mail: 'Reminder', round: 0 }
    do: [{ say: I was reminded. }]
  - name: remind
    when: { mail: 'remind me of (?P<what>\w+)', round: 0 }
    do: [{ call: util.timer, with: { name: "{{ match.what }}", duration: 1s, message: "the {{ match.what }}" } }]
  - name: set
    when: { tool: util.timer }
    do: [{ say: It is set. }]
otherwise: [{ say: Noted. }]
"#;

const WORLD: &str = "\
world: { name: The Clock }
agents:
  - { id: ada, archetype: clerk }
  - { id: ben, archetype: clerk }
limits: { cron_gap_seconds: 1, timers_max: 2 }
llm: { default_provider: scripted, default_model: clock }
";

fn clock() -> (TestEnvironment, PathBuf) {
    let test_env = TestEnvironment::new(env!("CARGO_BIN_EXE_ghostd"));
    let world = test_env.world("clock");
    world.config(WORLD).archetype("clerk", "").write("scripts/clock.yaml", SCRIPT);
    let path = world.path().to_owned();
    (test_env, path)
}

fn running() -> (TestEnvironment, PathBuf, Daemon) {
    let (test_env, world) = clock();
    let daemon = test_env.up(&world, &[]);
    (test_env, world, daemon)
}

fn events(test_env: &TestEnvironment, kind: &str) -> Vec<Value> {
    test_env.ctl(&["--json", "events", "--kind", kind]).ok().json_lines()
}

/// Waits until there are `count` events of a kind, and returns them.
fn until(test_env: &TestEnvironment, kind: &str, count: usize) -> Vec<Value> {
    Deadline::seconds(60).until(kind, || {
        let found = events(test_env, kind);
        if found.len() >= count { Ok(found) } else { Err(format!("{} of {count}: {found:?}", found.len())) }
    })
}

/// Waits until the system's clock has passed this time. A schedule that is due then is due while no daemon runs.
fn passes(at: SystemTime) {
    Deadline::seconds(60)
        .until("the time", || if SystemTime::now() >= at { Ok(()) } else { Err("not yet".to_owned()) });
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_else(|| panic!("no text `{key}` in {value:#}"))
}

/// The same time tomorrow, as lists show it.
fn tomorrow() -> String {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    let ms = i64::try_from(now.as_millis()).unwrap();
    ghost_domain::Timestamp(ms + 86_400_000).rfc3339()
}

/// Asserts that the list of a kind contains these words.
fn lists(test_env: &TestEnvironment, kind: &str, words: &[&str]) {
    let ran = test_env.ctl(&[kind, "list"]);
    for word in words {
        assert!(ran.ok().out.contains(word), "no `{word}` in\n{}", ran.out);
    }
}

// covers: CP-09, SCHED-04
#[test]
fn every_command_has_its_form_and_bad_input_its_exit_code() {
    let (test_env, _, daemon) = running();
    let timer = test_env.json(&["timer", "set", "ada", "tea", "--in", "1h30m", "--message", "drink it"]);
    assert_eq!((text(&timer, "kind"), text(&timer, "agent_id"), text(&timer, "name")), ("timer", "ada", "tea"));
    let id = text(&timer, "schedule_id").to_owned();
    let tomorrow = tomorrow();
    let again = test_env.json(&["timer", "set", "ada", "tea", "--at", &tomorrow, "--message", "x"]);
    assert_eq!((text(&again, "schedule_id"), text(&again, "next_at")), (id.as_str(), tomorrow.as_str()));
    test_env.json(&["timer", "set", "ada", "coffee", "--in", "1d", "--message", "x"]);
    assert_eq!(test_env.json(&["timer", "list", "--agent", "ada"]).as_array().unwrap().len(), 2);
    assert_eq!(test_env.json(&["timer", "list", "--agent", "ben"]), serde_json::json!([]));
    lists(&test_env, "timer", &["tea", "coffee", "ada"]);
    test_env.ctl(&["timer", "set", "ada", "third", "--in", "1h", "--message", "x"]).exits(8);
    assert_eq!(test_env.json(&["timer", "runs", "ada/tea"]), serde_json::json!([]));
    assert_eq!(test_env.json(&["timer", "runs", &id]), serde_json::json!([]));
    test_env.json(&["timer", "cancel", &id]);
    test_env.json(&["timer", "cancel", "ada/coffee"]);
    for verb in ["cancel", "runs"] {
        let ran = test_env.ctl(&["--json", "timer", verb, "nope"]);
        assert!(text(&ran.exits(2).error(), "hint").contains("AGENT/NAME"), "{}", ran.err);
    }
    test_env.ctl(&["timer", "runs", &id]).exits(3);
    test_env.ctl(&["timer", "cancel", &id]).exits(3);
    test_env.ctl(&["timer", "cancel", "ada/coffee"]).exits(3);

    let cron = test_env.json(&[
        "cron",
        "add",
        "ben",
        "mail",
        "--cron",
        "0 9 * * 1-5",
        "--zone",
        "Europe/Berlin",
        "--message",
        "read mail",
        "--missed",
        "run_once",
    ]);
    assert_eq!((text(&cron, "missed"), text(&cron["when"], "zone")), ("run_once", "Europe/Berlin"));
    let run = test_env.json(&["cron", "run", "ben/mail"]);
    assert_eq!((text(&run, "status"), &run["run"]), ("queued", &serde_json::json!(1)));
    test_env.wait_until_quiet(Deadline::seconds(30));
    let runs = test_env.json(&["cron", "runs", text(&cron, "schedule_id")]);
    assert_eq!(text(&runs[0], "status"), "done");
    assert_eq!(test_env.json(&["cron", "disable", "ben/mail"])["enabled"], false);
    assert_eq!(test_env.json(&["cron", "list"])[0]["next_at"], Value::Null);
    assert_eq!(test_env.json(&["cron", "enable", "ben/mail"])["enabled"], true);
    lists(&test_env, "cron", &["0 9 * * 1-5 Europe/Berlin", "done"]);
    test_env.ctl(&["timer", "cancel", text(&cron, "schedule_id")]).exits(3);
    test_env.json(&["cron", "add", "ben", "pulse", "--every", "1h", "--message", "look"]);
    test_env.json(&["cron", "add", "ben", "once", "--at", &tomorrow, "--message", "look"]);
    test_env.json(&["cron", "cancel", "ben/mail"]);
    assert_eq!(text(&test_env.json(&["cron", "runs", text(&cron, "schedule_id")])[0], "status"), "done");

    let watch = test_env.json(&["watch", "add", "ada", "box", "shared", "--recursive", "--changes", "created,removed"]);
    assert_eq!(watch["when"]["changes"], serde_json::json!(["created", "removed"]));
    lists(&test_env, "watch", &["box", "shared (recursive)"]);
    assert_eq!(test_env.json(&["watch", "runs", "ada/box"]), serde_json::json!([]));
    test_env.json(&["watch", "cancel", "ada/box"]);

    let x = ["--message", "x"];
    for (code, exit, args) in [
        ("invalid_arguments", 2, vec!["cron", "add", "ada", "a", "--cron", "0 0 30 2 *"]),
        ("invalid_arguments", 2, vec!["cron", "add", "ada", "a", "--cron", "* * * *"]),
        ("invalid_arguments", 2, vec!["cron", "add", "ada", "a", "--cron", "99 * * * *"]),
        ("invalid_arguments", 2, vec!["cron", "add", "ada", "a", "--cron", "* * * * *", "--zone", "Europe/Berln"]),
        ("invalid_arguments", 2, vec!["cron", "add", "ada", "a", "--every", "1h", "--missed", "twice"]),
        ("rate_limited", 8, vec!["cron", "add", "ada", "a", "--every", "500ms"]),
        ("not_found", 3, vec!["cron", "add", "adda", "a", "--every", "1h"]),
        ("invalid_arguments", 2, vec!["cron", "add", "ada", "a\u{7}b", "--every", "1h"]),
        ("invalid_arguments", 2, vec!["timer", "set", "ada", "a/b", "--in", "1h"]),
        ("invalid_arguments", 2, vec!["timer", "set", "ada", "a", "--at", "2020-01-01"]),
        ("invalid_arguments", 2, vec!["timer", "set", "ada", "a", "--at", "9999-01-01"]),
        ("path_denied", 4, vec!["watch", "add", "ada", "a", "../.."]),
        ("path_denied", 4, vec!["watch", "add", "ada", "a", "/etc"]),
        ("not_found", 3, vec!["watch", "add", "ada", "a", "nowhere"]),
        ("invalid_arguments", 2, vec!["watch", "add", "ada", "a", "shared", "--changes", "burned"]),
        ("invalid_arguments", 2, vec!["watch", "add", "ada", "a", "shared", "--debounce-ms", "1"]),
    ] {
        let args: Vec<&str> = ["--json"].into_iter().chain(args).chain(x).collect();
        let ran = test_env.ctl(&args);
        ran.exits(exit);
        assert_eq!(ran.error()["code"], code, "{args:?}: {}", ran.err);
    }
    for usage in [
        vec!["timer", "set", "ada", "a", "--message", "x"],
        vec!["timer", "set", "ada", "a", "--in", "soon", "--message", "x"],
        vec!["cron", "add", "ada", "a", "--message", "x"],
        vec!["cron", "add", "ada", "a", "--every", "1h", "--zone", "UTC", "--message", "x"],
    ] {
        test_env.ctl(&usage).exits(2);
    }
    let no_time = test_env.ctl(&["timer", "set", "ada", "a", "--message", "x"]);
    assert!(no_time.err.contains("--in") && no_time.err.contains("--at"), "{}", no_time.err);
    assert_eq!(test_env.json(&["cron", "list", "--agent", "ada"]), serde_json::json!([]));
    daemon.stop();
}

// covers: BI-86, SCHED-01, SCHED-02, TEST-13
#[test]
fn a_timer_survives_kill_9_and_a_missed_one_fires_once_and_late() {
    let (test_env, world, daemon) = running();
    test_env.json(&["ask", "ada", "remind me of lunch"]);
    until(&test_env, "schedule.fired", 1);
    test_env.wait_until_quiet(Deadline::seconds(30));
    test_env.json(&["timer", "set", "ada", "tea", "--in", "2s", "--message", "drink"]);
    daemon.kill();
    passes(SystemTime::now() + Duration::from_secs(3));
    let daemon = test_env.up(&world, &[]);
    let fired = until(&test_env, "schedule.fired", 2);
    assert_eq!((&fired[0]["payload"]["late"], &fired[1]["payload"]["late"]), (&Value::Bool(false), &Value::Bool(true)));
    test_env.wait_until_quiet(Deadline::seconds(30));
    daemon.kill();
    let daemon = test_env.up(&world, &[]);
    test_env.json(&["timer", "set", "ada", "soon", "--in", "1s", "--message", "x"]);
    assert_eq!(until(&test_env, "schedule.fired", 3).len(), 3);
    test_env.wait_until_quiet(Deadline::seconds(30));
    daemon.stop();
    let data = Database::open(&test_env.data("clock"));
    assert_eq!(data.texts("SELECT record FROM schedules"), [""; 0]);
    assert_eq!(data.number("SELECT count(*) FROM schedule_runs WHERE json_extract(record, '$.status') = 'done'"), 3);
    assert_eq!(data.number("SELECT count(*) FROM messages WHERE kind = 'timer'"), 3);
}

// covers: SCHED-01, SCHED-02, SCHED-09, TEST-13
#[test]
fn a_killed_cron_job_runs_no_slot_twice_and_records_each() {
    let (test_env, world, daemon) = running();
    let job = test_env.json(&["cron", "add", "ada", "tick", "--every", "1s", "--message", "tick"]);
    until(&test_env, "schedule.fired", 2);
    daemon.kill();
    passes(SystemTime::now() + Duration::from_secs(3));
    let daemon = test_env.up(&world, &[]);
    let before = events(&test_env, "schedule.fired").len();
    until(&test_env, "schedule.fired", before + 2);
    test_env.json(&["cron", "disable", "ada/tick"]);
    test_env.wait_until_quiet(Deadline::seconds(30));
    let runs = test_env.json(&["cron", "runs", text(&job, "schedule_id"), "--limit", "1000"]);
    let runs = runs.as_array().unwrap();
    assert!(runs.windows(2).all(|pair| text(&pair[0], "slot_at") > text(&pair[1], "slot_at")), "{runs:#?}");
    assert!(runs.iter().rev().zip(1..).all(|(run, n)| run["run"] == n), "{runs:#?}");
    assert!(runs.iter().any(|run| run["status"] == "skipped" && run["missed"].as_u64().unwrap() >= 2), "{runs:#?}");
    assert!(runs.iter().all(|run| matches!(text(run, "status"), "done" | "skipped")), "{runs:#?}");
    // Every second from the first slot to the last has a run, or is counted by one.
    let slots: u64 =
        runs.iter().map(|run| run["missed"].as_u64().unwrap() + u64::from(run["status"] != "skipped")).sum();
    let seconds = |at: &str| -> u64 {
        let clock: Vec<u64> = at[11..19].split(':').map(|part| part.parse().unwrap()).collect();
        (clock[0] * 60 + clock[1]) * 60 + clock[2]
    };
    let (last, first) = (seconds(text(&runs[0], "slot_at")), seconds(text(runs.last().unwrap(), "slot_at")));
    assert_eq!(slots, (last + 86_400 - first) % 86_400 + 1, "{runs:#?}");
    daemon.stop();
}

// covers: SCHED-01, SCHED-03, TEST-13
#[test]
fn a_watch_reports_a_burst_once_and_changes_during_a_downtime() {
    let (test_env, world, daemon) = running();
    let workspace = test_env.data("clock").join("workspace");
    let (shared, aside) = (workspace.join("shared"), workspace.join("aside"));
    test_env.json(&["watch", "add", "ada", "box", "shared", "--recursive", "--message", "read it"]);
    // A moved file is complete at once, even on a busy machine.
    std::fs::create_dir(&aside).unwrap();
    for n in 0..20 {
        std::fs::write(aside.join(format!("{n}.txt")), "1").unwrap();
    }
    let burst = shared.join("burst");
    std::fs::rename(&aside, &burst).unwrap();
    until(&test_env, "schedule.fired", 1);
    test_env.wait_until_quiet(Deadline::seconds(30));
    daemon.kill();
    std::fs::create_dir_all(shared.join("deep")).unwrap();
    std::fs::rename(burst.join("0.txt"), shared.join("deep/zero.txt")).unwrap();
    std::fs::write(burst.join("1.txt"), "changed").unwrap();
    std::fs::remove_file(burst.join("2.txt")).unwrap();
    let daemon = test_env.up(&world, &[]);
    let fired = until(&test_env, "schedule.fired", 2);
    assert_eq!(fired[1]["payload"]["late"], true);
    // Nothing is reported twice: the next report is about the next change.
    std::fs::write(&aside, "1").unwrap();
    std::fs::rename(&aside, shared.join("deep/new.txt")).unwrap();
    let fired = until(&test_env, "schedule.fired", 3);
    assert_eq!(fired.len(), 3);
    test_env.wait_until_quiet(Deadline::seconds(30));
    daemon.stop();
    let bodies =
        Database::open(&test_env.data("clock")).texts("SELECT body FROM messages WHERE kind = 'watch' ORDER BY seq");
    let created = (0..20).all(|n| bodies[0].contains(&format!("- created shared/burst/{n}.txt")));
    assert!(created && bodies[0].contains("read it"), "{bodies:#?}");
    let down = [
        "- modified shared/burst/1.txt",
        "- removed shared/burst/2.txt",
        "- renamed shared/deep/zero.txt (was shared/burst/0.txt)",
    ];
    assert!(down.iter().all(|line| bodies[1].contains(line)), "{bodies:#?}");
    assert!(bodies[2].contains("- created shared/deep/new.txt") && !bodies[2].contains("zero"), "{bodies:#?}");
}

/// The rows of a reload's plan about channels and jobs.
fn planned(test_env: &TestEnvironment, args: &[&str]) -> Vec<String> {
    let rows = test_env.json(args)["changes"].as_array().unwrap().clone();
    let rows = rows.iter().map(|row| {
        format!("{} {}", row["action"].as_str().unwrap_or_default(), row["subject"].as_str().unwrap_or_default())
    });
    rows.filter(|row| row.contains(" channel:") || row.contains(" cron:")).collect()
}

#[test]
fn declared_channels_and_jobs_follow_the_world_file_over_kills_and_reloads() {
    let (test_env, world) = clock();
    let file = world.join("world-config.yaml");
    let declared = "chat_channels:\n  desk: { members: [ada, ben], gated: true }\ncron:\n  - { agent: ada, name: pulse, \
                    every: 1h, message: Look }\n  - { agent: ben, name: report, every: 2h, message: Write, to: desk }\n";
    std::fs::write(&file, format!("{WORLD}{declared}")).unwrap();
    let daemon = test_env.up(&world, &[]);
    let jobs = |test_env: &TestEnvironment| -> Vec<(String, String)> {
        let list = test_env.json(&["cron", "list"]);
        let list = list.as_array().unwrap().iter();
        list.map(|job| (job["name"].as_str().unwrap().to_owned(), job["schedule_id"].as_str().unwrap().to_owned()))
            .collect()
    };
    let members = |test_env: &TestEnvironment| {
        let list = test_env.json(&["chat", "list"]);
        (list.as_array().unwrap().len(), list[0]["members"].clone())
    };
    let first = jobs(&test_env);
    assert_eq!(first.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["pulse", "report"]);
    assert_eq!(members(&test_env), (1, serde_json::json!(["ada", "ben"])));
    assert!(planned(&test_env, &["reload", "--dry-run"]).is_empty());
    // After a kill at any time, the next start finds the same channel and the same jobs, once.
    daemon.kill();
    for _ in 0..3 {
        test_env.start(&world, &[]).kill();
    }
    let daemon = test_env.up(&world, &[]);
    assert_eq!((jobs(&test_env), members(&test_env).0), (first.clone(), 1));
    assert_eq!((events(&test_env, "chat.created").len(), events(&test_env, "schedule.set").len()), (1, 2));
    // The file does not affect channels and jobs that users create.
    test_env.ctl(&["chat", "create", "mine", "--members", "ada"]).ok();
    test_env.ctl(&["cron", "add", "ada", "own", "--every", "3h", "--message", "Mine"]).ok();
    let changed = declared.replace("[ada, ben]", "[ada]").replace("every: 1h", "every: 4h");
    let changed = changed.split("  - { agent: ben").next().unwrap();
    std::fs::write(&file, format!("{WORLD}{changed}")).unwrap();
    let expected = ["update channel:desk", "update cron:ada/pulse", "stop cron:ben/report"];
    assert_eq!(planned(&test_env, &["reload", "--dry-run"]), expected);
    assert_eq!(jobs(&test_env).len(), 3);
    assert_eq!(planned(&test_env, &["reload"]), expected);
    let now = jobs(&test_env);
    assert_eq!(now.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["own", "pulse"]);
    assert!(now.contains(&first[0]), "a job that changes is the same job");
    assert_eq!(members(&test_env), (2, serde_json::json!(["ada"])));
    // A mistake is reported with its line and changes nothing.
    std::fs::write(&file, format!("{WORLD}cron:\n  - {{ agent: adda, name: x, every: 1h, message: y }}\n")).unwrap();
    let refused = test_env.ctl(&["reload"]);
    assert_eq!(refused.code, Some(2));
    assert!(format!("{}{}", refused.out, refused.err).contains(":8"), "{}{}", refused.out, refused.err);
    assert_eq!(jobs(&test_env).len(), 2);
    std::fs::write(&file, WORLD).unwrap();
    assert_eq!(planned(&test_env, &["reload"]), ["stop channel:desk", "stop cron:ada/pulse"]);
    assert_eq!(jobs(&test_env).len(), 1);
    daemon.stop();
}

#[test]
fn schedules_that_were_due_within_400_days_fire_once_each() {
    let mut test_env = TestEnvironment::new(ghostd_testing());
    let ahead = test_env.join("ahead");
    test_env.set(AHEAD, &ahead);
    let world = test_env.world("clock");
    world.config(WORLD).archetype("clerk", "").write("scripts/clock.yaml", SCRIPT);
    let daemon = test_env.up(world.path(), &[]);
    test_env.ctl(&["timer", "set", "ada", "harvest", "--in", "300d", "--message", "bring it in"]).ok();
    test_env.ctl(&["cron", "add", "ben", "hourly", "--every", "1h", "--message", "look"]).ok();
    std::fs::write(&ahead, (400_u64 * 86_400_000).to_string()).unwrap();
    let soon = Deadline::seconds(15);
    soon.until("what was due", || {
        let fired = [events(&test_env, "schedule.fired"), events(&test_env, "schedule.skipped")].concat();
        let of = |agent: &str| fired.iter().filter(|event| event["agent_id"] == agent).count();
        if of("ada") == 1 && of("ben") >= 1 { Ok(()) } else { Err(format!("{fired:?}")) }
    });
    // 9,600 missed hours are one run.
    test_env.wait_until_quiet(Deadline::seconds(30));
    let fired = events(&test_env, "schedule.fired");
    assert!(fired.iter().filter(|event| event["agent_id"] == "ben").count() <= 2, "{fired:?}");
    daemon.stop();
}

// covers: SCHED-02
#[test]
fn a_clock_that_was_a_day_ahead_delays_no_job_over_a_kill() {
    let mut test_env = TestEnvironment::new(ghostd_testing());
    let off = test_env.join("off");
    test_env.set(WALL_OFF, &off);
    let world = test_env.world("clock");
    world.config(WORLD).archetype("clerk", "").write("scripts/clock.yaml", SCRIPT);
    let daemon = test_env.up(world.path(), &[]);
    test_env.ctl(&["cron", "add", "ada", "slots", "--cron", "*/5 * * * * *", "--message", "look"]).ok();
    test_env.ctl(&["cron", "add", "ben", "pulse", "--every", "5s", "--message", "look"]).ok();
    std::fs::write(&off, 86_400_000.to_string()).unwrap();
    let jumped = until(&test_env, "world.clock_jumped", 1);
    assert_eq!(jumped[0]["payload"]["by_ms"].as_i64().map(|ms| (ms + 500) / 1_000), Some(86_400));
    let warnings = |test_env: &TestEnvironment| test_env.json(&["status"])["warnings"].to_string();
    assert!(warnings(&test_env).contains("confirm-clock"), "{}", warnings(&test_env));
    // Fired once more by the wrong clock, so that the next slots are tomorrow's.
    until(&test_env, "schedule.set", 2);
    daemon.kill();
    std::fs::write(&off, "0").unwrap();
    let daemon = test_env.up(world.path(), &[]);
    let jumped = until(&test_env, "world.clock_jumped", 2);
    assert!(jumped[1]["payload"]["by_ms"].as_i64().is_some_and(|ms| ms < -86_000_000), "{jumped:?}");
    let before = events(&test_env, "schedule.fired").len();
    let of = |fired: &[Value], agent: &str| fired[before..].iter().filter(|event| event["agent_id"] == agent).count();
    Deadline::seconds(20).until("both jobs", || {
        let fired = events(&test_env, "schedule.fired");
        if of(&fired, "ada") > 0 && of(&fired, "ben") > 0 { Ok(()) } else { Err(format!("{fired:?}")) }
    });
    assert!(warnings(&test_env).contains("the clock jumped back"), "{}", warnings(&test_env));
    assert_eq!(test_env.json(&["confirm-clock"])["changed"], true);
    assert_eq!(test_env.json(&["confirm-clock"])["changed"], false);
    assert!(!warnings(&test_env).contains("the clock"));
    daemon.stop();
}
