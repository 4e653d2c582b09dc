//! Rules for all commands of `ghostctl`: lists are arrays, texts can come from standard input, and refusals use the
//! typed words and have the exit code of their cause.

// A failure in a test is a panic with a message.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use ghost_testkit::blackbox::{Daemon, Deadline, TestEnvironment};
use serde_json::Value;

const SCRIPT: &str = "\
about: Says what it heard.
rules:
  - when: { mail: 'kind=\"ask\"[^>]*>\\n(?P<words>(?s:.*?))\\n</message>' }
    do: [{ say: 'heard {{ match.words }}' }]
otherwise: [{ say: Noted. }]
";

const WORLD: &str = "\
agents:
  - { id: ada, archetype: clerk }
  - { id: ben, archetype: clerk }
  - { id: cyd, archetype: clerk }
tool_privileges: { writer: [syscall.task.create, syscall.broadcast] }
limits: { inbox_max: 2 }
llm: { default_provider: scripted, default_model: desk }
";

fn running() -> (TestEnvironment, Daemon) {
    let test_env = TestEnvironment::new(env!("CARGO_BIN_EXE_ghostd"));
    let world = test_env.world("desk");
    world.config(WORLD).write("scripts/desk.yaml", SCRIPT);
    world.archetype("clerk", "## Tool Access\nprivilege_groups: writer\n");
    let daemon = test_env.up(world.path(), &[]);
    (test_env, daemon)
}

#[test]
fn every_list_is_one_array_and_every_other_command_one_object() {
    let (test_env, daemon) = running();
    test_env.json(&["ask", "ada", "hello"]);
    test_env.json(&["chat", "create", "room", "--members", "ada,ben"]);
    test_env.json(&["cron", "add", "ada", "mail", "--every", "1h", "--message", "x"]);
    test_env.json(&["timer", "set", "ada", "soon", "--in", "1h", "--message", "x"]);
    test_env.json(&["watch", "add", "ada", "files", "shared"]);
    for list in [
        &["agent", "list"][..],
        &["tool", "list", "ada"],
        &["conversation", "list"],
        &["turn", "list"],
        &["task", "list"],
        &["knowledge", "list"],
        &["state", "list"],
        &["chat", "list"],
        &["chat", "history", "room"],
        &["timer", "list"],
        &["timer", "runs", "ada/soon"],
        &["cron", "list"],
        &["cron", "runs", "ada/mail"],
        &["watch", "list"],
        &["watch", "runs", "ada/files"],
        &["dead", "list"],
        &["budget", "list"],
        &["usage"],
        &["usage", "--agent", "ada", "--since", "1h"],
        &["ledger"],
    ] {
        let printed = test_env.json(list);
        assert!(printed.is_array(), "{list:?}: {printed:#}");
    }
    let turn = test_env.json(&["turn", "list"])[0]["turn_id"].as_str().unwrap().to_owned();
    for one in [
        &["status"][..],
        &["agent", "get", "ada"],
        &["agent", "prompt", "ada"],
        &["tool", "brief", "ada"],
        &["turn", "show", &turn],
        &["state", "set", "k", "1"],
        &["state", "get", "k"],
        &["budget", "set", "agent:ada", "--tokens", "none"],
        &["chat", "send", "room", "hello"],
        &["cron", "run", "ada/mail"],
        &["timer", "cancel", "ada/soon"],
    ] {
        let printed = test_env.json(one);
        assert!(printed.is_object(), "{one:?}: {printed:#}");
    }
    for event in test_env.ctl(&["--json", "events"]).json_lines() {
        assert!(event.is_object(), "{event}");
    }
    daemon.stop();
}

