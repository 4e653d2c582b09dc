//! Whole turns with an agent that behaves.
// These tests drive a real program in real time; a failure is a panic with a message.
#![allow(clippy::disallowed_methods, clippy::unwrap_used)]

mod support;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use ghost_acp::{Context, End, Permission, SessionId, Stop, StopReason, Tokens, UpdateKind};
use serde_json::{Value, json};
use support::{ALL, TestHost, start, task};

fn options() -> Value {
    json!([
        {"optionId": "a", "name": "Always", "kind": "allow_always"},
        {"optionId": "b", "name": "Some day", "kind": "allow_some_day"},
        {"optionId": "c", "name": "Never", "kind": "reject_always"},
        {"optionId": "d", "name": "No", "kind": "reject_once"},
        {"optionId": "e", "name": "Yes", "kind": "allow_once"},
    ])
}

#[tokio::test(start_paused = true)]
async fn a_finished_run_has_its_text_manifest_usage_and_session() {
    let host = Arc::new(TestHost::default());
    let mut run = start(&host, task("do it"));
    let hello = run.agent.initialized(json!({})).await;
    assert_eq!(hello["params"]["clientCapabilities"]["fs"]["writeTextFile"], json!(false));
    assert_eq!(hello["params"]["clientCapabilities"]["terminal"], json!(false));
    let new = run.agent.expect("session/new").await;
    assert_eq!(new["params"]["cwd"], "/w");
    run.agent.answer(&new, json!({"sessionId": "s"})).await;
    let prompt = run.agent.expect("session/prompt").await;
    assert_eq!(*host.sessions.lock().unwrap(), ["s"], "the session is journaled before the prompt");
    assert_eq!(prompt["params"]["prompt"][0]["text"], "do it");

    run.agent.say("I will ").await;
    run.agent.say("look.\n").await;
    for (id, kind, path) in [("1", "read", "/w/a.rs"), ("2", "edit", "/w/b.rs"), ("3", "edit", "/w/c.rs")] {
        let call = json!({"sessionUpdate": "tool_call", "toolCallId": id, "title": kind, "kind": kind,
            "locations": [{"path": path}]});
        run.agent.update(call).await;
        let status = if id == "3" { "failed" } else { "completed" };
        run.agent.update(json!({"sessionUpdate": "tool_call_update", "toolCallId": id, "status": status})).await;
    }
    run.agent.update(json!({"sessionUpdate": "usage_update", "used": 5, "size": 100})).await;
    let plan = json!([{"content": "x", "status": "completed", "priority": "low"},
        {"content": "test it", "status": "in_progress", "priority": "low"}]);
    run.agent.update(json!({"sessionUpdate": "plan", "entries": plan})).await;
    run.agent.say("All is ").await;
    run.agent.say("well.").await;
    let usage = json!({"inputTokens": 3, "outputTokens": 7, "totalTokens": 10});
    run.agent.answer(&prompt, json!({"stopReason": "end_turn", "usage": usage})).await;

    let outcome = run.outcome.await.unwrap();
    assert_eq!(outcome.end, End::Finished { stop_reason: StopReason::EndTurn });
    assert!(!outcome.failed() && outcome.work.may_have_acted);
    assert_eq!(outcome.work.text, "All is well.");
    assert_eq!(outcome.work.manifest.read, ["a.rs"]);
    assert_eq!(outcome.work.manifest.written, ["b.rs"], "the call that failed changed nothing");
    assert_eq!(outcome.work.session_id, Some(SessionId("s".to_owned())));
    let usage = outcome.work.usage.clone().unwrap();
    assert_eq!(usage.tokens, Some(Tokens { input: 3, output: 7, ..Tokens::default() }));
    assert_eq!(usage.context, Some(Context { used: 5, size: 100 }));
    assert_eq!(host.usages.lock().unwrap().len(), 2);
    assert_eq!(host.notes(UpdateKind::Message), ["I will look.", "All is well."]);
    assert_eq!(host.notes(UpdateKind::Tool), ["read", "done: read", "edit", "done: edit", "edit", "failed: edit"]);
    assert_eq!(host.notes(UpdateKind::Plan), ["plan: 1 of 2 done: test it"]);
    assert_eq!(
        outcome.compact("ACP agent", "ignored", 2048),
        "ACP agent: done, 0.0 s, 7 output tokens\nFiles read: a.rs\nFiles written: b.rs\nResult:\nAll is well."
    );
}

