//! Tests of the requests and the output of each command.

use std::io::{self, Write};

use ghost_domain::Refusal;
use ghost_proto::v1::{AskResponse, CallToolResponse};
use serde_json::{Value, json};
use tonic::Code;

use super::fake::{Daemon, End, Fake, refused};
use super::ran::{Ran, ghostctl};

/// `ghostctl` with a fake daemon of its own.
pub struct TestClient {
    daemon: Daemon,
    pub fake: Fake,
    _dir: tempfile::TempDir,
}

impl TestClient {
    pub fn new(fake: Fake) -> Self {
        let dir = tempfile::tempdir().unwrap();
        Self { daemon: fake.serve(&dir.path().join("g.sock")), fake, _dir: dir }
    }

    pub async fn run(&self, args: &[&str]) -> Ran {
        ghostctl(&self.daemon.endpoint, args).await
    }
}

#[tokio::test]
async fn a_reply_that_was_cut_says_so() {
    let client = TestClient::new(Fake::default().reply(AskResponse {
        status: "answered".into(),
        reply: Some("first, the harbour is".into()),
        truncated: true,
        ..AskResponse::default()
    }));
    let ran = client.run(&["--json", "ask", "a", "why?"]).await;
    assert_eq!((ran.code, &ran.json()["truncated"]), (0, &serde_json::json!(true)));
    let ran = client.run(&["ask", "a", "why?"]).await;
    assert!(ran.code == 0 && !ran.err.is_empty(), "{}", ran.err);
}

#[tokio::test]
async fn a_prompt_ends_with_what_its_sections_take() {
    let client = TestClient::new(Fake::default());
    let ran = client.run(&["agent", "prompt", "a"]).await;
    let table = "PART      SECTION  BYTES  TOKENS AT 3 BYTES\nsystem    laws     4      2\nbriefing  goal     6      2\n\
                total              10     4\n";
    let history = "## History\n\n<recent>\n\n## Tools of the request\n\nt\n  Does it.\n  - n (integer, required)\n\n";
    let whole = format!("## System prompt\n\nLaws\n\n## Briefing\n\n<goal>\n\n{history}## Sizes\n\n{table}");
    assert_eq!((ran.code, ran.out.as_str()), (0, whole.as_str()));
    let ran = client.run(&["--json", "agent", "prompt", "a"]).await;
    let section = json!({ "part": "briefing", "name": "goal", "bytes": 6, "estimated_tokens": 2 });
    assert_eq!((ran.json()["sections"].as_array().unwrap().len(), &ran.json()["sections"][1]), (2, &section));
    assert_eq!((&ran.json()["history"], &ran.json()["tools"][0]["name"]), (&json!("<recent>"), &json!("t")));
}

