use std::sync::atomic::Ordering;

use ghost_domain::transcript::Block;
use ghost_domain::{CallStatus, Code, Kind, TurnStatus};
use ghost_provider::Stop;
use ghost_provider::testing::{Reply, block, call, calls, say};
use serde_json::json;

use super::agent_world::{AgentWorld, id, results};
use super::fakes::FILE;

/// The codes of the refusals in a request; `ok` for other results.
fn codes(request: &ghost_provider::ModelRequest) -> Vec<String> {
    results(request).iter().map(|result| result["code"].as_str().unwrap_or("ok").to_owned()).collect()
}

// covers: ACC-11, TOOL-06, TOOL-07
#[tokio::test]
async fn refused_calls_do_not_run_and_are_in_the_ledger() {
    let world = AgentWorld::new().await;
    world.limits(|limits| {
        limits.calls_per_answer = 6;
        limits.arguments_bytes = 1_024;
    });
    world.model.reply_with(|_, n| match n {
        0 => calls(vec![
            block("a", "test.act", json!({ "n": "seven" })),
            block("b", "test.act", json!({ "n": 1, "as": "bob" })),
            block("c", "test.act", json!([1])),
            block("d", "test.akt", json!({ "n": 1 })),
            block("e", "syscall.agent.stop", json!({ "agent_id": "bob" })),
            block("f", "test.act", json!({ "n": 1, "x": "y".repeat(2_000) })),
            block("g", "test.act", json!({ "n": 1 })),
        ]),
        _ => say("well"),
    });
    world.send("ada", "go").await;
    world.work("ada").await.unwrap();
    assert_eq!(world.tool_state.count(|tool_state| &tool_state.outside), 0);
    let expected = [
        "invalid_arguments",
        "invalid_arguments",
        "invalid_arguments",
        "unknown_tool",
        "access_denied",
        "too_large",
        "too_large",
    ];
    let second = world.model.requests().remove(1);
    assert_eq!(codes(&second), expected);
    assert!(results(&second)[3]["hint"].as_str().unwrap().contains("`test.act`"));
    let rows = world.ledger().await;
    assert_eq!(rows.len(), 7);
    assert!(rows.iter().all(|row| row.status == CallStatus::Failed && row.duration_ms.is_some()));
    assert_eq!(world.turn("ada").await.status, TurnStatus::Finished);
}

// covers: TOOL-11
#[tokio::test]
async fn each_malformed_or_excess_call_gets_one_result() {
    let world = AgentWorld::new().await;
    world.model.reply_with(|_, n| match n {
        0 => {
            let mut blocks = vec![
                Block::Thinking { text: "<tool_call>".into() },
                Block::Text { text: "I will now.</s>".into() },
                block("x", "test.act", json!({ "n": 1 })),
                block("x", "test.act", json!({ "n": 2 })),
                block("", "test.act", json!({ "n": 3 })),
                block("w", "test__look", json!({ "n": 4 })),
                block("u", "test.looks", json!({ "n": 5 })),
                block("s", "test.look", json!("{\"n\": 6")),
                block("e", "", json!({})),
            ];
            blocks.extend((0..1_000).map(|n| block(&format!("c{n}"), "test.look", json!({ "n": n }))));
            Reply::Answer(blocks, Stop::MaxTokens)
        }
        _ => say("well"),
    });
    world.send("ada", "go").await;
    world.work("ada").await.unwrap();
    let second = world.model.requests().remove(1);
    let codes = codes(&second);
    // The two calls with the same id are separate calls; the call without an id is dropped.
    assert_eq!(codes.len(), 1_006);
    assert_eq!(codes[..6], ["ok", "ok", "ok", "unknown_tool", "invalid_arguments", "unknown_tool"]);
    let limit = world.ctx().limits().calls_per_answer as usize;
    assert!(codes[6..limit].iter().all(|code| code == "ok") && codes[limit..].iter().all(|code| code == "too_large"));
    assert_eq!(world.tool_state.count(|tool_state| &tool_state.outside), 2);
    let ids: std::collections::BTreeSet<&str> =
        second.messages.iter().flat_map(|message| message.calls()).map(|(id, ..)| id).collect();
    assert_eq!(ids.len(), 1_006, "every id is unique");
    assert!(results(&second)[4]["hint"].is_string());
    assert_eq!(world.turn("ada").await.text.as_deref(), Some("well"));
}

// covers: TOOL-18
#[tokio::test]
async fn world_effects_commit_in_the_models_order() {
    let world = AgentWorld::new().await;
    world.model.reply_with(|_, n| match n {
        0 => calls(vec![
            block("a", "syscall.message.send", json!({ "to": "bob", "content": "one" })),
            block("b", "test.look", json!({ "n": 1 })),
            block("c", "syscall.message.send", json!({ "to": "nobody", "content": "lost" })),
            block("d", "syscall.message.send", json!({ "to": "bob", "content": "two" })),
            block("e", "test.act", json!({ "n": 2 })),
            block("f", "syscall.message.send", json!({ "to": "bob", "content": "three" })),
        ]),
        _ => say("well"),
    });
    world.send("ada", "go").await;
    world.work("ada").await.unwrap();
    let mail = world.inbox("bob").await;
    let bodies: Vec<&str> = mail.iter().map(|mail| mail.body.as_str()).collect();
    assert_eq!(bodies, ["one", "two", "three"]);
    let turn = world.turn("ada").await;
    assert!(mail.iter().all(|mail| mail.kind == Kind::Message && mail.hop == 1 && mail.root_id == turn.root_id));
    assert!(mail.iter().all(|mail| mail.from == ghost_domain::Party::Agent(id("ada"))));
    assert_eq!(codes(&world.model.requests()[1]), ["ok", "ok", "not_found", "ok", "ok", "ok"]);
    let tools: Vec<String> = world.ledger().await.into_iter().map(|row| row.tool).collect();
    let send = "syscall.message.send";
    assert_eq!(tools, [send, "test.look", send, send, "test.act", send]);
    assert_eq!(turn.calls, 6);
}

