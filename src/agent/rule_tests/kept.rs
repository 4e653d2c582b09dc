//! What was paid for, or cannot be had again, outlives a store that cannot take it for the moment.

use std::sync::Arc;
use std::time::Duration;

use ghost_domain::journal::Step;
use ghost_domain::{Code, TurnStatus};
use ghost_provider::{ErrorKind, ProviderError};
use ghost_store::StoreError;
use ractor::Actor;
use serde_json::json;

use super::fakes::{Reply, block, call, calls, say};
use super::rig::{Rig, id, read, results};
use crate::{AgentActor, AgentMsg, Arguments};

/// Lets the next commits find the disk full, just as the model answers.
fn full_when_answered(rig: &Rig, commits: usize) {
    let disk = rig.disk.clone();
    rig.model.does(move |_, n| {
        if n == 0 {
            disk.fail_next_commits(commits, || StoreError::Full);
        }
        say("a good answer")
    });
}

#[tokio::test]
async fn an_answer_that_the_store_cannot_take_is_kept_and_not_bought_again() {
    for commits in [1, 2, 9] {
        let rig = Rig::new().await;
        full_when_answered(&rig, commits);
        rig.send("ada", "go").await;
        let began = rig.ctx().now();
        rig.work("ada").await.unwrap();
        assert_eq!(rig.model.asked().len(), 1, "{commits}");
        let turn = rig.turn("ada").await;
        assert_eq!((turn.status, turn.text.as_deref()), (TurnStatus::Finished, Some("a good answer")));
        let steps = rig.steps("ada").await;
        let names: Vec<&str> = steps.iter().map(Step::name).collect();
        let waited = if commits == 2 { &[][..] } else { &["model_failed"][..] };
        assert_eq!(names, [&["briefed", "model_started"][..], waited, &["model_answered"]].concat());
        // The pauses grow: 1, 2, 4, 8 and 16 seconds.
        let least = if commits == 9 { 31 } else { 1 };
        assert!(rig.ctx().now().since(began) >= Duration::from_secs(least), "{commits}");
        let world = read!(rig, |r| r.budget_get(&ghost_domain::Scope::World).await?.unwrap());
        assert_eq!((world.reserved_tokens, world.spent_tokens), (0, 15), "it is charged once, for what it took");
    }
}

#[tokio::test]
async fn an_answer_that_dies_with_its_daemon_counts_as_an_attempt() {
    let rig = Rig::new().await;
    rig.send("ada", "go").await;
    for died in 1..=3 {
        full_when_answered(&rig, 1);
        let waits = async {
            let journaled = async || {
                let steps = rig.steps("ada").await;
                steps.iter().filter(|step| matches!(step, Step::ModelFailed { .. })).count()
            };
            while rig.model.asked().is_empty() || journaled().await < died {
                tokio::task::yield_now().await;
            }
        };
        rig.work_until("ada", waits).await;
        assert_eq!(rig.model.asked().len(), 1);
    }
    rig.model.does(|_, _| say("once more"));
    rig.work("ada").await.unwrap();
    assert!(rig.model.asked().is_empty(), "three attempts were made");
    let turn = rig.turn("ada").await;
    assert!(turn.status == TurnStatus::Failed && turn.reason.unwrap().contains("failed 3 times"));
}

#[tokio::test]
async fn a_failed_call_that_the_store_cannot_take_is_not_forgotten() {
    let rig = Rig::new().await;
    let disk = rig.disk.clone();
    rig.model.does(move |_, _| {
        disk.fail_next_commits(2, || StoreError::Busy("locked by another program".into()));
        Reply::Fail(ProviderError::new(ErrorKind::Server, "no"))
    });
    rig.send("ada", "go").await;
    rig.parks("ada").await;
    assert_eq!(rig.model.asked().len(), 3, "as many as there are attempts");
}

