//! Time until a sleeping agent begins a turn, in a young and in an old world, while agents fall asleep and wake all
//! the time. The figure is the 99th percentile.
//!
//! An agent that was awake when its message was sent must never be counted.

use std::collections::{HashMap, VecDeque};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ghost_domain::event::{Event, EventKind};
use ghost_domain::{Activity, AgentId, Kind, Party};
use ghost_operations::mail::{self, Chain, NewMessage};
use ghost_world::World;
use tokio::sync::broadcast::Receiver;

use super::age::{Site, line};
use super::journaled_turn::AGENTS;
use crate::measure::{Outcome, now, pause};
use crate::table::Line;

/// Number of rounds for each world.
const ROUNDS: usize = 6;
/// Number of messages to a world in one round.
const MESSAGES: usize = 250;
/// Time between two messages. An agent gets one about every two seconds, and falls asleep after one second.
const PAUSE: Duration = Duration::from_millis(20);

/// Measures the row of this module. Changes the world's file, so that agents fall asleep sooner.
pub(super) async fn measure(world: &Path, young: &Site, old: &Site, url: &str) -> Outcome<Vec<Line>> {
    let file = world.join("world-config.yaml");
    let text = std::fs::read_to_string(&file)?;
    let sleepy = text.replacen("sleep_after_seconds: 3600", "sleep_after_seconds: 1", 1);
    if sleepy == text {
        return Err("the world of the bench does not say when its agents fall asleep".into());
    }
    std::fs::write(&file, sleepy)?;
    let (young_world, old_world) = (young.boot(url).await?, old.boot(url).await?);
    let (mut of_young, mut of_old) = (Vec::new(), Vec::new());
    for round in 0..=ROUNDS {
        let (young, old) = (wakes(&young_world).await?, wakes(&old_world).await?);
        // At the end, every agent has run.
        if round > 0 {
            of_young.extend(young);
            of_old.extend(old);
        }
    }
    for world in [young_world, old_world] {
        world.shutdown("measured").await;
        world.store().close().await;
    }
    eprintln!("wakes: {} of {} in the young world, {} in the old", of_young.len(), ROUNDS * MESSAGES, of_old.len());
    Ok(vec![
        line("age: from a message to the turn of a sleeper, median", of_young.clone(), of_old.clone()),
        line("age: from a message to the turn of a sleeper, p99", slow_end(of_young), slow_end(of_old)),
    ])
}

/// The 99th percentile as a single value.
fn slow_end(mut values: Vec<f64>) -> Vec<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len() * 99 / 100).copied().into_iter().collect()
}

/// Sends messages one after the other. Returns the seconds until the recorded turn, for each message to a sleeping
/// agent.
async fn wakes(world: &Arc<World>) -> Outcome<Vec<f64>> {
    let watcher = tokio::spawn(begun(world.store().feed()));
    let mut sent: HashMap<AgentId, VecDeque<(Instant, bool)>> = HashMap::new();
    for message in 0..MESSAGES {
        let agent_id: AgentId = format!("worker-{}", message % AGENTS).parse()?;
        let asleep = world.directory().card(&agent_id).is_some_and(|card| card.activity == Activity::Asleep);
        let body = "Please fetch the page and tell me what it holds.";
        let ctx = world.ctx().clone();
        let new_message =
            NewMessage::new(&agent_id, Party::Operator("bench".into()), Kind::Message, body, Chain::root(&ctx));
        sent.entry(agent_id).or_default().push_back((now(), asleep));
        world.write(move |w| mail::deliver(w, new_message)).await?;
        pause(PAUSE).await;
    }
    let mut taken = Vec::new();
    for (agent_id, at) in watcher.await?? {
        let (since, asleep) =
            sent.get_mut(&agent_id).and_then(VecDeque::pop_front).ok_or("a turn without a message")?;
        if asleep {
            taken.push((at - since).as_secs_f64());
        }
    }
    Ok(taken)
}

/// The beginnings of turns, in their order, until each message has one.
async fn begun(mut feed: Receiver<Arc<[Event]>>) -> Outcome<Vec<(AgentId, Instant)>> {
    let mut turns = Vec::new();
    while turns.len() < MESSAGES {
        let events = feed.recv().await?;
        let at = now();
        let of_turns = events.iter().filter(|event| event.kind == EventKind::TurnStarted);
        turns.extend(of_turns.filter_map(|event| Some((event.agent_id.clone()?, at))));
    }
    Ok(turns)
}
