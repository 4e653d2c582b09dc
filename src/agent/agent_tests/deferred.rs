//! Deferred tools: listed by a line, described on demand, run under their own name.

use std::sync::Arc;

use ghost_domain::CallStatus;
use ghost_domain::journal::Step;
use ghost_domain::tool_catalogue::{CALL, DESCRIBE};
use ghost_provider::testing::{Reply, call, say};
use ghost_provider::{ModelRequest, estimate_tokens, tool_bytes};
use serde_json::{Value, json};

use super::agent_world::{AgentWorld, read, results, write};

fn by_name(tool: &str, arguments: Value) -> Reply {
    call(CALL, json!({ "name": tool, "arguments": arguments }))
}

/// The result of the last call in a request.
fn last(request: &ModelRequest) -> Value {
    results(request).pop().unwrap()
}

// covers: ARCH-10, TOOL-11
#[tokio::test]
async fn a_deferred_tool_is_described_and_runs_under_its_own_name() {
    let world = AgentWorld::new().await;
    world.model.reply_with(|_, n| match n {
        0 => call(DESCRIBE, json!({ "name": "util.timer" })),
        1 => by_name("util.timer", json!({ "name": "tea", "duration": "5m" })),
        2 => call("util.timer", json!({ "name": "milk", "duration": "6m" })),
        _ => say("set"),
    });
    world.send("ada", "go").await;
    world.work("ada").await.unwrap();
    let requests = world.model.requests();
    assert_eq!(requests.len(), 4);
    let first = &requests[0];
    assert!(requests.iter().all(|request| Arc::ptr_eq(&request.tools, &first.tools)), "the front of the cached prefix");
    let described = last(&requests[1]);
    assert_eq!(described["name"], "util.timer");
    assert!(described["parameters"]["properties"]["duration"].is_object());
    assert_eq!((last(&requests[2])["name"].as_str(), last(&requests[3])["name"].as_str()), (Some("tea"), Some("milk")));
    let rows = world.ledger().await;
    let tools: Vec<(&str, CallStatus)> = rows.iter().map(|row| (row.tool.as_str(), row.status)).collect();
    let ok = CallStatus::Ok;
    assert_eq!(tools, [(DESCRIBE, ok), ("util.timer", ok), ("util.timer", ok)]);
    assert!(rows[1].arguments.contains("\"5m\""), "the ledger has the arguments that ran");
    let finished: Vec<String> = world
        .steps("ada")
        .await
        .into_iter()
        .filter_map(|step| if let Step::CallFinished { tool, .. } = step { Some(tool) } else { None })
        .collect();
    assert_eq!(finished, [DESCRIBE, "util.timer", "util.timer"]);
}

// covers: ACC-11
#[tokio::test]
async fn deferring_gives_no_access_and_every_refusal_names_the_tool_that_was_meant() {
    let world = AgentWorld::new().await;
    world.model.reply_with(|_, n| match n {
        0 => by_name("syscall.agent.stop", json!({ "agent_id": "bob" })),
        1 => call(DESCRIBE, json!({ "name": "syscall.agent.stop" })),
        2 => by_name("util.timre", json!({})),
        3 => by_name("util.timer", json!({ "duration": "5m" })),
        4 => call(CALL, json!({ "arguments": {} })),
        5 => by_name(CALL, json!({ "name": "util.timer" })),
        _ => say("well"),
    });
    world.send("ada", "go").await;
    world.work("ada").await.unwrap();
    let requests = world.model.requests();
    let codes: Vec<Value> = requests[1..].iter().map(|request| last(request)["code"].clone()).collect();
    let wrong = "invalid_arguments";
    assert_eq!(codes, ["access_denied", "not_found", "unknown_tool", wrong, wrong, wrong]);
    let hint = last(&requests[4])["hint"].as_str().unwrap().to_owned();
    assert!(hint.contains(DESCRIBE), "{hint}");
    let bob = world.agent("bob").await;
    assert_eq!(bob.status.as_str(), "running");
}

#[tokio::test]
async fn a_crash_between_description_and_call_changes_nothing_in_the_next_request() {
    let world = AgentWorld::new().await;
    world.model.reply_with(|_, n| match n {
        0 => call(DESCRIBE, json!({ "name": "test.act" })),
        _ => Reply::Hang,
    });
    world.send("ada", "go").await;
    world.work_until("ada", world.model.stalled.notified()).await;
    let before = world.model.requests().pop().unwrap();
    world.tool_state.hangs.store(true, std::sync::atomic::Ordering::SeqCst);
    world.model.reply_with(|_, n| if n == 0 { by_name("test.act", json!({ "n": 1 })) } else { say("well") });
    world.work_until("ada", world.tool_state.entered.notified()).await;
    let after = world.model.requests().pop().unwrap();
    assert_eq!((&before.tools, &before.messages), (&after.tools, &after.messages));
    // The call began and its end is unknown: it is an outside call of its own tool, not of the one that named it.
    world.tool_state.hangs.store(false, std::sync::atomic::Ordering::SeqCst);
    write!(world, |w| ghost_operations::turns::review_at_boot(w)).unwrap();
    world.model.reply_with(|_, _| say("well"));
    world.work("ada").await.unwrap();
    assert_eq!(last(&world.model.requests()[0])["code"], "outcome_unknown");
    assert_eq!(world.tool_state.count(|state| &state.outside), 1, "it does not run twice");
    let rows = read!(world, |r| r.call_list(&ghost_store::tables::LedgerFilter { limit: 10, ..Default::default() })?);
    let act: Vec<CallStatus> = rows.iter().filter(|row| row.tool == "test.act").map(|row| row.status).collect();
    assert_eq!(act, [CallStatus::Unknown]);
}

/// The tools of an agent that may use everything cost at most a third of `limits.tools_bytes` in tokens.
#[tokio::test]
async fn the_tools_of_a_request_fit_the_limit() {
    let world = AgentWorld::new().await;
    world.send("ada", "go").await;
    world.work("ada").await.unwrap();
    let request = world.model.requests().remove(0);
    let briefing = request.messages[0].visible_text();
    let lines = briefing[briefing.find("<tools>").unwrap()..briefing.find("</tools>").unwrap()].len();
    let granted = world.engine.spec_and_tools(&world.agent("ada").await).await.unwrap().1.specs();
    assert!(granted.len() >= 40, "{}", granted.len());
    let without = estimate_tokens(&ModelRequest { tools: Arc::default(), ..request.clone() });
    let tools = estimate_tokens(&request) - without - 400 + lines as u64 / 3;
    assert!(tools <= 3_100, "{tools} tokens; all of them would be {}", tool_bytes(&granted) / 3);
    assert!(tool_bytes(&granted) / 3 > 6_000);
}
