//! Repeated stop orders, and mail that does not wake.

use std::time::Duration;

use ghost_domain::mail::Kind;
use ghost_domain::{Activity, AgentStatus, EventKind};
use ghost_operations::{agents, mail};

use super::helpers::{TWO, TestWorld, ask, id, operator, read, say, send, settle, soon, until, write};

#[tokio::test]
async fn a_repeated_stop_does_not_affect_an_agent_that_was_started_again() {
    let test_world = TestWorld::new(TWO);
    let (world, model) = test_world.boot(|_| say("done")).await;
    world.stop_agent(&operator(), &id("ada"), None).await.unwrap();
    write!(world, |w| agents::start(w, &operator(), &id("ada"))).unwrap();
    model.hold("ada");
    send(&world, "ada", "take your time").await;
    soon("the call begins", || model.asked_by("ada") == 1).await;
    // The same request again: its stop is already done, so it only shortens the grace period.
    world.hasten_stop(&id("ada"), Duration::ZERO).await.unwrap();
    settle().await;
    model.release("ada");
    until(&world, EventKind::TurnFinished, "ada").await;
    assert_eq!(model.asked_by("ada"), 1, "its call was not cut off");
    assert_eq!(world.directory().card(&id("ada")).unwrap().status, AgentStatus::Running);
}

#[tokio::test]
async fn a_repeated_stop_shortens_the_grace_period_of_a_stopping_agent() {
    let test_world = TestWorld::new(TWO);
    let (world, model) = test_world.boot(|_| say("done")).await;
    model.hold("ada");
    send(&world, "ada", "take your time").await;
    soon("the call begins", || model.asked_by("ada") == 1).await;
    write!(world, |w| agents::stop(w, &operator(), &id("ada"), None)).unwrap();
    settle().await;
    let status = || world.directory().card(&id("ada")).unwrap().status;
    assert_eq!(status(), AgentStatus::Stopping, "no time passes, and its grace period is not over");
    world.hasten_stop(&id("ada"), Duration::ZERO).await.unwrap();
    assert_eq!(world.wait_until_stopped(&id("ada")).await.unwrap().status, AgentStatus::Stopped);
}

#[tokio::test]
async fn mail_that_does_not_wake_lets_an_agent_fall_asleep() {
    let test_world = TestWorld::new(TWO);
    let (world, model) = test_world.boot(|_| say("awake")).await;
    ask(&world, "ada", "hello").await;
    write!(world, |w| {
        let new_message =
            mail::NewMessage::new(&id("ada"), operator(), Kind::Message, "whenever you like", mail::Chain::root(w.ctx));
        mail::deliver(w, mail::NewMessage { wake: false, ..new_message })
    })
    .unwrap();
    let asleep = || world.directory().card(&id("ada")).unwrap().activity == Activity::Asleep;
    for _ in 0..100 {
        test_world.clock.advance(Duration::from_secs(5));
        settle().await;
        if asleep() {
            break;
        }
    }
    // The read after the actor's end is done, too.
    settle().await;
    assert!(asleep());
    assert_eq!(model.asked_by("ada"), 1);
    let pending = async || read!(world, |r| r.inbox_pending(&id("ada"), 9)?).len();
    assert_eq!(pending().await, 1);
    // The agent reads it with the next mail that wakes.
    send(&world, "ada", "now").await;
    soon("the second call", || model.asked_by("ada") == 2).await;
    settle().await;
    assert_eq!(pending().await, 0);
}
