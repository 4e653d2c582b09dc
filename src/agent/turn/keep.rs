//! Writes of what cannot be had again, such as an answer that was paid for: while the store cannot take one, it is kept
//! here and written again, for as long as its turn is worked on.
//!
//! Must never: give such a thing up because the disk is full or another program holds the database, nor repeat a write that
//! was refused for a reason.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ghost_domain::time::BoxFuture;
use ghost_domain::{Code, Refusal, TurnId};
use ghost_store::{StoreError, Writes};

use super::runner::Runner;
use crate::engine::Engine;

/// How long a store that has just failed is left alone, and how long at most.
const PAUSE_LEAST: Duration = Duration::from_secs(1);
const PAUSE_MOST: Duration = Duration::from_secs(60);

/// The pauses between attempts to use a store that fails: each twice as long as the last.
#[derive(Debug, Default)]
pub(crate) struct Pauses(u32);

impl Pauses {
    /// The next pause.
    pub(crate) fn next(&mut self) -> Duration {
        let pause = PAUSE_LEAST.saturating_mul(1_u32.checked_shl(self.0).unwrap_or(u32::MAX));
        self.0 = self.0.saturating_add(1);
        pause.min(PAUSE_MOST)
    }
}

/// Why a write was not kept.
pub(super) enum Unkept {
    /// The store cannot take it for the moment: the disk is full, or another program holds the database.
    Passing(Refusal),
    /// It is refused, or there is no store any more.
    Refused(Refusal),
}

impl From<StoreError> for Unkept {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Closed => Self::Refused(error.into()),
            _ => Refusal::from(error).into(),
        }
    }
}

impl From<Refusal> for Unkept {
    fn from(refusal: Refusal) -> Self {
        // No rule of a turn's refuses a write with this code: it is the store's own trouble, met within the transaction.
        match refusal.code {
            Code::Unavailable => Self::Passing(refusal),
            _ => Self::Refused(refusal),
        }
    }
}

impl From<Unkept> for Refusal {
    fn from(unkept: Unkept) -> Self {
        match unkept {
            Unkept::Passing(refusal) | Unkept::Refused(refusal) => refusal,
        }
    }
}

/// Writes once, and says whether a refusal may pass.
pub(super) async fn attempt<T, F>(engine: &Engine, work: F) -> Result<T, Unkept>
where
    T: Send + 'static,
    F: for<'t> FnOnce(&'t mut dyn Writes) -> BoxFuture<'t, Result<T, Refusal>> + Send + 'static,
{
    engine.services.store.write(move |w| Box::pin(async move { work(w).await.map_err(Unkept::from) })).await
}

/// Writes until the store has taken it. Each pause is told to `paused`.
///
/// # Errors
/// When it is refused for a reason: the turn was ended, the agent is another daemon's.
pub(super) async fn keep<T, F>(
    engine: &Arc<Engine>,
    turn_id: TurnId,
    work: F,
    paused: impl Fn(Duration),
) -> Result<T, Refusal>
where
    T: Send + 'static,
    F: for<'t> FnOnce(&'t mut dyn Writes) -> BoxFuture<'t, Result<T, Refusal>> + Clone + Send + 'static,
{
    let mut pauses = Pauses::default();
    loop {
        match attempt(engine, work.clone()).await {
            Ok(kept) => return Ok(kept),
            Err(Unkept::Refused(refusal)) => return Err(refusal),
            Err(Unkept::Passing(refusal)) => {
                let clock = &engine.services.ctx.ports.clock;
                let began = clock.now();
                wait(engine, turn_id, &mut pauses, &refusal).await;
                paused(clock.now().since(began));
            }
        }
    }
}

/// Leaves a store alone that could not take a write.
pub(super) async fn wait(engine: &Engine, turn_id: TurnId, pauses: &mut Pauses, refusal: &Refusal) {
    let pause = pauses.next();
    tracing::warn!(%turn_id, %refusal, seconds = pause.as_secs(), "the store cannot take a turn's work; it is kept and written again");
    engine.services.ctx.ports.clock.sleep(pause).await;
}

impl Runner {
    /// Writes until the store has taken it. Only once for an operator's call, whose caller waits for a word.
    pub(super) async fn keep<T, F>(&self, work: F) -> Result<T, Refusal>
    where
        T: Send + 'static,
        F: for<'t> FnOnce(&'t mut dyn Writes) -> BoxFuture<'t, Result<T, Refusal>> + Clone + Send + 'static,
    {
        if !self.shown {
            return attempt(&self.engine, work).await.map_err(Refusal::from);
        }
        let paused = |pause: Duration| {
            let took = u64::try_from(pause.as_millis()).unwrap_or(u64::MAX);
            self.paused_ms.fetch_add(took, Ordering::Relaxed);
        };
        keep(&self.engine, self.turn.turn_id, work, paused).await
    }

    /// For how long its calls have waited for a store that could not write. Those that waited side by side count each.
    pub(super) fn paused(&self) -> Duration {
        Duration::from_millis(self.paused_ms.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_and_have_an_end() {
        let mut pauses = Pauses::default();
        let first: Vec<u64> = (0..8).map(|_| pauses.next().as_secs()).collect();
        assert_eq!(first, [1, 2, 4, 8, 16, 32, 60, 60]);
        assert_eq!(Pauses(u32::MAX).next(), PAUSE_MOST);
    }
}
