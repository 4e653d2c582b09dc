//! The loop that watches the wall clock for jumps. On a jump the rules compute again what was computed
//! from the clock, and the world follows the clock, in one transaction.
//!
//! This loop must never follow a jump that is not recorded: no deadline may be judged by a clock that it
//! was not computed from.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use ghost_domain::wall_clock::WatchedClock;
use ghost_domain::{Clock, Refusal};
use ghost_operations::clock;

use crate::loops::CLOCK;
use crate::tree::Tree;

/// Time between two looks.
const EVERY: Duration = Duration::from_secs(1);
/// Time between two records of the time that the daemon has run, while it matters.
const COUNT_EVERY: Duration = Duration::from_secs(60);

/// Runs rounds until it is aborted.
pub(crate) async fn rounds(tree: Arc<Tree>) -> Result<(), String> {
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
