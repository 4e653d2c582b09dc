//! Agents that break the protocol, lie, flood, or do nothing. No run may hang or grow.
// These tests drive a real program in real time; a failure is a panic with a message.
#![allow(clippy::disallowed_methods, clippy::unwrap_used)]

mod support;

use std::sync::Arc;
use std::time::Duration;

use ghost_acp::{
    End, GARBAGE_MAX, LINE_MAX, NOTES_PER_SECOND, OPEN_MAX, Permission, StartError, Stop, StopReason, WAITING_MAX, Why,
};
use serde_json::{Value, json};
use support::{ALL, Fake, TestHost, start, start_with, task};
use tokio::io::AsyncWriteExt as _;

const DONE: End = End::Finished { stop_reason: StopReason::EndTurn };

#[tokio::test(start_paused = true)]
async fn a_line_without_end_ends_the_run_and_what_was_done_is_kept() {
    let host = Arc::new(TestHost::default());
    let mut run = start(&host, task("x"));
    run.agent.prompted().await;
    run.agent
        .update(json!({"sessionUpdate": "tool_call", "toolCallId": "1", "title": "w", "kind": "edit",
            "locations": [{"path": "/w/a"}]}))
        .await;
    let flood = async {
        let chunk = vec![b'x'; 64 * 1024];
        while run.agent.out.write_all(&chunk).await.is_ok() {}
    };
    let (outcome, ()) = tokio::join!(run.outcome, flood);
    let outcome = outcome.unwrap();
    assert_eq!(outcome.end, End::Died { why: Why::LineTooLong { max: LINE_MAX } });
    assert_eq!(outcome.work.manifest.written, ["a (begun)"], "the call did not come to its end");
    assert!(outcome.work.may_have_acted);
}

#[tokio::test(start_paused = true)]
async fn lines_of_megabytes_and_wrong_bytes_are_read() {
    let host = Arc::new(TestHost::default());
    let mut run = start(&host, task("x"));
    let prompt = run.agent.prompted().await;
    run.agent.say(&"long ".repeat(1_500_000)).await;
    let line = b"{\"jsonrpc\":\"2.0\",\"method\":\"session/update\",\"params\":{\"sessionId\":\"s\",\"update\":\
        {\"sessionUpdate\":\"agent_message_chunk\",\"content\":{\"type\":\"text\",\"text\":\"caf\xe9 end\"}}}}\n";
    run.agent.raw(line).await;
    run.agent.stops(&prompt, "end_turn").await;
    let outcome = run.outcome.await.unwrap();
    assert_eq!(outcome.end, DONE);
    assert!(outcome.work.text.ends_with("long caf\u{fffd} end"));
    assert!(outcome.work.text.len() <= ghost_acp::TEXT_MAX);
}

