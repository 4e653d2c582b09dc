//! What `ghostctl` prints for mistyped input: negative numbers, filters that match no record, wrong option values,
//! lines that are no text. Also the exit codes of failed answers.

// A failure in a test is a panic with a message.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use ghost_proto::v1::agents_client::AgentsClient;
use ghost_proto::v1::messages_client::MessagesClient;
use ghost_proto::v1::turns_client::TurnsClient;
use ghost_proto::v1::{AskRequest, ListAgentsRequest, ListTurnsRequest};
use ghost_testkit::blackbox::{Daemon, Deadline, Ran, TestEnvironment};
use serde_json::{Value, json};
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};

const SCRIPT: &str = "\
about: Answers, and waits as it is told.
rules:
  - name: wait
    when: { mail: 'wait a while', round: 0 }
    do: [{ wait: 600s }, { say: Never said. }]
otherwise: [{ say: Noted. }]
";

const WORLD: &str = "\
agents:
  - { id: ada, archetype: clerk }
  - { id: ben, archetype: clerk }
agents_may_create: [helper]
llm: { default_provider: scripted, default_model: desk, prices: { scripted/desk: { input: 1, output: 1 } } }
";

/// Ids of a root, a turn and a conversation that do not exist.
const NEVER: &str = "0197d2a0-0000-7000-8000-000000000000";

fn running() -> (TestEnvironment, Daemon) {
    let test_env = TestEnvironment::new(env!("CARGO_BIN_EXE_ghostd"));
    let world = test_env.world("desk");
    world.config(WORLD).write("scripts/desk.yaml", SCRIPT);
    world.archetype("clerk", "").archetype("helper", "");
    let daemon = test_env.up(world.path(), &[]);
    (test_env, daemon)
}

/// The lines of its output without those that every usage error has.
fn error_text(ran: &Ran) -> &str {
    ran.err.split("\n\n").next().unwrap_or_default()
}

#[test]
fn a_negative_number_is_refused_with_the_allowed_range() {
    let (test_env, daemon) = running();
    test_env.json(&["chat", "create", "room", "--members", "ada,ben"]);
    for (args, bound) in [
        (&["state", "set", "k", "1", "--expect", "-1"][..], "0"),
        (&["knowledge", "write", "e", "x", "--expect", "-1"], "0"),
        (&["budget", "set", "world", "--tokens", "-1"], "0"),
        (&["budget", "set", "world", "--usd", "-1"], "0"),
        (&["events", "--after", "-1"], "0"),
        (&["usage", "--since", "-1h"], "0"),
        (&["ledger", "--since", "-1h"], "0"),
        (&["ledger", "--limit", "-1"], "1"),
        (&["agent", "list", "--limit", "-1"], "1"),
        (&["agent", "stop", "ada", "--grace", "-1s"], "0"),
        (&["shutdown", "--grace", "-1"], "0"),
        (&["--timeout", "-1s", "status"], "0"),
        (&["task", "create", "t", "--owner", "ada", "--due-in", "-1h"], "0"),
        (&["chat", "history", "room", "--after", "-1"], "0"),
        (&["chat", "history", "room", "--limit", "-1"], "1 to 500"),
        (&["chat", "watch", "room", "--after", "-1"], "0"),
        (&["conversation", "show", NEVER, "--after", "-1"], "0"),
        (&["conversation", "redeliver", NEVER, "-1"], "1"),
        (&["cron", "add", "ada", "j", "--every", "1h", "--message", "x", "--max-rounds", "-1"], "1"),
        (&["cron", "runs", "ada/j", "--limit", "-1"], "1 to 1000"),
        (&["timer", "set", "ada", "t", "--in", "-5m", "--message", "x"], "0"),
        (&["watch", "add", "ada", "w", "shared", "--debounce-ms", "-1"], "0"),
    ] {
        let ran = test_env.ctl(args);
        ran.exits(2);
        assert!(error_text(&ran).contains(bound) && !ran.err.contains("use '--"), "{args:?}: {}", ran.err);
    }
    // A text may begin with a dash after `--`; the tip about this is printed.
    test_env.ctl(&["send", "ada", "-5 degrees"]).exits(2).says(&["use '--"]);
    daemon.stop();
}

