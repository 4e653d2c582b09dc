//! How many event streams may be open, whatever their transport.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use ghost_domain::{Code, Refusal};

/// How many event streams are open, over all listeners.
#[derive(Default)]
pub(crate) struct Readers(Arc<AtomicUsize>, Arc<AtomicU64>);

/// One open stream's place among them.
pub(crate) struct Seat(Arc<AtomicUsize>, Arc<AtomicU64>);

impl Readers {
    pub(crate) fn take(&self, most: u32) -> Result<Seat, Refusal> {
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        let taken = self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, |open| (open < most).then_some(open + 1));
        match taken {
            Ok(_) => Ok(Seat(Arc::clone(&self.0), Arc::clone(&self.1))),
            Err(open) => {
                Err(Refusal::new(Code::RateLimited, format!("{open} readers of events are as many as may be"))
                    .hint("end one of them, or raise limits.subscribers_max in world-config.yaml")
                    .details(serde_json::json!({ "subscribers_max": most })))
            }
        }
    }

    /// Streams that are open now.
    pub(crate) fn open(&self) -> usize {
        self.0.load(Ordering::Acquire)
    }

    /// Streams that were cut off because their readers did not keep up, since the daemon started.
    pub(crate) fn cut_off(&self) -> u64 {
        self.1.load(Ordering::Acquire)
    }
}

impl Seat {
    /// Says that its reader was cut off.
    pub(crate) fn lags(&self) {
        self.1.fetch_add(1, Ordering::AcqRel);
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}