#[tokio::test(start_paused = true)]
async fn what_is_not_understood_is_skipped() {
    let host = Arc::new(TestHost::default());
    let mut run = start(&host, task("x"));
    let prompt = run.agent.prompted().await;
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    for line in
        ["", "\r", "a new version is there", "[]", "[{\"jsonrpc\":\"2.0\"}]", "7", "{}", "{\"jsonrpc\":\"2.0\"", &deep]
    {
        run.agent.raw(format!("{line}\n").as_bytes()).await;
    }
    let nested =
        format!("{{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"fs/read_text_file\",\"params\":{{\"a\":{deep}}}}}\n");
    run.agent.raw(nested.as_bytes()).await;
    for update in [
        json!({"sessionUpdate": "mind_reading", "x": 1}),
        json!({"sessionUpdate": "tool_call"}),
        json!({"sessionUpdate": "agent_message_chunk", "content": {"type": "smell"}}),
        json!({"sessionUpdate": "usage_update", "used": -1}),
        json!("text"),
        json!(null),
    ] {
        run.agent.update(update).await;
    }
    // Answers that nobody asked for, notifications that nobody knows, and an update of another session.
    for message in [
        json!({"jsonrpc": "2.0", "id": 4711, "result": {}}),
        json!({"jsonrpc": "2.0", "id": null, "error": {"code": 1, "message": "x"}}),
        json!({"jsonrpc": "2.0", "id": "s", "result": {"protocolVersion": 2}}),
        json!({"jsonrpc": "2.0", "method": "$/cancel_request", "params": {"requestId": 1}}),
        json!({"jsonrpc": "2.0", "method": "_x", "params": []}),
        json!({"jsonrpc": "2.0", "method": "session/update", "params": {"sessionId": "t", "update":
            {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": "not mine"}}}}),
    ] {
        run.agent.send(message).await;
    }
    let unknown = run.agent.ask(9, "terminal/paint", json!({})).await;
    assert_eq!(unknown["error"]["code"], -32601);
    let wrong = run.agent.ask(10, "session/request_permission", json!({"options": 7})).await;
    assert!(wrong["error"]["code"].is_number(), "{wrong}");
    run.agent.say("still here").await;
    run.agent.stops(&prompt, "end_turn").await;
    run.agent.out.shutdown().await.unwrap();
    let outcome = run.outcome.await.unwrap();
    assert_eq!((outcome.end, outcome.work.text.as_str()), (DONE, "still here"));
}

/// Every request that an agent may make, of a session.
fn requests(session: &Value, terminal: &Value) -> [(&'static str, Value); 8] {
    let allow = json!([{"optionId": "a", "name": "Yes", "kind": "allow_once"}]);
    [
        ("fs/read_text_file", json!({"sessionId": session, "path": "/w/a"})),
        ("fs/write_text_file", json!({"sessionId": session, "path": "/w/a", "content": "mine"})),
        ("terminal/create", json!({"sessionId": session, "command": "id"})),
        ("terminal/output", json!({"sessionId": session, "terminalId": terminal})),
        ("terminal/wait_for_exit", json!({"sessionId": session, "terminalId": terminal})),
        ("terminal/kill", json!({"sessionId": session, "terminalId": terminal})),
        ("terminal/release", json!({"sessionId": session, "terminalId": terminal})),
        (
            "session/request_permission",
            json!({"sessionId": session, "toolCall": {"toolCallId": "1", "title": "May I?"}, "options": allow}),
        ),
    ]
}

#[tokio::test(start_paused = true)]
async fn a_session_that_is_not_its_own_gives_an_agent_nothing() {
    let host = Arc::new(TestHost { offers: ALL, permission: Some(Permission::AllowOnce), ..TestHost::default() });
    host.files.lock().unwrap().insert("/w/a".to_owned(), "text".to_owned());
    let mut run = start(&host, task("x"));
    let mut id = 0;
    let mut refused = async |agent: &mut Fake, session: &Value, terminal: &Value| {
        for (method, params) in requests(session, terminal) {
            id += 1;
            agent.send(json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})).await;
            let answer = agent.next().await;
            assert_eq!((&answer["id"], &answer["error"]["code"]), (&json!(id), &json!(-32602)), "{method}: {session}");
        }
    };
    // Before there is a session there is none to act in, also not the one that the agent is about to name.
    let hello = run.agent.expect("initialize").await;
    refused(&mut run.agent, &json!("s"), &json!("terminal-1")).await;
    run.agent.answer(&hello, json!({"protocolVersion": 1})).await;
    let new = run.agent.expect("session/new").await;
    refused(&mut run.agent, &json!("s"), &json!("terminal-1")).await;
    run.agent.answer(&new, json!({"sessionId": "s"})).await;
    let prompt = run.agent.expect("session/prompt").await;
    let made = run.agent.ask(1000, "terminal/create", json!({"command": "make"})).await;
    let terminal = &made["result"]["terminalId"];
    let others = ["", "S", "s ", " s", "s\u{0}", "ss", "t", "s\u{301}", "../s", "null"].map(Value::from);
    for session in others.iter().chain([&json!("x".repeat(100_000)), &Value::Null, &json!(0), &json!(["s"])]) {
        refused(&mut run.agent, session, terminal).await;
    }
    // Nor do terminals that nobody gave it, or gave back.
    for (at, forged) in
        ["terminal-0", "terminal-2", "TERMINAL-1", "terminal-1 ", "1", "", "../terminal-1", "terminal-01"]
            .into_iter()
            .enumerate()
    {
        for (method, _) in &requests(&json!("s"), terminal)[3..7] {
            let answer = run.agent.ask(2000 + at as u64, method, json!({"terminalId": forged})).await;
            assert_eq!(answer["error"]["code"], -32002, "{method}: {forged}");
        }
    }
    assert_eq!(host.commands.lock().unwrap().len(), 1);
    assert_eq!(host.files.lock().unwrap()["/w/a"], "text");
    assert!(host.asks.lock().unwrap().is_empty());
    run.agent.stops(&prompt, "end_turn").await;
    assert_eq!(run.outcome.await.unwrap().end, DONE);
}

#[tokio::test(start_paused = true)]
async fn forged_options_get_no_answer_that_an_operator_did_not_give() {
    let option = |id: &str, name: &str, kind: &str| json!({"optionId": id, "name": name, "kind": kind});
    let many: Vec<Value> = (0..5_000).map(|n| option(&n.to_string(), "Yes", "allow_always")).collect();
    // What the agent offers, and what it gets for a yes and for a no.
    let cases = [
        (json!([option("n", "Allow", "reject_once"), option("y", "Reject", "allow_once")]), "y", "n"),
        (json!([option("a", "Allow once", "allow_always"), option("r", "Reject", "reject_always")]), "", ""),
        (
            json!([option("a", "Yes", "ALLOW_ONCE"), option("b", "Yes", "allow_once "), option("c", "", "allow")]),
            "",
            "",
        ),
        (json!([{"optionId": 7, "name": "Yes", "kind": "allow_once"}, option("n", "No", "reject_once")]), "n", "n"),
        (json!([{"name": "Yes", "kind": "allow_once"}, {"optionId": "y", "kind": "allow_once"}]), "", ""),
        (json!([option("first", "Yes", "allow_once"), option("second", "No, all", "allow_once")]), "first", ""),
        (json!(many), "", ""),
        (json!([]), "", ""),
    ];
    for (permission, at) in [(Permission::AllowOnce, 0), (Permission::RejectOnce, 1)] {
        let host = Arc::new(TestHost { permission: Some(permission), ..TestHost::default() });
        let mut run = start_with(&host, task("x"), 1 << 20);
        let prompt = run.agent.prompted().await;
        for (number, (options, yes, no)) in cases.iter().enumerate() {
            let call = json!({"toolCallId": number.to_string(), "title": "x", "kind": "edit",
                "locations": [{"path": format!("/w/{number}")}]});
            let ask = json!({"toolCall": call, "options": options});
            let answer = run.agent.ask(number as u64, "session/request_permission", ask).await;
            let wanted = match [*yes, *no][at] {
                "" => json!({"outcome": "cancelled"}),
                id => json!({"outcome": "selected", "optionId": id}),
            };
            assert_eq!(answer["result"]["outcome"], wanted, "{permission:?}: case {number}");
        }
        run.agent.stops(&prompt, "end_turn").await;
        let work = run.outcome.await.unwrap().work;
        assert!(host.asks.lock().unwrap().iter().all(|ask| ask.options.len() <= 32));
        let allowed = if permission == Permission::AllowOnce { 2 } else { 0 };
        assert!(work.manifest.written.len() <= allowed, "{:?}", work.manifest.written);
    }
}

#[tokio::test(start_paused = true)]
async fn a_program_that_does_not_speak_the_protocol_is_found_out() {
    let host = Arc::new(TestHost::default());
    let mut run = start(&host, task("x"));
    let talk = async {
        for _ in 0..=GARBAGE_MAX {
            run.agent.raw(b"Welcome! What do you want to do?\n").await;
        }
    };
    let (outcome, ()) = tokio::join!(run.outcome, talk);
    let why = Why::NotTheProtocol { lines: GARBAGE_MAX + 1 };
    assert_eq!(outcome.unwrap().end, End::StartFailed { why: why.into() });
}

#[tokio::test(start_paused = true)]
async fn a_flood_of_updates_becomes_a_few_notes() {
    let host = Arc::new(TestHost::default());
    let mut run = start(&host, task("x"));
    let prompt = run.agent.prompted().await;
    for n in 0..20_000 {
        let call = json!({"sessionUpdate": "tool_call", "toolCallId": n.to_string(), "title": "t".repeat(300),
            "kind": "read", "locations": [{"path": format!("/w/{n}")}]});
        run.agent.update(call).await;
    }
    run.agent.stops(&prompt, "end_turn").await;
    let outcome = run.outcome.await.unwrap();
    assert_eq!(outcome.end, DONE);
    let manifest = &outcome.work.manifest;
    assert_eq!(manifest.read.len() + manifest.more_read, 20_000);
    let notes = host.updates.lock().unwrap();
    assert_eq!(notes.len(), NOTES_PER_SECOND as usize + 1);
    assert_eq!(notes.last().unwrap().text, format!("… and {} more", 20_000 - NOTES_PER_SECOND));
    assert!(notes.iter().all(|note| note.text.chars().count() <= ghost_acp::NOTE_CHARS));
    assert!(outcome.compact("ACP agent", "", 2048).len() <= 2048);
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_floods_requests_and_reads_no_answer_is_not_read_any_more() {
    let host = Arc::new(TestHost { offers: ALL, ..TestHost::default() });
    host.files.lock().unwrap().insert("/w/a".to_owned(), "x".repeat(10_000));
    let mut run = start_with(&host, task("x"), 4096);
    run.agent.prompted().await;
    let mut written = 0;
    // The time is paused: it goes on only when nothing else can.
    let flood = tokio::time::timeout(Duration::from_secs(20), async {
        loop {
            run.agent.request(written, "fs/read_text_file", json!({"path": "/w/a"})).await;
            written += 1;
        }
    });
    assert!(flood.await.is_err(), "the agent's writing stops");
    // Besides the open requests, some lines are in the pipe and in the buffer of the reader.
    assert!(written >= OPEN_MAX as u64 && written < 2000, "{written}");
    run.cancel.cancel();
    let outcome = run.outcome.await.unwrap();
    assert_eq!(outcome.end, End::Cancelled { stop: Stop::Unconfirmed });
    assert_eq!(outcome.work.duration.as_secs(), 25);
}

#[tokio::test(start_paused = true)]
async fn too_many_questions_are_refused_and_others_are_still_answered() {
    let host = Arc::new(TestHost { offers: ALL, ..TestHost::default() });
    let mut run = start(&host, task("x"));
    run.agent.prompted().await;
    let ask = json!({"toolCall": {"toolCallId": "1"}, "options": []});
    for id in 0..WAITING_MAX as u64 {
        run.agent.request(id, "session/request_permission", ask.clone()).await;
    }
    let refused = run.agent.ask(100, "session/request_permission", ask).await;
    assert!(refused["error"]["message"].as_str().unwrap().contains("too many requests wait"), "{refused}");
    let read = run.agent.ask(101, "fs/read_text_file", json!({"path": "/w/none"})).await;
    assert_eq!(read["error"]["code"], -32002);
    run.cancel.cancel();
    run.agent.expect("session/cancel").await;
    let mut answered = 0;
    while answered < WAITING_MAX {
        let answer = run.agent.next().await;
        assert_eq!(answer["result"]["outcome"]["outcome"], "cancelled");
        answered += 1;
    }
    drop(run.agent);
    assert_eq!(run.outcome.await.unwrap().end, End::Cancelled { stop: Stop::Unconfirmed });
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_never_reads_is_left_and_has_not_acted() {
    let host = Arc::new(TestHost::default());
    let run = start_with(&host, task("x"), 16);
    let outcome = run.outcome.await.unwrap();
    assert!(matches!(outcome.end, End::StartFailed { why: StartError::TimedOut { .. } }));

    // The prompt does not fit into the pipe.
    let mut run = start_with(&host, task(&"long ".repeat(10_000)), 4096);
    run.agent.initialized(json!({})).await;
    let new = run.agent.expect("session/new").await;
    run.agent.answer(&new, json!({"sessionId": "s"})).await;
    let outcome = run.outcome.await.unwrap();
    assert_eq!(outcome.end, End::TimedOut { stop: Stop::Unconfirmed });
    assert_eq!(outcome.work.duration.as_secs(), 65);
    assert!(!outcome.work.may_have_acted, "an agent without the whole prompt cannot begin");
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_dies_is_noticed_in_every_phase() {
    let host = Arc::new(TestHost::default());
    let run = start(&host, task("x"));
    drop(run.agent);
    let outcome = run.outcome.await.unwrap();
    assert_eq!(outcome.end, End::StartFailed { why: Why::Ended.into() });
    assert!(!outcome.work.may_have_acted);

    let mut run = start(&host, task("x"));
    run.agent.initialized(json!({})).await;
    run.agent.expect("session/new").await;
    drop(run.agent);
    assert_eq!(run.outcome.await.unwrap().end, End::StartFailed { why: Why::Ended.into() });

    let mut run = start(&host, task("x"));
    run.agent.prompted().await;
    run.agent.say("before").await;
    run.agent.raw(b"{\"jsonrpc\":\"2.0\",\"method\":\"ses").await;
    drop(run.agent);
    let outcome = run.outcome.await.unwrap();
    assert_eq!(outcome.end, End::Died { why: Why::Ended });
    assert_eq!(outcome.work.text, "before");
    assert!(outcome.work.may_have_acted);

    // It answers and dies at once.
    let mut run = start(&host, task("x"));
    let prompt = run.agent.prompted().await;
    run.agent.say("done").await;
    run.agent.stops(&prompt, "end_turn").await;
    drop(run.agent);
    let outcome = run.outcome.await.unwrap();
    assert_eq!((outcome.end, outcome.work.text.as_str()), (DONE, "done"));
}

#[tokio::test(start_paused = true)]
async fn answers_that_make_no_sense_end_the_run() {
    let host = Arc::new(TestHost::default());
    for answer in [json!({}), json!({"sessionId": ""}), json!({"sessionId": 7}), json!({"sessionId": "x".repeat(1025)})]
    {
        let mut run = start(&host, task("x"));
        run.agent.initialized(json!([])).await;
        let new = run.agent.expect("session/new").await;
        run.agent.answer(&new, answer).await;
        let end = run.outcome.await.unwrap().end;
        assert!(matches!(end, End::StartFailed { why: StartError::Gone(Why::BadAnswer { .. }) }), "{end:?}");
    }
    let mut run = start(&host, task("x"));
    let prompt = run.agent.prompted().await;
    run.agent.answer(&prompt, json!("fine")).await;
    let end = run.outcome.await.unwrap().end;
    assert!(matches!(end, End::Died { why: Why::BadAnswer { method: "session/prompt", .. } }), "{end:?}");
}

#[tokio::test(start_paused = true)]
async fn an_answer_counts_once() {
    let host = Arc::new(TestHost::default());
    let mut run = start(&host, task("x"));
    let hello = run.agent.expect("initialize").await;
    for _ in 0..3 {
        run.agent.answer(&hello, json!({"protocolVersion": 1})).await;
    }
    let new = run.agent.expect("session/new").await;
    run.agent.answer(&new, json!({"sessionId": "s"})).await;
    run.agent.answer(&new, json!({"sessionId": "t"})).await;
    let prompt = run.agent.expect("session/prompt").await;
    assert_eq!(prompt["params"]["sessionId"], "s");
    run.agent.answer(&new, json!({"stopReason": "refusal"})).await;
    run.agent.stops(&prompt, "end_turn").await;
    run.agent.stops(&prompt, "refusal").await;
    assert_eq!(run.outcome.await.unwrap().end, DONE);
}

#[tokio::test(start_paused = true)]
async fn a_host_that_panics_ends_the_run_with_what_is_known() {
    let host = Arc::new(TestHost { panics: true, ..TestHost::default() });
    let mut run = start(&host, task("x"));
    run.agent.prompted().await;
    run.agent.say("a line\n").await;
    let outcome = run.outcome.await.unwrap();
    assert_eq!(outcome.end, End::Died { why: Why::Internal("it panicked".to_owned()) });
    assert_eq!(outcome.work.text, "a line");
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_closes_only_its_input_is_left_soon() {
    let host = Arc::new(TestHost { offers: ALL, ..TestHost::default() });
    let (agent_out, output) = tokio::io::duplex(4096);
    let (input, agent_in) = tokio::io::duplex(4096);
    let streams = ghost_acp::Streams { output: Box::new(output), input: Box::new(input) };
    drop(agent_in);
    let outcome = ghost_acp::Session::run(streams, task("x"), host, tokio_util::sync::CancellationToken::new()).await;
    assert!(matches!(outcome.end, End::StartFailed { why: StartError::Gone(Why::Write(_)) }), "{:?}", outcome.end);
    assert_eq!(outcome.work.duration.as_secs(), 2);
    drop(agent_out);
}