#[tokio::test]
async fn every_other_command_is_one_object() {
    let fake = Fake::default()
        .rows(3)
        .call(CallToolResponse { status: "ok".into(), result_json: r#"{"a":1}"#.into(), ..Default::default() })
        .reply(AskResponse {
            ask_id: "q".into(),
            status: "answered".into(),
            reply: Some("42".into()),
            ..AskResponse::default()
        });
    let client = TestClient::new(fake);
    for args in [
        &["status"][..],
        &["pause"],
        &["resume"],
        &["reload", "--dry-run"],
        &["confirm-clock"],
        &["agent", "create", "scout", "--id", "s", "--name", "S", "--goal", "- go"],
        &["agent", "get", "a"],
        &["agent", "start", "a"],
        &["agent", "stop", "a", "--grace", "5s"],
        &["agent", "prompt", "a"],
        &["tool", "brief", "a"],
        &["tool", "brief", "a", "workspace.read"],
        &["tool", "call", "a", "t", "{\"x\": -1}"],
        &["send", "a", "--", "-- hello"],
        &["ask", "a", "why?"],
        &["turn", "show", "t"],
        &["turn", "cancel", "t"],
        &["turn", "retry", "t"],
        &["task", "create", "do it", "--owner", "a", "--due-in", "2h"],
        &["task", "create", "--title", "do it", "--agent", "a"],
        &["task", "get", "t"],
        &["task", "update", "t", "--status", "done"],
        &["knowledge", "read", "e", "--versions", "--as", "a"],
        &[
            "knowledge",
            "write",
            "e",
            "--title",
            "T",
            "--readers",
            "a,group:b",
            "--tags",
            "",
            "--expect",
            "0",
            "--",
            "- text",
        ],
        &["knowledge", "delete", "e", "--expect", "1"],
        &["state", "get", "k"],
        &["state", "set", "k", "-7", "--expect", "3", "--as", "a"],
        &["chat", "create", "room", "--members", "ada,bob", "--gated", "--topic", "t", "--as", "ada", "--skip-creator"],
        &["chat", "send", "room", "--reply-to", "3", "--as", "ada", "--", "-- @bob"],
        &["chat", "send", "room", "stop", "--deliver"],
        &["chat", "invite", "room", "cyd", "--as", "ada"],
        &["chat", "remove", "room", "cyd"],
        &["dead", "show", "d"],
        &["dead", "retry", "d", "--fresh"],
        &["dead", "drop", "d"],
        &["budget", "set", "world", "--tokens", "5", "--usd", "none"],
    ] {
        let before = [&["--json"], args].concat();
        let object = client.run(&before).await.json();
        assert!(object.is_object(), "{args:?}: {object}");
        let plain = client.run(args).await;
        assert!(plain.code == 0 && !plain.out.is_empty(), "{args:?}: {}", plain.err);
    }
}

#[tokio::test]
async fn a_mistyped_option_is_not_read_as_the_text() {
    let client = TestClient::new(Fake::default());
    for args in [
        &["knowledge", "write", "style/typo", "--titel"][..],
        &["chat", "send", "room", "--delivr"],
        &["send", "ada", "--bogus"],
        &["ask", "ada", "--bogus"],
        &["task", "create", "--titel", "--owner", "ada"],
        &["state", "set", "k", "--expct"],
    ] {
        assert_eq!(client.run(args).await.code, 2, "{args:?}");
    }
    assert!(client.fake.asked().is_empty(), "nothing was sent");
}

// covers: CP-03
#[tokio::test]
async fn the_fixed_shapes_are_kept() {
    let client = TestClient::new(Fake::default().rows(2));
    let tools = json!([{ "name": "workspace.read", "description": "Reads a file" }]);
    let table = client.run(&["tool", "list", "a"]).await.out;
    assert_eq!(table, "TOOL            DESCRIPTION\nworkspace.read  Reads a file\n");
    assert_eq!(client.run(&["--json", "tool", "list", "a"]).await.json(), tools);
    assert_eq!(client.run(&["tool", "brief", "a"]).await.out, "- workspace.read: Reads a file\n");
    assert_eq!(client.run(&["tool", "brief", "a", "workspace.read"]).await.out, "- workspace.read: Reads a file\n");
    assert_eq!(client.run(&["tool", "brief", "a", "workspace.raed"]).await.code, 3);

    let agents = client.run(&["agent", "list", "--json"]).await.json();
    for key in ["agent_id", "archetype", "status", "activity", "kind", "restarts"] {
        assert!(agents[0].get(key).is_some(), "{key}");
    }
    let usage = client.run(&["usage", "--json"]).await.json();
    assert_eq!((&usage[0]["cost_usd"], &usage[0]["calls"]), (&json!(0.5), &json!(2)));
    let table = client.run(&["usage"]).await.out;
    let total = table.lines().last().unwrap();
    assert!(total.starts_with("total") && total.contains("$1.00") && total.contains("15"), "{table}");
    assert!(total.contains("$0.40"), "{table}");
    assert_eq!((&usage[0]["estimated_usd"], &usage[1]["unpriced_tokens"]), (&json!(0.2), &json!(15)));
    let status = client.run(&["status", "--json"]).await.json();
    assert_eq!((&status["job"]["cost_usd"], &status["agents_by_status"]["running"]), (&json!(1.5), &json!(6)));
}

// covers: LIM-50
#[tokio::test]
async fn limits_are_shown_and_filtered() {
    let client = TestClient::new(Fake::default());
    let all = client.run(&["--json", "config", "show"]).await.json();
    assert_eq!(
        (&all[0]["name"], &all[1]["value"], &all[1]["default_value"]),
        (&json!("hops_max"), &json!(7), &json!(5))
    );
    let changed = client.run(&["--json", "config", "show", "--changed"]).await.json();
    assert_eq!((changed.as_array().unwrap().len(), &changed[0]["name"]), (1, &json!("inbox_max")));
    let named = client.run(&["--json", "config", "show", "limits.hops"]).await.json();
    assert_eq!((named.as_array().unwrap().len(), &named[0]["most"]), (1, &json!(9)));
}

#[tokio::test]
async fn a_sent_message_says_if_its_receiver_does_not_take_it_now() {
    let client = TestClient::new(Fake::default());
    assert_eq!(client.run(&["--json", "send", "ada", "hello"]).await.json()["waits"], Value::Null);
    let waits = client.run(&["--json", "send", "idle", "hello"]).await.json();
    assert_eq!((&waits["message_id"], &waits["waits"]), (&json!("m"), &json!("idle is stopped; start it")));
    assert!(client.run(&["send", "idle", "hello"]).await.out.ends_with("\nidle is stopped; start it\n"));
}

#[tokio::test]
async fn a_turn_is_shown_with_its_whole_journal() {
    let client = TestClient::new(Fake::default().rows(450));
    let turn = client.run(&["--json", "turn", "show", "t"]).await.json();
    let steps: Vec<i64> = turn["steps"].as_array().unwrap().iter().map(|step| step["seq"].as_i64().unwrap()).collect();
    assert!(steps.iter().copied().eq(1..=450));
    // Raw, each step is one line of JSON.
    let raw = client.run(&["turn", "show", "t", "--raw"]).await;
    let lines: Vec<Value> = raw.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(lines.len() == 450 && lines[449]["seq"] == 450 && lines[449]["step"] == "note");
    assert_eq!(client.run(&["turn", "show", "t", "--raw", "--full"]).await.code, 2);
}

#[tokio::test]
async fn a_refusal_gives_its_exit_code_and_the_daemons_own_hint() {
    let refusal = Refusal::not_found("agent", "chorra", Some("chora"));
    let ends = [Code::NotFound, Code::NotFound].map(|code| End::Status(refused(code, &refusal)));
    let client = TestClient::new(Fake::default().first(ends));
    let plain = client.run(&["agent", "get", "chorra"]).await;
    assert_eq!((plain.code, plain.out.as_str()), (3, ""));
    assert_eq!(plain.err, "error: there is no agent `chorra`\nhint: did you mean `chora`?\n");
    let program = client.run(&["--json", "agent", "get", "chorra"]).await;
    let expected =
        json!({ "error": "there is no agent `chorra`", "code": "not_found", "hint": "did you mean `chora`?" });
    assert_eq!((program.code, program.refusal()), (3, expected));
}

#[tokio::test]
async fn a_refused_call_keeps_its_record_and_fails_by_its_code() {
    let client = TestClient::new(Fake::default().call(CallToolResponse {
        call_id: "c".into(),
        status: "failed".into(),
        tool: "workspace.write".into(),
        refusal_json: Some(r#"{"error":"outside your paths","code":"path_denied","hint":"write below notes/"}"#.into()),
        ..CallToolResponse::default()
    }));
    let ran = client.run(&["--json", "tool", "call", "a", "workspace.write", "{}"]).await;
    let object: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!((ran.code, &object["call_id"], &object["error_code"]), (4, &json!("c"), &json!("path_denied")));
    assert_eq!(ran.refusal()["hint"], "write below notes/");
    let plain = client.run(&["tool", "call", "a", "workspace.write", "{}"]).await;
    assert_eq!((plain.code, plain.out.as_str()), (4, ""));
}

#[tokio::test]
async fn an_ask_prints_its_reply_or_says_why_there_is_none() {
    let reply = AskResponse {
        ask_id: "q".into(),
        status: "answered".into(),
        reply: Some("42".into()),
        ..AskResponse::default()
    };
    let client = TestClient::new(Fake::default().reply(reply.clone()));
    assert_eq!(client.run(&["ask", "a", "?"]).await.out, "42\n");
    let object = client.run(&["--json", "ask", "a", "?"]).await.json();
    assert_eq!(
        (&object["status"], &object["reply"], &object["ask_id"]),
        (&json!("answered"), &json!("42"), &json!("q"))
    );

    let failed = |status: &str, code: Option<&str>| AskResponse {
        status: status.into(),
        reply: None,
        error: Some("it is so".into()),
        error_code: code.map(str::to_owned),
        hint: code.map(|_| "wait".into()),
        ..reply.clone()
    };
    for (answer, exit) in [
        (failed("timed_out", Some("timeout")), 6),
        (failed("failed", Some("budget_exhausted")), 8),
        (failed("failed", Some("unavailable")), 5),
        (failed("failed", Some("conflict")), 7),
        (failed("failed", Some("not_found")), 3),
        (failed("failed", Some("cancelled")), 1),
    ] {
        let client = TestClient::new(Fake::default().reply(answer.clone()));
        let plain = client.run(&["ask", "a", "?"]).await;
        assert_eq!((plain.code, plain.out.as_str()), (exit, ""), "{answer:?}");
        assert_eq!(plain.err, "error: it is so\nhint: wait\n");
        let program = client.run(&["--json", "ask", "a", "?"]).await;
        // One object, on one stream, of the form that every failure has.
        assert_eq!((program.code, program.out.as_str()), (exit, ""), "{answer:?}");
        let details = json!({ "ask_id": "q", "agent_id": "a", "status": answer.status });
        let object = json!({ "error": "it is so", "code": answer.error_code, "hint": "wait", "details": details });
        assert_eq!(program.refusal(), object);
    }
    let old = TestClient::new(Fake::default().reply(failed("failed", None))).run(&["ask", "a", "?"]).await;
    assert_eq!((old.code, old.err.as_str()), (1, "error: it is so\n"));
}

#[tokio::test]
async fn arguments_go_to_the_daemon_as_they_were_written() {
    let client = TestClient::new(Fake::default());
    let text = r#"{"path": "a", "path": "b"}"#;
    client.run(&["tool", "call", "a", "t", text]).await;
    // The daemon decides whether a duplicate key is allowed, so it must see both.
    assert!(client.fake.asked()[0].1.contains(&format!("{text:?}")), "{:?}", client.fake.asked());
}

#[tokio::test]
async fn a_time_out_of_range_is_refused_with_the_name_of_the_option() {
    let client = TestClient::new(Fake::default());
    for args in [
        &["usage", "--since", "99999d"][..],
        &["usage", "--since", "213503982334d"],
        &["ledger", "--since", "99999d"],
        &["task", "create", "t", "--owner", "a", "--due-in", "99999999d"],
        &["task", "update", "t", "--due-in", "213503982334d"],
    ] {
        let ran = client.run(args).await;
        assert_eq!((ran.code, ran.out.as_str()), (2, ""), "{args:?}");
        assert!(ran.err.contains(args[args.len() - 2]) && !ran.err.contains("_ms"), "{args:?}: {}", ran.err);
    }
    assert!(client.fake.asked().is_empty());
    assert_eq!(client.run(&["usage", "--since", "3650d"]).await.code, 0);
}

#[tokio::test]
async fn the_refusal_of_an_unavailable_daemon_is_printed() {
    let refusal = Refusal::new(ghost_domain::Code::Unavailable, "the store is full").hint("free some space");
    let ends = std::iter::repeat_n(End::Status(refused(Code::Unavailable, &refusal)), 200);
    let ran = TestClient::new(Fake::default().first(ends)).run(&["--timeout", "2s", "pause"]).await;
    assert_eq!((ran.code, ran.err.as_str()), (5, "error: the store is full\nhint: free some space\n"));
}

#[tokio::test]
async fn a_large_refusal_arrives_whole() {
    let refusal = Refusal::new(ghost_domain::Code::Conflict, "x".repeat(40_000)).details(json!({ "version": 3 }));
    let client = TestClient::new(Fake::default().first([End::Status(refused(Code::FailedPrecondition, &refusal))]));
    let ran = client.run(&["--json", "pause"]).await;
    assert_eq!((ran.code, &ran.refusal()["details"]["version"]), (7, &json!(3)));
}

#[tokio::test]
async fn budget_limits_are_set_kept_or_removed() {
    let client = TestClient::new(Fake::default());
    assert_eq!(client.run(&["budget", "set", "world", "--usd", "2.5"]).await.code, 0);
    assert_eq!(client.run(&["budget", "set", "world", "--tokens", "none"]).await.code, 0);
    let asked = client.fake.asked();
    assert!(asked[0].1.contains("limit_tokens: None, limit_micros: Some(2500000), clear_tokens: false"), "{asked:?}");
    assert!(asked[1].1.contains("limit_micros: None, clear_tokens: true, clear_micros: false"), "{asked:?}");
}

#[tokio::test]
async fn a_limit_that_is_already_reached_prints_a_warning() {
    let client = TestClient::new(Fake::default());
    let printed = async |args: &[&str]| client.run(&[&["budget", "set"], args].concat()).await.out;
    let both = printed(&["world", "--tokens", "100", "--usd", "2.5"]).await;
    let line = both.lines().nth(1).unwrap();
    assert!(line.contains("120 of 100") && line.contains("$2.50 of $2.50") && !line.contains("00:00"), "{both}");
    assert!(printed(&["world/day", "--tokens", "120"]).await.contains("00:00 UTC"));
    assert_eq!(printed(&["world", "--tokens", "121"]).await.lines().count(), 1);
    let json = client.run(&["--json", "budget", "set", "world", "--tokens", "7"]).await.json();
    assert_eq!(json["passed"], serde_json::json!(["tokens"]));
    for limit in ["1", "0"] {
        assert_eq!(printed(&["world", "--usd", limit]).await.lines().count(), 2, "{limit}");
    }
}

#[tokio::test]
async fn deleting_an_agent_prints_its_open_tasks_and_dropped_mail() {
    let client = TestClient::new(Fake::default());
    let printed = client.run(&["agent", "delete", "scout"]).await.out;
    let [tasks, mail] = printed.lines().skip(1).collect::<Vec<_>>()[..] else { panic!("{printed}") };
    assert!(tasks.contains("1500") && tasks.contains("`ghostctl task list --owner scout`"), "{printed}");
    assert!(mail.contains('2'), "{printed}");
    assert_eq!(client.run(&["agent", "delete", "idle"]).await.out.lines().count(), 1);
    for (agent, mail, tasks) in [("scout", 2, 1_500), ("idle", 0, 0)] {
        let json = client.run(&["--json", "agent", "delete", agent]).await.json();
        assert_eq!((&json["mail_dropped"], &json["tasks_left"]), (&json!(mail), &json!(tasks)));
    }
    let json = client.run(&["--json", "agent", "stop", "scout"]).await.json();
    assert!(json.get("tasks_left").is_none(), "{json}");
}

#[tokio::test]
async fn usage_errors_exit_with_2_and_send_no_request() {
    let client = TestClient::new(Fake::default());
    for args in [
        &[][..],
        &["nonsense"],
        &["agent", "get"],
        &["tool", "call", "a", "t", "[1]"],
        &["budget", "set", "world"],
        &["budget", "set", "world", "--usd", "-1"],
        &["usage", "--since", "soon"],
        &["events", "--after", "-5"],
        &["ledger", "--status", "odd"],
        &["task", "update", "t"],
        &["task", "update", "t", "--reopen", "--status", "pending"],
        &["task", "create", "--owner", "a"],
        &["turn", "list", "--limit", "0"],
        &["completions", "tcsh"],
        &["--endpoint", "ftp://x:1", "status"],
        &["--endpoint", "x:1", "--world", "w", "status"],
    ] {
        let ran = client.run(args).await;
        assert_eq!((ran.code, ran.out.as_str()), (2, ""), "{args:?}");
        assert!(!ran.err.is_empty(), "{args:?}");
    }
    let ran = client.run(&["--json", "agent", "get"]).await;
    assert_eq!((ran.code, &ran.refusal()["code"]), (2, &json!("invalid_arguments")));
    assert!(client.fake.asked().is_empty());
}

#[tokio::test]
async fn help_has_examples_and_completions_know_the_commands() {
    for args in [&["--help"][..], &["agent", "stop", "--help"], &["tool", "call", "--help"], &["events", "--help"]] {
        let ran = ghostctl("unix:/nowhere", args).await;
        assert!(ran.code == 0 && ran.out.contains("Examples:"), "{args:?}: {}", ran.out);
    }
    for shell in ["bash", "zsh", "fish"] {
        let ran = ghostctl("unix:/nowhere", &["completions", shell]).await;
        assert!(ran.code == 0 && ran.out.contains("complete") && ran.out.contains("ghostctl"), "{shell}");
    }
    assert!(ghostctl("unix:/nowhere", &["--version"]).await.out.starts_with("ghostctl "));
}

// covers: CP-10
#[tokio::test]
async fn the_token_is_sent_as_a_bearer() {
    let fake = Fake::default();
    let daemon = fake.serve_tcp();
    let ran = ghostctl(&daemon.endpoint, &["--token", "s3cret", "status"]).await;
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert_eq!(fake.tokens(), [Some("Bearer s3cret".to_owned())]);
    let odd = ghostctl(&daemon.endpoint, &["--token", "two\nlines", "status"]).await;
    assert_eq!(odd.code, 2);
    assert!(!odd.err.contains("two"), "a token is never printed");
}

/// A closed standard output.
struct Closed;

impl Write for Closed {
    fn write(&mut self, _: &[u8]) -> io::Result<usize> {
        Err(io::ErrorKind::BrokenPipe.into())
    }

    fn flush(&mut self) -> io::Result<()> {
        Err(io::ErrorKind::BrokenPipe.into())
    }
}

#[tokio::test]
async fn a_closed_output_ends_the_command_without_an_error() {
    let client = TestClient::new(Fake::default().rows(5));
    for command in [&["agent", "list"][..], &["--help"], &["completions", "bash"]] {
        let environment = crate::discovery::Environment {
            endpoint: Some(client.daemon.endpoint.clone()),
            ..crate::discovery::Environment::default()
        };
        let args = std::iter::once(&"ghostctl").chain(command).map(std::ffi::OsString::from);
        let mut err = Vec::new();
        let out = &mut crate::output::Output::new(Box::new(Closed), None);
        let code = crate::cli::run(args, &environment, out, &mut err).await;
        assert_eq!((code, err.as_slice()), (0, &[][..]), "{command:?}");
    }
}

#[tokio::test]
async fn an_id_prefix_is_resolved_before_the_request_is_sent() {
    let client = TestClient::new(Fake::default());
    for (args, method, whole) in [
        (&["turn", "show", "0197d2"][..], "Turns.get", "turn_id: \"0197d2-whole\""),
        (&["turn", "cancel", "0197d2"], "Turns.cancel", "turn_id: \"0197d2-whole\""),
        (&["ledger", "--turn", "0197d2"], "Ledger.list", "turn_id: Some(\"0197d2-whole\")"),
        (&["task", "get", "0197d2"], "Tasks.get", "task_id: \"0197d2-whole\""),
        (&["task", "update", "0197d2", "--status", "done"], "Tasks.update", "task_id: \"0197d2-whole\""),
        (
            &["task", "create", "t", "--owner", "a", "--parent", "beef"],
            "Tasks.create",
            "parent_id: Some(\"beef-whole\")",
        ),
        (&["approval", "show", "0197d2"], "Approvals.get", "approval_id: \"0197d2-whole\""),
        (&["approval", "approve", "0197d2", "--always"], "Approvals.decide", "always: true"),
        (&["approval", "deny", "0197d2", "--note", "no"], "Approvals.decide", "approve: false"),
        (&["approval", "revoke", "0197d2"], "Approvals.revoke", "approval_id: \"0197d2-whole\""),
        (&["dead", "show", "0197d2"], "Messages.get_dead", "dead_letter_id: \"0197d2-whole\""),
        (&["dead", "retry", "0197d2"], "Messages.retry_dead", "dead_letter_id: \"0197d2-whole\""),
        (&["cron", "runs", "0197d2"], "Schedules.runs", "schedule_id: \"0197d2-whole\""),
        (&["cron", "cancel", "0197d2"], "Schedules.cancel", "schedule_id: \"0197d2-whole\""),
    ] {
        assert_eq!(client.run(args).await.code, 0, "{args:?}");
        let asked = client.fake.asked();
        let (last, request) = asked.last().unwrap();
        assert!(*last == method && request.contains(whole), "{args:?}: {last} {request}");
    }
    // An ambiguous prefix is refused, and the request is not sent.
    let refusal = Refusal::new(ghost_domain::Code::InvalidArguments, "several").hint("write more digits: 1, 2");
    let client = TestClient::new(Fake::default().first([End::Status(refused(Code::InvalidArgument, &refusal))]));
    let ran = client.run(&["dead", "drop", "0197"]).await;
    assert_eq!((ran.code, ran.err.contains("1, 2"), client.fake.asked().len()), (2, true, 1), "{}", ran.err);
}
