//! `limits.awake_max`: who is woken beyond it waits in order, and a restart loses nobody.

use std::sync::{Arc, Mutex};

use ghost_domain::Activity;
use ghost_provider::ErrorKind;
use ghost_provider::testing::{Reply, block, calls, fail};
use serde_json::json;

use super::helpers::{TestWorld, ask, call, id, results, say, send, settle, soon, while_time_passes};
use crate::World;
use crate::tree::agents_with_work;

fn config(agents: usize, awake_max: usize) -> String {
    let agents: String = (0..agents).map(|n| format!("  - {{ id: a{n}, archetype: worker }}\n")).collect();
    format!(
        "world: {{ id: test, name: Test }}\nagents:\n{agents}llm:\n  default_provider: test\n  default_model: test\n  \
         providers: {{ test: {{ kind: openai, base_url: 'http://127.0.0.1:1', concurrency: 16 }} }}\n\
         limits: {{ awake_max: {awake_max} }}\n"
    )
}

fn awake(world: &World) -> usize {
    world.directory().cards().iter().filter(|card| card.activity != Activity::Asleep).count()
}

#[tokio::test]
async fn those_who_wait_are_woken_in_order_as_others_go_to_sleep() {
    let test_world = TestWorld::new(&config(6, 2));
    let order = Arc::new(Mutex::new(Vec::new()));
    let asked = Arc::clone(&order);
    let (world, _) = test_world
        .boot(move |request| {
            asked.lock().unwrap().push(request.agent_id.to_string());
            say("done")
        })
        .await;
    for n in [3, 1, 5, 0, 2, 4] {
        send(&world, &format!("a{n}"), "go").await;
    }
    while_time_passes(&test_world, async {
        while !agents_with_work(world.store()).await.unwrap().is_empty() {
            assert!(awake(&world) <= 2);
            tokio::task::yield_now().await;
        }
    })
    .await;
    let order = order.lock().unwrap().clone();
    assert_eq!(order.len(), 6, "{order:?}");
    assert!(order[..2].iter().all(|agent| ["a3", "a1"].contains(&agent.as_str())), "{order:?}");
    assert!(order[4..].iter().all(|agent| ["a2", "a4"].contains(&agent.as_str())), "{order:?}");
    assert_eq!(world.directory().waiting(), 0);
}

#[tokio::test]
async fn an_agent_that_waits_for_an_answer_leaves_its_place_to_the_one_who_answers() {
    let test_world = TestWorld::new(&config(3, 1));
    let (world, _) = test_world
        .boot(|request| match (request.agent_id.as_str(), results(request).last()) {
            ("a0" | "a1", None) => {
                let to = if request.agent_id.as_str() == "a0" { "a1" } else { "a2" };
                call("syscall.ask", json!({ "agent_id": to, "message": "how many?" }))
            }
            ("a2", _) => say("seven"),
            (_, Some(result)) => say(if result.contains("seven") { "it is seven" } else { "nobody answered" }),
            _ => say("?"),
        })
        .await;
    let ask = while_time_passes(&test_world, ask(&world, "a0", "ask around")).await;
    assert_eq!(ask.reply.as_deref(), Some("it is seven"));
}

#[tokio::test]
async fn a_restart_wakes_those_who_waited_and_a_reload_gives_more_places() {
    let test_world = TestWorld::new(&config(5, 1));
    let (world, model) = test_world.boot(|_| Reply::Hang).await;
    for n in 0..5 {
        send(&world, &format!("a{n}"), "go").await;
    }
    soon("one call", || model.requests().len() == 1).await;
    settle().await;
    assert_eq!((model.requests().len(), world.directory().waiting()), (1, 4));
    world.directory().set_awake_max(3);
    soon("three calls", || model.requests().len() == 3).await;
    assert_eq!(world.directory().waiting(), 2);
    assert!(world.directory().card(&id("a0")).is_some_and(|card| card.activity != Activity::Asleep));
    // The daemon dies: nothing is told to anyone.
    drop(world);
    let (world, _) = test_world.boot(|_| say("done")).await;
    while_time_passes(&test_world, async {
        while !agents_with_work(world.store()).await.unwrap().is_empty() {
            assert!(awake(&world) <= 1);
            tokio::task::yield_now().await;
        }
    })
    .await;
}

// covers: LIM-50
#[tokio::test]
async fn agents_that_wait_for_a_model_that_is_down_keep_no_place_from_others() {
    let test_world = TestWorld::new(
        &config(4, 2)
            .replace("{ id: a3, archetype: worker }", "{ id: a3, archetype: worker, overrides: { model: other } }"),
    );
    let (world, model) = test_world
        .boot(|request| match request.agent_id.as_str() {
            "a3" => say("done"),
            _ => fail(ErrorKind::Network),
        })
        .await;
    for n in 0..3 {
        send(&world, &format!("a{n}"), "go").await;
    }
    let asked = while_time_passes(&test_world, ask(&world, "a3", "go")).await;
    assert_eq!(asked.reply.as_deref(), Some("done"));
    assert!(model.requests().iter().any(|request| request.agent_id.as_str() == "a0"));
}

#[tokio::test]
async fn an_ask_beside_another_call_leaves_its_place_when_that_one_has_ended() {
    let test_world = TestWorld::new(&config(2, 1));
    let (world, _) = test_world
        .boot(|request| match (request.agent_id.as_str(), results(request).len()) {
            ("a0", 0) => calls(vec![
                block("c1", "syscall.ask", json!({ "agent_id": "a1", "message": "how many?" })),
                block("c2", "syscall.agent.list", json!({})),
            ]),
            ("a1", _) => say("seven"),
            (_, _) => say(if results(request)[0].contains("seven") { "it is seven" } else { "nobody answered" }),
        })
        .await;
    let ask = while_time_passes(&test_world, ask(&world, "a0", "ask around")).await;
    assert_eq!(ask.reply.as_deref(), Some("it is seven"));
}
