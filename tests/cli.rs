//! Every command of `ghostctl` against a running world: the JSON output, the exit codes, the hints.

// A failure in a test is a panic with a message.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Stdio;

use ghost_testkit::blackbox::{Daemon, Database, Deadline, TestEnvironment};
use serde_json::{Value, json};

const SCRIPT: &str = r#"about: Answers and waits as it is told.
rules:
  - name: wait
    when: { mail: 'wait a while', round: 0 }
    do: [{ wait: 600s }, { say: Never said. }]
  - name: write
    when: { mail: 'write (?P<path>\S+)', round: 0 }
    do: [{ call: workspace.write, with: { path: "{{ match.path }}", content: "Forty-two." } }]
  - name: written
    when: { tool: workspace.write }
    do: [{ say: "It is written." }]
otherwise: [{ say: "Here is {{ agent_id }}." }]
"#;

const WORLD: &str = "\
world: { name: The Desk }
agents:
  - { id: ada, archetype: lead, name: Ada }
  - { id: ben, archetype: clerk, name: Ben, team: pair }
  - { id: cleo, archetype: clerk, name: Cleo, team: pair }
teams:
  - { name: pair, agents: [ben, cleo] }
tool_privileges:
  admin: [syscall.agent.create, syscall.agent.start, syscall.agent.stop, syscall.agent.inspect, syscall.resource.usage]
  manager: [syscall.task.create, syscall.task.update, syscall.broadcast]
  communicator: [channel, syscall.ask]
agents_may_create: [clerk]
limits: { message_bytes: 2000 }
budgets: { world: { tokens: 1000000 } }
llm: { default_provider: scripted, default_model: desk, prices: { scripted/desk: { input: 1, output: 1 } } }
";

/// An environment with the world in it.
fn desk() -> (TestEnvironment, PathBuf) {
    let test_env = TestEnvironment::new(env!("CARGO_BIN_EXE_ghostd"));
    let world = test_env.world("desk");
    world
        .config(WORLD)
        .archetype("lead", "## Tool Access\nprivilege_groups: admin, manager, communicator\n")
        .archetype("clerk", "## Tool Access\nprofile: full\n")
        .write("scripts/desk.yaml", SCRIPT);
    let path = world.path().to_owned();
    (test_env, path)
}

fn running() -> (TestEnvironment, Daemon) {
    let (test_env, world) = desk();
    let daemon = test_env.up(&world, &[]);
    (test_env, daemon)
}

/// Asserts that an object, or every object of an array, has all of these keys.
fn has(value: &Value, keys: &[&str]) {
    for item in value.as_array().unwrap_or(&vec![value.clone()]) {
        for key in keys {
            assert!(item.get(key).is_some(), "no `{key}` in {item:#}");
        }
    }
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_else(|| panic!("no text `{key}` in {value:#}"))
}

