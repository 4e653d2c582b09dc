//! Knowledge, shared state and tasks with dependencies, through `ghostctl` and plain gRPC, with kills of the daemon.

// A failure in a test is a panic with a message.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::io::Write;
use std::path::PathBuf;
use std::process::Stdio;

use ghost_proto::v1::knowledge_client::KnowledgeClient;
use ghost_proto::v1::state_client::StateClient;
use ghost_proto::v1::{GetStateRequest, ReadKnowledgeRequest, SetStateRequest, WriteKnowledgeRequest};
use ghost_testkit::blackbox::{Daemon, Database, TestEnvironment};
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use tonic::Code;
use tonic::transport::{Channel, Endpoint};

const WORLD: &str = "\
world: { name: The Library }
agents:
  - { id: ada, archetype: lead, privilege_groups: [manager] }
  - { id: ben, archetype: clerk, privilege_groups: [writer] }
  - { id: cleo, archetype: clerk, privilege_groups: [writer] }
  - { id: dot, archetype: clerk }
tool_privileges:
  manager: [syscall.task.create, syscall.task.update, syscall.knowledge.write, syscall.knowledge.delete]
  shared: [syscall.state.write]
  writer: [syscall.knowledge.write, syscall.knowledge.delete, syscall.state.write]
access: { default: public }
limits: { knowledge_bytes: 2000, knowledge_versions: 2, state_bytes: 1000 }
llm: { default_provider: scripted, default_model: desk }
";

const SEED: &str = "\
---
id: house/style
title: How we write
readers: ['*']
writers: ['group:manager']
tags: [style]
---
Short. No puns.
";

fn library() -> (TestEnvironment, PathBuf) {
    let test_env = TestEnvironment::new(env!("CARGO_BIN_EXE_ghostd"));
    let world = test_env.world("library");
    world
        .config(WORLD)
        .archetype("lead", "## Tool Access\nprivilege_groups: manager, shared\n")
        .archetype("clerk", "## Tool Access\nprofile: full\n")
        .write("scripts/desk.yaml", "otherwise: [{ say: Here. }]\n")
        .write("knowledge/style.md", SEED);
    let path = world.path().to_owned();
    (test_env, path)
}

