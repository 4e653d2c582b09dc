use std::sync::Arc;
use std::time::Duration;

use ghost_domain::root_tally::RootTally;
use ghost_domain::transcript::Role;
use ghost_domain::{Code, EventKind, TurnStatus};
use ghost_provider::testing::{Reply, block, call, calls, say};
use serde_json::json;

use super::agent_world::{AgentWorld, SECRET, id, results};
use crate::turn;

// covers: LIM-39, TOOL-21
#[tokio::test]
async fn a_looping_turn_is_warned_blocked_and_ended() {
    let world = AgentWorld::new().await;
    world.limits(|limits| {
        limits.loop_warn = 2;
        limits.loop_block = 3;
        limits.loop_stop = 5;
    });
    world.model.reply_with(|_, _| call("test.look", json!({ "n": 1 })));
    let ask = world.ask("ada").await;
    world.work("ada").await.unwrap();
    assert_eq!(world.tool_state.count(|tool_state| &tool_state.reads), 3, "blocked after the third");
    let turn = world.turn("ada").await;
    assert_eq!(turn.status, TurnStatus::Failed);
    assert!(turn.reason.unwrap().starts_with(Code::LoopGuard.as_str()));
    assert!(world.ask_row(ask.ask_id).await.error.is_some());
    let requests = world.model.requests();
    let warned = |request: &ghost_provider::ModelRequest| {
        request.messages.iter().any(|m| m.role == Role::User && m.visible_text().contains("try another way"))
    };
    assert!(!warned(&requests[1]) && warned(&requests[2]));
    assert_eq!(results(&requests[4])[3]["code"], "loop_guard");
    assert_eq!(requests.len(), 5);
}

/// Runs a turn in which the model makes one call in each answer, while the clock advances. Returns
/// the codes of the call outcomes, the number of answers, and why the turn ended.
async fn run_polling(call_of: impl Fn(usize) -> Reply + Send + 'static) -> (Vec<Option<Code>>, usize, String) {
    let world = AgentWorld::with(|plan| {
        plan.limits.turn_rounds_max = 60;
        plan.limits.turn_seconds = 100_000;
    })
    .await;
    let clock = Arc::clone(&world.clock);
    world.model.reply_with(move |_, n| {
        clock.advance(Duration::from_secs(1));
        call_of(n)
    });
    world.send("ada", "go").await;
    world.work("ada").await.unwrap();
    let codes = world.ledger().await.into_iter().map(|row| row.error_code).collect();
    (codes, world.model.requests().len(), world.turn("ada").await.reason.unwrap())
}

// covers: TOOL-21
#[tokio::test]
async fn polling_without_progress_is_ended_even_if_times_and_counters_change() {
    let tools = ["syscall.session.status", "syscall.reflect", "syscall.resource.usage", "syscall.agent.list"];
    for tool in tools {
        let (codes, answers, reason) = run_polling(move |_| call(tool, json!({}))).await;
        assert_eq!(codes.iter().filter(|code| code.is_none()).count(), 20, "{tool}: {codes:?}");
        assert_eq!((answers, codes.len()), (30, 30), "{tool}");
        assert!(reason.starts_with(Code::LoopGuard.as_str()), "{tool}: {reason}");
    }
}

#[tokio::test]
async fn polling_with_varying_numbers_in_its_arguments_is_detected() {
    let looks: [fn(usize) -> Reply; 2] = [
        |n| call("workspace.list", json!({ "limit": 500 - n })),
        |n| call("syscall.inbox.read", json!({ "limit": 1 + n % 40 })),
    ];
    for look in looks {
        let (codes, answers, reason) = run_polling(look).await;
        assert_eq!(codes.iter().filter(|code| code.is_none()).count(), 20, "{codes:?}");
        assert_eq!(answers, 30);
        assert!(reason.contains("30"), "{reason}");
    }
}

