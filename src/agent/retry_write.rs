//! Writes that must not be lost, such as an answer that was paid for. While the store is
//! unavailable, the write is kept in memory and retried, as long as its turn runs.
//!
//! This module must never abandon such a write because the disk is full or another program locks
//! the database. It must never repeat a write that was refused for another reason.

use std::sync::Arc;
use std::time::Duration;

use ghost_domain::{Code, Refusal, TurnId};
use ghost_operations::Tx;
use ghost_store::StoreError;

use crate::engine::Engine;

/// The first pause after a failed write, and the longest.
const PAUSE_LEAST: Duration = Duration::from_secs(1);
const PAUSE_MOST: Duration = Duration::from_secs(60);

/// The pauses between attempts to use a store that fails: each is twice as long as the one before.
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

/// Why a write failed.
pub(crate) enum WriteError {
    /// The store is unavailable for now: the disk is full, or another program locks the database.
    Transient(Refusal),
    /// The write is refused, or the store is closed.
    Refused(Refusal),
}

impl From<StoreError> for WriteError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Closed => Self::Refused(error.into()),
            _ => Refusal::from(error).into(),
        }
    }
}

impl From<Refusal> for WriteError {
    fn from(refusal: Refusal) -> Self {
        // No rule for turns returns this code as a refusal, so the store itself failed within the
        // transaction.
        match refusal.code {
            Code::Unavailable => Self::Transient(refusal),
            _ => Self::Refused(refusal),
        }
    }
}

impl From<WriteError> for Refusal {
    fn from(error: WriteError) -> Self {
        match error {
            WriteError::Transient(refusal) | WriteError::Refused(refusal) => refusal,
        }
    }
}

/// Writes once. The error says whether a retry may succeed.
pub(crate) async fn attempt<T, F>(engine: &Engine, work: F) -> Result<T, WriteError>
where
    T: Send + 'static,
    F: FnOnce(&mut Tx) -> Result<T, Refusal> + Send + 'static,
{
    engine.services.write(move |w| work(w).map_err(WriteError::from)).await
}

/// Writes, and retries until the store commits the write. Calls `paused` with the length of each
/// pause.
///
/// # Errors
/// When the write is refused: the turn was ended, or another daemon owns the agent.
pub(crate) async fn write_with_retry<T, F>(
    engine: &Arc<Engine>,
    turn_id: TurnId,
    work: F,
    paused: impl Fn(Duration),
) -> Result<T, Refusal>
where
    T: Send + 'static,
    F: FnOnce(&mut Tx) -> Result<T, Refusal> + Clone + Send + 'static,
{
    let mut pauses = Pauses::default();
    loop {
        match attempt(engine, work.clone()).await {
            Ok(written) => return Ok(written),
            Err(WriteError::Refused(refusal)) => return Err(refusal),
            Err(WriteError::Transient(refusal)) => {
                let clock = &engine.services.ctx.ports.clock;
                let began = clock.steady();
                wait(engine, turn_id, &mut pauses, &refusal).await;
                paused(clock.steady().since(began));
            }
        }
    }
}

/// Logs that the store is unavailable for a write, and waits before the next attempt.
pub(crate) async fn wait(engine: &Engine, turn_id: TurnId, pauses: &mut Pauses, refusal: &Refusal) {
    let pause = pauses.next();
    tracing::warn!(%turn_id, %refusal, seconds = pause.as_secs(), "the store is unavailable; the turn's write is kept and retried");
    engine.services.ctx.ports.clock.sleep(pause).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_a_maximum() {
        let mut pauses = Pauses::default();
        let first: Vec<u64> = (0..8).map(|_| pauses.next().as_secs()).collect();
        assert_eq!(first, [1, 2, 4, 8, 16, 32, 60, 60]);
        assert_eq!(Pauses(u32::MAX).next(), PAUSE_MOST);
    }
}
