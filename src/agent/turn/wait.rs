//! Waiting on the Clock port beside something else.

use std::time::Duration;

use ghost_domain::time::Clock;

/// What `work` gives, or nothing if `most` passes first. Dropping `work` cancels it. The work is looked at first, so that
/// at one instant it wins: order must not depend on chance.
pub async fn within<T>(clock: &dyn Clock, most: Duration, work: impl Future<Output = T>) -> Option<T> {
    let late = clock.sleep(most);
    tokio::select! {
        biased;
        done = work => Some(done),
        () = late => None,
    }
}
