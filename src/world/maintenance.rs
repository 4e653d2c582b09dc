//! Maintenance: the slow periodic work of a world. It puts idle agents to sleep, expires asks from outside, ends overdue
//! droids, deletes old rows, and sweeps for mail without a wake-up. The sweep is a backstop; if it finds mail, the daemon has a bug.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ghost_agent::AgentMsg;
use ghost_domain::event::{EventKind, NewEvent};
use ghost_domain::{AgentId, Limits, Refusal};
use ghost_operations::{agents, approvals, asks, droids, retention};
use serde_json::json;

use crate::loops::MAINTENANCE;
use crate::tree::Tree;

/// Time between two rounds.
const ROUND_EVERY: Duration = Duration::from_secs(5);

/// Maximum number of stopped agents, created at run time, that one sweep checks.
const HELPERS: usize = 1_000;

/// Time between two rounds of deleting old rows.
const PRUNE_EVERY: Duration = Duration::from_secs(3_600);
/// Time from the start to the first of them: a machine sets its clock right in the minutes after it was switched on.
const FIRST_PRUNE: Duration = Duration::from_secs(900);

/// Time between two checks of the size of the data.
const SIZE_CHECK_EVERY: Duration = Duration::from_secs(60);

/// Runs rounds until it is aborted.
pub(crate) async fn rounds(tree: Arc<Tree>) -> Result<(), String> {
    let ctx = tree.engine.services.ctx.clone();
    let clock = Arc::clone(&ctx.ports.clock);
    let mut swept_at = clock.steady();
    let mut prune_at = clock.steady().plus(FIRST_PRUNE);
    let (mut size_checked_at, mut warned) = (None, false);
    let mut suspects = BTreeMap::new();
    loop {
        clock.sleep(ROUND_EVERY).await;
        let now = clock.steady();
        let limits = ctx.limits();
        for actor in tree.directory.idle_actors(now.minus(Limits::seconds(limits.sleep_after_seconds))) {
            // An actor that has just ended needs no sleep.
            drop(actor.cast(AgentMsg::TrySleep));
        }
        if let Err(refusal) = expire_asks(&tree).await {
            tracing::warn!(%refusal, "asks could not be expired");
        }
        if let Err(refusal) = droids::end_overdue(&tree.engine.services.store, &ctx).await {
            tracing::warn!(%refusal, "droids that are past their time could not be ended");
        }
        if now.since(swept_at) >= Limits::seconds(limits.sweep_seconds) {
            swept_at = now;
            match sweep(&tree, suspects).await {
                Ok(found) => suspects = found,
                Err(refusal) => {
                    tracing::warn!(%refusal, "the sweep failed");
                    suspects = BTreeMap::new();
                }
            }
            if let Err(refusal) = expire_approvals(&tree).await {
                tracing::warn!(%refusal, "approvals could not be expired");
            }
            let droids = tree.directory.stopped_droids(HELPERS);
            droids::archive(&tree.engine.services.store, &ctx, droids).await;
            let helpers = tree.directory.stopped_helpers(HELPERS);
            if let Err(refusal) = agents::end_helpers(&tree.engine.services.store, &ctx, helpers).await {
                tracing::warn!(%refusal, "agents that are no longer needed could not be deleted");
            }
        }
        if now >= prune_at {
            prune_at = now.plus(PRUNE_EVERY);
            match retention::sweep(&tree.engine.services.store, &ctx).await {
                Ok(0) => {}
                Ok(rows) => tracing::info!(rows, "deleted rows that are past their retention"),
                Err(refusal) => tracing::warn!(%refusal, "deleting old rows failed"),
            }
        }
        if size_checked_at.is_none_or(|at| now.since(at) >= SIZE_CHECK_EVERY) {
            size_checked_at = Some(now);
            match check_size(&tree, warned).await {
                Ok(warns) => warned = warns,
                Err(refusal) => tracing::warn!(%refusal, "the size of the data could not be checked"),
            }
        }
        tree.loops.round(MAINTENANCE);
    }
}