#[tokio::test]
async fn reads_of_changing_or_different_data_are_limited_only_by_rounds() {
    let looks: [fn(usize) -> Reply; 3] = [
        |n| call("syscall.task.list", json!({ "owner": (["ada", "bob", "cyd"][n % 3]), "limit": 1 + n / 9 })),
        |n| call("syscall.state.read", json!({ "prefix": format!("part-{n}") })),
        |n| match n % 2 {
            0 => call("workspace.list", json!({})),
            _ => call("syscall.state.write", json!({ "key": "at", "value": n })),
        },
    ];
    for (at, look) in looks.into_iter().enumerate() {
        let (codes, answers, reason) = run_polling(look).await;
        if at == 0 {
            // Three lists in turn that stay empty: only the first read of each was new.
            assert_eq!((answers, codes.len()), (32, 32));
            continue;
        }
        assert_eq!((answers, codes.iter().flatten().count()), (60, 0), "{codes:?}");
        assert!(reason.contains("turn_rounds_max"), "{reason}");
    }
}

#[tokio::test]
async fn repeated_refusals_of_another_limit_count_as_a_loop() {
    let world = AgentWorld::with(|plan| plan.limits.turn_rounds_max = 60).await;
    let root_id = world.send("ada", "go").await.root_id;
    let mut tally = RootTally::new(root_id, world.ctx().now());
    for _ in 0..9 {
        tally.echo(&id("ada"), &id("bob"), "Thanks!");
        tally.echo(&id("bob"), &id("ada"), "Thanks!");
    }
    super::agent_world::write!(world, |w| Ok::<_, ghost_domain::Refusal>(w.root_put(&tally)?)).unwrap();
    world.model.reply_with(|_, _| call("syscall.message.send", json!({ "to": "bob", "content": "Thanks!" })));
    world.work("ada").await.unwrap();
    let reason = world.turn("ada").await.reason.unwrap();
    assert!(reason.contains("syscall.message.send") && reason.contains("30"), "{reason}");
    let results = world.ledger().await.into_iter().filter(|row| row.error_code == Some(Code::LoopGuard));
    let blocked = results.filter(|row| row.result.as_ref().unwrap().contains("bob")).count();
    assert_eq!(blocked, 20, "the guard blocks the later calls");
}

#[tokio::test]
async fn a_refused_broadcast_writes_one_event() {
    let world = AgentWorld::with(|plan| plan.limits.root_messages_max = 1).await;
    world.model.reply_with(|_, n| {
        if n < 2 { call("syscall.broadcast", json!({ "message": format!("all {n}") })) } else { say("so") }
    });
    world.send("ada", "go").await;
    world.work("ada").await.unwrap();
    let codes: Vec<_> = world.ledger().await.into_iter().map(|row| row.error_code).collect();
    assert_eq!(codes, [Some(Code::RateLimited), Some(Code::RateLimited)]);
    let blocked: Vec<_> =
        world.events().await.into_iter().filter(|event| event.kind == EventKind::LimitReached).collect();
    assert_eq!(blocked.len(), 1, "{blocked:#?}");
    assert_eq!((&blocked[0].payload["limit"], &blocked[0].payload["more"]), (&json!("root_messages_max"), &json!(2)));
    assert!(world.inbox("bob").await.is_empty());
}

// covers: TOOL-24
#[tokio::test]
async fn an_unknown_tool_name_is_recorded_redacted_and_on_one_line() {
    let world = AgentWorld::new().await;
    let long = format!("no.{}", "x".repeat(60));
    world.model.reply_with(move |_, n| match n {
        0 => calls(vec![
            block("a", &format!("no.such.{SECRET}"), json!({})),
            block("b", &format!("{long}{SECRET}"), json!({})),
            block("c", "sys\u{0}call\n\u{1b}[31mred", json!({})),
            block("d", "test_nothing", json!({})),
        ]),
        _ => say("done"),
    });
    world.send("ada", "go").await;
    world.work("ada").await.unwrap();
    let rows = world.ledger().await;
    let names: Vec<&str> = rows.iter().map(|row| row.tool.as_str()).collect();
    assert_eq!(names[0], "no.such.[redacted]");
    assert_eq!(names[2], "sys\\u{0}call\\n\\u{1b}[31mred");
    let events = format!("{:?}", world.events().await);
    for shown in [format!("{rows:?}"), events] {
        assert!(!shown.contains("hunter2") && !shown.contains("\\\\u{1b}[31mred\n"), "{shown}");
    }
    assert!(rows.iter().all(|row| row.error_code == Some(Code::UnknownTool) && !row.tool.contains(char::is_control)));
    // A resumed turn counts these calls under the same names.
    let finished = world.steps("ada").await.into_iter().filter_map(|step| match step {
        ghost_domain::journal::Step::CallFinished { tool, .. } => Some(tool),
        _ => None,
    });
    assert_eq!(finished.collect::<Vec<_>>(), names);
}

