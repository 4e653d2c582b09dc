//! The end of a main job, and its stands: a result counts once its writer or its lead is done with it, whoever holds a job up is
//! named, and a world that came back from a backup finds the job's input where it was.

// A black-box test has nothing to recover to: what goes wrong is told by the panic that fails it.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::fs;
use std::path::{Path, PathBuf};

use ghost_testkit::blackbox::{Daemon, Database, Deadline, TestEnvironment};

const WORLD: &str = "\
world: { name: The WorldServices }
agents:
  - { id: lea, archetype: lead }
  - { id: ann, archetype: worker }
tasks: { owner_may_update: true }
write_acls: { lea: [output/], ann: [output/] }
llm: { default_provider: scripted, default_model: lea }
limits: { stop_grace_seconds: 1 }
job: { input: input, lead: lea, result: output/reports, brief: 'Report on {input}, please.' }
";

/// Writes the job's result.
const WRITE: &str =
    "call: workspace.write, with: { path: 'output/reports/{{ match.job }}.md', scope: world, content: It is 7. }";
/// Mail that names the job.
const JOB: &str = r"(?P<job>\b[0-9a-f]{16}\b)";

fn services(lea: &str, ann: &str) -> (TestEnvironment, PathBuf) {
    let test_env = TestEnvironment::new(env!("CARGO_BIN_EXE_ghostd"));
    let world = test_env.world("office");
    world
        .config(WORLD)
        .archetype("lead", "")
        .archetype("worker", "## LLM\nmodel: ann\n")
        .write("input/figure.md", "The figure is 7.\n")
        .write("scripts/lea.yaml", lea)
        .write("scripts/ann.yaml", ann);
    let path = world.path().to_owned();
    (test_env, path)
}

/// Waits until the terminal says for the `times`th time that the job stands still. Gives that line and the one after it.
fn stands(daemon: &Daemon, times: usize) -> (String, String) {
    let (mut from, mut line) = (0, String::new());
    for time in 1..=times {
        let found = daemon.out.find(from, Deadline::seconds(60), |line| line.contains(" stands still: "));
        let Some((at, found)) = found else { panic!("no stand number {time}\n{}", daemon.out.text()) };
        (from, line) = (at + 1, found);
    }
    let next = daemon.out.find(from, Deadline::seconds(10), |_| true).expect("what to do about it");
    (line, next.1)
}

/// How often the terminal has said that the job stands still.
fn stands_told(daemon: &Daemon) -> usize {
    daemon.out.all().iter().filter(|line| line.contains(" stands still: ")).count()
}

fn result(daemon: &Daemon) -> PathBuf {
    let line = daemon.wait_for_line("the end of the job", Deadline::seconds(60), |line| line.starts_with("  result  "));
    PathBuf::from(line.trim_start_matches("  result  "))
}

/// The job is done, and its result was written once.
fn done(test_env: &TestEnvironment, daemon: Daemon) {
    assert_eq!(fs::read_to_string(result(&daemon)).unwrap(), "It is 7.");
    assert_eq!(test_env.json(&["status"])["job"]["state"], "finished");
    daemon.stop();
    let database = Database::open(&test_env.data("office"));
    assert_eq!(database.number("SELECT count(*) FROM events WHERE kind = 'artifact.created'"), 1);
}

/// Any limit that somebody sets gets a job going again.
fn raise(test_env: &TestEnvironment, tokens: &str) {
    test_env.ctl(&["budget", "set", "world", "--tokens", tokens]).ok();
}

const WRITES_AND_FAILS: &str = "\
rules:
  - when: { mail: 'once more', round: 0 }
    do: [{ say: It is there already. }]
  - when: { mail: 'JOB', round: 0 }
    do: [{ WRITE }]
otherwise: [{ fail: { kind: bad_request, message: the key was taken away } }]
";

fn writes_and_fails() -> String {
    WRITES_AND_FAILS.replace("JOB", JOB).replace("WRITE", WRITE)
}

