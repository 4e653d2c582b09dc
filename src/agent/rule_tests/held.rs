//! Turns that wait for what other turns hold of a budget.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use ghost_domain::journal::Step;
use ghost_domain::{Activity, Budget, Refusal, Scope, TurnStatus};
use ghost_rules::budgets::{self, NewLimits};
use ghost_rules::turns;
use serde_json::json;
use tokio::sync::Notify;

use super::fakes::{Reply, call, say};
use super::rig::{Rig, id, operator, read, write};
use crate::turn::{self, AgentSession};

async fn limit(rig: &Rig, tokens: Option<u64>) {
    let limits = NewLimits { tokens: Some(tokens), money: None };
    write!(rig, |w, ctx| budgets::set(w, &ctx, &operator(), &Scope::World, limits).await).unwrap();
}

async fn world(rig: &Rig) -> Budget {
    read!(rig, |r| r.budget_get(&Scope::World).await?.unwrap())
}

/// The work of an agent, while no time passes.
async fn work(rig: &Rig, name: &str) -> Result<(), Refusal> {
    turn::work(&rig.engine, &id(name), &Arc::new(AgentSession::default())).await
}

/// Goes on with `work` until `done`.
async fn until(mut work: Pin<&mut impl Future<Output = Result<(), Refusal>>>, mut done: impl FnMut() -> bool) {
    for _ in 0..10_000 {
        tokio::select! {
            biased;
            ended = &mut work => panic!("it ended: {ended:?}"),
            () = tokio::task::yield_now() => {}
        }
        if done() {
            return;
        }
    }
    panic!("nothing came of it");
}

/// How many wait for budget.
fn waiting(rig: &Rig) -> usize {
    rig.engine.queue.len()
}

#[tokio::test]
async fn a_turn_waits_for_what_another_only_holds_and_its_answer_is_not_cut() {
    let rig = Rig::new().await;
    rig.limits(|limits| limits.model_seconds = 100_000);
    let go = Arc::new(Notify::new());
    let gate = Arc::clone(&go);
    rig.model.does(move |request, n| match (request.agent_id.as_str(), n) {
        ("ada", _) => Reply::Until(Arc::clone(&gate)),
        (_, 1) => call("test.look", json!({ "n": 1 })),
        _ => say("well"),
    });
    rig.send("ada", "go").await;
    rig.send("bob", "go").await;
    let (mut ada, mut bob) = (pin!(work(&rig, "ada")), pin!(work(&rig, "bob")));
    until(ada.as_mut(), || rig.model.asked().len() == 1).await;
    let held = world(&rig).await.reserved_tokens;
    // Room for a short answer beside what ada holds, and for a whole one beside what she will have spent.
    limit(&rig, Some(2 * held - 10)).await;
    until(bob.as_mut(), || waiting(&rig) == 1).await;
    assert_eq!(rig.model.asked().len(), 1);
    assert_eq!(world(&rig).await.reserved_tokens, held, "who waits holds nothing");
    assert_eq!(rig.engine.providers().get("test").unwrap().pool.in_use(), 1, "no slot, either");
    let shown = rig.activity.0.lock().unwrap().iter().rfind(|(agent, _)| *agent == id("bob")).cloned().unwrap();
    assert_eq!(shown.1, Activity::Queued);
    // Longer than a turn may work.
    rig.clock.advance(Duration::from_secs(50_000));
    until(bob.as_mut(), || true).await;
    go.notify_one();
    ada.await.unwrap();
    bob.await.unwrap();
    assert_eq!(rig.turn("bob").await.status, TurnStatus::Finished, "waiting is no work");
    let most: Vec<u64> = rig.model.asked().iter().map(|request| request.max_tokens).collect();
    assert_eq!(most, [most[0]; 3], "nothing is cut for what is given back");
    let names: Vec<&str> = rig.steps("bob").await.iter().map(Step::name).collect();
    assert_eq!(names[..3], ["briefed", "model_started", "model_answered"]);
    let after = world(&rig).await;
    assert_eq!((after.reserved_tokens, after.spent_tokens), (0, 45));
}