#[test]
fn the_world_can_be_shown_paused_resumed_reloaded_and_shut_down() {
    let (test_env, mut daemon) = running();
    let status = test_env.json(&["status"]);
    let keys = ["world_id", "name", "agents_by_status", "open_turns", "inbox_total", "last_seq", "endpoints", "job"];
    has(&status, &keys);
    assert_eq!((status["world_id"].as_str(), status["name"].as_str()), (Some("desk"), Some("The Desk")));
    assert_eq!(status["agents_by_status"], json!({ "running": 3 }));

    assert_eq!(test_env.json(&["pause", "--reason", "a test"])["changed"], true);
    let paused = test_env.ctl(&["--json", "events", "--kind", "world.paused"]).ok().json_lines();
    assert_eq!(paused[0]["payload"]["reason"], "a test");
    assert_eq!(test_env.json(&["pause"])["changed"], false);
    test_env.json(&["send", "ada", "hello"]);
    let held = test_env.json(&["status"]);
    assert_eq!((&held["paused"], &held["inbox_total"]), (&json!(true), &json!(1)));
    let resumed = test_env.json(&["resume"]);
    assert_eq!(resumed, json!({ "paused": false, "changed": true }));
    test_env.wait_until_quiet(Deadline::seconds(30));

    let plan = test_env.json(&["reload", "--dry-run"]);
    assert_eq!(plan["applied"], false);
    let file = test_env.join("worlds/desk/world-config.yaml");
    let more = WORLD.replace("teams:\n", "  - { id: dora, archetype: clerk }\nteams:\n");
    std::fs::write(&file, more).unwrap();
    let reloaded = test_env.json(&["reload"]);
    assert_eq!(reloaded["applied"], true);
    has(&reloaded, &["changes", "problems"]);
    assert!(reloaded["changes"].to_string().contains("dora"), "{reloaded}");
    assert_eq!(text(&test_env.json(&["ask", "dora", "who is there"]), "reply"), "Here is dora.");
    // The plan names the changed rule file and the agents that follow it.
    let script = test_env.join("worlds/desk/scripts/desk.yaml");
    let rules = std::fs::read_to_string(&script).unwrap();
    std::fs::write(&script, format!("{rules}# Looked at again.\n")).unwrap();
    std::fs::write(script.with_file_name("spare.yaml"), "otherwise: [{ say: x }]\n").unwrap();
    let skill = test_env.join("worlds/desk/skills/counting/SKILL.md");
    std::fs::create_dir_all(skill.parent().unwrap()).unwrap();
    std::fs::write(&skill, "---\nname: counting\ndescription: How to count.\n---\nOne, two.\n").unwrap();
    for dry in [&["reload", "--dry-run"][..], &["reload"][..]] {
        let changes = test_env.json(dry)["changes"].clone();
        let seen: Vec<(&str, &str)> = changes
            .as_array()
            .unwrap()
            .iter()
            .map(|change| (text(change, "subject"), text(change, "detail")))
            .collect();
        for row in [("script:scripts/desk.yaml", "changed"), ("script:scripts/spare.yaml", "added")] {
            assert!(seen.contains(&row), "{row:?}: {seen:?}");
        }
        assert!(seen.contains(&("agent:ada", "script")) && seen.contains(&("skill:counting", "added")), "{seen:?}");
    }
    assert_eq!(test_env.json(&["reload"])["changes"].as_array().unwrap().len(), 1, "only that all stay as they are");
    // A file with mistakes changes nothing, and every mistake is reported with its line.
    std::fs::write(&script, rules.replace("rules:", "ruls:")).unwrap();
    std::fs::write(&file, WORLD.replace("archetype: lead", "archetype: leed")).unwrap();
    let refused = test_env.ctl(&["--json", "reload"]);
    refused.exits(2);
    let refused: Value = serde_json::from_str(&refused.out).unwrap();
    assert_eq!(refused["applied"], false);
    let reported = refused["problems"].to_string();
    assert!(reported.contains("leed") && reported.contains("ruls"), "{reported}");

    let stopped = test_env.json(&["shutdown"]);
    assert_eq!(stopped["stopped"], true);
    assert_eq!(daemon.wait(), 0);
    test_env.ctl(&["--timeout", "200ms", "status"]).exits(5);
}