#[tokio::test]
async fn what_an_outside_call_gave_is_kept_until_the_store_takes_it() {
    let rig = Rig::new().await;
    rig.model.does(|_, n| if n == 0 { call("test.act", json!({ "n": 7 })) } else { say("seven") });
    rig.send("ada", "go").await;
    let disk = rig.disk.clone();
    let fills = async {
        rig.probe.entered.notified().await;
        disk.fail_next_commits(3, || StoreError::Full);
    };
    let (worked, ()) = tokio::join!(rig.work("ada"), fills);
    // With its result recorded, the turn is taken up again as by its actor.
    assert_eq!(worked.unwrap_err().code, Code::Unavailable);
    rig.work("ada").await.unwrap();
    assert_eq!(rig.probe.of(|probe| &probe.outside), 1);
    assert_eq!(results(rig.model.asked().last().unwrap())[0]["n"], 7, "nobody is told that it may have happened");
    assert_eq!(rig.turn("ada").await.text.as_deref(), Some("seven"));
}

#[tokio::test]
async fn waiting_for_the_store_is_no_work_of_the_turns() {
    let rig = Rig::new().await;
    let two = || calls(vec![block("c1", "test.act", json!({ "n": 7 })), block("c2", "test.act", json!({ "n": 8 }))]);
    rig.model.does(move |_, n| if n == 0 { two() } else { say("done") });
    rig.send("ada", "go").await;
    let disk = rig.disk.clone();
    let fills = async {
        rig.probe.entered.notified().await;
        // More than the 300 seconds that a turn may work.
        disk.fail_next_commits(24, || StoreError::Full);
    };
    let began = rig.ctx().now();
    let (worked, ()) = tokio::join!(rig.work("ada"), fills);
    if worked.is_err() {
        rig.work("ada").await.unwrap();
    }
    assert!(rig.ctx().now().since(began).as_secs() > 300);
    let turn = rig.turn("ada").await;
    assert_eq!(turn.text.as_deref(), Some("done"), "{turn:?}");
}

#[tokio::test]
async fn a_cancelled_turn_lets_go_of_the_answer_that_it_keeps() {
    let rig = Rig::new().await;
    full_when_answered(&rig, 1);
    rig.send("ada", "go").await;
    let agent_id = id("ada");
    let cancel = async {
        while rig.model.asked().is_empty() || !rig.steps("ada").await.iter().any(|step| step.name() == "model_failed") {
            tokio::task::yield_now().await;
        }
        let turn_id = rig.turn("ada").await.turn_id;
        super::rig::write!(rig, |w, ctx| {
            ghost_rules::turns::cancel(w, &ctx, &super::rig::operator(), turn_id).await
        })
        .unwrap();
    };
    let session = Arc::default();
    let work = crate::turn::work(&rig.engine, &agent_id, &session);
    let (worked, ()) = rig.in_time(async { tokio::join!(work, cancel) }).await;
    worked.unwrap();
    assert_eq!(rig.turn("ada").await.status, TurnStatus::Cancelled);
    assert_eq!(rig.model.asked().len(), 1);
}

#[tokio::test]
async fn an_agent_leaves_a_store_that_fails_alone_for_longer_and_longer() {
    let rig = Rig::new().await;
    rig.send("ada", "go").await;
    let began = rig.ctx().now();
    rig.disk.fail_next_commits(6, || StoreError::Full);
    let arguments = Arguments { agent_id: id("ada"), engine: Arc::clone(&rig.engine) };
    let (actor, ended) = Actor::spawn(None, AgentActor, arguments).await.unwrap();
    actor.cast(AgentMsg::Wake).unwrap();
    let finished = async {
        while rig.inbox("ada").await.len() == 1 || rig.turn("ada").await.status != TurnStatus::Finished {
            tokio::task::yield_now().await;
        }
    };
    rig.in_time(finished).await;
    assert!(rig.ctx().now().since(began) >= Duration::from_secs(1 + 2 + 4 + 8 + 16 + 32));
    actor.cast(AgentMsg::Stop { grace: Duration::ZERO }).unwrap();
    ended.await.unwrap();
}
