//! Waits on real time: agents are programs of their own, and no simulation has one.
#![allow(clippy::disallowed_methods)]

use std::time::Duration;

/// Completes after `time`.
pub(crate) async fn pause(time: Duration) {
    tokio::time::sleep(time).await;
}

/// The output of `future`; `None` if it takes longer than `limit`.
pub(crate) async fn within<F: Future>(limit: Duration, future: F) -> Option<F::Output> {
    tokio::time::timeout(limit, future).await.ok()
}
