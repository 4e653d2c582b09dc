//! The ways in which a run starts, goes on after its process died, and ends.
// These tests drive a real program in real time; a failure is a panic with a message.
#![allow(clippy::disallowed_methods, clippy::unwrap_used)]

mod support;

use std::sync::Arc;
use std::time::Duration;

use ghost_acp::{CannotResume, End, SessionId, StartError, Stop, StopReason, Why};
use serde_json::json;
use support::{TestHost, start, task};

#[tokio::test(start_paused = true)]
async fn an_agent_that_does_not_stop_is_left_after_its_grace() {
    for (answer, expected) in
        [(None, Stop::Unconfirmed), (Some("end_turn"), Stop::TooLate), (Some("error"), Stop::Confirmed)]
    {
        let host = Arc::new(TestHost::default());
        let mut run = start(&host, task("x"));
        let prompt = run.agent.prompted().await;
        run.cancel.cancel();
        run.agent.expect("session/cancel").await;
        match answer {
            Some("error") => run.agent.refuse(&prompt, -32800, "cancelled").await,
            Some(reason) => run.agent.stops(&prompt, reason).await,
            None => {}
        }
        let outcome = run.outcome.await.unwrap();
        assert_eq!(outcome.end, End::Cancelled { stop: expected });
        let grace = Duration::from_secs(if answer.is_none() { 5 } else { 0 });
        assert_eq!(outcome.work.duration.as_secs(), grace.as_secs());
    }
}

#[tokio::test(start_paused = true)]
async fn dropping_the_run_cancels_the_agent_too() {
    let host = Arc::new(TestHost::default());
    let mut run = start(&host, task("x"));
    let prompt = run.agent.prompted().await;
    run.outcome.abort();
    run.agent.expect("session/cancel").await;
    run.agent.stops(&prompt, "cancelled").await;
    assert!(run.agent.lines.next_line().await.unwrap().is_none(), "the pipe is closed then");
}

#[tokio::test(start_paused = true)]
async fn every_phase_has_its_time() {
    let host = Arc::new(TestHost::default());
    let run = start(&host, task("x"));
    let outcome = run.outcome.await.unwrap();
    assert_eq!(outcome.end, End::StartFailed { why: StartError::TimedOut { after: Duration::from_secs(10) } });
    assert!(!outcome.work.may_have_acted);

    let host = Arc::new(TestHost { never_journals: true, ..TestHost::default() });
    let mut run = start(&host, task("x"));
    run.agent.initialized(json!({})).await;
    let new = run.agent.expect("session/new").await;
    run.agent.answer(&new, json!({"sessionId": "s"})).await;
    let outcome = run.outcome.await.unwrap();
    assert!(matches!(outcome.end, End::StartFailed { why: StartError::TimedOut { .. } }));
    assert_eq!(outcome.work.session_id, Some(SessionId("s".to_owned())));

    let host = Arc::new(TestHost::default());
    let mut run = start(&host, task("x"));
    run.agent.prompted().await;
    run.agent.say("half of it").await;
    run.agent.expect("session/cancel").await;
    let outcome = run.outcome.await.unwrap();
    assert_eq!(outcome.end, End::TimedOut { stop: Stop::Unconfirmed });
    assert_eq!((outcome.work.duration.as_secs(), outcome.work.text.as_str()), (65, "half of it"));
    let text = outcome.compact("ACP agent", "warning: x", 2048);
    let expected = "ACP agent: no result, 65.0 s, stopped at its time limit without an answer\n\
        Errors:\nwarning: x\nLast message:\nhalf of it";
    assert_eq!(text, expected);
}

