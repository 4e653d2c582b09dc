//! Sets timers, cron jobs and heartbeats off when they fall due (SCHED-02). Sleeps until the next one, and looks again
//! whenever a schedule changes.
//!
//! Must never: decide what is due or what was missed (the commons do), or be the only place that remembers anything.

use std::sync::Arc;
use std::time::Duration;

use ghost_config::plan::Plan;
use ghost_domain::schedule::slots::minute_of_day;
use ghost_domain::{AgentId, Refusal, Timestamp};
use ghost_rules::schedules::{self, Beat};

use crate::loops::SCHEDULES;
use crate::tree::Tree;

/// The longest time between two looks at the store.
const LOOK_AGAIN: Duration = Duration::from_secs(30);
/// The longest sleep: a clock that was moved is noticed by then, and what that makes due is set off.
const NOTICE: Duration = Duration::from_secs(3);
/// The wait after a store that failed.
const RETRY: Duration = Duration::from_secs(1);

/// How a heartbeat's answer must look, below what it is asked (HB-02).
const ANSWER: &str = "If nothing of this needs attention, answer with exactly HEARTBEAT_OK. \
    If something does, answer with what it is, without that word.";

/// Goes its rounds until it is aborted. Slots before `since` were missed.
pub(crate) async fn rounds(tree: Arc<Tree>, mut since: Timestamp) -> Result<(), String> {
    let ctx = tree.engine.services.ctx.clone();
    let clock = Arc::clone(&ctx.ports.clock);
    let mut rings = tree.signal_router.schedules();
    loop {
        rings.mark_unchanged();
        if tree.directory.is_paused() {
            tree.loops.round(SCHEDULES);
            if rings.changed().await.is_err() {
                return Ok(());
            }
            since = ctx.now();
            continue;
        }
        let next = match round(&tree, since).await {
            Ok(next) => next.unwrap_or(Timestamp(i64::MAX)),
            Err(refusal) => {
                tracing::warn!(%refusal, "schedules could not be looked at; they are tried again");
                clock.sleep(RETRY).await;
                continue;
            }
        };
        tree.loops.round(SCHEDULES);
        let looked = ctx.now();
        let until = next.min(looked.plus(LOOK_AGAIN));
        loop {
            let now = ctx.now();
            if now >= until || now < looked {
                break;
            }
            tokio::select! {
                biased;
                rung = rings.changed() => {
                    if rung.is_err() {
                        return Ok(());
                    }
                    break;
                }
                () = clock.sleep_until(until.min(now.plus(NOTICE))) => {}
            }
        }
    }
}

/// Sets off what is due and gives when the next falls due.
async fn round(tree: &Tree, since: Timestamp) -> Result<Option<Timestamp>, Refusal> {
    let (store, ctx) = (&tree.engine.services.store, &tree.engine.services.ctx);
    loop {
        let next = store.read(|r| Box::pin(async move { r.schedule_next_at().await })).await.map_err(Refusal::from)?;
        // The writer is not asked as long as nothing is due.
        if next.is_none_or(|next| next > ctx.now()) || tree.directory.is_paused() {
            return Ok(next);
        }
        let (ctx, plan) = (ctx.clone(), tree.engine.services.plan());
        store
            .write(move |w| {
                Box::pin(async move {
                    let beats = move |agent_id: &AgentId, at: Timestamp| beat(&plan, agent_id, at);
                    schedules::due(w, &ctx, since, &beats).await
                })
            })
            .await?;
    }
}

/// What the plan says of an agent's heartbeat now.
fn beat(plan: &Plan, agent_id: &AgentId, at: Timestamp) -> Beat {
    let Some(heartbeat) = plan.heartbeats.get(agent_id) else { return Beat::Resting };
    let awake = heartbeat.active.as_ref().is_none_or(|hours| {
        // A zone that the configuration took is there; if not, a heartbeat too many does no harm.
        minute_of_day(at, &hours.timezone).map_or(true, |minute| hours.covers(minute))
    });
    if !awake {
        return Beat::Resting;
    }
    if heartbeat.empty {
        return Beat::Empty;
    }
    let asked = heartbeat.prompt.as_deref().unwrap_or("Look around: is there anything that needs your attention now?");
    Beat::Prompt(format!("{}\n\n{ANSWER}", asked.trim_end()))
}
