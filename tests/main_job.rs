//! The main job: it is a task of its lead and ends when the lead closes the task with the path of the result. A daemon
//! that starts again continues it, and its input is put back into an empty workspace.

// A failure in a test is a panic with a message.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::fs;
use std::path::{Path, PathBuf};

use ghost_testkit::blackbox::{Backend, Daemon, Deadline, TestEnvironment};

const WORLD: &str = "\
world: { name: The Office }
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
/// A message that names the job.
const JOB: &str = r"(?P<job>\b[0-9a-f]{16}\b)";
/// Closes the job's task after the result was written.
const CLOSE: &str = r"  - when: { mail: 'task_id: (?P<task>\S+)', tool: workspace.write, failed: false }
    do: [{ call: syscall.task.update, with: { task_id: '{{ match.task }}', status: done, result: '{{ last.path }}' } }]";

/// A script with JOB, WRITE and CLOSE replaced.
fn script(text: &str) -> String {
    text.replace("JOB", JOB).replace("WRITE", WRITE).replace("CLOSE", CLOSE)
}

/// A lead that writes the result and closes the task.
const WRITES: &str = "\
rules:
  - when: { mail: 'JOB', round: 0 }
    do: [{ WRITE }]
CLOSE
otherwise: [{ say: Done with it. }]
";

/// The world in its files, with this database; `None` if the test is skipped.
fn services(on: Backend, lea: &str, ann: &str) -> Option<(TestEnvironment, PathBuf)> {
    let test_env = TestEnvironment::on(on, env!("CARGO_BIN_EXE_ghostd"))?;
    let world = test_env.world("office");
    world
        .config(&format!("{WORLD}{}", test_env.storage()))
        .archetype("lead", "")
        .archetype("worker", "## LLM\nmodel: ann\n")
        .write("input/figure.md", "The figure is 7.\n")
        .write("scripts/lea.yaml", script(lea))
        .write("scripts/ann.yaml", script(ann));
    let path = world.path().to_owned();
    Some((test_env, path))
}

fn result(daemon: &Daemon) -> PathBuf {
    let line = daemon.wait_for_line("the end of the job", Deadline::seconds(60), |line| line.starts_with("  result  "));
    PathBuf::from(line.trim_start_matches("  result  "))
}

/// Asserts that the job is done and its result was written once.
fn done(test_env: &TestEnvironment, daemon: Daemon) {
    assert_eq!(fs::read_to_string(result(&daemon)).unwrap(), "It is 7.");
    assert_eq!(test_env.json(&["status"])["job"]["state"], "finished");
    daemon.stop();
    let database = test_env.database("office");
    assert_eq!(database.number("SELECT count(*) FROM events WHERE kind = 'artifact.created'"), 1);
    assert_eq!(database.number("SELECT count(*) FROM events WHERE kind = 'job.finished'"), 1);
}

/// Waits until the newest turn of an agent has this status.
fn wait_for_turn(test_env: &TestEnvironment, agent: &str, status: &str) {
    Deadline::seconds(60).until("the turn", || match test_env.json(&["turn", "list", "--agent", agent]) {
        turns if turns[0]["status"] == status => Ok(()),
        turns => Err(turns.to_string()),
    });
}

/// Each test with both databases.
macro_rules! on_both {
    ($($test:ident,)*) => {
        mod sqlite {
            $(#[test]
            fn $test() {
                super::$test(super::Backend::Sqlite);
            })*
        }
        mod postgres {
            $(#[test]
            fn $test() {
                super::$test(super::Backend::Postgres);
            })*
        }
    };
}
on_both! {
    a_job_ends_when_its_lead_closes_the_task_and_shows_its_parts,
    a_task_that_is_closed_without_the_path_of_a_result_is_refused,
    a_job_whose_lead_failed_gets_its_task_again_at_the_next_start_and_by_hand,
    a_job_continues_when_its_deleted_lead_is_created_again,
    a_job_whose_task_is_cancelled_ends_without_a_result,
    a_missing_workspace_is_refused_and_an_empty_one_gets_the_jobs_input_first,
    the_lost_input_of_a_running_job_is_reported_when_another_job_starts,
}