// covers: LIM-40, TOOL-20
#[tokio::test]
async fn calls_that_may_overlap_run_in_parallel_up_to_the_limit() {
    let world = AgentWorld::new().await;
    world.limits(|limits| limits.calls_parallel = 3);
    world.model.reply_with(|_, n| match n {
        0 => calls(
            (0..8).map(|n| block(&format!("c{n}"), ["test.look", "test.act"][n % 2], json!({ "n": n }))).collect(),
        ),
        _ => say("well"),
    });
    world.send("ada", "go").await;
    world.work("ada").await.unwrap();
    assert_eq!(world.tool_state.count(|tool_state| &tool_state.max_running), 3);
    let seen: Vec<u64> =
        results(&world.model.requests()[1]).iter().map(|result| result["n"].as_u64().unwrap()).collect();
    assert_eq!(seen, (0..8).collect::<Vec<_>>(), "results are in the model's order");
}

// covers: TOOL-20
#[tokio::test]
async fn a_hanging_tool_ends_at_its_time_limit() {
    let world = AgentWorld::new().await;
    world.limits(|limits| limits.call_seconds = 3);
    world.tool_state.hangs.store(true, Ordering::SeqCst);
    world.model.reply_with(|_, n| match n {
        0 => calls(vec![block("a", "test.look", json!({ "n": 1 })), block("b", "test.act", json!({ "n": 2 }))]),
        _ => say("well"),
    });
    world.send("ada", "go").await;
    world.work("ada").await.unwrap();
    assert_eq!(codes(&world.model.requests()[1]), ["timeout", "timeout"]);
    let rows = world.ledger().await;
    assert!(rows.iter().all(|row| row.error_code == Some(Code::Timeout) && row.duration_ms >= Some(3_000)), "{rows:?}");
    assert_eq!(world.turn("ada").await.status, TurnStatus::Finished);
}

#[tokio::test]
async fn hanging_file_and_world_tools_end_at_their_time_limit() {
    let world = AgentWorld::new().await;
    world.limits(|limits| limits.call_seconds = 3);
    world.tool_state.hangs.store(true, Ordering::SeqCst);
    world.model.reply_with(|_, n| match n {
        0 => calls(vec![block("a", "test.file", json!({ "n": 1 })), block("b", "test.change", json!({ "n": 2 }))]),
        _ => say("well"),
    });
    world.send("ada", "go").await;
    world.work("ada").await.unwrap();
    assert_eq!(codes(&world.model.requests()[1]), ["timeout", "timeout"]);
    assert!(!world.file(FILE).exists());
    let rows = world.ledger().await;
    assert!(rows.iter().all(|row| row.error_code == Some(Code::Timeout)), "{rows:?}");
    assert_eq!((rows.len(), world.turn("ada").await.status), (2, TurnStatus::Finished));
}

#[tokio::test]
async fn a_file_write_is_undone_if_its_record_is_refused() {
    for before in [None, Some("13")] {
        let world = AgentWorld::new().await;
        if let Some(text) = before {
            std::fs::write(world.file(FILE), text).unwrap();
        }
        world.model.reply_with(|_, n| match n {
            0 => call("test.file", json!({ "n": 13 })),
            _ => say("well"),
        });
        world.send("ada", "go").await;
        world.work("ada").await.unwrap();
        assert_eq!(results(&world.model.requests()[1])[0]["code"], "inbox_full");
        assert_eq!(std::fs::read_to_string(world.file(FILE)).ok().as_deref(), before, "the file is unchanged");
    }
    let world = AgentWorld::new().await;
    std::fs::write(world.file(FILE), "old").unwrap();
    world.model.reply_with(|_, n| if n == 0 { call("test.file", json!({ "n": 13 })) } else { say("well") });
    world.send("ada", "go").await;
    world.work("ada").await.unwrap();
    let hint = results(&world.model.requests()[1])[0]["hint"].as_str().unwrap().to_owned();
    assert!(hint.contains(&format!("`{FILE}`")), "{hint}");
}

#[tokio::test]
async fn the_same_call_id_in_two_rounds_means_two_calls() {
    let world = AgentWorld::new().await;
    world.model.reply_with(|_, n| if n < 3 { call("test.act", json!({ "n": n })) } else { say("well") });
    world.send("ada", "go").await;
    world.work("ada").await.unwrap();
    let last = world.model.requests().pop().unwrap();
    assert_eq!(results(&last), [json!({ "n": 0 }), json!({ "n": 1 }), json!({ "n": 2 })]);
    assert_eq!(world.tool_state.count(|tool_state| &tool_state.outside), 3);
}
