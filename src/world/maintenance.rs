//! Maintenance: the slow periodic work of a world. It puts idle agents to sleep, expires asks from outside, ends overdue
//! droids, deletes old rows, and sweeps for mail without a wake-up. The sweep is a backstop; if it finds mail, the daemon has a bug.
//! A loop of its own keeps the file of artifacts beside their table.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ghost_agent::AgentMsg;
use ghost_domain::event::{EventFilter, EventKind, NewEvent};
use ghost_domain::{AgentId, AgentKind, Limits, Refusal};
use ghost_operations::feed::Subscription;
use ghost_operations::{agents, approvals, asks, droids, retention};
use ghost_tools::manifest;
use serde_json::json;

use crate::loops::{MAINTENANCE, MANIFEST};
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
        done("asks could not be expired", expire_asks(&tree).await);
        let ended = droids::end_overdue(&tree.engine.services.store, &ctx).await;
        done("droids that are past their time could not be ended", ended);
        if now.since(swept_at) >= Limits::seconds(limits.sweep_seconds) {
            swept_at = now;
            suspects = done("the sweep failed", sweep(&tree, suspects).await).unwrap_or_default();
            done("approvals could not be expired", expire_approvals(&tree).await);
            let droids = tree.directory.stopped(AgentKind::Droid, HELPERS);
            droids::archive(&tree.engine.services.store, &ctx, droids).await;
            let helpers = tree.directory.stopped(AgentKind::Dynamic, HELPERS);
            let ended = agents::end_helpers(&tree.engine.services.store, &ctx, helpers).await;
            done("agents that are no longer needed could not be deleted", ended);
        }
        if now >= prune_at {
            prune_at = now.plus(PRUNE_EVERY);
            let deleted = retention::sweep(&tree.engine.services.store, &ctx).await;
            if let Some(rows) = done("deleting old rows failed", deleted).filter(|rows| *rows > 0) {
                tracing::info!(rows, "deleted rows that are past their retention");
            }
        }
        if size_checked_at.is_none_or(|at| now.since(at) >= SIZE_CHECK_EVERY) {
            size_checked_at = Some(now);
            let checked = check_size(&tree, warned).await;
            warned = done("the size of the data could not be checked", checked).unwrap_or(warned);
        }
        tree.loops.round(MAINTENANCE);
    }
}

/// Logs that a part of a round failed. The next round tries it again.
fn done<T>(failed: &str, result: Result<T, Refusal>) -> Option<T> {
    result.inspect_err(|refusal| tracing::warn!(%refusal, "{failed}")).ok()
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

/// Lines that are added before the file is made anew, which drops those that no longer hold.
const LINES_MAX: usize = 10_000;

/// Keeps the file of artifacts beside their table: made anew at the start, then extended by a line for each event. One loop
/// writes it, so that lines never mix. It follows the feed until the store closes. A failure to write the file fails nothing
/// else: it is logged, and the next event makes the file anew.
pub(crate) async fn manifest_rounds(tree: Arc<Tree>) -> Result<(), String> {
    let services = &tree.engine.services;
    loop {
        let filter = EventFilter { kinds: vec!["artifact.".to_owned()], ..EventFilter::default() };
        // Opened before the table is read, so that no event falls between the two.
        let opened = Subscription::open(&services.store, None, filter, true).await;
        let mut feed = opened.map_err(|refusal| refusal.in_words())?;
        let mut whole = manifest::rewrite(services).await.map(drop);
        tree.loops.round(MANIFEST);
        for _ in 0..LINES_MAX {
            if let Err(refusal) = &whole {
                tracing::warn!(%refusal, file = manifest::INDEX, "the index of artifacts is not up to date");
            }
            let event = match feed.next().await {
                Ok(Some(event)) => event,
                Ok(None) => return Ok(()),
                // It fell behind: the table has what it missed.
                Err(_) => break,
            };
            whole = match (&whole, manifest::line_of(&event)) {
                (Ok(()), Some(line)) => manifest::append(services, line).await,
                (Ok(()), None) => Ok(()),
                (Err(_), _) => manifest::rewrite(services).await.map(drop),
            };
        }
    }
}
