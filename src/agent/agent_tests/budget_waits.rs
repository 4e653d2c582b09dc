//! Turns that wait for budget that other turns hold.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use ghost_domain::journal::Step;
use ghost_domain::{Activity, Budget, Refusal, Scope, TurnStatus};
use ghost_operations::budgets::{self, NewLimits};
use ghost_operations::turns;
use ghost_provider::testing::{Reply, call, say};
use serde_json::json;
use tokio::sync::Notify;

use super::agent_world::{AgentWorld, id, operator, read, write};
use crate::turn::{self, AgentSession};

async fn set_limit(world: &AgentWorld, tokens: Option<u64>) {
    let limits = NewLimits { tokens: Some(tokens), money: None };
    write!(world, |w| budgets::set(w, &operator(), &Scope::World, limits)).unwrap();
}

async fn world_budget(world: &AgentWorld) -> Budget {
    read!(world, |r| r.budget_get(&Scope::World)?.unwrap())
}

/// Works off an agent's mail while no time passes.
async fn work(world: &AgentWorld, name: &str) -> Result<(), Refusal> {
    turn::work(&world.engine, &id(name), &Arc::new(AgentSession::default())).await
}

/// Polls `work` until `done` returns true.
async fn poll_until(mut work: Pin<&mut impl Future<Output = Result<(), Refusal>>>, mut done: impl FnMut() -> bool) {
    for _ in 0..10_000 {
        tokio::select! {
            biased;
            ended = &mut work => panic!("the work ended: {ended:?}"),
            () = tokio::task::yield_now() => {}
        }
        if done() {
            return;
        }
    }
    panic!("the condition was not met");
}

/// The number of calls that wait for budget.
fn waiting(world: &AgentWorld) -> usize {
    world.engine.queue.len()
}

#[tokio::test]
async fn a_turn_waits_for_budget_that_another_turn_holds_and_its_answer_is_not_cut() {
    let world = AgentWorld::new().await;
    world.limits(|limits| limits.model_seconds = 100_000);
    let go = Arc::new(Notify::new());
    let release = Arc::clone(&go);
    world.model.reply_with(move |request, n| match (request.agent_id.as_str(), n) {
        ("ada", _) => Reply::After(Arc::clone(&release), Box::new(say("ok"))),
        (_, 1) => call("test.look", json!({ "n": 1 })),
        _ => say("well"),
    });
    world.send("ada", "go").await;
    world.send("bob", "go").await;
    let (mut ada, mut bob) = (pin!(work(&world, "ada")), pin!(work(&world, "bob")));
    poll_until(ada.as_mut(), || world.model.requests().len() == 1).await;
    let reserved = world_budget(&world).await.reserved_tokens;
    // Enough for a short answer while ada's reservation holds, and for a full one after she has
    // spent less.
    set_limit(&world, Some(2 * reserved - 10)).await;
    poll_until(bob.as_mut(), || waiting(&world) == 1).await;
    assert_eq!(world.model.requests().len(), 1);
    assert_eq!(world_budget(&world).await.reserved_tokens, reserved, "a waiting call holds no budget");
    assert_eq!(world.engine.providers().get("test").unwrap().pool.in_use(), 1, "a waiting call holds no slot");
    let shown = world.activity.0.lock().unwrap().iter().rfind(|(agent, _)| *agent == id("bob")).cloned().unwrap();
    assert_eq!(shown.1, Activity::Queued);
    // Longer than a turn may work.
    world.clock.advance(Duration::from_secs(50_000));
    poll_until(bob.as_mut(), || true).await;
    go.notify_one();
    ada.await.unwrap();
    bob.await.unwrap();
    assert_eq!(world.turn("bob").await.status, TurnStatus::Finished, "waiting does not count as work");
    let answer_limits: Vec<u64> = world.model.requests().iter().map(|request| request.max_tokens).collect();
    assert_eq!(answer_limits, [answer_limits[0]; 3], "no answer is cut for a reservation that is released");
    let names: Vec<&str> = world.steps("bob").await.iter().map(Step::name).collect();
    assert_eq!(names[..3], ["briefed", "model_started", "model_answered"]);
    let after = world_budget(&world).await;
    assert_eq!((after.reserved_tokens, after.spent_tokens), (0, 45));
}