// covers: LIM-32, LOOP-03
#[tokio::test]
async fn rounds_are_limited() {
    let world = AgentWorld::with(|plan| {
        for agent in &mut plan.agents {
            agent.limits.turn_rounds_max = Some(3);
        }
    })
    .await;
    world.model.reply_with(|_, n| call("test.look", json!({ "n": n })));
    world.send("ada", "go").await;
    world.work("ada").await.unwrap();
    assert_eq!(world.model.requests().len(), 3);
    assert!(world.turn("ada").await.reason.unwrap().contains("turn_rounds_max"));
}

#[tokio::test]
async fn waiting_for_an_ask_does_not_count_as_work() {
    let world = AgentWorld::with(|plan| plan.limits.turn_seconds = 10).await;
    world.model.reply_with(|request, n| match (request.agent_id.as_str(), n) {
        ("ada", 0) => calls(vec![
            block("a", "test.look", json!({ "n": 1 })),
            block("b", "syscall.ask", json!({ "agent_id": "bob", "message": "?", "timeout_seconds": 100 })),
        ]),
        _ => say("well"),
    });
    world.send("ada", "go").await;
    let began = world.ctx().now();
    world.work("ada").await.unwrap();
    assert!(world.ctx().now().since(began) >= Duration::from_secs(100), "the ask timed out");
    assert_eq!(results(&world.model.requests()[1])[1]["status"], "timeout");
    assert_eq!(world.turn("ada").await.status, TurnStatus::Finished);
}

// covers: LIM-32, LOOP-03
#[tokio::test]
async fn a_turn_that_works_too_long_ends() {
    let world = AgentWorld::with(|plan| plan.limits.turn_seconds = 10).await;
    world.tool_state.hangs.store(true, std::sync::atomic::Ordering::SeqCst);
    world.model.reply_with(|_, n| call("test.look", json!({ "n": n })));
    world.send("ada", "go").await;
    world.work("ada").await.unwrap();
    assert!(world.turn("ada").await.reason.unwrap().contains("turn_seconds"));
    assert_eq!(world.model.requests().len(), 1, "the one call took thirty seconds");
}

#[tokio::test]
async fn a_cancelled_turn_ends_and_the_next_mail_is_taken() {
    let world = AgentWorld::new().await;
    world.tool_state.hangs.store(true, std::sync::atomic::Ordering::SeqCst);
    world.model.reply_with(|_, n| if n == 0 { call("test.act", json!({ "n": 1 })) } else { say("next") });
    world.send("ada", "go").await;
    let agent_id = id("ada");
    let cancel = async {
        world.tool_state.entered.notified().await;
        let turn_id = world.turn("ada").await.turn_id;
        super::agent_world::write!(world, |w| {
            ghost_operations::turns::cancel(w, &super::agent_world::operator(), turn_id)
        })
        .unwrap();
        world.send("ada", "again").await;
    };
    let (worked, ()) =
        world.in_time(async { tokio::join!(turn::work(&world.engine, &agent_id, &world.session), cancel) }).await;
    worked.unwrap();
    // The mail that came meanwhile has a wake-up of its own.
    world.work("ada").await.unwrap();
    assert_eq!(world.turn("ada").await.text.as_deref(), Some("next"), "the agent goes on with its next mail");
    let rows = world.ledger().await;
    assert_eq!((rows.len(), rows[0].error_code), (1, Some(Code::OutcomeUnknown)));
}