#[tokio::test]
async fn who_waits_is_refused_when_it_is_spent_goes_on_when_it_is_raised_and_may_leave() {
    let rig = Rig::new().await;
    let go = Arc::new(Notify::new());
    let gate = Arc::clone(&go);
    rig.model.does(move |request, _| match request.agent_id.as_str() {
        "ada" => Reply::Until(Arc::clone(&gate)),
        _ => say("well"),
    });
    for name in ["ada", "bob", "cyd"] {
        rig.send(name, "go").await;
    }
    let mut ada = pin!(work(&rig, "ada"));
    until(ada.as_mut(), || rig.model.asked().len() == 1).await;
    let held = world(&rig).await.reserved_tokens;
    limit(&rig, Some(held + 10)).await;
    {
        let mut bob = pin!(work(&rig, "bob"));
        until(bob.as_mut(), || waiting(&rig) == 1).await;
        let mut cyd = pin!(work(&rig, "cyd"));
        until(cyd.as_mut(), || waiting(&rig) == 2).await;
        // The rest is spent by whoever is first: what is left is too little for anyone, with or without what ada holds.
        limit(&rig, Some(20)).await;
        until(bob.as_mut(), || rig.ctx().waiting(&id("bob")).is_some()).await;
        until(cyd.as_mut(), || rig.ctx().waiting(&id("cyd")).is_some()).await;
    }
    for name in ["bob", "cyd"] {
        let turn = rig.turn(name).await;
        let reason = turn.parked.unwrap().reason;
        let words = format!("budget world is spent: 0 of 20 tokens spent ({held} more held by calls under way)");
        assert!(reason.contains(&words), "{reason}");
    }
    limit(&rig, Some(held + 10)).await;
    let mut cyd = pin!(work(&rig, "cyd"));
    {
        // As a stop or a crash leaves it.
        let mut bob = pin!(work(&rig, "bob"));
        until(bob.as_mut(), || waiting(&rig) == 1).await;
        until(cyd.as_mut(), || waiting(&rig) == 2).await;
    }
    assert_eq!(waiting(&rig), 1, "who is gone is in nobody's way");
    let (turn, held_now) = (rig.turn("bob").await, world(&rig).await.reserved_tokens);
    assert_eq!((turn.status, turn.held, held_now), (TurnStatus::Open, None, held));
    limit(&rig, None).await;
    cyd.await.unwrap();
    rig.work("bob").await.unwrap();
    assert_eq!(rig.turn("bob").await.text.as_deref(), Some("well"));
    assert_eq!(rig.turn("cyd").await.text.as_deref(), Some("well"));
    // Ended from outside: what she held counts as taken, and nobody waits for it any more.
    limit(&rig, Some(held * 2)).await;
    rig.send("bob", "once more").await;
    let mut bob = pin!(work(&rig, "bob"));
    until(bob.as_mut(), || waiting(&rig) == 1).await;
    let turn_id = rig.turn("ada").await.turn_id;
    write!(rig, |w, ctx| turns::cancel(w, &ctx, &operator(), turn_id).await).unwrap();
    bob.await.unwrap();
    assert_eq!((world(&rig).await.reserved_tokens, rig.turn("bob").await.status), (0, TurnStatus::Finished));
    let most: Vec<u64> = rig.model.asked().iter().map(|request| request.max_tokens).collect();
    assert!(most.last() < most.first(), "what is spent does cut an answer: {most:?}");
    go.notify_one();
    ada.await.unwrap();
}

#[tokio::test]
async fn a_turn_that_waits_for_another_agents_answer_holds_nothing() {
    let rig = Rig::new().await;
    rig.model.does(|request, n| match (request.agent_id.as_str(), n) {
        ("ada", 0) => call("syscall.ask", json!({ "agent_id": "bob", "message": "how many?" })),
        ("bob", _) => say("seven"),
        _ => say("well"),
    });
    rig.send("ada", "go").await;
    let mut ada = pin!(work(&rig, "ada"));
    for _ in 0..10_000 {
        tokio::select! {
            biased;
            ended = &mut ada => panic!("it ended: {ended:?}"),
            () = tokio::task::yield_now() => {}
        }
        if !rig.asks().await.is_empty() {
            break;
        }
    }
    assert_eq!(world(&rig).await.reserved_tokens, 0);
    rig.work("bob").await.unwrap();
    assert_eq!(rig.turn("bob").await.text.as_deref(), Some("seven"));
}
