use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ghost_domain::TurnStatus;
use ractor::{Actor, ActorRef};
use serde_json::json;

use super::fakes::{Reply, call, say};
use super::rig::{Rig, id, operator, write};
use crate::{AgentActor, AgentMsg, Arguments};

/// An actor of ada's that is in the middle of a call.
async fn acting(rig: &Rig) -> (ActorRef<AgentMsg>, tokio::task::JoinHandle<()>) {
    rig.probe.hangs.store(true, Ordering::SeqCst);
    rig.model.does(|_, n| if n == 0 { call("test.look", json!({ "n": 1 })) } else { say("well") });
    rig.send("ada", "go").await;
    let arguments = Arguments { agent_id: id("ada"), engine: Arc::clone(&rig.engine) };
    let spawned = Actor::spawn(None, AgentActor, arguments).await.unwrap();
    spawned.0.cast(AgentMsg::Wake).unwrap();
    rig.probe.entered.notified().await;
    spawned
}

/// The newest turn, once it stands so.
async fn until(rig: &Rig, status: TurnStatus) {
    let standing = async {
        while rig.turn("ada").await.status != status {
            tokio::task::yield_now().await;
        }
    };
    rig.in_time(standing).await;
}

#[tokio::test]
async fn the_last_word_of_a_task_that_was_let_go_does_not_hurt_its_successor() {
    let rig = Rig::new().await;
    let (actor, ended) = acting(&rig).await;
    actor.cast(AgentMsg::Worked { task: 0, result: Ok(Ok(())) }).unwrap();
    until(&rig, TurnStatus::Finished).await;
    actor.cast(AgentMsg::Stop { grace: Duration::ZERO }).unwrap();
    ended.await.unwrap();
}

// covers: TOOL-20
#[tokio::test]
async fn a_cancelled_turn_is_dropped_and_the_next_mail_is_taken() {
    let rig = Rig::new().await;
    let (actor, ended) = acting(&rig).await;
    let turn_id = rig.turn("ada").await.turn_id;
    write!(rig, |w, ctx| ghost_rules::turns::cancel(w, &ctx, &operator(), turn_id).await).unwrap();
    rig.send("ada", "next").await;
    actor.cast(AgentMsg::Cancel(turn_id)).unwrap();
    until(&rig, TurnStatus::Finished).await;
    assert_ne!(rig.turn("ada").await.turn_id, turn_id);
    actor.cast(AgentMsg::Stop { grace: Duration::ZERO }).unwrap();
    ended.await.unwrap();
}

// covers: WORLD-15
#[tokio::test]
async fn a_stop_waits_out_the_grace_and_leaves_the_turn_to_its_journal() {
    let rig = Rig::new().await;
    rig.limits(|limits| limits.call_seconds = 1_000);
    let (actor, ended) = acting(&rig).await;
    actor.cast(AgentMsg::Stop { grace: Duration::from_secs(2) }).unwrap();
    rig.in_time(ended).await.unwrap();
    assert_eq!(rig.turn("ada").await.status, TurnStatus::Open);
}

#[tokio::test]
async fn who_is_restarted_for_another_pays_for_no_model_call_twice() {
    let rig = Rig::new().await;
    let go = Arc::new(tokio::sync::Notify::new());
    let held = Arc::clone(&go);
    rig.model.does(move |_, n| match n {
        0 => call("test.look", json!({ "n": 1 })),
        1 => Reply::Until(Arc::clone(&held)),
        _ => say("well"),
    });
    rig.send("ada", "go").await;
    let arguments = || Arguments { agent_id: id("ada"), engine: Arc::clone(&rig.engine) };
    let (actor, ended) = Actor::spawn(None, AgentActor, arguments()).await.unwrap();
    actor.cast(AgentMsg::Wake).unwrap();
    rig.model.hung.notified().await;
    actor.cast(AgentMsg::Yield { grace: Duration::from_secs(60) }).unwrap();
    tokio::task::yield_now().await;
    go.notify_one();
    rig.in_time(ended).await.unwrap();
    // The answer ended the turn, and it counts.
    assert_eq!(rig.turn("ada").await.status, TurnStatus::Finished);
    assert_eq!(rig.model.asked().len(), 2);

    // One that asks for a call is left before that, and the next actor makes it.
    let held = Arc::clone(&go);
    rig.model
        .does(move |_, n| if n == 0 { Reply::UntilCall(Arc::clone(&held), json!({ "n": 1 })) } else { say("well") });
    rig.send("ada", "again").await;
    let (actor, ended) = Actor::spawn(None, AgentActor, arguments()).await.unwrap();
    actor.cast(AgentMsg::Wake).unwrap();
    rig.model.hung.notified().await;
    actor.cast(AgentMsg::Yield { grace: Duration::from_secs(60) }).unwrap();
    tokio::task::yield_now().await;
    go.notify_one();
    rig.in_time(ended).await.unwrap();
    let turn = rig.turn("ada").await;
    assert_eq!((turn.status, turn.rounds, turn.calls), (TurnStatus::Open, 1, 0));
    let (actor, ended) = Actor::spawn(None, AgentActor, arguments()).await.unwrap();
    actor.cast(AgentMsg::Wake).unwrap();
    until(&rig, TurnStatus::Finished).await;
    let turn = rig.turn("ada").await;
    assert_eq!((turn.rounds, turn.calls, rig.model.asked().len()), (2, 1, 2), "three calls would be one paid twice");
    // Who asks nothing of anyone goes at once.
    actor.cast(AgentMsg::Yield { grace: Duration::from_secs(60) }).unwrap();
    ended.await.unwrap();
}