/// Closes requests of calls whose turns do not wait for them any more. A waiting turn closes its own.
async fn expire_approvals(tree: &Tree) -> Result<(), Refusal> {
    let services = &tree.engine.services;
    let pending = services.store.read(|r| r.approval_count_pending()).await;
    if pending.map_err(Refusal::from)? == 0 {
        return Ok(());
    }
    services.write(approvals::expire_due).await
}

/// Deletes old rows if the database is over its size limit. Writes one warning when the size passes the warning limit.
/// Returns whether it is past that limit.
async fn check_size(tree: &Tree, warned: bool) -> Result<bool, Refusal> {
    let (store, ctx) = (&tree.engine.services.store, &tree.engine.services.ctx);
    let mut stored = retention::stored(store, ctx).await?;
    if stored.over {
        let rows = retention::sweep_bytes(store, ctx).await?;
        tracing::info!(rows, "deleted old rows, because the database is over its size limit");
        stored = retention::stored(store, ctx).await?;
    }
    if (stored.warns || stored.over) && !warned {
        let limits = ctx.limits();
        let (limit, limit_bytes) = match stored.over {
            true => ("store_bytes_max", limits.store_bytes_max),
            false => ("store_bytes_warn", limits.store_bytes_warn),
        };
        let bytes = stored.bytes;
        let warning = format!("the database uses {bytes} bytes, more than {limit_bytes} (`limits.{limit}`)");
        tracing::warn!(warning);
        let event = NewEvent::new(
            EventKind::WorldWarning,
            json!({ "warning": warning, "limit": limit, "value": bytes, "most": limit_bytes }),
        );
        ctx.write(store, move |w| w.emit(event)).await?;
    }
    Ok(stored.warns || stored.over)
}

/// Expires asks that are past their deadline. An asking agent's own turn expires its asks; this covers all other
/// askers.
async fn expire_asks(tree: &Tree) -> Result<(), Refusal> {
    let (store, ctx) = (&tree.engine.services.store, &tree.engine.services.ctx);
    let now = ctx.now();
    let due: Vec<_> = store
        .read(|r| r.asks_open())
        .await
        .map_err(Refusal::from)?
        .into_iter()
        .filter(|ask| ask.deadline_at <= now)
        .map(|ask| ask.ask_id)
        .collect();
    for ask_id in due {
        ctx.write(store, move |w| asks::expire(w, ask_id)).await?;
    }
    Ok(())
}

/// Searches for agents that have had mail since the last sweep without a wake-up. Returns the
/// agents that wait now. An agent found once may have a wake-up on its way, so the sweep repairs
/// and reports only an agent that two sweeps in a row find.
async fn sweep(tree: &Tree, suspects: BTreeMap<AgentId, u64>) -> Result<BTreeMap<AgentId, u64>, Refusal> {
    let (store, ctx) = (&tree.engine.services.store, &tree.engine.services.ctx);
    if tree.directory.is_paused() {
        return Ok(BTreeMap::new());
    }
    let waiting = store.read(|r| r.inbox_waiting()).await.map_err(Refusal::from)?;
    let mut found = BTreeMap::new();
    for agent_id in waiting {
        let Some(generation) = tree.directory.quiet_generation(&agent_id) else { continue };
        if suspects.get(&agent_id) != Some(&generation) {
            found.insert(agent_id, generation);
            continue;
        }
        tracing::error!(%agent_id, "found mail without a wake-up: this is a bug in ghostd");
        let id = agent_id.clone();
        ctx.write(store, move |w| {
            let event = NewEvent::new(EventKind::WorldSweepFound, json!({ "agent_id": id })).agent(&id);
            w.emit(event)
        })
        .await?;
        tree.signal_router.wake(&agent_id);
    }
    Ok(found)
}