#[test]
fn a_result_whose_turn_failed_counts_when_its_writer_finds_it_there() {
    for killed in [false, true] {
        let (test_env, world) = services(&writes_and_fails(), "otherwise: [{ say: Noted. }]\n");
        let mut daemon = test_env.up(&world, &[]);
        let (line, next) = stands(&daemon, 1);
        assert!(line.contains("the key was taken away") && next.contains("Repair the cause"), "{line}\n{next}");
        if killed {
            daemon.kill();
            daemon = test_env.up(&world, &[]);
        } else {
            raise(&test_env, "900000");
        }
        done(&test_env, daemon);
    }
}

#[test]
fn a_result_whose_writer_failed_counts_when_the_lead_has_seen_it_and_nothing_is_left_to_do() {
    let lea = "\
rules:
  - when: { mail: 'once more', round: 0 }
    do: [{ say: Ann has written it. }]
  - when: { mail: 'JOB', round: 0 }
    do: [{ call: syscall.message.send, with: { to: ann, content: 'Report on {{ match.job }}.' } }]
otherwise: [{ wait: 1s }, { say: Ann does it. }]
";
    for killed in [false, true] {
        let (test_env, world) = services(&lea.replace("JOB", JOB), &writes_and_fails());
        let mut daemon = test_env.up(&world, &[]);
        // Ann may have written half of what she was to write, and the lead's turn, which ends after that, began before it.
        assert!(stands(&daemon, 1).0.contains("the key was taken away"));
        if killed {
            daemon.kill();
            daemon = test_env.up(&world, &[]);
        } else {
            raise(&test_env, "900000");
        }
        done(&test_env, daemon);
    }
}

/// A lead that has ann write, who fails, and that does `then` when it is told of the job once more.
fn delegates(then: &str) -> String {
    // A reminder says what was said lately.
    let lea = "\
rules:
  - when: { mail: 'Look again' }
    do: [{ say: It is whole. }]
  - when: { mail: 'JOB, once more', round: 0 }
    do: [{ THEN }]
  - when: { mail: 'once more' }
    do: [{ say: Ann does it. }]
  - when: { mail: 'inputs/JOB', round: 0 }
    do: [{ call: syscall.message.send, with: { to: ann, content: 'Report on {{ match.job }}.' } }]
otherwise: [{ say: Well. }]
";
    lea.replace("JOB", JOB).replace("THEN", then)
}

#[test]
fn a_job_whose_lead_has_set_a_timer_waits_for_it() {
    let timer = "call: util.timer, with: { name: look, duration: 2s, message: Look again. }";
    let (test_env, world) = services(&delegates(timer), &writes_and_fails());
    let daemon = test_env.up(&world, &[]);
    stands(&daemon, 1);
    raise(&test_env, "900000");
    result(&daemon);
    assert_eq!(stands_told(&daemon), 1, "it goes on by itself\n{}", daemon.out.text());
    done(&test_env, daemon);
    let database = Database::open(&test_env.data("office"));
    let before = "SELECT count(*) FROM events AS a JOIN events AS b ON a.seq < b.seq \
                  WHERE a.kind = 'schedule.fired' AND b.kind = 'job.finished'";
    assert_eq!(database.number(before), 1, "the timer goes off before the job's end");
}

#[test]
fn a_job_that_waits_for_its_timer_is_begun_again_by_no_limit_and_no_start() {
    let lea = "\
rules:
  - when: { mail: 'Look again at JOB', round: 0 }
    do: [{ WRITE }]
  - when: { mail: 'JOB', round: 0 }
    do: [{ call: util.timer, with: { name: look, duration: 12s, message: 'Look again at {{ match.job }}.' } }]
otherwise: [{ say: Well. }]
";
    let (test_env, world) =
        services(&lea.replace("JOB", JOB).replace("WRITE", WRITE), "otherwise: [{ say: Noted. }]\n");
    let daemon = test_env.up(&world, &[]);
    Deadline::seconds(60).until("lea's turn", || match test_env.json(&["turn", "list", "--agent", "lea"]) {
        turns if turns[0]["status"] == "finished" => Ok(()),
        turns => Err(turns.to_string()),
    });
    raise(&test_env, "500000");
    daemon.kill();
    let daemon = test_env.up(&world, &[]);
    raise(&test_env, "900000");
    done(&test_env, daemon);
    let database = Database::open(&test_env.data("office"));
    assert_eq!(database.number("SELECT count(*) FROM turns"), 2, "the job's, and the timer's");
}