#[tokio::test(start_paused = true)]
async fn a_question_is_answered_by_the_kind_of_the_option() {
    for (permission, expected) in [(Permission::AllowOnce, "e"), (Permission::RejectOnce, "d")] {
        let host = Arc::new(TestHost { permission: Some(permission), ..TestHost::default() });
        let mut run = start(&host, task("x"));
        let prompt = run.agent.prompted().await;
        let call = json!({"sessionUpdate": "tool_call", "toolCallId": "1", "title": "Edit\u{1b}[2J a", "kind": "edit",
            "rawInput": {"path": "/w/a"}, "locations": [{"path": "/w/a"}]});
        run.agent.update(call).await;
        let ask = json!({"toolCall": {"toolCallId": "1"}, "options": options()});
        let answer = run.agent.ask(7, "session/request_permission", ask).await;
        assert_eq!(answer["result"]["outcome"], json!({"outcome": "selected", "optionId": expected}));
        let ask = json!({"toolCall": {"toolCallId": "2", "kind": "execute", "rawInput": {"command": "rm -rf /"}},
            "options": [{"optionId": "a", "name": "Yes", "kind": "allow_always"}]});
        let answer = run.agent.ask(8, "session/request_permission", ask).await;
        assert_eq!(answer["result"]["outcome"], json!({"outcome": "cancelled"}), "no option is remembered");
        run.agent.stops(&prompt, "end_turn").await;
        let work = run.outcome.await.unwrap().work;
        let allowed = permission == Permission::AllowOnce;
        assert_eq!(work.manifest.written.len(), usize::from(allowed), "a refused call did not happen");
        assert!(work.manifest.commands.is_empty());
        let asks = host.asks.lock().unwrap();
        assert_eq!((asks[0].title.as_str(), asks[0].locations[0].as_str()), ("Edit a", "/w/a"));
        assert_eq!(asks[0].raw_input.as_deref(), Some("{\"path\":\"/w/a\"}"));
        assert_eq!(asks[0].options.len(), 4, "an option of an unknown kind is dropped");
    }
}

