//! The loop that fires timers, cron jobs and heartbeats when they are due. It sleeps
//! until the next one is due, and reads again whenever a schedule changes.
//!
//! This loop must never decide which schedules are due or were missed (the world rules do). It must
//! never hold state that is not in the store.

use std::sync::Arc;
use std::time::Duration;

use ghost_config::plan::Plan;
use ghost_domain::schedule::slots::minute_of_day;
use ghost_domain::{AgentId, Refusal, Timestamp};
use ghost_operations::schedules::{self, Beat};

use crate::loops::SCHEDULES;
use crate::tree::Tree;

/// Maximum time between two reads of the store.
const READ_AGAIN: Duration = Duration::from_secs(30);
/// Maximum length of one sleep. The loop then notices that the system clock was moved.
const CLOCK_CHECK: Duration = Duration::from_secs(3);
/// The pause after the store failed.
const RETRY: Duration = Duration::from_secs(1);

/// Runs rounds until it is aborted. Slots before `since` were missed.
pub(crate) async fn rounds(tree: Arc<Tree>, mut since: Timestamp) -> Result<(), String> {
    let ctx = tree.engine.services.ctx.clone();
    let clock = Arc::clone(&ctx.ports.clock);
    let mut changes = tree.signal_router.schedules();
    loop {
        changes.mark_unchanged();
        if tree.directory.is_paused() {
            tree.loops.round(SCHEDULES);
            if changes.changed().await.is_err() {
                return Ok(());
            }
            since = ctx.now();
            continue;
        }
        // After a jump back, a slot that is due now was not missed.
        since = since.min(ctx.now());
        let next = match round(&tree, since).await {
            Ok(next) => next.unwrap_or(Timestamp(i64::MAX)),
            Err(refusal) => {
                tracing::warn!(%refusal, "schedules could not be read; trying again");
                clock.sleep(RETRY).await;
                continue;
            }
        };
        tree.loops.round(SCHEDULES);
        let read_at = ctx.now();
        let until = next.min(read_at.plus(READ_AGAIN));
        loop {
            let now = ctx.now();
            if now >= until || now < read_at {
                break;
            }
            tokio::select! {
                biased;
                changed = changes.changed() => {
                    if changed.is_err() {
                        return Ok(());
                    }
                    break;
                }
                () = clock.sleep_until(until.min(now.plus(CLOCK_CHECK))) => {}
            }
        }
    }
}

/// Fires all due schedules. Returns when the next schedule is due.
async fn round(tree: &Tree, since: Timestamp) -> Result<Option<Timestamp>, Refusal> {
    let (store, ctx) = (&tree.engine.services.store, &tree.engine.services.ctx);
    loop {
        let next = store.read(|r| r.schedule_next_at()).await.map_err(Refusal::from)?;
        // A read is enough as long as nothing is due.
        if next.is_none_or(|next| next > ctx.now()) || tree.directory.is_paused() {
            return Ok(next);
        }
        let (plan, directory) = (tree.engine.services.plan(), Arc::clone(&tree.directory));
        ctx.write(store, move |w| {
            let beats = move |agent_id: &AgentId, at: Timestamp| {
                let card = directory.card(agent_id);
                beat(&plan, agent_id, card.as_ref().map_or("", |card| &*card.archetype), at)
            };
            schedules::due(w, since, &beats)
        })
        .await?;
    }
}

/// The plan's settings for an agent's heartbeat now.
fn beat(plan: &Plan, agent_id: &AgentId, archetype: &str, at: Timestamp) -> Beat {
    let Some(heartbeat) = plan.heartbeat(agent_id, archetype) else { return Beat::Resting };
    let awake = heartbeat.active.as_ref().is_none_or(|hours| {
        // The configuration was checked to have a valid time zone. If the zone fails anyway, the heartbeat fires.
        minute_of_day(at, &hours.timezone).map_or(true, |minute| hours.covers(minute))
    });
    if !awake {
        return Beat::Resting;
    }
    if heartbeat.empty {
        return Beat::Empty;
    }
    Beat::Prompt(heartbeat.prompt.clone())
}
