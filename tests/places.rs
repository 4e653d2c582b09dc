//! Data, workspace and listeners at the places that the world file or a flag names. Clients find the world by its name.

// A failure in a test is a panic with a message.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use ghost_testkit::blackbox::{Daemon, Database, Deadline, TestEnvironment};
use serde_json::Value;

const AGENTS: &str = "\
agents: [{ id: lea, archetype: lead }]
write_acls: { lea: [agents/lea/, output/] }
llm: { default_provider: scripted, default_model: lea }
limits: { stop_grace_seconds: 1 }
";
const JOB: &str = "job: { input: input, lead: lea, result: output/reports, brief: 'Report on {input}, please.' }\n";
const PLACES: &str = "\
data_dir: ../../srv/data
workspace_dir: ../../files
storage: { backend: sqlite }
listen: { grpc: ['unix:../../desk.sock', '127.0.0.1:0'], http: '127.0.0.1:0' }
";

/// Works on the job for WAIT, then writes the result and closes the task.
const LEA: &str = r"
rules:
  - when: { mail: '(?P<job>\b[0-9a-f]{16}\b)', round: 0 }
    do: [{ call: workspace.read, with: { path: 'inputs/{{ match.job }}/figure.md', scope: world } }]
  - when: { mail: '(?P<job>\b[0-9a-f]{16}\b)', tool: workspace.read, failed: false }
    do: [{ wait: WAIT }, { call: workspace.write, with: { path: 'output/reports/{{ match.job }}.md', scope: world, content: It is 7. } }]
  - when: { mail: 'task_id: (?P<task>\S+)', tool: workspace.write, failed: false }
    do: [{ call: syscall.task.update, with: { task_id: '{{ match.task }}', status: done, result: '{{ last.path }}' } }]
otherwise: [{ say: Here. }]
";

fn world(test_env: &TestEnvironment, name: &str, config: &str) -> PathBuf {
    let world = test_env.world(name);
    world
        .config(&format!("world: {{ id: desk }}\n{AGENTS}{config}"))
        .archetype("lead", "")
        .write("input/figure.md", "The figure is 7.\n")
        .write("scripts/lea.yaml", LEA.replace("WAIT", "0s"));
    world.path().to_owned()
}

/// The pointers under the state directory, sorted by their data directories.
fn pointers(test_env: &TestEnvironment) -> Vec<Value> {
    let Ok(entries) = fs::read_dir(test_env.join("state/.running")) else { return Vec::new() };
    let mut found: Vec<Value> = entries
        .map(|entry| {
            let path = entry.unwrap().path();
            assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600, "{}", path.display());
            serde_json::from_slice(&fs::read(&path).unwrap()).unwrap()
        })
        .collect();
    found.sort_by_key(|pointer| pointer["data_dir"].to_string());
    found
}

fn reply(test_env: &TestEnvironment, args: &[&str]) -> Value {
    test_env.json(&[args, &["ask", "lea", "hello"]].concat())["reply"].clone()
}

fn finish(test_env: &TestEnvironment, daemon: &Daemon) -> PathBuf {
    let line = daemon.wait_for_line("the end of the job", Deadline::seconds(60), |line| line.starts_with("  result  "));
    test_env.wait_until_quiet(Deadline::seconds(30));
    PathBuf::from(line.trim_start_matches("  result  "))
}

// covers: WORLD-04, WORLD-10, STORE-04
#[test]
fn a_world_runs_at_the_places_of_its_file_and_loses_nothing_when_it_is_killed() {
    let test_env = TestEnvironment::new(env!("CARGO_BIN_EXE_ghostd"));
    let desk = world(&test_env, "desk", &format!("{PLACES}{JOB}"));
    let root = test_env.path().canonicalize().unwrap();
    let (data, files) = (root.join("srv/data"), root.join("files"));
    fs::write(desk.join("scripts/lea.yaml"), LEA.replace("WAIT", "600s")).unwrap();
    let daemon = test_env.up(&desk, &[]);
    Deadline::seconds(60).until("the job's turn", || {
        match test_env.json(&["--world", "desk", "turn", "list", "--agent", "lea"]) {
            turns if turns[0]["status"] == "open" => Ok(()),
            turns => Err(turns.to_string()),
        }
    });
    assert!(data.join("ghost.db").is_file() && !data.join("workspace").exists() && !test_env.data("desk").exists());
    assert_eq!(fs::read_dir(files.join("inputs")).unwrap().count(), 1);
    let running = pointers(&test_env);
    assert_eq!((running.len(), &running[0]["world"]), (1, &"desk".into()), "{running:?}");
    assert_eq!(Path::new(running[0]["data_dir"].as_str().unwrap()), data);
    let listening = daemon.out.all();
    assert!(
        ["unix:", "http://", "REST http://"]
            .iter()
            .all(|scheme| { listening.iter().any(|line| line.starts_with(&format!("  listening on {scheme}"))) })
    );
    // TCP needs the token of this data directory. The client finds it.
    let tcp = listening.iter().find_map(|line| line.strip_prefix("  listening on http://")).unwrap().to_owned();
    assert!(data.join("token").is_file());
    assert_eq!(test_env.json(&["--endpoint", &tcp, "status"])["world_id"], "desk");
    let events = test_env.ctl(&["--json", "events"]).json_lines().len();
    daemon.kill();

    // The pointer of a killed daemon is ignored.
    assert_eq!(pointers(&test_env).len(), 1);
    test_env.ctl(&["status"]).exits(5);
    fs::write(desk.join("scripts/lea.yaml"), LEA.replace("WAIT", "0s")).unwrap();
    let daemon = test_env.up(&desk, &[]);
    assert_eq!(fs::read_to_string(finish(&test_env, &daemon)).unwrap(), "It is 7.");
    assert_eq!(fs::read_dir(files.join("output/reports")).unwrap().count(), 1);
    let all = test_env.ctl(&["--json", "events"]).json_lines();
    assert!(all.len() > events && all.iter().zip(1..).all(|(event, seq)| event["seq"] == seq));
    assert_eq!(test_env.json(&["--world", "desk", "status"])["job"]["state"], "finished");
    // Agents cannot see the mark.
    assert!(files.join(".ghost-world").is_file());
    let list = r#"{"path": "", "scope": "world"}"#;
    let listed = test_env.json(&["tool", "call", "lea", "workspace.list", list]).to_string();
    assert!(listed.contains("output") && !listed.contains(".ghost-world"), "{listed}");

    // A reload tells what the daemon does not follow, each time.
    fs::write(desk.join("world-config.yaml"), format!("world: {{ id: desk }}\n{AGENTS}{JOB}")).unwrap();
    for _ in 0..2 {
        let changes = test_env.json(&["reload"])["changes"].to_string();
        for key in ["data_dir", "workspace_dir", "listen.grpc", "listen.http"] {
            assert!(changes.contains(&format!("{key}: ")), "{changes}");
        }
    }
    daemon.stop();
    assert!(pointers(&test_env).is_empty(), "an orderly stop removes the pointer");
    assert!(!test_env.join("desk.sock").exists());
    let database = Database::open(&data);
    assert_eq!(database.number("SELECT count(*) FROM events WHERE kind = 'job.finished'"), 1);
    assert_eq!(database.number("SELECT count(*) FROM events WHERE kind = 'artifact.created'"), 1);

    // The workspace did not move with the file, so the start is refused, and nothing has changed.
    fs::write(desk.join("world-config.yaml"), format!("world: {{ id: desk }}\n{AGENTS}data_dir: ../../srv/data\n"))
        .unwrap();
    test_env.ghostd(&["up", desk.to_str().unwrap()]).exits(5);
    assert!(!data.join("workspace").exists());
}