fn running() -> (TestEnvironment, PathBuf, Daemon) {
    let (test_env, world) = library();
    let daemon = test_env.up(&world, &[]);
    (test_env, world, daemon)
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

/// A channel to the daemon's socket. Must be called inside a runtime.
fn channel(test_env: &TestEnvironment) -> Channel {
    let socket = test_env.data("library").join("ghostd.sock");
    Endpoint::from_shared(format!("unix:{}", socket.display())).unwrap().connect_lazy()
}

fn ids(list: &Value) -> Vec<&str> {
    list.as_array().unwrap().iter().map(|entry| entry["entry_id"].as_str().unwrap()).collect()
}

/// The code in a refusal that `--json` printed.
fn code(test_env: &TestEnvironment, exit: i32, args: &[&str]) -> String {
    let ran = test_env.ctl(&[&["--json"], args].concat());
    ran.exits(exit);
    ran.error()["code"].as_str().unwrap().to_owned()
}

// covers: KNOW-01, KNOW-02
#[test]
fn knowledge_is_written_read_listed_and_deleted_with_its_permissions() {
    let (test_env, world, daemon) = running();
    // The entries of the world's files exist.
    let seed = test_env.json(&["knowledge", "read", "house/style", "--as", "ben"]);
    assert_eq!((&seed["content"], &seed["creator"]), (&json!("Short. No puns."), &json!("system")));
    assert_eq!((&seed["tags"], &seed["version"]), (&json!(["style"]), &json!(1)));
    assert_eq!(code(&test_env, 4, &["knowledge", "write", "house/style", "x", "--as", "ben"]), "access_denied");
    let changed = test_env.json(&["knowledge", "write", "house/style", "Shorter.", "--as", "ada"]);
    assert_eq!((&changed["version"], &changed["updated_by"]), (&json!(2), &json!("agent:ada")));

    // An agent's own entry is private until it is shared. For others, an unreadable entry does not exist.
    let own = test_env.json(&[
        "knowledge",
        "write",
        "notes/ben",
        "--title",
        "Ben's",
        "mine",
        "--as",
        "ben",
        "--tags",
        "a, b",
    ]);
    assert_eq!((&own["title"], &own["tags"], &own["readers"]), (&json!("Ben's"), &json!(["a", "b"]), &json!([])));
    let mut answers = std::collections::BTreeSet::new();
    for (exit, args) in [
        (3, ["knowledge", "read", "notes/ben", "--as", "cleo"].as_slice()),
        (3, &["knowledge", "read", "notes/none", "--as", "cleo"]),
        (3, &["knowledge", "write", "notes/ben", "x", "--as", "cleo"]),
        (3, &["knowledge", "delete", "notes/ben", "--as", "cleo"]),
    ] {
        let ran = test_env.ctl(&[&["--json"], args].concat());
        ran.exits(exit);
        let refusal = ran.error();
        // A hidden entry and a missing one get the same answer, and it names no other entry.
        let words = refusal.to_string().replace(args[2], "X");
        assert!(!words.contains("notes/"), "{refusal}");
        answers.insert(words);
    }
    assert_eq!(answers.len(), 1, "{answers:?}");
    test_env.json(&["knowledge", "write", "notes/ben", "ours", "--as", "ben", "--readers", "archetype:clerk"]);
    let seen = test_env.json(&["knowledge", "read", "notes/ben", "--as", "cleo", "--versions"]);
    assert_eq!((&seen["content"], &seen["versions"][0]["content"]), (&json!("ours"), &json!("mine")));
    assert_eq!(code(&test_env, 3, &["knowledge", "read", "notes/ben", "--as", "ada"]), "not_found");
    test_env.json(&["knowledge", "write", "notes/ben", "mine again", "--readers", ""]);
    assert_eq!(code(&test_env, 3, &["knowledge", "read", "notes/ben", "--as", "cleo"]), "not_found");
    assert_eq!(test_env.json(&["knowledge", "read", "notes/ben", "--as", "ben"])["creator"], "agent:ben");

    // From a file and from standard input.
    let file = test_env.join("text.md");
    std::fs::write(&file, "from a file\n").unwrap();
    test_env.json(&["knowledge", "write", "from/file", "--file", file.to_str().unwrap(), "--readers", "*"]);
    let mut piped = test_env.ctl_command(&["knowledge", "write", "from/pipe", "-"]);
    let mut child = piped.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"from a pipe").unwrap();
    assert!(child.wait().unwrap().success());
    assert_eq!(test_env.json(&["knowledge", "read", "from/pipe"])["content"], "from a pipe");
    assert!(test_env.ctl(&["knowledge", "read", "from/file"]).ok().out.ends_with("\nfrom a file\n"));

    let all = test_env.json(&["knowledge", "list"]);
    assert_eq!(ids(&all), ["from/file", "from/pipe", "house/style", "notes/ben"]);
    assert!(all[0].get("content").is_none());
    assert_eq!(ids(&test_env.json(&["knowledge", "list", "--as", "cleo"])), ["from/file", "house/style"]);
    assert_eq!(ids(&test_env.json(&["knowledge", "list", "--tag", "style"])), ["house/style"]);
    assert_eq!(ids(&test_env.json(&["knowledge", "list", "--query", "PIPE"])), ["from/pipe"]);
    test_env.ctl(&["knowledge", "list", "--limit", "2"]).ok().says(&["--limit"]);

    // Versions are kept up to the limit and can be compared. A new entry continues the numbers of a deleted one.
    for text in ["two", "three", "four"] {
        test_env.json(&["knowledge", "write", "from/file", text]);
    }
    let kept = test_env.json(&["knowledge", "read", "from/file", "--versions"]);
    assert_eq!((&kept["version"], kept["versions"].as_array().unwrap().len()), (&json!(4), 2));
    let stale = test_env.ctl(&["--json", "knowledge", "write", "from/file", "x", "--expect", "3"]);
    stale.exits(7);
    assert_eq!(stale.error()["details"]["version"], 4);
    assert_eq!(code(&test_env, 7, &["knowledge", "delete", "from/file", "--expect", "1"]), "conflict");
    assert_eq!(test_env.json(&["knowledge", "delete", "from/file", "--expect", "4"])["deleted"], true);
    assert_eq!(code(&test_env, 3, &["knowledge", "read", "from/file"]), "not_found");
    assert_eq!(test_env.json(&["knowledge", "write", "from/file", "anew", "--expect", "0"])["version"], 6);

    // A changed or deleted seed is not written again. A reload adds new seeds.
    test_env.json(&["knowledge", "delete", "house/style"]);
    let second = SEED.replace("house/style", "house/names");
    std::fs::write(world.join("knowledge/names.md"), second).unwrap();
    assert!(test_env.json(&["reload", "--dry-run"])["changes"].to_string().contains("knowledge"));
    test_env.json(&["reload"]);
    assert_eq!(test_env.json(&["knowledge", "read", "house/names", "--as", "cleo"])["version"], 1);
    assert_eq!(code(&test_env, 3, &["knowledge", "read", "house/style"]), "not_found");

    let changes = test_env.ctl(&["--json", "events", "--kind", "knowledge.changed"]).json_lines();
    let last = &changes.last().unwrap()["payload"];
    assert_eq!(last, &json!({ "entry_id": "house/names", "version": 1, "by": "system", "deleted": false }));
    let by_ben = changes.iter().find(|event| event["agent_id"] == "ben").unwrap();
    assert!(by_ben["payload"]["through"].as_str().unwrap().starts_with("operator:"), "{by_ben}");
    daemon.stop();
}

