//! Which model a parked turn waits for if there are several, if the plan changes, and if money is
//! short.

use std::sync::Arc;

use ghost_domain::turn::ParkCause;
use ghost_domain::{Code, EventKind, Money, Price, Scope, TurnStatus};
use ghost_operations::budgets::{self, NewLimits};
use ghost_provider::ErrorKind;
use ghost_provider::testing::{fail, say};

use super::agent_world::{AgentWorld, id, operator, write};

/// A world whose agents may ask `two` if `one` does not answer.
async fn with_a_fall_back() -> AgentWorld {
    AgentWorld::with(|plan| {
        for agent in &mut plan.agents {
            agent.model.fallback_models = vec!["two".into()];
        }
        let price = |dollars| Price { input: Money(dollars), output: Money(dollars), ..Price::default() };
        plan.llm.prices.insert("test/one".into(), price(1));
        plan.llm.prices.insert("test/two".into(), price(10_000_000_000));
    })
    .await
}

fn models(world: &AgentWorld) -> Vec<String> {
    world.model.requests().into_iter().map(|request| request.model).collect()
}

#[tokio::test]
async fn a_turn_fails_when_every_model_has_refused_it_after_an_outage() {
    let world = with_a_fall_back().await;
    world.model.reply_with(|request, n| match request.model.as_str() {
        "one" if n < 3 => fail(ErrorKind::Overloaded),
        _ => fail(ErrorKind::ContextTooLong),
    });
    world.send("ada", "go").await;
    world.work("ada").await.unwrap();
    let turn = world.turn("ada").await;
    assert_eq!(turn.status, TurnStatus::Dead);
    assert!(turn.reason.unwrap().starts_with(Code::TooLarge.as_str()));
    assert_eq!(models(&world), ["one", "one", "one", "two", "one"]);
}

#[tokio::test]
async fn a_turn_waits_for_a_model_that_is_down_if_its_fall_back_refuses() {
    let world = with_a_fall_back().await;
    world.model.reply_with(|request, _| match request.model.as_str() {
        "one" => fail(ErrorKind::Overloaded),
        _ => fail(ErrorKind::UnknownModel),
    });
    world.send("ada", "go").await;
    world.work_until_parked("ada").await;
    // `one` is known to be down, so this turn begins with its fall-back, which refuses.
    world.send("bob", "go").await;
    let turn = world.work_until_parked("bob").await;
    assert!(matches!(turn.parked.unwrap().cause, ParkCause::Model { model, .. } if model == "one"));
    world
        .model
        .reply_with(|request, _| if request.model == "one" { say("back") } else { fail(ErrorKind::UnknownModel) });
    world.work("bob").await.unwrap();
    assert_eq!(world.turn("bob").await.text.as_deref(), Some("back"));
}

#[tokio::test]
async fn a_turn_does_not_wait_for_money_for_a_fall_back() {
    let world = with_a_fall_back().await;
    let limits = NewLimits { tokens: None, money: Some(Some(Money(2_000_000))) };
    write!(world, |w| budgets::set(w, &operator(), &Scope::World, limits)).unwrap();
    world.model.reply_with(|_, n| if n < 3 { fail(ErrorKind::Overloaded) } else { say("back") });
    world.send("ada", "go").await;
    world.work("ada").await.unwrap();
    assert_eq!(world.turn("ada").await.text.as_deref(), Some("back"));
    assert_eq!(models(&world), ["one"; 4]);
    let exhausted = world.events().await.into_iter().filter(|event| event.kind == EventKind::BudgetExhausted);
    assert_eq!(exhausted.count(), 0);
}

#[tokio::test]
async fn a_raised_limit_lets_a_parked_turn_use_its_fall_back() {
    let world = with_a_fall_back().await;
    let limit = |money| NewLimits { tokens: None, money: Some(money) };
    write!(world, |w| budgets::set(w, &operator(), &Scope::World, limit(Some(Money(2_000_000))))).unwrap();
    world.model.reply_with(|request, _| if request.model == "one" { fail(ErrorKind::Overloaded) } else { say("dear") });
    world.send("ada", "go").await;
    let turn = world.work_until_parked("ada").await;
    assert!(matches!(turn.parked.unwrap().cause, ParkCause::Model { model, .. } if model == "one"));
    let (agent_id, session) = (id("ada"), Arc::default());
    let mut work = Box::pin(crate::turn::work(&world.engine, &agent_id, &session));
    for _ in 0..1_000 {
        assert!(futures_util::future::poll_immediate(&mut work).await.is_none());
        tokio::task::yield_now().await;
    }
    write!(world, |w| budgets::set(w, &operator(), &Scope::World, limit(None))).unwrap();
    world.engine.queue.limits_set();
    // The clock does not move, so no probe is due.
    work.await.unwrap();
    assert_eq!(world.turn("ada").await.text.as_deref(), Some("dear"));
}

#[tokio::test]
async fn a_plan_with_another_model_ends_the_wait() {
    let world = AgentWorld::new().await;
    world.model.reply_with(|request, _| if request.model == "one" { fail(ErrorKind::Overloaded) } else { say("here") });
    // Ada waits with an open turn, bob before his turn is opened.
    for name in ["ada", "bob"] {
        world.send(name, "go").await;
    }
    world.work_until_parked("ada").await;
    let (ada, bob) = ((id("ada"), Arc::default()), (id("bob"), Arc::default()));
    let mut work = Box::pin(futures_util::future::join(
        crate::turn::work(&world.engine, &ada.0, &ada.1),
        crate::turn::work(&world.engine, &bob.0, &bob.1),
    ));
    for _ in 0..1_000 {
        assert!(futures_util::future::poll_immediate(&mut work).await.is_none());
        tokio::task::yield_now().await;
    }
    let mut plan = (*world.engine.services.plan()).clone();
    for agent in &mut plan.agents {
        agent.model.model = Some("two".into());
    }
    world.engine.services.set_plan(Arc::new(plan));
    world.engine.notify_plan_changed();
    let (ada, bob) = work.await;
    ada.and(bob).unwrap();
    for name in ["ada", "bob"] {
        assert_eq!(world.turn(name).await.text.as_deref(), Some("here"), "{name}");
    }
}