// covers: CP-04, TEST-11, WORLD-13
#[test]
fn agents_are_listed_created_stopped_started_and_deleted() {
    let (test_env, daemon) = running();
    let agents = test_env.json(&["agent", "list"]);
    has(&agents, &["agent_id", "archetype", "status", "activity", "kind", "restarts"]);
    let ids: Vec<&str> = agents.as_array().unwrap().iter().map(|agent| text(agent, "agent_id")).collect();
    assert_eq!(ids, ["ada", "ben", "cleo"]);
    has(&test_env.json(&["agent", "get", "ada"]), &["agent_id", "inbox_pending", "turn_id", "model", "tools"]);

    let made = test_env.json(&["agent", "create", "clerk", "--id", "dan", "--name", "Dan", "--goal", "write first.md"]);
    assert_eq!((text(&made, "agent_id"), text(&made, "kind"), text(&made, "name")), ("dan", "dynamic", "Dan"));
    test_env.wait_until_quiet(Deadline::seconds(30));
    let first = test_env.data("desk").join("workspace/agents/dan/first.md");
    assert_eq!(std::fs::read_to_string(first).unwrap(), "Forty-two.");
    // Without a goal the agent waits.
    let waits = test_env.json(&["agent", "create", "clerk"]);
    let id = text(&waits, "agent_id").to_owned();
    assert_eq!(test_env.json(&["turn", "list", "--agent", &id]), json!([]));
    let again = test_env.json(&["agent", "create", "clerk", "--id", "dan"]);
    assert_eq!((text(&again, "agent_id"), &again["changed"]), ("dan", &json!(false)));
    test_env.ctl(&["agent", "create", "lead", "--id", "dan"]).exits(7);

    assert_eq!(text(&test_env.json(&["agent", "stop", "ben"]), "status"), "stopped");
    assert_eq!(test_env.json(&["agent", "stop", "ben"])["changed"], false);
    let failed = test_env.ctl(&["--json", "--timeout", "1s", "ask", "ben", "are you there"]);
    assert_ne!(failed.code, Some(0));
    assert_eq!(text(&test_env.json(&["agent", "start", "ben"]), "desired"), "running");
    assert_eq!(text(&test_env.json(&["ask", "ben", "are you there"]), "reply"), "Here is ben.");
    test_env.json(&["agent", "delete", "dan", "--reason", "no longer needed"]);
    let deleted = test_env.ctl(&["--json", "events", "--kind", "agent.deleted"]).ok().json_lines();
    assert_eq!(deleted[0]["payload"]["reason"], "no longer needed");
    test_env.ctl(&["agent", "get", "dan"]);
    let all = test_env.json(&["agent", "list", "--deleted"]);
    // Its records can still be read.
    let past = test_env.ctl(&["--json", "events", "--agent", "dan", "--kind", "agent.deleted"]).json_lines();
    assert_eq!(past.len(), 1);
    let dan = all.as_array().unwrap().iter().find(|agent| agent["agent_id"] == "dan").expect("a tombstone");
    assert!(dan["deleted_at"].is_string(), "{dan}");

    let prompt = test_env.json(&["agent", "prompt", "ada"]);
    assert!(prompt.to_string().contains("Deal with your mail."), "{prompt}");
    let shown = test_env.ctl(&["agent", "prompt", "ada"]);
    for part in ["## ", "  - path (string, required)"] {
        assert!(shown.ok().out.contains(part), "{part}: {}", shown.out);
    }
    daemon.stop();
}