// covers: ACC-03, KNOW-02
#[test]
fn agents_have_the_tools_that_their_groups_allow() {
    let (test_env, _, daemon) = running();
    let call = |agent: &str, tool: &str, arguments: Value| {
        test_env.ctl(&["--json", "tool", "call", agent, tool, &arguments.to_string()])
    };
    let denied = call("dot", "syscall.knowledge.write", json!({ "entry_id": "e", "content": "x" }));
    denied.exits(4);
    call("dot", "syscall.state.write", json!({ "key": "k", "value": 1 })).exits(4);
    // An operator cannot call the tool in the agent's name either.
    for (tool, args) in [
        ("syscall.knowledge.write", ["knowledge", "write", "e", "x", "--as", "dot"]),
        ("syscall.state.write", ["state", "set", "k", "1", "--as", "dot"]),
    ] {
        test_env.ctl(&args).exits(4).says(&["dot", tool]);
    }
    let written =
        call("ada", "syscall.knowledge.write", json!({ "entry_id": "e", "content": "x", "readers": ["ben"] }));
    assert_eq!(written.json()["result"], json!({ "entry_id": "e", "version": 1 }));
    let read = call("ben", "syscall.knowledge.read", json!({ "entry_id": "e" })).json();
    assert_eq!((&read["result"]["content"], &read["result"]["can_write"]), (&json!("x"), &json!(false)));
    call("cleo", "syscall.knowledge.read", json!({ "entry_id": "e" })).exits(3);
    let listed = call("cleo", "syscall.knowledge.list", json!({})).json();
    assert_eq!(ids(&listed["result"]), ["house/style"]);
    let set = call("ada", "syscall.state.write", json!({ "key": "plan.step", "value": [1], "expected_version": 0 }));
    assert_eq!(set.json()["result"], json!({ "key": "plan.step", "version": 1 }));
    let all = call("ben", "syscall.state.read", json!({})).json();
    assert_eq!(all["result"], json!({ "plan.step": { "value": [1], "version": 1 } }));
    call("ada", "syscall.state.write", json!({ "key": "system.x", "value": 1 })).exits(4);
    call("ada", "syscall.state.write", json!({ "key": "plan.step", "value": 2, "expected_version": 0 })).exits(7);
    call("ada", "syscall.knowledge.delete", json!({ "entry_id": "e" })).ok();
    daemon.stop();
}

