//! Eight senders send messages to agents that fall asleep whenever they can. Time does not move, so no sweep
//! repairs a lost wake-up: its message stays in the inbox and fails the test.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use ghost_agent::AgentMsg;
use ghost_domain::event::EventFilter;
use ghost_domain::mail::Kind;
use ghost_domain::{EventKind, Party, Timestamp};
use ghost_operations::mail::{self, Chain, NewMessage};

use super::helpers::{TestWorld, id, read, say, write};
use crate::World;
use crate::tree::agents_with_work;

const SENDERS: usize = 8;
const AGENTS: usize = 16;

/// Messages that a sender sends before it waits until an agent is told to sleep. So agents fall asleep throughout the
/// storm, however the machine schedules the threads.
const BETWEEN_SLEEPS: usize = 10;

/// Number of checks without progress after which the test fails.
const PATIENCE: usize = 200_000;

fn config(awake_max: usize) -> String {
    let agents: String = (0..AGENTS).map(|n| format!("  - {{ id: a{n}, archetype: worker }}\n")).collect();
    format!(
        "world: {{ id: test, name: Test }}\nagents:\n{agents}llm:\n  default_provider: test\n  default_model: test\n  \
         providers: {{ test: {{ kind: openai, base_url: 'http://127.0.0.1:1' }} }}\n\
         limits: {{ sweep_seconds: 86400, session_tokens: 0, inbox_max: 100000, agent_turns_per_minute: 1000000, \
         awake_max: {awake_max} }}\n"
    )
}

async fn found(world: &World) -> usize {
    let kinds = vec![EventKind::WorldSweepFound.as_str().to_owned()];
    let filter = EventFilter { kinds, agent_id: None, channel: None };
    read!(world, |r| r.event_list(0, &filter, 10)?).0.len()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn agents_that_fall_asleep_at_any_time_miss_no_message() {
    storm(20_000, AGENTS).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn agents_that_wait_for_a_place_miss_no_message() {
    storm(6_000, 3).await;
}

async fn storm(messages: usize, awake_max: usize) {
    let messages = std::env::var("GHOST_SLEEP_STORM").map_or(messages, |count| count.parse().unwrap());
    let test_world = TestWorld::new(&config(awake_max));
    let (world, _) = test_world.boot(|_| say("read")).await;
    let over = Arc::new(AtomicBool::new(false));
    let naps = Arc::new(AtomicUsize::new(0));
    let (maintenance, done, told) = (Arc::clone(&world), Arc::clone(&over), Arc::clone(&naps));
    let sleeper = tokio::spawn(async move {
        while !done.load(Ordering::Acquire) {
            for actor in maintenance.directory().idle_actors(Timestamp(i64::MAX)) {
                told.fetch_add(usize::from(actor.cast(AgentMsg::TrySleep).is_ok()), Ordering::AcqRel);
            }
            tokio::task::yield_now().await;
        }
    });
    let senders: Vec<_> = (0..SENDERS)
        .map(|sender| {
            let (world, naps) = (Arc::clone(&world), Arc::clone(&naps));
            tokio::spawn(async move {
                let mut seen = 0;
                for n in 0..messages / SENDERS {
                    let to = id(&format!("a{}", (n * 7 + sender * 3) % AGENTS));
                    let sent = write!(world, |w| {
                        let by = Party::Operator("t".into());
                        let new_message = NewMessage::new(&to, by, Kind::Message, "hello", Chain::root(w.ctx));
                        mail::deliver(w, new_message)
                    });
                    sent.unwrap();
                    if n % BETWEEN_SLEEPS == 0 {
                        // With no work left all agents may be asleep: then only the next message leads to a sleep.
                        while naps.load(Ordering::Acquire) == seen
                            && !agents_with_work(world.store()).await.unwrap().is_empty()
                        {
                            tokio::task::yield_now().await;
                        }
                        seen = naps.load(Ordering::Acquire);
                    }
                }
            })
        })
        .collect();
    for sender in senders {
        sender.await.unwrap();
    }
    let (mut before, mut patience) = (usize::MAX, PATIENCE);
    loop {
        let now = agents_with_work(world.store()).await.unwrap().len();
        if now == 0 {
            break;
        }
        patience = if now == before { patience - 1 } else { PATIENCE };
        assert!(patience > 0, "{now} agents have mail but no wake-up");
        before = now;
        tokio::task::yield_now().await;
    }
    over.store(true, Ordering::Release);
    sleeper.await.unwrap();
    assert!(naps.load(Ordering::Acquire) > 0, "no agent fell asleep");
    assert_eq!(found(&world).await, 0);
}