#[tokio::test(start_paused = true)]
async fn files_go_through_the_host_only_if_it_offers_them() {
    for offers in [ALL, Default::default()] {
        let host = Arc::new(TestHost { offers, ..TestHost::default() });
        host.files.lock().unwrap().insert("/w/a".to_owned(), "1\n2\n3\n".to_owned());
        let mut run = start(&host, task("x"));
        let prompt = run.agent.prompted().await;
        let read = json!({"path": "/w/a", "line": 2, "limit": 1});
        let read = run.agent.ask(1, "fs/read_text_file", read).await;
        let write = run.agent.ask(2, "fs/write_text_file", json!({"path": "/w/b", "content": "new"})).await;
        let secret = run.agent.ask(3, "fs/write_text_file", json!({"path": "/w/secret", "content": ""})).await;
        let missing = run.agent.ask(4, "fs/read_text_file", json!({"path": "/w/c"})).await;
        let other = json!({"jsonrpc": "2.0", "id": 5, "method": "fs/read_text_file",
            "params": {"sessionId": "other", "path": "/w/a"}});
        run.agent.send(other).await;
        let other = run.agent.next().await;
        run.agent.stops(&prompt, "end_turn").await;
        let manifest = run.outcome.await.unwrap().work.manifest;
        if offers == ALL {
            assert_eq!(read["result"]["content"], "2\n");
            assert_eq!(write["result"], json!({}));
            assert_eq!(secret["error"]["message"], "not allowed: /w/secret");
            assert_eq!(missing["error"]["code"], -32002);
            assert_eq!(other["error"]["code"], -32602);
            assert_eq!((manifest.read, manifest.written), (vec!["a".to_owned()], vec!["b".to_owned()]));
        } else {
            for answer in [read, write, secret, missing, other] {
                assert_eq!(answer["error"]["code"], -32601, "{answer}");
            }
            assert!(manifest.is_empty() && host.files.lock().unwrap().len() == 1);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn terminals_are_bounded_and_none_outlives_the_run() {
    let host = Arc::new(TestHost { offers: ALL, ..TestHost::default() });
    let mut run = start(&host, task("x"));
    let prompt = run.agent.prompted().await;
    let create = json!({"command": "sh", "args": ["-c", "make"], "cwd": "/w", "outputByteLimit": 9_000_000,
        "env": [{"name": "A", "value": "b"}]});
    let mut ids = Vec::new();
    for id in 0..ghost_acp::TERMINALS_MAX as u64 {
        let made = run.agent.ask(id, "terminal/create", create.clone()).await;
        ids.push(made["result"]["terminalId"].clone());
    }
    let refused = run.agent.ask(100, "terminal/create", create.clone()).await;
    assert!(refused["error"]["message"].as_str().unwrap().contains("too many terminals"), "{refused}");
    let first = json!({"terminalId": ids[0]});
    run.agent.request(101, "terminal/wait_for_exit", first.clone()).await;
    let output = run.agent.ask(102, "terminal/output", first.clone()).await;
    assert_eq!(output["result"]["output"].as_str().unwrap().len(), ghost_acp::ANSWER_MAX);
    assert_eq!(output["result"]["truncated"], true);
    run.agent.request(103, "terminal/kill", first.clone()).await;
    let mut answers = [run.agent.next().await, run.agent.next().await];
    answers.sort_by_key(|answer| answer["id"].as_u64());
    assert_eq!(answers[0]["result"]["signal"], "SIGKILL");
    run.agent.ask(104, "terminal/release", first.clone()).await;
    let gone = run.agent.ask(105, "terminal/output", first).await;
    assert_eq!(gone["error"]["code"], -32002);
    assert_eq!(host.terminals.load(Ordering::SeqCst), ghost_acp::TERMINALS_MAX - 1);
    run.agent.stops(&prompt, "end_turn").await;
    assert_eq!(run.outcome.await.unwrap().work.manifest.commands, ["make"]);
    assert_eq!(host.terminals.load(Ordering::SeqCst), 0);
    let command = host.commands.lock().unwrap()[0].clone();
    assert_eq!((command.env, command.output_byte_limit), (vec![("A".to_owned(), "b".to_owned())], 1024 * 1024));
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_run_cancels_the_agent_and_its_open_questions() {
    let host = Arc::new(TestHost { offers: ALL, ..TestHost::default() });
    let mut run = start(&host, task("x"));
    let prompt = run.agent.prompted().await;
    let ask = json!({"toolCall": {"toolCallId": "1", "title": "May I?", "kind": "delete",
        "locations": [{"path": "/w/a"}]}, "options": options()});
    run.agent.request(1, "session/request_permission", ask.clone()).await;
    host.asked.notified().await;
    let read = run.agent.ask(2, "fs/read_text_file", json!({"path": "/w/a"})).await;
    assert_eq!(read["error"]["code"], -32002, "a question that waits stops nothing else");
    run.cancel.cancel();
    run.agent.expect("session/cancel").await;
    let answer = run.agent.next().await;
    assert_eq!((&answer["id"], &answer["result"]["outcome"]["outcome"]), (&json!(1), &json!("cancelled")));
    let late = run.agent.ask(3, "session/request_permission", ask).await;
    assert_eq!(late["result"]["outcome"]["outcome"], "cancelled");
    let write = run.agent.ask(4, "fs/write_text_file", json!({"path": "/w/b", "content": ""})).await;
    assert_eq!(write["error"]["code"], -32800, "nothing new begins");
    run.agent.say("stopped").await;
    run.agent.stops(&prompt, "cancelled").await;
    let outcome = run.outcome.await.unwrap();
    assert_eq!(outcome.end, End::Cancelled { stop: Stop::Confirmed });
    assert!(outcome.work.manifest.is_empty(), "{:?}", outcome.work.manifest);
    assert_eq!(outcome.work.text, "stopped");
    assert_eq!(host.asks.lock().unwrap().len(), 1);
}
