//! The only place that reads the clock. It must never be passed by.

use std::time::Duration;

use tokio::time::{Instant, Sleep};

/// Longest time that a timer waits, about 30 years. Adding more could overflow.
const LONGEST: Duration = Duration::from_secs(30 * 365 * 24 * 3_600);

/// The present time.
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// The time after `duration`.
pub(crate) fn after(duration: Duration) -> Instant {
    let now = now();
    now.checked_add(duration.min(LONGEST)).unwrap_or(now)
}

/// Completes at `instant`.
pub(crate) fn until(instant: Instant) -> Sleep {
    tokio::time::sleep_until(instant)
}

/// The output of `future`; `None` if it takes longer than `limit`.
// Servers run on real time, and no simulation has one.
#[allow(clippy::disallowed_methods)]
pub(crate) async fn within<F: Future>(limit: Duration, future: F) -> Option<F::Output> {
    tokio::time::timeout(limit.min(LONGEST), future).await.ok()
}