// covers: STATE-01, STATE-04
#[test]
fn state_is_set_read_listed_and_refused() {
    let (test_env, _, daemon) = running();
    let set = test_env.json(&["state", "set", "plan.step", "{\"n\": 1}", "--expect", "0", "--as", "ben"]);
    assert_eq!((&set["value"], &set["version"], &set["writer"]), (&json!({ "n": 1 }), &json!(1), &json!("agent:ben")));
    test_env.json(&["state", "set", "plan.mood", "\"calm\""]);
    test_env.json(&["state", "set", "count", "-7"]);
    test_env.json(&["state", "set", "system.mode", "true"]);
    assert_eq!(test_env.ctl(&["state", "get", "plan.mood"]).ok().out, "\"calm\"\n");
    let plan = test_env.json(&["state", "list", "plan."]);
    let keys = |list: &Value| list.as_array().unwrap().iter().map(|row| row["key"].clone()).collect::<Vec<_>>();
    assert_eq!(keys(&plan), ["plan.mood", "plan.step"]);
    assert_eq!(keys(&test_env.json(&["state", "list"])).len(), 4);
    test_env.ctl(&["state", "list", "--limit", "1"]).ok().says(&["--limit"]);
    // A number keeps all its digits everywhere.
    let long = "12345678901234567890.123";
    test_env.json(&["state", "set", "count", &format!("[{long}, 9007199254740993]")]);
    assert_eq!(test_env.ctl(&["state", "get", "count"]).ok().out, format!("[{long}, 9007199254740993]\n"));
    for args in [&["--json", "state", "get", "count"][..], &["--json", "state", "list", "count"]] {
        assert!(test_env.ctl(args).ok().out.contains(&format!("[{long}, 9007199254740993]")), "{args:?}");
    }
    let read = test_env.ctl(&["tool", "call", "ada", "syscall.state.read", "{\"key\": \"count\"}"]).json();
    assert_eq!(read["value_json"], format!("[{long}, 9007199254740993]"), "{read}");
    test_env.json(&["state", "set", "count", "-7"]);
    assert_eq!(test_env.json(&["state", "set", "count", "null"])["version"], 4);
    assert_eq!(test_env.json(&["state", "set", "count", "0", "--expect", "0"])["version"], 5, "no version comes twice");

    let large = format!("\"{}\"", "x".repeat(1_000));
    let key = "k".repeat(129);
    for (exit, refused, args) in [
        (7, "conflict", ["state", "set", "plan.step", "2", "--expect", "0"].as_slice()),
        (7, "conflict", &["state", "set", "none", "2", "--expect", "4"]),
        (4, "access_denied", &["state", "set", "system.mode", "false", "--as", "ada"]),
        (4, "access_denied", &["state", "set", "system.other", "1", "--as", "ada"]),
        (2, "invalid_arguments", &["state", "set", "a..b", "1"]),
        (2, "invalid_arguments", &["state", "set", "a\nb", "1"]),
        (2, "invalid_arguments", &["state", "set", key.as_str(), "1"]),
        (2, "invalid_arguments", &["state", "set", "k", "{oops"]),
        (2, "invalid_arguments", &["state", "list", "a b"]),
        (8, "too_large", &["state", "set", "k", large.as_str()]),
        (3, "not_found", &["state", "get", "none.at.all"]),
        (3, "not_found", &["state", "set", "none.at.all", "null"]),
        (2, "invalid_arguments", &["knowledge", "write", "Not/An/Id", "x"]),
        (2, "invalid_arguments", &["knowledge", "write", "e", "x", "--readers", "role:x"]),
        (3, "not_found", &["knowledge", "write", "e", "x", "--readers", "group:mangler"]),
        (2, "invalid_arguments", &["knowledge", "write", "e", "bell \u{7}"]),
        (8, "too_large", &["knowledge", "write", "e", &"x".repeat(2_001)]),
    ] {
        assert_eq!(code(&test_env, exit, args), refused, "{args:?}");
    }
    // A number beyond the limits is valid JSON, and the refusal describes the number.
    for beyond in ["1e400", "[-1e400]", &"9".repeat(400)] {
        let ran = test_env.ctl(&["state", "set", "k", beyond]);
        ran.exits(2).says(&["JSON", "line 1 column ", "hint: "]);
    }
    for args in [["state", "set", "k", "1", "--as", "bne"], ["knowledge", "write", "e", "x", "--as", "bne"]] {
        test_env.ctl(&args).exits(3).says(&["`ben`"]);
    }
    test_env.ctl(&["state", "get", "plan.stpe"]).exits(3).says(&["`plan.step`"]);
    assert_eq!(keys(&test_env.json(&["state", "list"])).len(), 4, "nothing was half done");
    let changes = test_env.ctl(&["--json", "events", "--kind", "state.changed"]).json_lines();
    assert_eq!(changes.len(), 8);
    let first = &changes[0]["payload"];
    assert_eq!(
        (&first["key"], &first["version"], &first["writer"]),
        (&json!("plan.step"), &json!(1), &json!("agent:ben"))
    );
    daemon.stop();
}

