//! Messages to agents that fall asleep whenever they can, from eight senders at once. Time stands still, so that no sweep makes
//! good what a lost wake-up leaves: a message that nobody wakes for lies there for ever, and fails this.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ghost_agent::AgentMsg;
use ghost_domain::envelope::Kind;
use ghost_domain::event::EventFilter;
use ghost_domain::{EventKind, Party, Timestamp};
use ghost_rules::mail::{self, Chain, NewMessage};

use super::rig::{Ground, id, say, write};
use crate::World;
use crate::pause::waiting;

const SENDERS: usize = 8;
const AGENTS: usize = 16;

/// Looks without any message less after which nothing is coming any more.
const PATIENCE: usize = 200_000;

fn config() -> String {
    let agents: String = (0..AGENTS).map(|n| format!("  - {{ id: a{n}, archetype: worker }}\n")).collect();
    format!(
        "world: {{ id: test, name: Test }}\nagents:\n{agents}llm:\n  default_provider: test\n  default_model: test\n  \
         providers: {{ test: {{ kind: openai, base_url: 'http://127.0.0.1:1' }} }}\n\
         limits: {{ sweep_seconds: 86400, history_turns: 0, inbox_max: 100000, agent_turns_per_minute: 1000000 }}\n"
    )
}

async fn found(world: &World) -> usize {
    let kinds = vec![EventKind::WorldSweepFound.as_str().to_owned()];
    let filter = EventFilter { kinds, agent_id: None, channel: None };
    let read = world.store().read(move |r| Box::pin(async move { r.event_list(0, &filter, 10).await }));
    read.await.map_err(ghost_domain::Refusal::from).unwrap().0.len()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn agents_that_fall_asleep_at_once_miss_no_message() {
    let messages = std::env::var("GHOST_SLEEP_STORM").map_or(20_000, |count| count.parse().unwrap());
    let ground = Ground::new(&config());
    let (world, _) = ground.boot(|_| say("read")).await;
    let over = Arc::new(AtomicBool::new(false));
    let (maintenance, done) = (Arc::clone(&world), Arc::clone(&over));
    let lullaby = tokio::spawn(async move {
        let mut naps = 0_usize;
        while !done.load(Ordering::Acquire) {
            for actor in maintenance.directory().drowsy(Timestamp(i64::MAX)) {
                naps += usize::from(actor.cast(AgentMsg::TrySleep).is_ok());
            }
            tokio::task::yield_now().await;
        }
        naps
    });
    let senders: Vec<_> = (0..SENDERS)
        .map(|sender| {
            let world = Arc::clone(&world);
            tokio::spawn(async move {
                for n in 0..messages / SENDERS {
                    let to = id(&format!("a{}", (n * 7 + sender * 3) % AGENTS));
                    let sent = write!(world, |w, ctx| {
                        let by = Party::Operator("t".into());
                        let new_message = NewMessage::new(&to, by, Kind::Message, "hello", Chain::root(&ctx));
                        mail::deliver(w, &ctx, new_message).await
                    });
                    sent.unwrap();
                }
            })
        })
        .collect();
    for sender in senders {
        sender.await.unwrap();
    }
    let (mut before, mut patience) = (usize::MAX, PATIENCE);
    loop {
        let now = waiting(world.store()).await.unwrap().len();
        if now == 0 {
            break;
        }
        patience = if now == before { patience - 1 } else { PATIENCE };
        assert!(patience > 0, "{now} agents have mail that nobody wakes them for");
        before = now;
        tokio::task::yield_now().await;
    }
    over.store(true, Ordering::Release);
    let naps = lullaby.await.unwrap();
    assert!(naps > messages / 100, "hardly anyone fell asleep: {naps}");
    assert_eq!(found(&world).await, 0);
}
