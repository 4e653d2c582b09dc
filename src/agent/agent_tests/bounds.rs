//! Bounds that keep what was done: a turn at its bound answers with what it said last, marked as cut off (LOOP-03).

use std::sync::atomic::Ordering;

use ghost_domain::transcript::Block;
use ghost_domain::{AskStatus, TurnStatus};
use ghost_operations::turns;
use ghost_provider::testing::{Reply, block, call, calls, say};
use serde_json::json;

use super::agent_world::{AgentWorld, write};

/// An answer that says something and goes on working.
fn says_and_works(text: &str, tool: &str) -> Reply {
    calls(vec![Block::Text { text: text.into() }, block("a", tool, json!({ "n": 1 }))])
}

// covers: LOOP-03
#[tokio::test]
async fn a_turn_at_its_bound_of_rounds_answers_with_what_it_said_last() {
    let world = AgentWorld::with(|plan| plan.limits.turn_rounds_max = 3).await;
    world.model.reply_with(|_, n| match n {
        0 => says_and_works("Looking.", "test.look"),
        1 => says_and_works("So far there are 3.", "test.look"),
        _ => call("test.look", json!({ "n": 9 })),
    });
    let ask = world.ask("ada").await;
    world.work("ada").await.unwrap();
    let turn = world.turn("ada").await;
    assert_eq!(
        (turn.status, turn.text.as_deref(), turn.truncated),
        (TurnStatus::TimedOut, Some("So far there are 3."), true)
    );
    assert!(turn.reason.unwrap().contains("turn_rounds_max"));
    let ask = world.ask_row(ask.ask_id).await;
    let reply = ask.reply.unwrap();
    assert_eq!(ask.status, AskStatus::Answered);
    assert!(reply.starts_with("So far there are 3.\n\n[cut off: ") && !reply.contains("Looking"), "{reply}");
    // The next turn has the text in its log, and knows that the work was cut off.
    world.model.reply_with(|_, _| say("well"));
    world.send("ada", "go on").await;
    world.work("ada").await.unwrap();
    let request = world.model.requests().pop().unwrap();
    let log: String = request.messages[1..request.past].iter().map(|message| message.visible_text()).collect();
    assert!(log.contains("So far there are 3.") && log.contains("timed_out"), "{log}");
}

// covers: LOOP-03
#[tokio::test]
async fn a_turn_that_said_nothing_gives_the_bound_as_its_error() {
    let world = AgentWorld::with(|plan| plan.limits.turn_rounds_max = 2).await;
    world.model.reply_with(|_, n| call("test.look", json!({ "n": n })));
    let ask = world.ask("ada").await;
    world.work("ada").await.unwrap();
    let turn = world.turn("ada").await;
    assert_eq!((turn.status, turn.text, turn.truncated), (TurnStatus::TimedOut, None, false));
    let ask = world.ask_row(ask.ask_id).await;
    assert_eq!(ask.status, AskStatus::Failed);
    assert!(ask.error.unwrap().contains("2 model calls"));
}

#[tokio::test]
async fn a_turn_that_crashed_in_its_last_round_still_answers_with_its_last_text() {
    let world = AgentWorld::with(|plan| plan.limits.turn_rounds_max = 1).await;
    world.tool_state.hangs.store(true, Ordering::SeqCst);
    world.model.reply_with(|_, _| says_and_works("So far there are 3.", "test.act"));
    let ask = world.ask("ada").await;
    world.work_until("ada", world.tool_state.entered.notified()).await;
    world.tool_state.hangs.store(false, Ordering::SeqCst);
    write!(world, |w| turns::review_at_boot(w)).unwrap();
    world.work("ada").await.unwrap();
    assert_eq!(world.turn("ada").await.status, TurnStatus::TimedOut);
    assert!(world.ask_row(ask.ask_id).await.reply.unwrap().starts_with("So far there are 3."));
}