/// The codes of the refusals among the answers.
fn refusals<T>(answers: Vec<Result<T, tonic::Status>>) -> Vec<Code> {
    answers.into_iter().filter_map(Result::err).map(|status| status.code()).collect()
}

// covers: KNOW-04, STATE-02
#[test]
fn one_of_many_writers_wins_and_the_others_get_a_conflict() {
    let (test_env, _, daemon) = running();
    runtime().block_on(async {
        let channel = channel(&test_env);
        for round in 0..5_i64 {
            let mut sets = tokio::task::JoinSet::new();
            let mut writes = tokio::task::JoinSet::new();
            for n in 0..8 {
                let set = SetStateRequest {
                    request_id: format!("s{round}.{n}"),
                    key: "race".into(),
                    value_json: n.to_string(),
                    expected_version: Some(round),
                    as_agent: None,
                };
                let write = WriteKnowledgeRequest {
                    request_id: format!("k{round}.{n}"),
                    entry_id: "race".into(),
                    content: format!("by {n}"),
                    expected_version: Some(round),
                    ..WriteKnowledgeRequest::default()
                };
                let (mut state, mut knowledge) =
                    (StateClient::new(channel.clone()), KnowledgeClient::new(channel.clone()));
                sets.spawn(async move { state.set(set).await });
                writes.spawn(async move { knowledge.write(write).await });
            }
            assert_eq!(refusals(sets.join_all().await), [Code::Aborted; 7]);
            assert_eq!(refusals(writes.join_all().await), [Code::Aborted; 7]);
        }
        let race = StateClient::new(channel.clone()).get(GetStateRequest { key: "race".into() }).await.unwrap();
        assert_eq!(race.into_inner().version, 5);
        let read = ReadKnowledgeRequest { entry_id: "race".into(), versions: true, as_agent: None };
        let race = KnowledgeClient::new(channel).read(read).await.unwrap().into_inner();
        let kept: Vec<i64> = race.versions.iter().map(|version| version.version).collect();
        assert_eq!((race.entry.unwrap().version, kept), (5, vec![4, 3]));
    });
    daemon.stop();
}

