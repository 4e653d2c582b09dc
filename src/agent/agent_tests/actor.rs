use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ghost_domain::{Scope, TurnStatus};
use ghost_operations::budgets::{self, NewLimits};
use ghost_provider::testing::{Reply, call, say};
use ractor::{Actor, ActorRef};
use serde_json::json;

use super::agent_world::{AgentWorld, id, operator, write};
use crate::{AgentActor, AgentMsg, Arguments};

/// An actor of ada's with a running call.
async fn acting(world: &AgentWorld) -> (ActorRef<AgentMsg>, tokio::task::JoinHandle<()>) {
    world.tool_state.hangs.store(true, Ordering::SeqCst);
    world.model.reply_with(|_, n| if n == 0 { call("test.look", json!({ "n": 1 })) } else { say("well") });
    world.send("ada", "go").await;
    let arguments = Arguments { agent_id: id("ada"), engine: Arc::clone(&world.engine) };
    let spawned = Actor::spawn(None, AgentActor, arguments).await.unwrap();
    spawned.0.cast(AgentMsg::Wake).unwrap();
    world.tool_state.entered.notified().await;
    spawned
}

/// Waits until the newest turn has this status.
async fn until(world: &AgentWorld, status: TurnStatus) {
    let has_status = async {
        while world.turn("ada").await.status != status {
            tokio::task::yield_now().await;
        }
    };
    world.in_time(has_status).await;
}

#[tokio::test]
async fn a_report_of_a_cancelled_task_is_ignored() {
    let world = AgentWorld::new().await;
    let (actor, ended) = acting(&world).await;
    actor.cast(AgentMsg::Worked { task: 0, result: Ok(Ok(())) }).unwrap();
    until(&world, TurnStatus::Finished).await;
    actor.cast(AgentMsg::Stop { grace: Duration::ZERO }).unwrap();
    ended.await.unwrap();
}

// covers: TOOL-20
#[tokio::test]
async fn a_cancelled_turn_is_dropped_and_the_next_mail_is_taken() {
    let world = AgentWorld::new().await;
    let (actor, ended) = acting(&world).await;
    let turn_id = world.turn("ada").await.turn_id;
    write!(world, |w| ghost_operations::turns::cancel(w, &operator(), turn_id)).unwrap();
    world.send("ada", "next").await;
    actor.cast(AgentMsg::Cancel(turn_id)).unwrap();
    until(&world, TurnStatus::Finished).await;
    assert_ne!(world.turn("ada").await.turn_id, turn_id);
    actor.cast(AgentMsg::Stop { grace: Duration::ZERO }).unwrap();
    ended.await.unwrap();
}

// covers: WORLD-15
#[tokio::test]
async fn a_stop_waits_for_the_grace_period_and_leaves_the_turn_open() {
    let world = AgentWorld::new().await;
    world.limits(|limits| limits.call_seconds = 1_000);
    let (actor, ended) = acting(&world).await;
    actor.cast(AgentMsg::Stop { grace: Duration::from_secs(2) }).unwrap();
    world.in_time(ended).await.unwrap();
    assert_eq!(world.turn("ada").await.status, TurnStatus::Open);
}

// covers: WORLD-15
#[tokio::test]
async fn a_stop_does_not_wait_for_a_turn_that_begins_to_wait() {
    let world = AgentWorld::new().await;
    let go = Arc::new(tokio::sync::Notify::new());
    let release = Arc::clone(&go);
    world
        .model
        .reply_with(move |_, _| Reply::After(Arc::clone(&release), Box::new(call("test.look", json!({ "n": 1 })))));
    world.send("ada", "go").await;
    let arguments = Arguments { agent_id: id("ada"), engine: Arc::clone(&world.engine) };
    let (actor, ended) = Actor::spawn(None, AgentActor, arguments).await.unwrap();
    actor.cast(AgentMsg::Wake).unwrap();
    world.model.stalled.notified().await;
    let spent = NewLimits { tokens: Some(Some(1)), money: None };
    write!(world, |w| budgets::set(w, &operator(), &Scope::World, spent)).unwrap();
    let began = world.ctx().now();
    let grace = Duration::from_secs(1_000);
    actor.cast(AgentMsg::Stop { grace }).unwrap();
    go.notify_one();
    world.in_time(ended).await.unwrap();
    let turn = world.turn("ada").await;
    assert_eq!((turn.status, turn.calls, turn.parked.is_some()), (TurnStatus::Open, 1, true));
    assert!(world.ctx().now().since(began) < grace / 2);
}

