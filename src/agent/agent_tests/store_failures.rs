//! Results that were paid for, or cannot be repeated, survive a store that is unavailable for a
//! while.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ghost_domain::journal::Step;
use ghost_domain::{CallStatus, Code, TurnStatus};
use ghost_provider::testing::{Reply, block, call, calls, say};
use ghost_provider::{ErrorKind, ProviderError};
use ghost_store::StoreError;
use ractor::Actor;
use serde_json::json;

use super::agent_world::{AgentWorld, id, read, results};
use crate::{AgentActor, AgentMsg, Arguments};

/// Makes the next commits fail with a full disk when the model answers.
fn fail_commits_on_answer(world: &AgentWorld, commits: usize) {
    let disk = world.disk.clone();
    world.model.reply_with(move |_, n| {
        if n == 0 {
            disk.fail_next_commits(commits, || StoreError::Full);
        }
        say("a good answer")
    });
}

#[tokio::test]
async fn an_answer_that_the_store_cannot_take_is_kept_and_not_requested_again() {
    for commits in [1, 2, 9] {
        let world = AgentWorld::new().await;
        fail_commits_on_answer(&world, commits);
        world.send("ada", "go").await;
        let began = world.ctx().now();
        world.work("ada").await.unwrap();
        assert_eq!(world.model.requests().len(), 1, "{commits}");
        let turn = world.turn("ada").await;
        assert_eq!((turn.status, turn.text.as_deref()), (TurnStatus::Finished, Some("a good answer")));
        let steps = world.steps("ada").await;
        let names: Vec<&str> = steps.iter().map(Step::name).collect();
        let waited = if commits == 2 { &[][..] } else { &["model_failed"][..] };
        assert_eq!(names, [&["briefed", "model_started"][..], waited, &["model_answered"]].concat());
        // The pauses grow: 1, 2, 4, 8 and 16 seconds.
        let min_seconds = if commits == 9 { 31 } else { 1 };
        assert!(world.ctx().now().since(began) >= Duration::from_secs(min_seconds), "{commits}");
        let world = read!(world, |r| r.budget_get(&ghost_domain::Scope::World)?.unwrap());
        assert_eq!((world.reserved_tokens, world.spent_tokens), (0, 15), "the answer is charged once");
    }
}

#[tokio::test]
async fn an_answer_lost_in_a_crash_counts_as_an_attempt() {
    let world = AgentWorld::new().await;
    world.send("ada", "go").await;
    for died in 1..=3 {
        fail_commits_on_answer(&world, 1);
        let attempt_recorded = async {
            let journaled = async || {
                let steps = world.steps("ada").await;
                steps.iter().filter(|step| matches!(step, Step::ModelFailed { .. })).count()
            };
            while world.model.requests().is_empty() || journaled().await < died {
                tokio::task::yield_now().await;
            }
        };
        world.work_until("ada", attempt_recorded).await;
        assert_eq!(world.model.requests().len(), 1);
    }
    world.model.reply_with(|_, _| say("once more"));
    world.work("ada").await.unwrap();
    assert!(world.model.requests().is_empty(), "three attempts were made");
    let turn = world.turn("ada").await;
    assert!(turn.status == TurnStatus::Dead && turn.reason.unwrap().contains('3'));
}

#[tokio::test]
async fn a_failed_call_is_recorded_once_the_store_is_available() {
    let world = AgentWorld::new().await;
    let disk = world.disk.clone();
    world.model.reply_with(move |_, _| {
        disk.fail_next_commits(2, || StoreError::Busy("locked by another program".into()));
        Reply::Fail(ProviderError::new(ErrorKind::Server, "no"))
    });
    world.send("ada", "go").await;
    world.work_until_parked("ada").await;
    assert_eq!(world.model.requests().len(), 3, "three attempts are made");
}

