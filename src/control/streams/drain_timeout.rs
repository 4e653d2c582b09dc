//! The time limit for a reader to drain its queue after its stream has ended.
//!
//! The drain timeout must never disconnect a reader that still reads.

use std::sync::Arc;
use std::time::Duration;

use ghost_domain::Clock;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

/// The drain timeout of one reader. Clones share it.
#[derive(Clone)]
pub(crate) struct DrainTimeout {
    clock: Arc<dyn Clock>,
    timeout: Duration,
    taken: Arc<Notify>,
}

impl DrainTimeout {
    /// A reader that reads nothing for `timeout` times out.
    pub(crate) fn new(clock: Arc<dyn Clock>, timeout: Duration) -> Self {
        Self { clock, timeout, taken: Arc::default() }
    }

    /// Restarts the timeout, because the reader has read something.
    pub(crate) fn taken(&self) {
        self.taken.notify_one();
    }

    /// Completes when the feeder has ended and the reader has then read nothing for the timeout.
    pub(crate) async fn after(&self, feeder: JoinHandle<()>) {
        // If the feeder panicked, the stream has ended too.
        let _ = feeder.await;
        self.wait().await;
    }

    /// Completes when the reader has read nothing for the timeout.
    pub(crate) async fn wait(&self) {
        loop {
            tokio::select! {
                biased;
                () = self.taken.notified() => {}
                () = self.clock.sleep(self.timeout) => return,
            }
        }
    }
}
