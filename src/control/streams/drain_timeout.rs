//! How long a reader that was cut off is waited for.
//!
//! Must never: give up a reader that still takes what is on its way to it.

use std::sync::Arc;
use std::time::Duration;

use ghost_domain::Clock;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

/// The end of one reader's stream. Clones are of the same reader.
#[derive(Clone)]
pub(crate) struct DrainTimeout {
    clock: Arc<dyn Clock>,
    patience: Duration,
    taken: Arc<Notify>,
}

impl DrainTimeout {
    /// Of a reader that may take nothing for `patience`.
    pub(crate) fn new(clock: Arc<dyn Clock>, patience: Duration) -> Self {
        Self { clock, patience, taken: Arc::default() }
    }

    /// Says that the reader has taken something.
    pub(crate) fn taken(&self) {
        self.taken.notify_one();
    }

    /// Completes when the feeder has ended and the reader has then taken nothing for its time.
    pub(crate) async fn after(&self, feeder: JoinHandle<()>) {
        // A feeder does not panic; should it, the stream has ended all the same.
        let _ = feeder.await;
        self.wait().await;
    }

    /// Completes when the reader has taken nothing for its time.
    pub(crate) async fn wait(&self) {
        loop {
            tokio::select! {
                biased;
                () = self.taken.notified() => {}
                () = self.clock.sleep(self.patience) => return,
            }
        }
    }
}