#[test]
fn a_job_that_waits_for_a_watch_says_so_and_ends_when_it_is_cancelled() {
    let watch = "call: util.watch, with: { name: look, path: output, scope: world }";
    let (test_env, world) = services(&delegates(watch), &writes_and_fails());
    let daemon = test_env.up(&world, &[]);
    stands(&daemon, 1);
    raise(&test_env, "900000");
    let (line, next) = stands(&daemon, 2);
    assert!(line.ends_with(" stands still: lea's watch `look` is on"), "{line}");
    assert_eq!(next, "  `ghostctl watch cancel lea/look` if it is not to wait for that.");
    test_env.ctl(&["watch", "cancel", "lea/look"]).ok();
    done(&test_env, daemon);
}

const FAILS_AND_THEN_WRITES: &str = "\
rules:
  - when: { mail: 'JOB, once more', round: 0 }
    do: [{ WRITE }]
  - when: { mail: 'once more' }
    do: [{ say: It is written. }]
  - when: { mail: 'JOB', round: 0 }
    do: [{ call: syscall.message.send, with: { to: ann, content: 'A part of it.' } }]
otherwise: [{ fail: { kind: bad_request, message: the key was taken away } }]
";

fn fails_and_then_writes() -> String {
    FAILS_AND_THEN_WRITES.replace("JOB", JOB).replace("WRITE", WRITE)
}

#[test]
fn a_lead_that_failed_is_told_again_though_mail_of_the_job_waits_for_who_is_stopped() {
    let (test_env, world) = services(&fails_and_then_writes(), "otherwise: [{ say: Noted. }]\n");
    let ann = "id: ann, archetype: worker";
    fs::write(world.join("world-config.yaml"), WORLD.replace(ann, &format!("{ann}, autostart: false"))).unwrap();
    let daemon = test_env.up(&world, &[]);
    let (line, next) = stands(&daemon, 1);
    assert!(
        line.contains("the key was taken away") && line.ends_with("; ann is stopped and has mail that waits"),
        "{line}"
    );
    assert_eq!(next, "  `ghostctl agent start ann`: then it goes on where it is.");
    let repair = daemon.out.find(0, Deadline::seconds(10), |line| line.starts_with("  Repair the cause: "));
    assert!(repair.is_some(), "{}", daemon.out.text());
    raise(&test_env, "900000");
    done(&test_env, daemon);
}

#[test]
fn a_job_whose_lead_is_deleted_is_begun_again_when_it_is_back() {
    let (test_env, world) = services(&fails_and_then_writes(), "otherwise: [{ say: Noted. }]\n");
    let daemon = test_env.up(&world, &[]);
    stands(&daemon, 1);
    test_env.ctl(&["agent", "delete", "lea"]).ok();
    let (line, next) = stands(&daemon, 2);
    assert!(line.ends_with("; its lead lea is deleted") && next.contains("Repair the cause"), "{line}\n{next}");
    raise(&test_env, "900000");
    let (line, _) = stands(&daemon, 3);
    assert!(line.contains("; it cannot be begun again: not_found: "), "{line}");
    test_env.ctl(&["reload"]).ok();
    done(&test_env, daemon);
}

