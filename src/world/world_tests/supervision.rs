//! If a supervisor dies, the root starts another one, which continues its work.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ghost_domain::{AgentKind, AgentStatus, Desired, EventKind};
use ghost_operations::agents::{self, NewAgent};
use ghost_operations::mail::Chain;

use super::helpers::{TWO, TestWorld, ask, id, operator, say, send, soon, until, write};
use crate::World;

const TEAM: &str = "\
world: { id: test, name: Test }
agents:
  - { id: ada, archetype: worker, team: desk }
  - { id: ben, archetype: worker }
teams:
  - { name: desk }
llm:
  default_provider: test
  default_model: test
  providers: { test: { kind: openai, base_url: 'http://127.0.0.1:1' } }
";

/// Kills the supervisor of a team. Later messages to it are lost. The result tells whether another one has started.
fn kill(world: &World, team: Option<&str>) -> impl Fn() -> bool {
    let (team, signal_router) = (team.map(Arc::<str>::from), Arc::clone(&world.tree.signal_router));
    let supervisor = signal_router.supervisor(team.as_ref()).unwrap();
    supervisor.kill();
    move || signal_router.supervisor(team.as_ref()).is_some_and(|now| now.get_id() != supervisor.get_id())
}

fn status(world: &World, agent: &str) -> AgentStatus {
    world.directory().card(&id(agent)).unwrap().status
}

#[tokio::test]
async fn a_restart_that_waited_in_a_dead_supervisor_happens() {
    for (file, team) in [(TWO, None), (TEAM, Some("desk"))] {
        let test_world = TestWorld::new(file);
        let fell = AtomicBool::new(false);
        let (world, _) = test_world
            .boot(move |_| {
                assert!(fell.swap(true, Ordering::SeqCst), "the model falls over");
                say("up again")
            })
            .await;
        send(&world, "ada", "fall").await;
        until(&world, EventKind::AgentCrashed, "ada").await;
        soon("the back-off", || status(&world, "ada") == AgentStatus::Restarting).await;
        // Time does not move, so a timer of the dead supervisor would never fire.
        soon("another supervisor", kill(&world, team)).await;
        soon("the restart", || status(&world, "ada") == AgentStatus::Running).await;
        until(&world, EventKind::AgentRestarted, "ada").await;
        until(&world, EventKind::TurnFinished, "ada").await;
    }
}

#[tokio::test]
async fn a_stop_that_a_dead_supervisor_had_begun_completes() {
    for (file, team) in [(TWO, None), (TEAM, Some("desk"))] {
        let test_world = TestWorld::new(file);
        let (world, model) = test_world.boot(|_| say("done")).await;
        model.hold("ada");
        send(&world, "ada", "take your time").await;
        soon("the call begins", || model.asked_by("ada") == 1).await;
        write!(world, |w| agents::stop(w, &operator(), &id("ada"), None)).unwrap();
        soon("its grace period", || status(&world, "ada") == AgentStatus::Stopping).await;
        soon("another supervisor", kill(&world, team)).await;
        soon("the end of ada", || status(&world, "ada") == AgentStatus::Stopped).await;
        until(&world, EventKind::AgentStopped, "ada").await;
    }
}

#[tokio::test]
async fn orders_that_a_dead_supervisor_never_read_are_executed() {
    let test_world = TestWorld::new(TWO);
    let (world, model) = test_world.boot(|_| say("here")).await;
    world.stop_agent(&operator(), &id("ben"), None).await.unwrap();
    let back = kill(&world, None);
    // Committed while no supervisor runs. The records show the orders, but no message announces them.
    write!(world, |w| {
        agents::stop(w, &operator(), &id("ada"), None)?;
        agents::start(w, &operator(), &id("ben"))?;
        let new = NewAgent {
            agent_id: id("dan"),
            archetype: "worker".into(),
            name: "dan".into(),
            team: None,
            kind: AgentKind::Dynamic,
            desired: Desired::Running,
            overrides: serde_json::Value::Null,
            daily_money: None,
            heartbeat: None,
            owner: None,
            goal: Some("begin".into()),
            chain: Chain::root(w.ctx),
        };
        agents::create(w, &operator(), new)
    })
    .unwrap();
    assert!(!back(), "the orders were too late for this test");
    soon("another supervisor", back).await;
    soon("the end of ada", || status(&world, "ada") == AgentStatus::Stopped).await;
    soon("the start of ben", || status(&world, "ben") == AgentStatus::Running).await;
    soon("the goal of dan", || model.asked_by("dan") == 1).await;
    assert_eq!(ask(&world, "ben", "are you there?").await.reply.unwrap(), "here");
}