#[tokio::test]
async fn the_result_of_an_outside_call_is_kept_until_the_store_takes_it() {
    let world = AgentWorld::new().await;
    world.model.reply_with(|_, n| if n == 0 { call("test.act", json!({ "n": 7 })) } else { say("seven") });
    world.send("ada", "go").await;
    let disk = world.disk.clone();
    let fill_disk = async {
        world.tool_state.entered.notified().await;
        disk.fail_next_commits(3, || StoreError::Full);
    };
    let (worked, ()) = tokio::join!(world.work("ada"), fill_disk);
    // Its result recorded, the turn is run again, as its actor would do.
    assert_eq!(worked.unwrap_err().code, Code::Unavailable);
    world.work("ada").await.unwrap();
    assert_eq!(world.tool_state.count(|tool_state| &tool_state.outside), 1);
    assert_eq!(
        results(world.model.requests().last().unwrap())[0]["n"],
        7,
        "the model gets the result, not an unknown outcome"
    );
    assert_eq!(world.turn("ada").await.text.as_deref(), Some("seven"));
}

#[tokio::test]
async fn waiting_for_the_store_does_not_count_as_work() {
    let world = AgentWorld::new().await;
    let two = || calls(vec![block("c1", "test.act", json!({ "n": 7 })), block("c2", "test.act", json!({ "n": 8 }))]);
    world.model.reply_with(move |_, n| if n == 0 { two() } else { say("done") });
    world.send("ada", "go").await;
    let disk = world.disk.clone();
    let fill_disk = async {
        world.tool_state.entered.notified().await;
        // More than the 300 seconds that a turn may work.
        disk.fail_next_commits(24, || StoreError::Full);
    };
    let began = world.ctx().now();
    let (worked, ()) = tokio::join!(world.work("ada"), fill_disk);
    if worked.is_err() {
        world.work("ada").await.unwrap();
    }
    assert!(world.ctx().now().since(began).as_secs() > 300);
    let turn = world.turn("ada").await;
    assert_eq!(turn.text.as_deref(), Some("done"), "{turn:?}");
}

#[tokio::test]
async fn a_cancelled_turn_drops_its_unrecorded_answer() {
    let world = AgentWorld::new().await;
    fail_commits_on_answer(&world, 1);
    world.send("ada", "go").await;
    let agent_id = id("ada");
    let cancel = async {
        while world.model.requests().is_empty()
            || !world.steps("ada").await.iter().any(|step| step.name() == "model_failed")
        {
            tokio::task::yield_now().await;
        }
        let turn_id = world.turn("ada").await.turn_id;
        super::agent_world::write!(world, |w| {
            ghost_operations::turns::cancel(w, &super::agent_world::operator(), turn_id)
        })
        .unwrap();
    };
    let session = Arc::default();
    let work = crate::turn::work(&world.engine, &agent_id, &session);
    let (worked, ()) = world.in_time(async { tokio::join!(work, cancel) }).await;
    worked.unwrap();
    assert_eq!(world.turn("ada").await.status, TurnStatus::Cancelled);
    assert_eq!(world.model.requests().len(), 1);
}

#[tokio::test]
async fn an_actor_retries_a_failing_store_with_growing_pauses() {
    let world = AgentWorld::new().await;
    world.send("ada", "go").await;
    let began = world.ctx().now();
    world.disk.fail_next_commits(6, || StoreError::Full);
    let arguments = Arguments { agent_id: id("ada"), engine: Arc::clone(&world.engine) };
    let (actor, ended) = Actor::spawn(None, AgentActor, arguments).await.unwrap();
    actor.cast(AgentMsg::Wake).unwrap();
    let finished = async {
        while world.inbox("ada").await.len() == 1 || world.turn("ada").await.status != TurnStatus::Finished {
            tokio::task::yield_now().await;
        }
    };
    world.in_time(finished).await;
    assert!(world.ctx().now().since(began) >= Duration::from_secs(1 + 2 + 4 + 8 + 16 + 32));
    actor.cast(AgentMsg::Stop { grace: Duration::ZERO }).unwrap();
    ended.await.unwrap();
}