#[test]
fn every_text_can_come_from_standard_input() {
    let (test_env, daemon) = running();
    let text = |args: &[&str], input: &str| {
        let (code, out, err) = test_env.ctl_piped(&[&["--json"], args].concat(), input.as_bytes());
        assert_eq!((code, err.as_str()), (0, ""), "{args:?}");
        serde_json::from_str::<Value>(&out).unwrap()
    };
    // The shell adds the final line break; it is not part of the text.
    assert_eq!(text(&["ask", "ada", "-"], "two\nlines\n")["reply"], "heard two\nlines");
    text(&["send", "ada", "-", "--subject", "S"], "by mail");
    test_env.json(&["chat", "create", "room", "--members", "ada,ben", "--gated"]);
    assert_eq!(text(&["chat", "send", "room", "-"], "- a post\r\n")["seq"], 1);
    assert_eq!(test_env.json(&["chat", "history", "room"])[0]["content"], "- a post");
    assert_eq!(text(&["state", "set", "plan", "-"], "{\"n\": 2}\n")["value"]["n"], 2);
    assert_eq!(text(&["tool", "call", "ada", "syscall.state.read", "-"], "{\"key\": \"plan\"}")["status"], "ok");
    let task = text(&["task", "create", "Count", "--owner", "ben", "--description", "-"], "all of\nthem\n");
    assert_eq!(task["description"], "all of\nthem");
    let id = task["task_id"].as_str().unwrap();
    assert_eq!(text(&["task", "update", id, "--result", "-"], "17\n")["result"], "17");
    assert_eq!(text(&["agent", "create", "clerk", "--id", "dan", "--goal", "-"], "begin\n")["agent_id"], "dan");
    let cron = text(&["cron", "add", "ada", "mail", "--every", "1h", "--message", "-"], "read it\n");
    assert!(cron.to_string().contains("read it"), "{cron}");
    assert_eq!(text(&["pause", "--reason", "-"], "backup\n")["paused"], true);
    test_env.json(&["resume"]);
    // A document is stored unchanged.
    for (entry, args) in [("a", &["-"][..]), ("b", &["--file", "-"])] {
        let written = text(&[&["knowledge", "write", entry], args].concat(), "# Head\n");
        assert_eq!(written["content"], "# Head\n", "{args:?}");
    }
    // Only one text can come from standard input, and its length is limited.
    let twice = test_env.ctl_piped(&["send", "ada", "-", "--subject", "-"], b"x");
    assert!(twice.0 == 2 && twice.2.contains("`-`") && twice.2.contains("hint: "), "{}", twice.2);
    assert_eq!(test_env.ctl_piped(&["send", "ada", "-"], &vec![b'x'; 3 << 20]).0, 8);
    assert_eq!(test_env.ctl_piped(&["send", "ada", "-"], b"\xff").0, 2);
    test_env.wait_until_quiet(Deadline::seconds(30));
    daemon.stop();
}

