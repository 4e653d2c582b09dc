//! The loops that keep a world going come back when they fail, say so, and are named until they have done a whole round.

use std::sync::Arc;
use std::time::Duration;

use ghost_domain::event::EventFilter;
use ghost_domain::{Activity, EventKind, Refusal};
use serde_json::json;

use super::rig::{Ground, TWO, ask, id, say, send, settle, until};
use crate::World;
use crate::loops::{MAINTENANCE, SCHEDULES, SIGNAL_ROUTER, WATCHES};

/// How often each loop failed, by the feed.
async fn failures(world: &World, name: &str) -> Vec<serde_json::Value> {
    let filter = EventFilter { kinds: vec![EventKind::LoopFailed.as_str().into()], agent_id: None, channel: None };
    let read = world.store().read(move |r| Box::pin(async move { r.event_list(0, &filter, 100).await }));
    let events = read.await.map_err(Refusal::from).unwrap().0;
    events.into_iter().map(|event| (*event.payload).clone()).filter(|payload| payload["loop"] == name).collect()
}

fn names(world: &World) -> Vec<&'static str> {
    world.loops().down().iter().map(|down| down.name).collect()
}

/// Moves time on in small steps until `done` says so.
async fn pass_until(ground: &Ground, what: &str, done: impl AsyncFn() -> bool) {
    for _ in 0..1_000 {
        if done().await {
            return;
        }
        ground.clock.advance(Duration::from_millis(500));
        settle().await;
    }
    panic!("nothing came of it: {what}");
}

#[tokio::test]
async fn a_loop_that_panics_comes_back_after_longer_and_longer() {
    for name in [MAINTENANCE, SCHEDULES, WATCHES] {
        let ground = Ground::new(TWO);
        let (world, _) = ground.boot(|_| say("here")).await;
        settle().await;
        assert_eq!(world.loops().down(), [], "{name}");
        world.loops().fail_next(name, 3);
        pass_until(&ground, "its first failure", async || names(&world) == [name]).await;
        let down = world.loops().down().remove(0);
        assert!(down.error.contains("as it was told to") && down.failures == 1, "{down:?}");
        pass_until(&ground, "its return", async || names(&world).is_empty()).await;
        let failed = failures(&world, name).await;
        let pauses: Vec<_> = failed.iter().map(|payload| payload["again_in_ms"].clone()).collect();
        assert_eq!(pauses, [json!(1_000), json!(2_000), json!(4_000)], "{name}: {failed:?}");
        assert!(failed.iter().all(|payload| payload["error"].as_str().is_some_and(|words| !words.is_empty())));
    }
}

#[tokio::test]
async fn the_keeper_puts_agents_to_sleep_after_a_failure() {
    let ground = Ground::new(TWO);
    let (world, _) = ground.boot(|_| say("here")).await;
    world.loops().fail_next(MAINTENANCE, 1);
    pass_until(&ground, "the failure", async || !failures(&world, MAINTENANCE).await.is_empty()).await;
    ask(&world, "ada", "hello").await;
    let card = || world.directory().card(&id("ada")).unwrap();
    pass_until(&ground, "its sleep", async || card().activity == Activity::Asleep).await;
}

#[tokio::test]
async fn a_signal_that_could_not_be_passed_on_is_made_good() {
    let ground = Ground::new(TWO);
    let (world, model) = ground.boot(|_| say("here")).await;
    settle().await;
    world.loops().fail_next(SIGNAL_ROUTER, 1);
    // Its commit lives, and so does whoever commits.
    send(&world, "ada", "does anyone hear me?").await;
    settle().await;
    assert_eq!((names(&world), model.asked_by("ada")), (vec![SIGNAL_ROUTER], 0));
    ground.clock.advance(Duration::from_secs(1));
    until(&world, EventKind::TurnFinished, "ada").await;
    settle().await;
    assert_eq!(names(&world), [""; 0]);
    assert_eq!(failures(&world, SIGNAL_ROUTER).await.len(), 1);
    // An answer that was closed unheard reaches whoever waits for it.
    model.hold("ben");
    let asking = tokio::spawn({
        let world = Arc::clone(&world);
        async move { ask(&world, "ben", "are you there?").await }
    });
    pass_until(&ground, "the question", async || model.asked_by("ben") == 1).await;
    world.loops().fail_next(SIGNAL_ROUTER, 1);
    model.release("ben");
    pass_until(&ground, "the answer", async || asking.is_finished()).await;
    assert_eq!(asking.await.unwrap().reply.as_deref(), Some("here"));
    assert!(world.ctx().now().0 < 1_000_000 + 600_000, "it was its deadline that ended it");
}

#[tokio::test]
async fn a_world_that_shuts_down_ends_its_loops() {
    let ground = Ground::new(TWO);
    let (world, _) = ground.boot(|_| say("here")).await;
    world.loops().fail_next(MAINTENANCE, 1);
    pass_until(&ground, "the failure", async || names(&world) == [MAINTENANCE]).await;
    world.shutdown("test").await;
    ground.clock.advance(Duration::from_secs(60));
    settle().await;
    assert_eq!(names(&world), [MAINTENANCE], "nothing runs any more that could say otherwise");
}