// covers: WORLD-10
#[test]
fn flags_win_over_the_file_and_two_worlds_with_one_id_are_told_apart() {
    let test_env = TestEnvironment::new(env!("CARGO_BIN_EXE_ghostd"));
    let root = test_env.path().canonicalize().unwrap();
    let desk = world(&test_env, "desk", PLACES);
    let first = test_env.up(&desk, &[]);
    // The workspace of the file is in use, and belongs to other data.
    test_env.ghostd(&["up", desk.to_str().unwrap(), "--data", "other"]).exits(7);
    assert!(!root.join("other").exists());
    let args = ["--data", "other", "--workspace", "mine", "--listen", "unix:other.sock", "--http", "off"];
    let second = test_env.up(&desk, &args);
    assert!(root.join("other/ghost.db").is_file() && root.join("mine/shared").is_dir());
    assert!(!second.out.all().iter().any(|line| line.contains("http")), "{}", second.out.text());
    let socket = format!("unix:{}", root.join("other.sock").display());
    assert_eq!(pointers(&test_env)[0]["endpoint"], *socket);

    let asked: [&[&str]; 2] = [&["status"], &["--world", "desk", "status"]];
    for args in asked {
        let error = test_env.ctl(&[&["--json"], args].concat()).exits(2).error();
        assert!(error.to_string().contains(&socket) && error["hint"].to_string().contains("--endpoint"), "{error}");
    }
    assert_eq!(reply(&test_env, &["--endpoint", &socket]), "Here.");
    first.stop();
    assert_eq!(reply(&test_env, &["--world", "desk"]), "Here.");
    // The workspace of the first world is free now, but not for other data.
    second.stop();
    test_env.ghostd(&["up", desk.to_str().unwrap(), "--data", "other"]).exits(7);
    // A default world needs no pointer, even after a daemon with another socket was killed.
    let plain = world(&test_env, "plain", "");
    test_env.up(&plain, &["--listen", "unix:plain.sock"]).kill();
    assert_eq!(pointers(&test_env).len(), 1);
    let daemon = test_env.up(&plain, &[]);
    assert!(pointers(&test_env).is_empty());
    assert_eq!(reply(&test_env, &[]), "Here.");
    daemon.stop();
}

#[test]
fn a_world_runs_although_the_state_directory_cannot_be_written() {
    let test_env = TestEnvironment::new(env!("CARGO_BIN_EXE_ghostd"));
    let desk = world(&test_env, "desk", PLACES);
    // A file instead of a directory: root may write to a directory that denies it.
    fs::write(test_env.join("state"), "").unwrap();
    let daemon = test_env.up(&desk, &[]);
    daemon.err.find(0, Deadline::seconds(10), |line| line.contains("WARN") && line.contains("--endpoint")).unwrap();
    assert_eq!(reply(&test_env, &["--endpoint", "unix:desk.sock"]), "Here.");
    daemon.stop();
}

// covers: WORLD-10
#[test]
fn data_is_never_among_the_files_of_the_world() {
    let test_env = TestEnvironment::new(env!("CARGO_BIN_EXE_ghostd"));
    let desk = world(&test_env, "desk", JOB);
    let (dir, inside) = (desk.to_str().unwrap(), desk.join("archetype/data"));
    test_env.ghostd(&["up", dir, "--data", inside.to_str().unwrap()]).exits(2);
    // Everything in the job's input is copied to where agents read it.
    let input = test_env.join("notes");
    fs::create_dir_all(&input).unwrap();
    fs::write(input.join("a.txt"), "a").unwrap();
    let data = input.join("data");
    test_env.ghostd(&["up", dir, "--input", input.to_str().unwrap(), "--data", data.to_str().unwrap()]).exits(2);
    assert!(!inside.exists() && !data.exists());
}