// covers: CP-09
#[test]
fn the_exit_code_depends_on_the_cause_only() {
    let (test_env, daemon) = running();
    test_env.json(&["chat", "create", "room", "--members", "ada,ben"]);
    test_env.json(&["chat", "send", "room", "one"]);
    let gone = test_env.join("none.md");
    let gone = gone.to_str().unwrap();
    let directory = test_env.join(".");
    let directory = directory.to_str().unwrap();
    for (exit, args) in [
        // The named record does not exist.
        (3, &["--world", "nope", "status"][..]),
        (3, &["knowledge", "write", "e", "--file", gone]),
        (3, &["agent", "get", "adda"]),
        (3, &["ledger", "--tool", "workspace.raed"]),
        (3, &["events", "--channel", "rom"]),
        (3, &["events", "--follow", "--channel", "rom"]),
        (3, &["chat", "history", "rom"]),
        (3, &["talk", "ada", "--conversation", "0197d2a0-0000-7000-8000-000000000000"]),
        // The value has an impossible form.
        (2, &["knowledge", "write", "e", "--file", directory]),
        (2, &["chat", "history", "room", "--limit", "501"]),
        (2, &["chat", "history", "room", "--after", "999"]),
        (2, &["chat", "history", "room", "--before", "999"]),
        (2, &["state", "set", "k", "{"]),
        // A path that the agent may not reach, in every form.
        (4, &["tool", "call", "ada", "workspace.read", r#"{"path": "../../x"}"#]),
        (4, &["watch", "add", "ada", "w", "../../x"]),
    ] {
        let ran = test_env.ctl(&[&["--timeout", "5s"], args].concat());
        ran.exits(exit).says(&["error: "]);
        let advice = ["hint: ", "For more information"];
        assert!(advice.iter().any(|word| ran.err.contains(word)), "{args:?}: {}", ran.err);
    }
    let attached = test_env.ctl_piped(&["talk", "ada", "--attach", "../x"], b"hello\n");
    assert_eq!(attached.0, 4, "{}", attached.2);
    test_env.ctl(&["ledger", "--tool", "workspace.raed"]).exits(3).says(&["`workspace.read`"]);
    test_env.ctl(&["events", "--channel", "rom"]).exits(3).says(&["`room`"]);
    assert_eq!(test_env.json(&["ledger", "--tool", "write"]), Value::Array(Vec::new()), "an alias is known");
    daemon.stop();
}

#[test]
fn a_refusal_uses_the_typed_words() {
    let (test_env, daemon) = running();
    test_env.json(&["chat", "create", "room", "--members", "ada,ben"]);
    test_env.json(&["chat", "send", "room", "one"]);
    let (code, out, err) = test_env.ctl_piped(&["--json", "talk", "ada"], b"hello\n");
    assert_eq!(code, 0, "{err}");
    let first: Value = serde_json::from_str(out.lines().next().unwrap()).unwrap();
    let talk = first["conversation_id"].as_str().unwrap();
    for (args, named) in [
        (&["chat", "history", "room", "--after", "9"][..], "--after"),
        (&["chat", "history", "room", "--before", "0"], "--before"),
        (&["chat", "send", "room", " "], "TEXT"),
        (&["chat", "send", "room", "x", "--as", "A B"], "--as"),
        (&["send", "ada", ""], "TEXT"),
        (&["ask", "A B", "x"], "AGENT_ID"),
        (&["turn", "list", "--agent", "A B"], "--agent"),
        (&["turn", "list", "--root", "x"], "--root"),
        (&["events", "--kind", "nope"], "--kind"),
        (&["state", "set", "k", "{"], "JSON"),
        (&["tool", "call", "ada", "workspace.read", "[]"], "JSON"),
        (&["task", "create", "t", "--owner", "ada", "--depends-on", "x"], "--depends-on"),
        (&["task", "create", "t", "--owner", "ada", "--parent", "x"], "--parent"),
        (&["budget", "set", "world", "--tokens", "9000000000000000000"], "--tokens"),
        (&["budget", "list", "--scope", "wrld"], "--scope"),
        (&["conversation", "show", talk, "--after", "-1"], "--after"),
        (&["agent", "stop", "ada", "--grace", "9999d"], "--grace"),
    ] {
        let ran = test_env.ctl(args);
        assert_ne!(ran.code, Some(0), "{args:?}");
        ran.says(&[named]);
        for wire in ["_seq", "_json", "_ms", "request_id", "agent_id", "_micros", "_on ", "kinds", "body ", "sort"] {
            assert!(!ran.err.contains(wire), "{args:?} speaks of {wire}: {}", ran.err);
        }
    }
    // A sequence number that a conversation has not reached has a refusal of its own.
    let ahead = test_env.ctl(&["--json", "conversation", "show", talk, "--after", "999"]);
    ahead.exits(2);
    assert_eq!(
        (ahead.error()["code"].as_str(), &ahead.error()["details"]["last_seq"]),
        (Some("cursor_ahead"), &2.into())
    );
    assert_eq!(test_env.json(&["conversation", "show", talk, "--after", "2"])["entries"], Value::Array(Vec::new()));
    daemon.stop();
}
