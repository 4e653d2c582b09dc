//! A loop that fails starts again, writes an event, and is reported as down until it has completed
//! a round.

use std::sync::Arc;
use std::time::Duration;

use ghost_domain::event::EventFilter;
use ghost_domain::{Activity, EventKind, Refusal};
use serde_json::json;

use super::helpers::{TWO, TestWorld, ask, id, say, send, settle, until};
use crate::World;
use crate::loops::{MAINTENANCE, SCHEDULES, SIGNAL_ROUTER, WATCHES};

/// The payloads of the events about a loop's failures.
async fn failures(world: &World, name: &str) -> Vec<serde_json::Value> {
    let filter = EventFilter { kinds: vec![EventKind::LoopFailed.as_str().into()], agent_id: None, channel: None };
    let read = world.store().read(move |r| r.event_list(0, &filter, 100));
    let events = read.await.map_err(Refusal::from).unwrap().0;
    events.into_iter().map(|event| (*event.payload).clone()).filter(|payload| payload["loop"] == name).collect()
}

fn names(world: &World) -> Vec<&'static str> {
    world.loops().down().iter().map(|down| down.name).collect()
}

/// Advances time in small steps until `done` returns true.
async fn pass_until(test_world: &TestWorld, what: &str, done: impl AsyncFn() -> bool) {
    for _ in 0..1_000 {
        if done().await {
            return;
        }
        test_world.clock.advance(Duration::from_millis(500));
        settle().await;
    }
    panic!("nothing came of it: {what}");
}

#[tokio::test]
async fn a_loop_that_panics_restarts_after_growing_pauses() {
    for name in [MAINTENANCE, SCHEDULES, WATCHES] {
        let test_world = TestWorld::new(TWO);
        let (world, _) = test_world.boot(|_| say("here")).await;
        settle().await;
        assert_eq!(world.loops().down(), [], "{name}");
        world.loops().fail_next(name, 3);
        pass_until(&test_world, "its first failure", async || names(&world) == [name]).await;
        let down = world.loops().down().remove(0);
        assert!(down.error.contains("as a test asked") && down.failures == 1, "{down:?}");
        pass_until(&test_world, "its return", async || names(&world).is_empty()).await;
        let failed = failures(&world, name).await;
        let pauses: Vec<_> = failed.iter().map(|payload| payload["again_in_ms"].clone()).collect();
        assert_eq!(pauses, [json!(1_000), json!(2_000), json!(4_000)], "{name}: {failed:?}");
        assert!(failed.iter().all(|payload| payload["error"].as_str().is_some_and(|words| !words.is_empty())));
    }
}

#[tokio::test]
async fn maintenance_puts_agents_to_sleep_after_a_failure() {
    let test_world = TestWorld::new(TWO);
    let (world, _) = test_world.boot(|_| say("here")).await;
    world.loops().fail_next(MAINTENANCE, 1);
    pass_until(&test_world, "the failure", async || !failures(&world, MAINTENANCE).await.is_empty()).await;
    ask(&world, "ada", "hello").await;
    let card = || world.directory().card(&id("ada")).unwrap();
    pass_until(&test_world, "its sleep", async || card().activity == Activity::Asleep).await;
}

#[tokio::test]
async fn the_effect_of_a_lost_signal_is_repaired() {
    let test_world = TestWorld::new(TWO);
    let (world, model) = test_world.boot(|_| say("here")).await;
    settle().await;
    world.loops().fail_next(SIGNAL_ROUTER, 1);
    // The commit succeeds, and the writer still runs.
    send(&world, "ada", "does anyone hear me?").await;
    settle().await;
    assert_eq!((names(&world), model.asked_by("ada")), (vec![SIGNAL_ROUTER], 0));
    test_world.clock.advance(Duration::from_secs(1));
    until(&world, EventKind::TurnFinished, "ada").await;
    settle().await;
    assert_eq!(names(&world), [""; 0]);
    assert_eq!(failures(&world, SIGNAL_ROUTER).await.len(), 1);
    // A waiting caller gets the answer although its signal was lost.
    model.hold("ben");
    let asking = tokio::spawn({
        let world = Arc::clone(&world);
        async move { ask(&world, "ben", "are you there?").await }
    });
    pass_until(&test_world, "the question", async || model.asked_by("ben") == 1).await;
    world.loops().fail_next(SIGNAL_ROUTER, 1);
    model.release("ben");
    pass_until(&test_world, "the answer", async || asking.is_finished()).await;
    assert_eq!(asking.await.unwrap().reply.as_deref(), Some("here"));
    assert!(world.ctx().now().0 < 1_000_000 + 600_000, "it was its deadline that ended it");
}

#[tokio::test]
async fn a_world_that_shuts_down_ends_its_loops() {
    let test_world = TestWorld::new(TWO);
    let (world, _) = test_world.boot(|_| say("here")).await;
    world.loops().fail_next(MAINTENANCE, 1);
    pass_until(&test_world, "the failure", async || names(&world) == [MAINTENANCE]).await;
    world.shutdown("test").await;
    test_world.clock.advance(Duration::from_secs(60));
    settle().await;
    assert_eq!(names(&world), [MAINTENANCE], "nothing runs any more that could say otherwise");
}
