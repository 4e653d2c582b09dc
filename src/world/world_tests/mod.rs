//! Tests of whole worlds in this process, with the memory store and a clock that the test moves.

mod clock;
mod fitness;
mod helpers;
mod listing;
mod loops;
mod orders;
mod places;
mod reload;
mod schedules;
mod sleep_storm;
mod stalls;
mod supervision;
mod wake_model;

use std::sync::Arc;
use std::time::Duration;

use ghost_domain::{AgentStatus, AskStatus, DeadLetterStatus, EventKind, Party, Refusal, TurnStatus};
use ghost_operations::{asks, mail};
use ghost_provider::testing::Reply;
use ghost_provider::{ErrorKind, ProviderError};
use ghost_store::tables::TurnFilter;
use serde_json::json;

use self::helpers::{
    TWO, TestWorld, ask, call, id, mail_of, operator, read, results, say, send, until, while_time_passes,
};

// covers: MSG-02
#[tokio::test]
async fn an_ask_is_answered_and_an_agent_can_ask_another() {
    let test_world = TestWorld::new(TWO);
    let (world, _) = test_world
        .boot(|request| match (request.agent_id.as_str(), results(request).first()) {
            ("ada", None) => call("syscall.ask", json!({ "agent_id": "ben", "message": "how many?" })),
            ("ada", Some(result)) => say(&format!("ben says {result}")),
            _ => say("seven"),
        })
        .await;
    let ask = ask(&world, "ada", "find out").await;
    assert_eq!(ask.status, AskStatus::Answered);
    assert!(ask.reply.as_ref().unwrap().contains("seven"), "{ask:?}");
}

// covers: WORLD-12
#[tokio::test]
async fn a_panicking_tool_crashes_one_agent_and_its_turn_resumes() {
    let test_world = TestWorld::new(TWO);
    let (world, model) = test_world
        .boot(|request| match (request.agent_id.as_str(), results(request).first()) {
            ("ada", None) => call("test.panic", json!({})),
            ("ada", Some(result)) => say(result),
            _ => say("fine"),
        })
        .await;
    let asking = tokio::spawn({
        let world = Arc::clone(&world);
        async move { ask(&world, "ada", "fall over").await }
    });
    until(&world, EventKind::AgentCrashed, "ada").await;
    assert_eq!(ask(&world, "ben", "are you well?").await.reply.unwrap(), "fine");
    let answer = while_time_passes(&test_world, asking).await.unwrap();
    assert!(answer.reply.as_ref().unwrap().contains("outcome_unknown"), "{answer:?}");
    let asked = model.asked_by("ada");
    assert_eq!(asked, 2, "what had been answered is not asked again");
    assert_eq!(world.directory().card(&id("ada")).unwrap().restarts, 1);
}

#[tokio::test]
async fn a_poisoned_message_becomes_a_dead_letter_and_the_agent_lives() {
    let test_world = TestWorld::new(TWO);
    let (world, _) = test_world
        .boot(|request| {
            let mail = mail_of(request);
            assert!(!(request.agent_id.as_str() == "ada" && mail.contains("poison")), "the model falls over");
            say("ok")
        })
        .await;
    send(&world, "ada", "poison").await;
    while_time_passes(&test_world, until(&world, EventKind::DeadLetterHeld, "ada")).await;
    let answer = while_time_passes(&test_world, ask(&world, "ada", "and now?")).await;
    assert_eq!(answer.reply.unwrap(), "ok");
    let dead = read!(world, |r| r.dead_letter_list(None, Some(DeadLetterStatus::Held), None, 1_000)?);
    assert_eq!(dead.len(), 1);
    assert_eq!(dead[0].crashes, 3);
}

#[tokio::test]
async fn a_refusal_of_the_provider_fails_the_turn_and_not_the_agent() {
    let test_world = TestWorld::new(TWO);
    let (world, _) = test_world
        .boot(|request| match request.agent_id.as_str() {
            "ada" => Reply::Fail(ProviderError::new(ErrorKind::BadRequest, "no such field")),
            _ => say("fine"),
        })
        .await;
    let answer = ask(&world, "ada", "hello").await;
    assert_eq!(answer.status, AskStatus::Failed);
    assert_eq!(world.directory().card(&id("ada")).unwrap().status, AgentStatus::Running);
    assert_eq!(ask(&world, "ben", "hello").await.reply.unwrap(), "fine");
}