// covers: KNOW-04, STATE-02
#[test]
fn acknowledged_changes_survive_kills_and_happen_once() {
    let (test_env, world) = library();
    let runtime = runtime();
    let mut first = None;
    let mut acknowledged = Vec::new();
    for round in 0..3 {
        let daemon = test_env.up(&world, &[]);
        runtime.block_on(async {
            let channel = channel(&test_env);
            let (mut knowledge, mut state) = (KnowledgeClient::new(channel.clone()), StateClient::new(channel));
            // After every kill, the same requests get the same first answers.
            let write = WriteKnowledgeRequest {
                request_id: "again".into(),
                entry_id: "once".into(),
                content: "only once".into(),
                as_agent: Some("ben".into()),
                ..WriteKnowledgeRequest::default()
            };
            let set = SetStateRequest {
                request_id: "again-too".into(),
                key: "once".into(),
                value_json: "{\"n\":1}".into(),
                expected_version: Some(0),
                as_agent: None,
            };
            let write = knowledge.write(write).await.unwrap().into_inner();
            let answers = (write, state.set(set).await.unwrap().into_inner());
            assert_eq!(first.get_or_insert_with(|| answers.clone()), &answers);
            for n in 0..20 {
                let key = format!("k{round}.n{n}");
                let set = SetStateRequest {
                    request_id: key.clone(),
                    key: key.clone(),
                    value_json: n.to_string(),
                    ..SetStateRequest::default()
                };
                let write = WriteKnowledgeRequest {
                    request_id: format!("w{key}"),
                    entry_id: key.clone(),
                    content: key.clone(),
                    ..WriteKnowledgeRequest::default()
                };
                let (set, write) = tokio::join!(state.set(set), knowledge.write(write));
                acknowledged.push((key, set.unwrap().into_inner().version, write.unwrap().into_inner().version));
            }
        });
        daemon.kill();
    }
    let daemon = test_env.up(&world, &[]);
    assert_eq!(acknowledged.len(), 60);
    for (key, set, written) in &acknowledged {
        assert_eq!(test_env.json(&["state", "get", key])["version"], *set);
        assert_eq!(test_env.json(&["knowledge", "read", key])["version"], *written);
    }
    assert_eq!(test_env.json(&["state", "get", "once"])["version"], 1);
    assert_eq!(test_env.json(&["knowledge", "read", "once"])["version"], 1);
    let seeds = test_env.json(&["knowledge", "read", "house/style", "--versions"]);
    assert_eq!((&seeds["version"], &seeds["versions"]), (&json!(1), &json!([])), "four boots put it once");
    let events = test_env.ctl(&["--json", "events", "--kind", "knowledge.changed"]).json_lines();
    assert_eq!(events.len(), 62);
    daemon.stop();
    assert_eq!(Database::open(&test_env.data("library")).integrity(), "ok");
}

// covers: TASK-06
#[test]
fn tasks_wait_for_their_dependencies_and_show_it() {
    let (test_env, _, daemon) = running();
    let create = |title: &str| {
        test_env.json(&["task", "create", title, "--owner", "ben"])["task_id"].as_str().unwrap().to_owned()
    };
    let (first, second) = (create("first"), create("second"));
    let waits = test_env.json(&["task", "update", &second, "--depends-on", &first]);
    assert_eq!((&waits["status"], &waits["depends_on"]), (&json!("blocked"), &json!([first])));
    let round = test_env.ctl(&["--json", "task", "update", &first, "--depends-on", &second]);
    round.exits(7);
    assert_eq!(round.error()["details"]["cycle"], json!([first, second, first]));
    test_env.ctl(&["task", "update", &second, "--status", "in_progress"]).exits(7);
    test_env.json(&["task", "update", &first, "--status", "done", "--note", "it was easy"]);
    assert_eq!(test_env.json(&["task", "get", &second])["status"], "pending");
    let got = test_env.json(&["task", "get", &first]);
    assert_eq!((got["notes"].as_array().unwrap().len(), &got["notes"][0]["note"]), (1, &json!("it was easy")));
    test_env.json(&["task", "update", &first, "--status", "pending", "--reopen", "--note", "one was left"]);
    assert_eq!(test_env.json(&["task", "get", &second])["status"], "blocked");
    let free = test_env.json(&["task", "update", &second, "--depends-on", "none"]);
    assert_eq!((&free["status"], &free["depends_on"]), (&json!("pending"), &json!([])));
    daemon.stop();
}

// covers: KNOW-06
#[test]
fn a_world_with_invalid_knowledge_does_not_start() {
    let (test_env, world) = library();
    std::fs::write(world.join("knowledge/a.md"), "---\nid: a\nreaders: [archetype:clark]\n---\ntext\n").unwrap();
    std::fs::write(world.join("knowledge/b.md"), "just text\n").unwrap();
    let checked = test_env.ghostd(&["check", world.to_str().unwrap()]);
    assert_ne!(checked.code, Some(0));
    let output = format!("{}{}", checked.out, checked.err);
    for words in ["a.md:1: title", "a.md:3", "`clerk`", "b.md:1"] {
        assert!(output.contains(words), "{words}: {output}");
    }
}