#[test]
fn a_refusal_names_the_option_of_the_command_that_was_run() {
    let (test_env, daemon) = running();
    let job = |rest: &[&'static str]| [&["cron", "add", "ada", "j", "--every", "1h", "--message", "x"], rest].concat();
    let timer = |rest: &[&'static str]| [&["timer", "set", "ada", "t", "--message", "x"], rest].concat();
    for (args, named) in [
        (job(&["--run-timeout", "1h"]), "--run-timeout"),
        (job(&["--max-rounds", "999"]), "--max-rounds"),
        (job(&["--session", "isolate"]), "--session: `isolate`"),
        (job(&["--wake", "soon"]), "--wake: `soon`"),
        (job(&["--deliver", "annonce"]), "--deliver: `annonce`"),
        (job(&["--to", "No Such!"]), "--to: `No Such!`"),
        (job(&["--session", "main", "--deliver", "none"]), "--deliver"),
        (job(&["--session", "main", "--payload", "agentTurn"]), "--session main"),
        (timer(&["--in", "99999d"]), "--in"),
        (timer(&["--at", "2020-01-01T00:00:00Z"]), "at: 2020-01-01"),
        (vec!["watch", "add", "ada", "w", "shared", "--changes", "creatd"], "--changes: `creatd`"),
        (vec!["watch", "add", "A B", "w", "shared"], "AGENT: `A B`"),
        (vec!["send", "A B", "x"], "AGENT_ID: `A B`"),
        (vec!["agent", "create", "helper", "--id", "A B"], "--id: `A B`"),
        (vec!["agent", "list", "--archetype", ""], "--archetype"),
        (vec!["tool", "call", "ada", ""], "TOOL"),
        (vec!["chat", "create", "A B", "--members", "ada"], "CHANNEL: `A B`"),
        (vec!["budget", "set", "wrld", "--tokens", "1"], "SCOPE: `wrld`"),
        (vec!["budget", "list", "--scope", "wrld"], "--scope: `wrld`"),
        (vec!["events", "--kind", "nope.x"], "--kind: `nope.x`"),
        (vec!["agent", "stop", "ada", "--grace", "9999d"], "--grace"),
    ] {
        let ran = test_env.ctl(&args);
        ran.exits(2).says(&[named]);
    }
    // The message names the option and the setting that limits it.
    test_env.ctl(&job(&["--max-rounds", "999"])).says(&["1 to 15", "limits.turn_rounds_max"]);
    test_env.ctl(&["agent", "list", "--status", "runing"]).exits(2).says(&["--status: `runing`"]);
    test_env.ctl(&["cron", "cancel", "ada/none"]).exits(3).says(&["`ada/none`"]);
    test_env.ctl(&["knowledge", "list", "--as", "wholly-unknown"]).exits(3).says(&["`wholly-unknown`"]);
    // With `--json` it is one object.
    let program = test_env.ctl(&[&["--json"], job(&["--session", "isolate"]).as_slice()].concat());
    assert_eq!((program.exits(2).out.as_str(), program.error()["details"]["field"].as_str()), ("", Some("session")));
    assert!(program.error()["error"].as_str().unwrap().starts_with("--session: "), "{}", program.err);
    // The arguments of a tool have the names that the tool gives them.
    test_env.json(&["chat", "create", "room", "--members", "ada,ben"]);
    let call = test_env.ctl(&["tool", "call", "ada", "syscall.chat.history", r#"{"channel": "room", "after_seq": 9}"#]);
    call.exits(2).says(&["after_seq"]);
    let missing = test_env.ctl(&["--json", "agent", "get"]);
    assert!(missing.exits(2).error()["error"].as_str().unwrap().contains("<AGENT_ID>"), "{}", missing.err);
    daemon.stop();
}

fn channel(test_env: &TestEnvironment) -> Channel {
    let socket = test_env.data("desk").join("ghostd.sock");
    Endpoint::from_shared(format!("unix:{}", socket.display())).unwrap().connect_lazy()
}

fn refusal(status: &Status) -> Value {
    let trailer = status.metadata().get_bin(ghost_proto::REFUSAL_TRAILER).expect("a refusal in the trailer");
    serde_json::from_slice(&trailer.to_bytes().unwrap()).unwrap()
}

#[test]
fn a_filter_for_an_unknown_record_is_refused() {
    let (test_env, daemon) = running();
    test_env.json(&["agent", "create", "helper", "--id", "dan", "--goal", "begin"]);
    test_env.wait_until_quiet(Deadline::seconds(30));
    test_env.json(&["agent", "delete", "dan"]);
    for (args, near) in [
        (&["agent", "list", "--archetype", "clrk"][..], "`clerk`"),
        (&["agent", "list", "--archetype", "wholly-unknown"], "clerk, helper"),
        (&["agent", "list", "--deleted", "--archetype", "helpr"], "`helper`"),
        (&["turn", "list", "--agent", "adda"], "`ada`"),
        (&["turn", "list", "--root", NEVER], "turn list"),
        (&["ledger", "--turn", NEVER], "turn list"),
        (&["ledger", "--agent", "adda"], "`ada`"),
        (&["ledger", "--tool", "workspace.raed"], "`workspace.read`"),
        (&["events", "--agent", "adda"], "`ada`"),
        (&["task", "list", "--owner", "adda"], "`ada`"),
        (&["usage", "--agent", "adda"], "`ada`"),
        (&["dead", "list", "--agent", "adda"], "`ada`"),
        (&["chat", "list", "--agent", "adda"], "`ada`"),
        (&["conversation", "list", "--agent", "adda"], "`ada`"),
        (&["timer", "list", "--agent", "adda"], "`ada`"),
        (&["cron", "list", "--agent", "adda"], "`ada`"),
        (&["watch", "list", "--agent", "adda"], "`ada`"),
        (&["knowledge", "list", "--as", "adda"], "`ada`"),
    ] {
        test_env.ctl(args).exits(3).says(&[near]);
        let program = test_env.ctl(&[&["--json"], args].concat());
        assert_eq!((program.exits(3).out.as_str(), program.error()["code"].as_str()), ("", Some("not_found")));
    }
    // A deleted agent has left records; an existing one may have none.
    let agents = test_env.json(&["agent", "list", "--archetype", "helper"]);
    assert_eq!(agents, json!([]));
    let gone = test_env.json(&["agent", "list", "--deleted", "--archetype", "helper"]);
    assert_eq!(gone[0]["agent_id"], "dan");
    let turns = test_env.json(&["turn", "list", "--agent", "dan"]);
    let root = turns[0]["root_id"].as_str().unwrap();
    assert_eq!(test_env.json(&["turn", "list", "--root", root]), turns);
    let turn = turns[0]["turn_id"].as_str().unwrap();
    assert_eq!(test_env.json(&["ledger", "--turn", turn]), json!([]));
    // A root is known even if its work waits for its first turn.
    test_env.json(&["pause"]);
    let sent = test_env.json(&["send", "ada", "later"]);
    assert_eq!(test_env.json(&["turn", "list", "--root", sent["root_id"].as_str().unwrap()]), json!([]));
    test_env.json(&["resume"]);

    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let request = ListAgentsRequest { archetype: Some("clrk".into()), ..ListAgentsRequest::default() };
        let agents = AgentsClient::new(channel(&test_env)).list(request).await.unwrap_err();
        assert_eq!((agents.code(), &refusal(&agents)["details"]["field"]), (Code::NotFound, &json!("archetype")));
        assert!(refusal(&agents)["hint"].as_str().unwrap().contains("`clerk`"));
        let request = ListTurnsRequest { root_id: Some(NEVER.into()), ..ListTurnsRequest::default() };
        let turns = TurnsClient::new(channel(&test_env)).list(request).await.unwrap_err();
        assert_eq!((turns.code(), &refusal(&turns)["code"]), (Code::NotFound, &json!("not_found")));
    });
    daemon.stop();
}

#[test]
fn a_line_that_is_no_text_is_refused_and_not_sent() {
    let (test_env, daemon) = running();
    let (code, out, err) = test_env.ctl_piped(&["--json", "talk", "ada"], b"one\ncaf\xe9\nthree\n");
    assert_eq!(code, 2, "{err}");
    let error: Value = serde_json::from_str(&err).unwrap();
    assert_eq!(error["code"], "invalid_arguments");
    let told = error["error"].as_str().unwrap();
    assert!(told.contains("line 2 ") && told.contains("byte 4 "), "{told}");
    let conversation: Value = serde_json::from_str(out.lines().next().unwrap()).unwrap();
    let shown = test_env.json(&["conversation", "show", conversation["conversation_id"].as_str().unwrap()]);
    let texts: Vec<&str> =
        shown["entries"].as_array().unwrap().iter().map(|e| e["content"].as_str().unwrap()).collect();
    assert_eq!(texts, ["one", "Noted."]);
    // It is refused at once, before there is a conversation.
    let before = test_env.json(&["conversation", "list"]);
    assert_eq!(test_env.ctl_piped(&["talk", "ada"], b"\xff\n").0, 2);
    assert_eq!(test_env.json(&["conversation", "list"]), before);
    daemon.stop();
}

#[test]
fn a_missing_answer_has_the_exit_code_of_its_reason() {
    let (test_env, daemon) = running();
    let late = test_env.ctl(&["--json", "--timeout", "300ms", "ask", "ada", "wait a while"]);
    late.exits(6);
    assert_eq!(
        (late.error()["code"].as_str(), late.error()["details"]["status"].as_str()),
        (Some("timeout"), Some("timed_out"))
    );
    test_env.json(&["agent", "stop", "ada", "--grace", "0s"]);
    test_env.ctl(&["ask", "ada", "hello"]).exits(7);
    test_env.json(&["budget", "set", "agent:ben", "--tokens", "1"]);
    let spent = test_env.ctl(&["--json", "--timeout", "300ms", "ask", "ben", "hello"]);
    spent.exits(6);
    assert!(spent.error()["error"].as_str().unwrap().contains("agent:ben"));

    let runtime = tokio::runtime::Runtime::new().unwrap();
    let ask = |agent_id: &str, request_id: &str| AskRequest {
        request_id: request_id.into(),
        agent_id: agent_id.into(),
        body: "hello".into(),
        timeout_ms: Some(300),
    };
    runtime.block_on(async {
        let mut client = MessagesClient::new(channel(&test_env));
        let spent = client.ask(ask("ben", "a")).await.unwrap().into_inner();
        assert_eq!((spent.status.as_str(), spent.error_code.as_deref()), ("timed_out", Some("timeout")));
        assert!(spent.error.unwrap().contains("tokens") && spent.hint.is_some() && spent.reply.is_none());
        let stopped = client.ask(ask("ada", "b")).await.unwrap_err();
        assert_eq!((stopped.code(), &refusal(&stopped)["code"]), (Code::FailedPrecondition, &json!("conflict")));
    });
    daemon.stop();
}

#[test]
fn an_incomplete_history_says_how_to_continue() {
    let (test_env, daemon) = running();
    test_env.json(&["chat", "create", "room", "--members", "ada,ben", "--gated"]);
    for number in 1..=3 {
        test_env.json(&["chat", "send", "room", &format!("post {number}")]);
    }
    for (args, rest) in [
        (&["--limit", "2"][..], "--before 2 "),
        (&["--limit", "2", "--after", "0"], "--after 2 "),
        (&["--limit", "3"], ""),
        (&["--limit", "1", "--before", "2"], ""),
        (&["--limit", "1", "--after", "2"], ""),
        (&["--limit", "1", "--after", "1", "--before", "3"], ""),
        (&["--limit", "1", "--after", "0", "--before", "3"], "--before 2 "),
        (&["--limit", "2", "--after", "0", "--before", "4"], "--before 2 "),
        (&["--limit", "2", "--after", "0", "--before", "3"], ""),
        (&[], ""),
    ] {
        let ran = test_env.ctl(&[&["chat", "history", "room"], args].concat());
        let note = &ran.ok().err;
        assert_eq!(note.is_empty(), rest.is_empty(), "{args:?}: {note}");
        assert!(note.is_empty() || note.starts_with("note: ") && note.contains(rest), "{args:?}: {note}");
    }
    // The JSON output has the sequence numbers.
    assert_eq!(test_env.ctl(&["--json", "chat", "history", "room", "--limit", "2"]).ok().err, "");
    daemon.stop();
}

#[test]
fn input_that_is_far_too_long_is_refused_at_once_with_a_short_message() {
    let (test_env, daemon) = running();
    let long = "x".repeat(100_000);
    let path = format!("unix:/{long}");
    let with = |option: &str| format!("--{option}={long}");
    for args in [
        &[long.as_str()][..],
        &["events", "--after", &long],
        &["timer", "set", "ada", "t", "--message", "x", "--in", &long],
        &["completions", &long],
        &["--endpoint", &long, "status"],
        &["--endpoint", &path, "status"],
        &["--endpoint", "127.0.0.1:1", "--token", &long, "status"],
        &["agent", "get", &long],
        &["cron", "cancel", &long],
        &["chat", "history", &long],
        &["agent", "list", "--archetype", &long],
        &["events", &with("after")],
        &["timer", "set", "ada", "t", "--message", "x", &with("in")],
        &["agent", "list", &with("archetype")],
        &[&with("endpoint"), "status"],
        &["status", &with("nonsense")],
        &["status", &with(&"n".repeat(1_000))],
    ] {
        // A text that is too long has the same code everywhere. An id of an impossible form is a usage error.
        let code = if args.iter().any(|arg| arg.contains("archetype")) { 8 } else { 2 };
        let ran = test_env.ctl(args);
        ran.exits(code);
        assert!(ran.err.len() < 2_000, "{} bytes: {}…", ran.err.len(), &ran.err[..500]);
        let program = test_env.ctl(&[&["--json"], args].concat());
        program.exits(code);
        assert!(program.err.len() < 2_000 && program.error()["error"].is_string(), "{}", program.err.len());
    }
    test_env.ctl(&["--world", &long, "status"]).exits(3);
    for (args, expected) in [
        (&["up", "--http", "localhost:80"][..], "--http"),
        (&["up", "--http", "-1"], "--http"),
        (&["up", "--listen", &path], "107"),
        (&["up", "--listen", "unix:"], "--listen"),
    ] {
        test_env.ghostd(args).exits(2).says(&[expected]);
    }
    daemon.stop();
}