#[tokio::test(start_paused = true)]
async fn a_session_is_resumed_by_what_the_agent_declares() {
    let both = json!({"loadSession": true, "sessionCapabilities": {"resume": {}}});
    for (can, method) in [(both, "session/resume"), (json!({"loadSession": true}), "session/load")] {
        let host = Arc::new(TestHost::default());
        let mut run = start(&host, ghost_acp::Task { resume: Some(SessionId("s".to_owned())), ..task("go on") });
        run.agent.initialized(can).await;
        let request = run.agent.expect(method).await;
        assert_eq!((&request["params"]["sessionId"], &request["params"]["cwd"]), (&json!("s"), &json!("/w")));
        // The replay is the past.
        run.agent.say("an old message").await;
        run.agent
            .update(json!({"sessionUpdate": "tool_call", "toolCallId": "1", "title": "old", "kind": "edit",
                "locations": [{"path": "/w/old"}]}))
            .await;
        run.agent.answer(&request, json!({})).await;
        let prompt = run.agent.expect("session/prompt").await;
        run.agent.stops(&prompt, "end_turn").await;
        let outcome = run.outcome.await.unwrap();
        assert_eq!(outcome.end, End::Finished { stop_reason: StopReason::EndTurn });
        assert!(outcome.work.text.is_empty() && outcome.work.manifest.is_empty());
        assert!(host.updates.lock().unwrap().is_empty());
        assert_eq!(*host.sessions.lock().unwrap(), ["s"]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_session_that_cannot_be_resumed_gets_no_prompt() {
    for declared in [false, true] {
        let host = Arc::new(TestHost::default());
        let mut run = start(&host, ghost_acp::Task { resume: Some(SessionId("s".to_owned())), ..task("go on") });
        run.agent.initialized(json!({"loadSession": declared})).await;
        let expected = if declared {
            let request = run.agent.expect("session/load").await;
            run.agent.refuse(&request, -32002, "no session\n\u{7}s").await;
            let message = "no session s".to_owned();
            CannotResume::Refused { method: "session/load", code: -32002, message }
        } else {
            CannotResume::NotDeclared
        };
        let outcome = run.outcome.await.unwrap();
        assert_eq!(outcome.end, End::CannotResume { why: expected });
        assert!(!outcome.work.may_have_acted && outcome.failed());
        assert!(run.agent.lines.next_line().await.unwrap().is_none());
    }
}

#[tokio::test(start_paused = true)]
async fn a_failed_start_says_what_to_do() {
    let host = Arc::new(TestHost::default());
    let mut run = start(&host, task("x"));
    let hello = run.agent.expect("initialize").await;
    run.agent.answer(&hello, json!({"protocolVersion": 2})).await;
    let end = run.outcome.await.unwrap().end;
    assert_eq!(end, End::StartFailed { why: StartError::WrongVersion { offered: 2 } });

    let mut run = start(&host, task("x"));
    let hello = run.agent.expect("initialize").await;
    let login = json!([{"id": "l", "name": "Log in with a browser"}]);
    run.agent.answer(&hello, json!({"protocolVersion": 1, "authMethods": login})).await;
    let new = run.agent.expect("session/new").await;
    run.agent.refuse(&new, -32000, "Authentication required").await;
    let outcome = run.outcome.await.unwrap();
    let text = outcome.compact("ACP agent", "", 2048);
    assert!(text.contains("not logged in") && text.contains("Log in with a browser"), "{text}");
    assert!(matches!(outcome.end, End::StartFailed { why: StartError::AuthNeeded { .. } }));

    let mut run = start(&host, task("x"));
    run.agent.initialized(json!({})).await;
    let new = run.agent.expect("session/new").await;
    run.agent.refuse(&new, -32603, "no model").await;
    let end = run.outcome.await.unwrap().end;
    let why = StartError::Refused { method: "session/new", code: -32603, message: "no model".to_owned() };
    assert_eq!(end, End::StartFailed { why });

    for bad in [ghost_acp::Task { cwd: "w".to_owned(), ..task("x") }, task(" \n"), task(&"x".repeat(1_048_577))] {
        let end = start(&host, bad).outcome.await.unwrap().end;
        assert!(matches!(end, End::StartFailed { why: StartError::BadTask(_) }), "{end:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn every_reason_to_stop_has_its_end() {
    let failed = Why::Failed { code: -32603, message: "overloaded".to_owned() };
    for (reason, expected) in [
        ("end_turn", End::Finished { stop_reason: StopReason::EndTurn }),
        ("max_tokens", End::Finished { stop_reason: StopReason::MaxTokens }),
        ("max_turn_requests", End::Finished { stop_reason: StopReason::MaxTurnRequests }),
        ("tired", End::Finished { stop_reason: StopReason::Other("tired".to_owned()) }),
        ("refusal", End::Refused),
        ("cancelled", End::Cancelled { stop: Stop::Itself }),
        ("error", End::Died { why: failed }),
    ] {
        let host = Arc::new(TestHost::default());
        let mut run = start(&host, task("x"));
        let prompt = run.agent.prompted().await;
        match reason {
            "error" => run.agent.refuse(&prompt, -32603, "overloaded").await,
            _ => run.agent.stops(&prompt, reason).await,
        }
        let outcome = run.outcome.await.unwrap();
        assert_eq!(outcome.end, expected);
        assert_eq!(outcome.failed(), reason != "end_turn");
    }
}