// covers: CP-03, TEST-11
#[test]
fn tools_are_listed_described_and_called_as_the_agent() {
    let (test_env, daemon) = running();
    let tools = test_env.json(&["tool", "list", "ada"]);
    for tool in tools.as_array().unwrap() {
        let keys: BTreeSet<&str> = tool.as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(keys, BTreeSet::from(["description", "name"]), "exactly these");
        assert!(!text(tool, "description").contains('\n'));
    }
    assert!(tools.as_array().unwrap().iter().any(|tool| tool["name"] == "workspace.write"));
    // The output for people is a table with one tool in a row.
    let table = test_env.ctl(&["tool", "list", "ada"]);
    let named: Vec<&str> = table.ok().out.lines().skip(1).map(|line| line.split(' ').next().unwrap()).collect();
    let names: Vec<&str> = tools.as_array().unwrap().iter().map(|tool| text(tool, "name")).collect();
    assert_eq!(named, names);
    let brief = test_env.ctl(&["tool", "brief", "ada"]);
    brief.ok();
    assert!(brief.out.lines().count() > 10);
    for line in brief.out.lines() {
        assert!(line.starts_with("- ") && line.contains(": "), "{line}");
    }

    let call = test_env.json(&["tool", "call", "ada", "workspace.write", r#"{"path": "n.md", "content": "7"}"#]);
    has(&call, &["call_id", "turn_id", "agent_id", "tool", "status", "result", "duration_ms"]);
    assert_eq!(text(&call, "status"), "ok");
    // Aliases work, too. The ledger has the call, in a turn of the operator.
    let read = test_env.json(&["tool", "call", "ada", "read", r#"{"path": "n.md"}"#]);
    assert_eq!((text(&read, "tool"), read["result"]["content"].as_str()), ("workspace.read", Some("7")));
    let turn = test_env.json(&["turn", "show", text(&call, "turn_id")]);
    assert_eq!((text(&turn, "source"), text(&turn, "agent_id")), ("operator", "ada"));
    let ledger = test_env.json(&["ledger", "--agent", "ada", "--since", "24h"]);
    assert_eq!(ledger.as_array().unwrap().len(), 2);
    has(&ledger, &["call_id", "agent_id", "turn_id", "tool", "status", "error_code", "duration_ms"]);
    assert_eq!(test_env.json(&["ledger", "--tool", "workspace.read", "--status", "failed"]), json!([]));

    // A tool that was not granted cannot be called by anyone in the agent's name.
    let denied = test_env.ctl(&["--json", "tool", "call", "ben", "syscall.agent.create", r#"{"archetype": "clerk"}"#]);
    denied.exits(4);
    assert_eq!(text(&denied.error(), "code"), "access_denied");
    let outside = test_env.ctl(&["tool", "call", "ada", "workspace.write", r#"{"path": "../../x", "content": "x"}"#]);
    outside.exits(4);
    let wrong = test_env.ctl(&["tool", "call", "ada", "workspace.write", r#"{"pfad": "x"}"#]);
    wrong.exits(2).says(&["pfad"]);
    test_env.ctl(&["tool", "call", "ada", "workspace.wriet", "{}"]).exits(3).says(&["`workspace.write`"]);
    test_env.ctl(&["tool", "call", "ada", "workspace.read", "{oops"]).exits(2);
    let twice = r#"{"path": "a.md", "content": "x", "path": "b.md"}"#;
    test_env.ctl(&["tool", "call", "ada", "workspace.write", twice]).exits(2).says(&["`path` twice"]);
    assert!(!test_env.data("desk").join("workspace/agents/ada/b.md").exists());
    daemon.stop();
}

// covers: CP-01
#[test]
fn messages_asks_turns_and_tasks() {
    let (test_env, daemon) = running();
    let sent = test_env.json(&["send", "ben", "write a.md", "--subject", "Work"]);
    has(&sent, &["message_id", "agent_id", "seq", "root_id"]);
    test_env.wait_until_quiet(Deadline::seconds(30));
    let turns = test_env.json(&["turn", "list", "--agent", "ben"]);
    has(&turns, &["turn_id", "agent_id", "status", "rounds", "calls", "root_id"]);
    assert_eq!(turns[0]["root_id"], sent["root_id"]);
    let shown = test_env.json(&["turn", "show", text(&turns[0], "turn_id")]);
    let steps: Vec<&str> = shown["steps"].as_array().unwrap().iter().map(|step| text(step, "step")).collect();
    let expected = [
        "briefed",
        "model_started",
        "model_answered",
        "call_started",
        "call_finished",
        "model_started",
        "model_answered",
    ];
    assert_eq!(steps, expected);
    let answer = test_env.json(&["ask", "ada", "hello"]);
    assert_eq!((text(&answer, "status"), text(&answer, "reply")), ("answered", "Here is ada."));
    assert_eq!(test_env.ctl(&["ask", "ada", "hello"]).ok().out, "Here is ada.\n");

    // A long turn is listed and can be cancelled.
    test_env.json(&["send", "cleo", "wait a while"]);
    let open = Deadline::seconds(20).until("an open turn", || {
        let open = test_env.json(&["turn", "list", "--status", "open"]);
        open.get(0).cloned().ok_or_else(|| open.to_string())
    });
    let cancelled = test_env.json(&["turn", "cancel", text(&open, "turn_id")]);
    assert_eq!((text(&cancelled, "status"), &cancelled["changed"]), ("cancelled", &json!(true)));
    assert_eq!(test_env.json(&["turn", "cancel", text(&open, "turn_id")])["changed"], false);
    assert_eq!(text(&test_env.json(&["ask", "cleo", "still there?"]), "reply"), "Here is cleo.");

    let task = test_env.json(&["task", "create", "Count the boats", "--owner", "ben", "--priority", "3"]);
    has(&task, &["task_id", "title", "owner", "creator", "status", "priority"]);
    let id = text(&task, "task_id").to_owned();
    let listed = test_env.json(&["task", "list"]);
    assert_eq!((listed.as_array().unwrap().len(), text(&listed[0], "task_id")), (1, id.as_str()));
    let done = test_env.json(&["task", "update", &id, "--status", "done", "--result", "17", "--note", "counted twice"]);
    assert_eq!((text(&done, "status"), text(&done, "result")), ("done", "17"));
    test_env.ctl(&["task", "update", &id, "--status", "pending"]).exits(7);
    let again = test_env.json(&["task", "update", &id, "--status", "pending", "--reopen", "--note", "one more came"]);
    assert_eq!(text(&again, "status"), "pending");
    let got = test_env.json(&["task", "get", &id]);
    assert!(got["history"].as_array().unwrap().len() >= 3, "{got:#}");
    daemon.stop();
}

// covers: CP-09
#[test]
fn budgets_usage_dead_letters_and_events() {
    let (test_env, daemon) = running();
    test_env.json(&["ask", "ada", "hello"]);
    let budgets = test_env.json(&["budget", "list"]);
    has(&budgets, &["scope", "limit_tokens", "limit_usd", "reserved_tokens", "spent_tokens", "spent_usd"]);
    let world = budgets.as_array().unwrap().iter().find(|budget| budget["scope"] == "world").unwrap().clone();
    assert!(world["spent_tokens"].as_u64().unwrap() > 0);
    let usage = test_env.json(&["usage", "--agent", "ada", "--since", "24h"]);
    has(&usage, &["agent_id", "model", "calls", "input_tokens", "output_tokens"]);
    assert_eq!((usage.as_array().unwrap().len(), &usage[0]["calls"]), (1, &json!(1)));
    // A spent budget parks the turn. The asker gets that reason at the deadline. The work continues when the limit
    // is raised.
    let set = test_env.json(&["budget", "set", "agent:ada", "--tokens", "1"]);
    assert_eq!((text(&set, "scope"), &set["limit_tokens"]), ("agent:ada", &json!(1)));
    let spent = test_env.ctl(&["--json", "--timeout", "500ms", "ask", "ada", "hello"]);
    // Standard error has one JSON object, and the exit code is that of the reason.
    assert_eq!(spent.exits(6).out, "");
    assert_eq!(text(&spent.error(), "code"), "timeout");
    assert!(text(&spent.error(), "error").contains("agent:ada"), "{}", spent.err);
    let parked = test_env.json(&["turn", "list", "--status", "parked"]);
    assert_eq!((parked.as_array().unwrap().len(), text(&parked[0], "agent_id")), (1, "ada"));
    test_env.json(&["budget", "set", "agent:ada", "--tokens", "none"]);
    assert_eq!(text(&test_env.json(&["ask", "ada", "hello"]), "status"), "answered");
    test_env.ctl(&["budget", "set", "agent:nobody", "--tokens", "5"]).exits(3);
    for (scope, hint) in [("agent:adda", "`ada`"), ("team:piar", "`pair`")] {
        test_env.ctl(&["budget", "set", scope, "--tokens", "5"]).exits(3).says(&[hint]);
    }
    let nowhere = "root:ffffffff-ffff-ffff-ffff-ffffffffffff";
    test_env.ctl(&["budget", "set", nowhere, "--tokens", "5"]).exits(3).says(&["hint: "]);
    let root = test_env.json(&["turn", "list"])[0]["root_id"].as_str().unwrap().to_owned();
    test_env.json(&["budget", "set", &format!("root:{root}"), "--tokens", "100000"]);
    for command in ["usage", "ledger"] {
        test_env.ctl(&[command, "--since", "99999d"]).exits(2).says(&["--since", "99999d"]);
    }
    assert_eq!(test_env.json(&["dead", "list"]), json!([]));
    test_env.ctl(&["dead", "show", "0197d2a0-0000-7000-8000-000000000000"]).exits(3);

    let all = test_env.ctl(&["--json", "events"]).json_lines();
    has(&Value::Array(all.clone()), &["seq", "ts", "kind", "agent_id", "payload"]);
    let seqs: Vec<i64> = all.iter().map(|event| event["seq"].as_i64().unwrap()).collect();
    assert!(seqs.iter().copied().eq(1..=i64::try_from(seqs.len()).unwrap()), "{seqs:?}");
    let turns = test_env.ctl(&["--json", "events", "--kind", "turn.*", "--agent", "ada"]).json_lines();
    assert!(turns.iter().all(|event| text(event, "kind").starts_with("turn.") && event["agent_id"] == "ada"));
    assert!(!turns.is_empty());
    test_env.ctl(&["events", "--agent", "adda"]).exits(3).says(&["`ada`"]);
    test_env.ctl(&["events", "--follow", "--agent", "nobody"]).exits(3);
    test_env.ctl(&["events", "--kind", "turn.startd"]).exits(2).says(&["`turn.started`"]);
    test_env.ctl(&["events", "--kind", "trun.*"]).exits(2).says(&["`turn.`"]);
    let after = seqs[seqs.len() - 3];
    assert_eq!(test_env.ctl(&["--json", "events", "--after", &after.to_string()]).json_lines().len(), 2);
    // A follower sees new events.
    let follower =
        test_env.ctl_in_background(&["--json", "events", "--follow", "--after", "now", "--kind", "message.*"]);
    // It follows from the moment of its request, so messages are sent until that moment has passed.
    Deadline::seconds(30).until("an event", || {
        test_env.json(&["send", "ben", "news"]);
        if follower.out.is_empty() { Err("none yet".into()) } else { Ok(()) }
    });
    assert!(follower.out.text().contains("message.delivered"));
    daemon.stop();
}

// covers: CP-09
#[test]
fn every_exit_code_has_its_case_and_every_refusal_its_hint() {
    let (test_env, daemon) = running();
    test_env.ctl(&["status"]).exits(0);
    test_env.json(&["agent", "stop", "ben"]);
    test_env.ctl(&["--timeout", "1s", "ask", "ben", "are you there"]).exits(7).says(&["ben", "hint: "]);
    test_env.ctl(&["frobnicate"]).exits(2);
    test_env.ctl::<&str>(&[]).exits(2);
    test_env.ctl(&["agent", "get", "Not An Id"]).exits(2);
    let missing: [(&[&str], &str); 4] = [
        (&["agent", "get", "adda"], "`ada`"),
        (&["send", "cloe", "x"], "`cleo`"),
        (&["tool", "list", "bem"], "`ben`"),
        (&["agent", "create", "clerc"], "`clerk`"),
    ];
    for (args, hint) in missing {
        test_env.ctl(args).exits(3).says(&[hint]);
    }
    let turn = "0197d2a0-0000-7000-8000-000000000000";
    test_env.ctl(&["turn", "show", turn]).exits(3).says(&["turn"]);
    test_env.ctl(&["task", "get", turn]).exits(3).says(&["task"]);
    test_env.ctl(&["tool", "call", "ben", "syscall.agent.stop", r#"{"agent_id":"ada"}"#]).exits(4);
    test_env
        .ctl(&["--timeout", "200ms", "--endpoint", "unix:/nowhere/at/all.sock", "status"])
        .exits(5)
        .says(&["hint: "]);
    let late = test_env.ctl(&["--json", "--timeout", "1s", "ask", "ada", "wait a while"]);
    assert_eq!(late.exits(6).out, "");
    assert_eq!(text(&late.error(), "code"), "timeout");
    assert!(text(&late.error(), "hint").contains("ask.late"), "{}", late.err);
    test_env.ctl(&["agent", "create", "clerk", "--id", "ada"]).exits(7);
    let long = "x".repeat(3_000);
    test_env.ctl(&["send", "cleo", &long]).exits(8).says(&["2000"]);
    let refused = test_env.ctl(&["--json", "agent", "get", "adda"]).error();
    assert_eq!(text(&refused, "code"), "not_found");
    assert!(text(&refused, "hint").contains("`ada`"), "{refused}");
    // A turn is still waiting, and an orderly stop would wait for it.
    daemon.kill();
}

#[test]
fn an_unambiguous_beginning_of_an_id_is_enough() {
    let (test_env, daemon) = running();
    for question in ["hello", "again", "once more"] {
        test_env.json(&["ask", "ada", question]);
    }
    let list = test_env.json(&["turn", "list"]);
    let ids: Vec<&str> = list.as_array().unwrap().iter().map(|turn| text(turn, "turn_id")).collect();
    assert!(ids.len() >= 3, "{ids:?}");
    for id in &ids {
        let is_one = |beginning: &str| ids.iter().filter(|other| other.starts_with(beginning)).count() == 1;
        let beginning = (1..=id.len()).map(|end| &id[..end]).find(|beginning| is_one(beginning)).unwrap();
        assert_eq!(text(&test_env.json(&["turn", "show", beginning]), "turn_id"), *id, "{beginning}");
    }
    // An ambiguous beginning is refused with the candidates.
    let common = (1..).take_while(|end| ids.iter().all(|id| id[..*end] == ids[0][..*end])).last().unwrap();
    let several = test_env.ctl(&["--json", "turn", "show", &ids[0][..common]]);
    several.exits(2);
    assert!(ids.iter().all(|id| text(&several.error(), "hint").contains(id)), "{}", several.err);
    test_env.ctl(&["task", "get", &ids[0][..common]]).exits(2).says(&["hint: "]);
    let task = test_env.json(&["task", "create", "Read it", "--owner", "ben"]);
    let task_id = text(&task, "task_id");
    let short = &task_id[..20];
    test_env.json(&["task", "update", short, "--status", "in_progress"]);
    assert_eq!(text(&test_env.json(&["task", "get", short]), "status"), "in_progress");
    daemon.stop();
}

#[test]
// The test requests completions as a shell does.
#[allow(clippy::disallowed_methods)]
fn help_completions_and_a_reader_that_goes_away() {
    let (test_env, daemon) = running();
    for shell in ["bash", "zsh", "fish"] {
        let script = test_env.ctl(&["completions", shell]);
        assert!(script.ok().out.contains("ghostctl"), "{shell}");
    }
    // The completions that bash gets.
    let script = test_env.ctl(&["completions", "bash"]).out;
    let ctl = ghost_testkit::blackbox::ghostctl();
    for (words, wanted) in
        [("agent get b", "ben"), ("tool call ada workspace.wr", "workspace.write"), ("sta", "status state")]
    {
        let count = words.split(' ').count();
        let ask = format!(
            "{script}\nCOMP_WORDS=({} {words}); COMP_CWORD={count}; _ghostctl; echo ${{COMPREPLY[@]}}",
            ctl.display()
        );
        let mut bash = std::process::Command::new("bash");
        for (name, value) in test_env.ctl_command::<&str>(&[]).get_envs() {
            bash.env(name, value.unwrap_or_default());
        }
        let completions = bash.args(["--norc", "-c", &ask]).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&completions.stdout).trim(), wanted, "{words}");
    }
    for args in
        [["--help"].as_slice(), &["agent", "create", "--help"], &["events", "--help"], &["dead", "retry", "--help"]]
    {
        let help = test_env.ctl(args);
        assert!(help.ok().out.contains("Examples:"), "{args:?}");
    }
    for number in 0..30 {
        test_env.json(&["send", "ben", &format!("number {number}")]);
    }
    let mut command = test_env.ctl_command(&["events"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let ended = child.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(0));
    assert_eq!(String::from_utf8_lossy(&ended.stderr), "");
    daemon.stop();
}

// covers: CP-01
#[test]
fn a_client_whose_daemon_died_repeats_its_request_with_one_effect() {
    let (test_env, world) = desk();
    let daemon = test_env.up(&world, &[]);
    daemon.kill();
    // No daemon runs. The client waits, with the request id that it will repeat.
    let mut client = test_env.ctl_in_background(&["--world", "desk", "--json", "send", "ada", "once only"]);
    let mut asker = test_env.ctl_in_background(&["--world", "desk", "--json", "ask", "ben", "once only"]);
    let daemon = test_env.up(&world, &[]);
    assert_eq!(client.wait(), 0, "{}", client.err.text());
    assert_eq!(asker.wait(), 0, "{}", asker.err.text());
    daemon.kill();
    let daemon = test_env.up(&world, &[]);
    test_env.wait_until_quiet(Deadline::seconds(30));
    daemon.stop();
    let database = Database::open(&test_env.data("desk"));
    assert_eq!(database.number("SELECT count(*) FROM messages WHERE body = 'once only'"), 2);
    assert_eq!(database.texts("SELECT DISTINCT state FROM messages"), ["consumed"]);
}
