//! The two loops that follow the clock: one watches the wall clock for jumps, the other fires timers, cron jobs and heartbeats
//! when they are due. On a jump the rules compute again what was computed from the clock, and the world follows the clock, in
//! one transaction: no deadline is judged by a clock that it was not computed from. The world rules decide which schedules are
//! due or were missed; the loops hold no state that is not in the store.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use ghost_config::plan::Plan;
use ghost_domain::schedule::slots::minute_of_day;
use ghost_domain::wall_clock::WatchedClock;
use ghost_domain::{AgentId, Clock, Refusal, Timestamp};
use ghost_operations::clock;
use ghost_operations::schedules::{self, Beat};

use crate::loops::{CLOCK, SCHEDULES};
use crate::tree::Tree;

/// Time between two looks.
const EVERY: Duration = Duration::from_secs(1);
/// Time between two records of the time that the daemon has run, while it matters.
const COUNT_EVERY: Duration = Duration::from_secs(60);

/// Runs rounds until it is aborted.
pub(crate) async fn watch_jumps(tree: Arc<Tree>) -> Result<(), String> {
    let watched = Arc::clone(&tree.engine.services.ctx.clock);
    let mut counted = watched.steady();
    loop {
        if let Some(jump) = watched.jump() {
            tracing::warn!(from = %jump.from, to = %jump.to, "the wall clock jumped");
            match follow(&tree, &watched).await {
                Ok(()) => counted = watched.steady(),
                Err(refusal) => tracing::warn!(%refusal, "the jump could not be recorded; trying again"),
            }
        }
        let time = watched.steady().since(counted);
        if time >= COUNT_EVERY {
            match count(&tree, time).await {
                Ok(()) => counted = counted.plus(time),
                Err(refusal) => tracing::warn!(%refusal, "the time that the daemon has run could not be recorded"),
            }
        }
        tree.loops.round(CLOCK);
        watched.sleep(EVERY).await;
    }
}

/// Records a jump and follows it. Rules judge deadlines inside of transactions, and these run one after
/// another: each sees the clock and the deadlines from before the jump, or both from after it.
async fn follow(tree: &Tree, watched: &Arc<WatchedClock>) -> Result<(), Refusal> {
    let followed = Arc::new(AtomicI64::new(0));
    let (own, by_ms) = (Arc::clone(watched), Arc::clone(&followed));
    let recorded: Result<(), Refusal> = tree
        .engine
        .services
        .write(move |w| {
            let Some(jump) = own.jump() else { return Ok(()) };
            own.follow(jump.by_ms());
            // Undone at once, also if this panics: the next transaction must not see a clock that its deadlines were
            // not computed from.
            let undo = Undo(Some((&own, jump.by_ms())));
            clock::jumped(w, jump)?;
            undo.disarm();
            by_ms.store(jump.by_ms(), Ordering::Release);
            Ok(())
        })
        .await;
    if recorded.is_err() {
        watched.follow(followed.load(Ordering::Acquire).saturating_neg());
    }
    recorded
}

/// Takes back that a jump was followed, unless it is disarmed.
struct Undo<'c>(Option<(&'c WatchedClock, i64)>);

impl Undo<'_> {
    fn disarm(mut self) {
        self.0 = None;
    }
}

impl Drop for Undo<'_> {
    fn drop(&mut self) {
        if let Some((clock, by_ms)) = self.0 {
            clock.follow(by_ms.saturating_neg());
        }
    }
}

/// Counts the time that the daemon has run, if the clock is in doubt.
async fn count(tree: &Tree, time: Duration) -> Result<(), Refusal> {
    let (store, now) = (&tree.engine.services.store, tree.engine.services.ctx.now());
    let state = store.read(clock::state).await?;
    if state.jump.is_some() || !state.doubt.is_over() {
        store.write(move |w| clock::ran(w, now, time)).await?;
    }
    Ok(())
}

/// Maximum time between two reads of the store.
const READ_AGAIN: Duration = Duration::from_secs(30);
/// Maximum length of one sleep. The loop then notices that the system clock was moved.
const CLOCK_CHECK: Duration = Duration::from_secs(3);
/// The pause after the store failed.
const RETRY: Duration = Duration::from_secs(1);

/// Runs rounds until it is aborted. Slots before `since` were missed.
pub(crate) async fn fire_schedules(tree: Arc<Tree>, mut since: Timestamp) -> Result<(), String> {
    let ctx = tree.engine.services.ctx.clone();
    let clock = Arc::clone(&ctx.ports.clock);
    let mut changes = tree.signal_router.schedules.subscribe();
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
