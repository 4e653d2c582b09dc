//! Deadlines on the clock of the world.

use std::time::Duration;

use ghost_domain::Clock;

/// Runs `work` for at most `limit`; `None` if it was not done by then. It is dropped in that case.
pub(crate) async fn within<T>(clock: &dyn Clock, limit: Duration, work: impl Future<Output = T>) -> Option<T> {
    tokio::select! {
        biased;
        done = work => Some(done),
        () = clock.sleep(limit) => None,
    }
}