// covers: STORE-04
#[tokio::test]
async fn a_store_that_is_away_during_a_call_is_not_told_to_the_model() {
    for tool in ["test.look", "test.change", "test.file"] {
        let world = AgentWorld::new().await;
        world.model.reply_with(move |_, n| if n == 0 { call(tool, json!({ "n": 7 })) } else { say("seven") });
        world.send("ada", "go").await;
        world.tool_state.store_is_away.store(true, Ordering::SeqCst);
        assert_eq!(world.work("ada").await.unwrap_err().code, Code::Unavailable, "{tool}");
        assert_eq!(world.model.requests().len(), 1, "{tool}");
        // The turn is run again, as its actor would do, and the call with it.
        world.work("ada").await.unwrap();
        assert_eq!(results(world.model.requests().last().unwrap())[0]["n"], 7, "{tool}");
        let statuses: Vec<CallStatus> = world.ledger().await.into_iter().map(|row| row.status).collect();
        assert_eq!(statuses, [CallStatus::Ok], "{tool}");
    }
}

// covers: TOOL-18
#[tokio::test]
async fn a_refusal_is_stored_before_later_effects_are_applied() {
    let world = AgentWorld::new().await;
    let set = |id: &str, version: Option<u64>| {
        block(id, "syscall.state.write", json!({ "key": "at", "value": id, "expected_version": version }))
    };
    world.model.reply_with(move |_, n| match n {
        0 => calls(vec![set("a", None), set("b", Some(9)), set("c", None)]),
        _ => say("two of three"),
    });
    world.send("ada", "go").await;
    world.work("ada").await.unwrap();
    let finished = |step| match step {
        Step::CallFinished { outcome, .. } => Some(outcome.refusal.is_some()),
        _ => None,
    };
    let refused: Vec<bool> = world.steps("ada").await.into_iter().filter_map(finished).collect();
    assert_eq!(refused, [false, true, false], "in the order of the answer");
    let entry = read!(world, |r| r.state_get("at")?).unwrap();
    assert_eq!((entry.version, entry.value.value()), (2, json!("c")));
}

// covers: TOOL-18
#[tokio::test]
async fn effects_keep_their_order_when_the_first_of_an_answer_is_lost() {
    let world = AgentWorld::new().await;
    let disk = world.disk.clone();
    let set = |id: &str| block(id, "syscall.state.write", json!({ "key": "at", "value": id }));
    world.model.reply_with(move |_, n| match n {
        0 => {
            // The answer is stored, the effect of its first call is not.
            disk.spare_next_commits(1);
            disk.fail_next_commits(1, || StoreError::Full);
            calls(vec![set("a"), set("b"), set("c")])
        }
        _ => say("all set"),
    });
    world.send("ada", "go").await;
    assert_eq!(world.work("ada").await.unwrap_err().code, Code::Unavailable);
    assert!(world.ledger().await.is_empty(), "no later call was applied");
    world.work("ada").await.unwrap();
    let entry = read!(world, |r| r.state_get("at")?).unwrap();
    assert_eq!((entry.version, entry.value.value()), (3, json!("c")));
    let statuses: Vec<CallStatus> = world.ledger().await.into_iter().map(|row| row.status).collect();
    assert_eq!(statuses, [CallStatus::Ok; 3]);
}

#[tokio::test]
async fn turns_wait_while_there_is_no_room() {
    for mid_turn in [false, true] {
        let world = AgentWorld::new().await;
        let ctx = world.ctx().clone();
        world.model.reply_with(move |_, n| {
            if n > 0 {
                return say("done");
            }
            if mid_turn {
                ctx.hold(Some("no room"));
            }
            call("test.look", json!({ "n": 7 }))
        });
        if !mid_turn {
            world.ctx().hold(Some("no room"));
        }
        world.send("ada", "go").await;
        let waits = async {
            while world.ctx().waiting(&id("ada")).is_none_or(|wait| &*wait.reason != "no room") {
                tokio::task::yield_now().await;
            }
        };
        world.work_until("ada", waits).await;
        assert_eq!(world.model.requests().len(), usize::from(mid_turn));
        assert_eq!(world.inbox("ada").await.len(), usize::from(!mid_turn), "an open turn keeps its mail");
        world.ctx().hold(None);
        world.work("ada").await.unwrap();
        let turn = world.turn("ada").await;
        assert_eq!((turn.status, turn.text.as_deref()), (TurnStatus::Finished, Some("done")));
    }
}