#[tokio::test]
async fn a_yielding_actor_repeats_no_model_call() {
    let world = AgentWorld::new().await;
    let go = Arc::new(tokio::sync::Notify::new());
    let release = Arc::clone(&go);
    world.model.reply_with(move |_, n| match n {
        0 => call("test.look", json!({ "n": 1 })),
        1 => Reply::After(Arc::clone(&release), Box::new(say("ok"))),
        _ => say("well"),
    });
    world.send("ada", "go").await;
    let arguments = || Arguments { agent_id: id("ada"), engine: Arc::clone(&world.engine) };
    let (actor, ended) = Actor::spawn(None, AgentActor, arguments()).await.unwrap();
    actor.cast(AgentMsg::Wake).unwrap();
    world.model.stalled.notified().await;
    actor.cast(AgentMsg::Yield { grace: Duration::from_secs(60) }).unwrap();
    tokio::task::yield_now().await;
    go.notify_one();
    world.in_time(ended).await.unwrap();
    // The answer ended the turn, and it counts.
    assert_eq!(world.turn("ada").await.status, TurnStatus::Finished);
    assert_eq!(world.model.requests().len(), 2);

    // An answer with a call: the actor exits before the call, and the next actor runs it.
    let release = Arc::clone(&go);
    world.model.reply_with(move |_, n| {
        if n == 0 {
            Reply::After(Arc::clone(&release), Box::new(call("test.look", json!({ "n": 1 }))))
        } else {
            say("well")
        }
    });
    world.send("ada", "again").await;
    let (actor, ended) = Actor::spawn(None, AgentActor, arguments()).await.unwrap();
    actor.cast(AgentMsg::Wake).unwrap();
    world.model.stalled.notified().await;
    actor.cast(AgentMsg::Yield { grace: Duration::from_secs(60) }).unwrap();
    tokio::task::yield_now().await;
    go.notify_one();
    world.in_time(ended).await.unwrap();
    let turn = world.turn("ada").await;
    assert_eq!((turn.status, turn.rounds, turn.calls), (TurnStatus::Open, 1, 0));
    let (actor, ended) = Actor::spawn(None, AgentActor, arguments()).await.unwrap();
    actor.cast(AgentMsg::Wake).unwrap();
    until(&world, TurnStatus::Finished).await;
    let turn = world.turn("ada").await;
    assert_eq!(
        (turn.rounds, turn.calls, world.model.requests().len()),
        (2, 1, 2),
        "three calls would be one paid twice"
    );
    // An actor without a running call exits at once.
    actor.cast(AgentMsg::Yield { grace: Duration::from_secs(60) }).unwrap();
    ended.await.unwrap();
}

// covers: ART-04
#[tokio::test]
async fn the_first_turn_makes_the_agents_directories_and_does_not_need_them() {
    let world = AgentWorld::new().await;
    world.model.reply_with(|_, _| say("well"));
    std::fs::remove_dir_all(world.file("agents")).unwrap();
    std::fs::create_dir_all(world.file("agents/bob")).unwrap();
    std::fs::write(world.file("agents/bob/notes"), "a file in the way").unwrap();
    for agent in ["ada", "bob"] {
        world.send(agent, "go").await;
        world.work(agent).await.unwrap();
    }
    assert!(["drafts", "notes", "inbox"].iter().all(|name| world.file(&format!("agents/ada/{name}")).is_dir()));
    assert_eq!(world.model.requests().len(), 2);
    assert_eq!(std::fs::read_to_string(world.file("agents/bob/notes")).unwrap(), "a file in the way");
}