// covers: MSG-10, TEST-07
#[tokio::test]
async fn a_turn_resumes_after_the_death_of_the_daemon() {
    let test_world = TestWorld::new(TWO);
    let (world, _) = test_world
        .boot(|request| match (request.agent_id.as_str(), results(request).len()) {
            ("ben", _) => say("thanks"),
            (_, 0) => call("syscall.message.send", json!({ "to": "ben", "content": "once" })),
            _ => Reply::Fail(ProviderError::new(ErrorKind::Server, "later").retry_after(Some(Duration::from_secs(1)))),
        })
        .await;
    send(&world, "ada", "tell ben").await;
    until(&world, EventKind::ModelFailed, "ada").await;
    // The daemon ends; its disk remains.
    drop(world);
    let (world, model) = test_world
        .boot(|request| match (request.agent_id.as_str(), results(request).len()) {
            ("ada", 0) => panic!("the first answer was journaled"),
            _ => say("done"),
        })
        .await;
    until(&world, EventKind::TurnFinished, "ada").await;
    until(&world, EventKind::TurnFinished, "ben").await;
    let turns = read!(world, |r| r.turn_list(&TurnFilter::default())?);
    assert!(turns.iter().all(|turn| turn.status == TurnStatus::Finished), "{turns:?}");
    let sent = read!(world, |r| r.messages_recent(&id("ben"), 10)?);
    assert_eq!(sent.len(), 1, "the message was sent once");
    assert!(!model.requests().is_empty());
}

// covers: MSG-04, MSG-10, WORLD-13
#[tokio::test]
async fn a_stopped_agent_refuses_asks_and_deals_with_its_mail_when_started() {
    let test_world = TestWorld::new(TWO);
    let (world, _) = test_world.boot(|_| say("here")).await;
    let by = operator();
    let stopped = world.stop_agent(&by, &id("ada"), None).await.unwrap();
    assert_eq!(stopped.status, AgentStatus::Stopped);
    send(&world, "ada", "while you were out").await;
    let target = id("ada");
    let refused = world
        .write(move |w| {
            let chain = mail::Chain::root(w.ctx);
            asks::open(w, Party::System, None, &target, "?".into(), Duration::from_secs(1), chain)
        })
        .await
        .unwrap_err();
    assert_eq!(refused.code, ghost_domain::Code::Conflict);
    world.write(move |w| ghost_operations::agents::start(w, &by, &id("ada"))).await.unwrap();
    until(&world, EventKind::TurnFinished, "ada").await;
}

#[tokio::test]
async fn idle_agents_sleep_and_wake_with_their_next_message() {
    let test_world = TestWorld::new(TWO);
    let (world, _) = test_world.boot(|_| say("awake")).await;
    ask(&world, "ada", "hello").await;
    let asleep = || world.directory().card(&id("ada")).unwrap().activity == ghost_domain::Activity::Asleep;
    let mut beats = 0;
    while !asleep() {
        test_world.clock.advance(Duration::from_secs(5));
        for _ in 0..50 {
            tokio::task::yield_now().await;
        }
        beats += 1;
        assert!(beats < 100, "it never sleeps");
    }
    assert_eq!(ask(&world, "ada", "hello again").await.reply.unwrap(), "awake");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn memory_and_store_agree_when_pause_and_resume_run_at_once() {
    let test_world = TestWorld::new(TWO);
    let (world, _) = test_world.boot(|_| say("now")).await;
    for round in 0..300 {
        let crossing: Vec<_> = (0..4)
            .map(|n| {
                let world = Arc::clone(&world);
                tokio::spawn(async move { world.set_paused(&Party::Operator(format!("{n}")), n % 2 == 0).await })
            })
            .collect();
        for one in crossing {
            one.await.unwrap().unwrap();
        }
        let kept = world.store().read(|r| r.meta_get(crate::tree::PAUSED));
        let kept = kept.await.map_err(Refusal::from).unwrap().as_deref() == Some("1");
        assert_eq!(world.directory().is_paused(), kept, "round {round}");
    }
}

#[tokio::test]
async fn a_paused_world_keeps_its_mail_and_continues_when_resumed() {
    let test_world = TestWorld::new(TWO);
    let (world, model) = test_world.boot(|_| say("now")).await;
    let by = operator();
    world.set_paused(&by, true).await.unwrap();
    send(&world, "ada", "wait").await;
    for _ in 0..200 {
        tokio::task::yield_now().await;
    }
    assert!(model.requests().is_empty());
    world.set_paused(&by, false).await.unwrap();
    until(&world, EventKind::TurnFinished, "ada").await;
}