#[tokio::test]
async fn a_waiting_turn_parks_when_the_budget_is_spent_and_goes_on_when_it_is_raised() {
    let world = AgentWorld::new().await;
    let go = Arc::new(Notify::new());
    let release = Arc::clone(&go);
    world.model.reply_with(move |request, _| match request.agent_id.as_str() {
        "ada" => Reply::After(Arc::clone(&release), Box::new(say("ok"))),
        _ => say("well"),
    });
    for name in ["ada", "bob", "cyd"] {
        world.send(name, "go").await;
    }
    let mut ada = pin!(work(&world, "ada"));
    poll_until(ada.as_mut(), || world.model.requests().len() == 1).await;
    let reserved = world_budget(&world).await.reserved_tokens;
    set_limit(&world, Some(reserved + 10)).await;
    {
        let mut bob = pin!(work(&world, "bob"));
        poll_until(bob.as_mut(), || waiting(&world) == 1).await;
        let mut cyd = pin!(work(&world, "cyd"));
        poll_until(cyd.as_mut(), || waiting(&world) == 2).await;
        // Too little for any call, whether ada's reservation is released or not.
        set_limit(&world, Some(20)).await;
        poll_until(bob.as_mut(), || world.ctx().waiting(&id("bob")).is_some()).await;
        poll_until(cyd.as_mut(), || world.ctx().waiting(&id("cyd")).is_some()).await;
    }
    for name in ["bob", "cyd"] {
        let turn = world.turn(name).await;
        let reason = turn.parked.unwrap().reason;
        let expected =
            format!("budget world is spent: 0 of 20 tokens spent ({reserved} more reserved by running calls)");
        assert!(reason.contains(&expected), "{reason}");
    }
    set_limit(&world, Some(reserved + 10)).await;
    let mut cyd = pin!(work(&world, "cyd"));
    {
        // The work is cancelled, as by a stop or a crash.
        let mut bob = pin!(work(&world, "bob"));
        poll_until(bob.as_mut(), || waiting(&world) == 1).await;
        poll_until(cyd.as_mut(), || waiting(&world) == 2).await;
    }
    assert_eq!(waiting(&world), 1, "a cancelled call leaves the queue");
    let (turn, reserved_now) = (world.turn("bob").await, world_budget(&world).await.reserved_tokens);
    assert_eq!((turn.status, turn.held, reserved_now), (TurnStatus::Open, None, reserved));
    set_limit(&world, None).await;
    cyd.await.unwrap();
    world.work("bob").await.unwrap();
    assert_eq!(world.turn("bob").await.text.as_deref(), Some("well"));
    assert_eq!(world.turn("cyd").await.text.as_deref(), Some("well"));
    // Ended from outside: the turn's reservation is charged, and no call waits for it any more.
    set_limit(&world, Some(reserved * 2)).await;
    world.send("bob", "once more").await;
    let mut bob = pin!(work(&world, "bob"));
    poll_until(bob.as_mut(), || waiting(&world) == 1).await;
    let turn_id = world.turn("ada").await.turn_id;
    write!(world, |w| turns::cancel(w, &operator(), turn_id)).unwrap();
    bob.await.unwrap();
    assert_eq!((world_budget(&world).await.reserved_tokens, world.turn("bob").await.status), (0, TurnStatus::Finished));
    let answer_limits: Vec<u64> = world.model.requests().iter().map(|request| request.max_tokens).collect();
    assert!(answer_limits.last() < answer_limits.first(), "a spent budget does cut an answer: {answer_limits:?}");
    go.notify_one();
    ada.await.unwrap();
}

#[tokio::test]
async fn a_turn_that_waits_for_an_ask_holds_no_budget() {
    let world = AgentWorld::new().await;
    world.model.reply_with(|request, n| match (request.agent_id.as_str(), n) {
        ("ada", 0) => call("syscall.ask", json!({ "agent_id": "bob", "message": "how many?" })),
        ("bob", _) => say("seven"),
        _ => say("well"),
    });
    world.send("ada", "go").await;
    let mut ada = pin!(work(&world, "ada"));
    for _ in 0..10_000 {
        tokio::select! {
            biased;
            ended = &mut ada => panic!("the work ended: {ended:?}"),
            () = tokio::task::yield_now() => {}
        }
        if !world.asks().await.is_empty() {
            break;
        }
    }
    assert_eq!(world_budget(&world).await.reserved_tokens, 0);
    world.work("bob").await.unwrap();
    assert_eq!(world.turn("bob").await.text.as_deref(), Some("seven"));
}