#[test]
fn who_holds_a_job_up_and_cannot_be_started_is_named_with_why() {
    let lea = "\
rules:
  - when: { mail: 'JOB', round: 0 }
    do: [{ call: syscall.message.send, with: { to: ann, content: 'A part of it.' } }]
otherwise: [{ say: Ann does it. }]
";
    let (test_env, world) = services(&lea.replace("JOB", JOB), "otherwise: [{ wait: 600s }, { say: Late. }]\n");
    let daemon = test_env.up(&world, &[]);
    Deadline::seconds(60).until("ann's turn", || match test_env.json(&["turn", "list", "--agent", "ann"]) {
        turns if turns[0]["status"] == "open" => Ok(()),
        turns => Err(turns.to_string()),
    });
    let without = WORLD.replace("  - { id: ann, archetype: worker }\n", "").replace(", ann: [output/]", "");
    fs::write(world.join("world-config.yaml"), without).unwrap();
    test_env.ctl(&["reload"]).ok();
    let (line, next) = stands(&daemon, 1);
    assert!(line.contains("stands still: ann ") && line.ends_with(" and has an open turn"), "{line}");
    assert!(next.starts_with("  ann cannot be started: the world file does not name `ann` ("), "{next}");
    test_env.ctl(&["agent", "start", "ann"]).exits(7);
    test_env.ctl(&["agent", "delete", "ann"]).ok();
    assert!(stands(&daemon, 2).1.starts_with("  Repair the cause: "));
    daemon.stop();
}

#[test]
fn a_job_that_has_gone_on_and_stands_still_for_the_same_reason_is_told_again() {
    let (test_env, world) =
        services("otherwise: [{ fail: { kind: bad_request, message: no key } }]\n", "otherwise: []\n");
    fs::write(world.join("scripts/ann.yaml"), "otherwise: [{ say: Noted. }]\n").unwrap();
    let daemon = test_env.up(&world, &[]);
    let (first, _) = stands(&daemon, 1);
    for (times, tokens) in [(2, "900000"), (3, "none")] {
        raise(&test_env, tokens);
        assert_eq!(stands(&daemon, times).0, first);
    }
    // What is no matter of the job's does not have it told again.
    test_env.ctl(&["send", "ann", "hello"]).ok();
    test_env.wait_until_quiet(Deadline::seconds(60));
    assert_eq!(stands_told(&daemon), 3, "{}", daemon.out.text());
    daemon.stop();
    let daemon = test_env.up(&world, &[]);
    assert_eq!(stands(&daemon, 1).0, first, "begun again by the start");
    daemon.stop();
}

#[test]
fn who_was_stopped_with_open_work_is_named_at_once_and_at_every_start_until_it_is_started() {
    let lea = "\
rules:
  - when: { mail: 'Part of JOB', round: 0 }
    do: [{ WRITE }]
  - when: { mail: 'JOB', round: 0 }
    do: [{ call: syscall.task.create, with: { owner: ann, title: 'Part of {{ match.job }}', description: Read it. } }]
otherwise: [{ say: Well. }]
";
    let lea = lea.replace("JOB", JOB).replace("WRITE", WRITE);
    let (test_env, world) = services(&lea, "otherwise: [{ wait: 600s }, { say: Late. }]\n");
    let daemon = test_env.up(&world, &[]);
    Deadline::seconds(60).until("ann's turn", || match test_env.json(&["turn", "list", "--agent", "ann"]) {
        turns if turns[0]["status"] == "open" => Ok(()),
        turns => Err(turns.to_string()),
    });
    test_env.ctl(&["agent", "stop", "ann"]).ok();
    let named = |daemon: &Daemon| {
        let (line, next) = stands(daemon, 1);
        assert!(
            line.contains("stands still: ann is stopped and has an open turn; 1 task is open: ann is stopped"),
            "{line}"
        );
        assert_eq!(next, "  `ghostctl agent start ann`: then it goes on where it is.");
    };
    named(&daemon);
    daemon.kill();
    fs::write(
        world.join("scripts/ann.yaml"),
        r"rules:
  - when: { mail: 'task_id: (?P<task>\S+)', round: 0 }
    do: [{ call: syscall.task.update, with: { task_id: '{{ match.task }}', status: done, result: '7' } }]
otherwise: [{ say: It is read. }]
",
    )
    .unwrap();
    let daemon = test_env.up(&world, &[]);
    named(&daemon);
    daemon.stop();
    let daemon = test_env.up(&world, &[]);
    named(&daemon);
    test_env.ctl(&["agent", "start", "ann"]).ok();
    done(&test_env, daemon);
}