fn a_job_ends_when_its_lead_closes_the_task_and_shows_its_parts(on: Backend) {
    let lea = "\
rules:
  - when: { mail: 'Task done: Part', round: 0 }
    do: [{ call: syscall.task.list, with: { owner: lea, status: pending } }]
  - when: { mail: 'Task done: Part', tool: syscall.task.list }
    do: [{ call: workspace.write, with: { path: \"output/reports/{{ last[0].title | regex_find('[0-9a-f]{16}') }}.md\", scope: world, content: It is 7. } }]
  - when: { mail: 'Task done: Part', tool: workspace.write, failed: false }
    do: [{ call: syscall.task.update, with: { task_id: \"{{ (results | of('syscall.task.list') | first).value[0].task_id }}\", status: done, result: '{{ last.path }}' } }]
  - when: { mail: '(?s)task_id: (?P<task>\\S+).*JOB', round: 0 }
    do: [{ call: syscall.task.create, with: { owner: ann, parent_id: '{{ match.task }}', title: 'Part 1', description: Read it. } }]
otherwise: [{ say: Well. }]
";
    let ann = r"
rules:
  - when: { mail: 'task_id: (?P<task>\S+)', round: 0 }
    do: [{ wait: 10s }, { call: syscall.task.update, with: { task_id: '{{ match.task }}', status: done, result: '7' } }]
otherwise: [{ say: It is read. }]
";
    let Some((test_env, world)) = services(on, lea, ann) else { return };
    let daemon = test_env.up(&world, &[]);
    wait_for_turn(&test_env, "ann", "open");
    daemon.kill();
    let daemon = test_env.up(&world, &[]);
    daemon.wait_for_line("the part", Deadline::seconds(60), |line| line.contains(": 1 of 1 "));
    done(&test_env, daemon);
    // The same input is done already.
    let daemon = test_env.up(&world, &[]);
    assert_eq!(test_env.json(&["status"])["job"]["state"], "finished");
    daemon.stop();
}

fn a_task_that_is_closed_without_the_path_of_a_result_is_refused(on: Backend) {
    let lea = "\
rules:
  - when: { mail: 'task_id: (?P<task>\\S+)', round: 0 }
    do: [{ call: syscall.task.update, with: { task_id: '{{ match.task }}', status: done, result: It is 7. } }]
  - when: { mail: 'JOB', tool: syscall.task.update, failed: true }
    do: [{ WRITE }]
CLOSE
otherwise: [{ say: Done with it. }]
";
    let Some((test_env, world)) = services(on, lea, "otherwise: [{ say: Noted. }]\n") else { return };
    let daemon = test_env.up(&world, &[]);
    done(&test_env, daemon);
    let database = test_env.database("office");
    assert_eq!(database.number("SELECT count(*) FROM ledger WHERE status <> 'ok'"), 1);
}

fn a_job_whose_lead_failed_gets_its_task_again_at_the_next_start_and_by_hand(on: Backend) {
    for by_hand in [false, true] {
        let broken = "otherwise: [{ fail: { kind: bad_request, message: the key was taken away } }]\n";
        let Some((test_env, world)) = services(on, broken, "otherwise: [{ say: Noted. }]\n") else { return };
        let mut daemon = test_env.up(&world, &[]);
        wait_for_turn(&test_env, "lea", "dead");
        assert_eq!(test_env.json(&["status"])["job"]["state"], "running");
        fs::write(world.join("scripts/lea.yaml"), script(WRITES)).unwrap();
        if by_hand {
            test_env.ctl(&["reload"]).ok();
            let tasks = test_env.json(&["task", "list"]);
            test_env.ctl(&["task", "update", tasks[0]["task_id"].as_str().unwrap(), "--owner", "lea"]).ok();
        } else {
            daemon.kill();
            daemon = test_env.up(&world, &[]);
        }
        done(&test_env, daemon);
    }
}

fn a_job_continues_when_its_deleted_lead_is_created_again(on: Backend) {
    let Some((test_env, world)) =
        services(on, "otherwise: [{ wait: 600s }, { say: Late. }]\n", "otherwise: [{ say: Noted. }]\n")
    else {
        return;
    };
    let daemon = test_env.up(&world, &[]);
    wait_for_turn(&test_env, "lea", "open");
    test_env.ctl(&["agent", "delete", "lea"]).ok();
    fs::write(world.join("scripts/lea.yaml"), script(WRITES)).unwrap();
    test_env.ctl(&["reload"]).ok();
    done(&test_env, daemon);
}

fn a_job_whose_task_is_cancelled_ends_without_a_result(on: Backend) {
    let Some((test_env, world)) =
        services(on, "otherwise: [{ say: I would rather not. }]\n", "otherwise: [{ say: Noted. }]\n")
    else {
        return;
    };
    let daemon = test_env.up(&world, &[]);
    wait_for_turn(&test_env, "lea", "finished");
    let tasks = test_env.json(&["task", "list"]);
    test_env.ctl(&["task", "update", tasks[0]["task_id"].as_str().unwrap(), "--status", "cancelled"]).ok();
    let job = Deadline::seconds(30).until("the end of the job", || match &test_env.json(&["status"])["job"] {
        job if job["state"] == "finished" => Ok(job.clone()),
        job => Err(job.to_string()),
    });
    assert_eq!(job["result_path"].as_str(), None);
    daemon.stop();
}

/// The names of the entries of a directory.
fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn a_missing_workspace_is_refused_and_an_empty_one_gets_the_jobs_input_first(on: Backend) {
    let Some((test_env, world)) =
        services(on, "otherwise: [{ wait: 600s }, { say: Late. }]\n", "otherwise: [{ say: Noted. }]\n")
    else {
        return;
    };
    let data = test_env.data("office");
    // Files may be prepared for a world that has never run.
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
    ran.exits(5).says(&["workspace", "hint: "]);
    assert!(!data.join("workspace").exists());
    assert_eq!(names(&data).iter().filter(|name| !name.starts_with("ghost.db")).collect::<Vec<_>>(), {
        before.iter().filter(|name| !name.starts_with("ghost.db")).collect::<Vec<_>>()
    });

    // The turn resumes at once and finds its input.
    fs::create_dir(data.join("workspace")).unwrap();
    let lea = "\
rules:
  - when: { mail: 'JOB', round: 0 }
    do: [{ call: workspace.read, with: { path: 'inputs/{{ match.job }}/figure.md', scope: world } }]
  - when: { mail: 'JOB', tool: workspace.read, failed: false }
    do: [{ WRITE }]
CLOSE
otherwise: [{ say: Done with it. }]
";
    fs::write(world.join("scripts/lea.yaml"), script(lea)).unwrap();
    let daemon = test_env.up(&world, &[]);
    daemon.err.find(0, Deadline::seconds(10), |line| line.contains("workspace")).unwrap();
    done(&test_env, daemon);
    assert_eq!(test_env.database("office").number("SELECT count(*) FROM ledger WHERE status <> 'ok'"), 0);

    // With the input there is no message.
    fs::remove_dir_all(data.join("workspace")).unwrap();
    fs::rename(&aside, data.join("workspace")).unwrap();
    let daemon = test_env.up(&world, &[]);
    daemon.stop();
    assert_eq!(fs::read_to_string(data.join("workspace/shared/before.md")).unwrap(), "first");
}

fn the_lost_input_of_a_running_job_is_reported_when_another_job_starts(on: Backend) {
    let Some((test_env, world)) =
        services(on, "otherwise: [{ wait: 600s }, { say: Late. }]\n", "otherwise: [{ say: Noted. }]\n")
    else {
        return;
    };
    let daemon = test_env.up(&world, &[]);
    let line = daemon.wait_for_line("the job", Deadline::seconds(30), |line| line.starts_with("Job "));
    daemon.kill();
    let inputs = test_env.data("office").join("workspace/inputs");
    fs::remove_dir_all(&inputs).unwrap();
    let other = test_env.join("other");
    fs::create_dir(&other).unwrap();
    fs::write(other.join("other.md"), "The figure is 8.\n").unwrap();
    let daemon = test_env.up(&world, &["--input", other.to_str().unwrap()]);
    let id = line.split(' ').nth(1).unwrap();
    let (_, warning) = daemon.err.find(0, Deadline::seconds(10), |line| line.contains(id)).expect("a warning");
    assert!(warning.contains("--input"), "{warning}");
    daemon.wait_for_line("the other job", Deadline::seconds(30), |line| line.starts_with("Job "));
    daemon.kill();
    let daemon = test_env.up(&world, &[]);
    daemon.kill();
    assert_eq!(names(&inputs).len(), 2);
    assert_eq!(names(&inputs.join(id)), ["figure.md"]);
}