/// What there is in a directory, by name.
fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn a_world_without_its_workspace_is_refused_and_one_with_an_empty_one_has_its_jobs_input_before_anything_runs() {
    let (test_env, world) = services("otherwise: [{ wait: 600s }, { say: Late. }]\n", "otherwise: [{ say: Noted. }]\n");
    let data = test_env.data("office");
    // Files may be laid out for a world that has never run.
    fs::create_dir_all(data.join("workspace/shared")).unwrap();
    fs::write(data.join("workspace/shared/before.md"), "first").unwrap();
    let daemon = test_env.up(&world, &[]);
    Deadline::seconds(60).until("lea's turn", || match test_env.json(&["turn", "list", "--agent", "lea"]) {
        turns if turns[0]["status"] == "open" => Ok(()),
        turns => Err(turns.to_string()),
    });
    daemon.kill();
    let aside = test_env.join("workspace");
    fs::rename(data.join("workspace"), &aside).unwrap();
    drop(fs::remove_file(data.join("ghostd.sock")));
    let before = names(&data);
    let ran = test_env.ghostd(&["up", world.to_str().unwrap()]);
    ran.exits(5).says(&["workspace is missing, but the world has run", "hint: ", "backup", "an empty directory"]);
    assert!(!ran.out.contains(" is up."), "{}", ran.out);
    assert!(!data.join("workspace").exists());
    assert_eq!(names(&data).iter().filter(|name| !name.starts_with("ghost.db")).collect::<Vec<_>>(), {
        before.iter().filter(|name| !name.starts_with("ghost.db")).collect::<Vec<_>>()
    });

    // The turn goes on at once, and finds what it was told of.
    fs::create_dir(data.join("workspace")).unwrap();
    let lea = "\
rules:
  - when: { mail: 'JOB', round: 0 }
    do: [{ call: workspace.read, with: { path: 'inputs/{{ match.job }}/figure.md', scope: world } }]
  - when: { mail: 'JOB', tool: workspace.read, failed: false }
    do: [{ WRITE }]
otherwise: [{ say: Done with it. }]
";
    fs::write(world.join("scripts/lea.yaml"), lea.replace("JOB", JOB).replace("WRITE", WRITE)).unwrap();
    let daemon = test_env.up(&world, &[]);
    daemon.err.find(0, Deadline::seconds(10), |line| line.contains("is empty, but the world has run")).unwrap();
    done(&test_env, daemon);
    assert_eq!(Database::open(&data).number("SELECT count(*) FROM ledger WHERE status <> 'ok'"), 0);

    // With it there is nothing to say.
    fs::remove_dir_all(data.join("workspace")).unwrap();
    fs::rename(&aside, data.join("workspace")).unwrap();
    let daemon = test_env.up(&world, &[]);
    daemon.stop();
    assert_eq!(fs::read_to_string(data.join("workspace/shared/before.md")).unwrap(), "first");
}

#[test]
fn a_job_under_way_whose_input_is_lost_is_told_to_who_starts_another() {
    let (test_env, world) = services("otherwise: [{ wait: 600s }, { say: Late. }]\n", "otherwise: [{ say: Noted. }]\n");
    let daemon = test_env.up(&world, &[]);
    let line = daemon.wait_for_line("the job", Deadline::seconds(30), |line| line.ends_with(" is under way."));
    daemon.kill();
    let inputs = test_env.data("office").join("workspace/inputs");
    fs::remove_dir_all(&inputs).unwrap();
    let other = test_env.join("other");
    fs::create_dir(&other).unwrap();
    fs::write(other.join("other.md"), "The figure is 8.\n").unwrap();
    let daemon = test_env.up(&world, &["--input", other.to_str().unwrap()]);
    let told = |line: &str| line.contains("is under way, but its input is not in the workspace");
    let (_, told) = daemon.err.find(0, Deadline::seconds(10), told).expect("a warning");
    let id = line.split(' ').nth(1).unwrap();
    assert!(told.contains(&format!("job {id} is under way")) && told.contains("--input"), "{told}");
    daemon.wait_for_line("the other job", Deadline::seconds(30), |line| line.ends_with(" is under way."));
    daemon.kill();
    let daemon = test_env.up(&world, &[]);
    daemon.kill();
    assert_eq!(names(&inputs).len(), 2);
    assert_eq!(names(&inputs.join(id)), ["figure.md"]);
}
