//! Counts and limits the open event streams of all transports.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use ghost_domain::{Code, Refusal};

/// The number of open event streams, and of streams disconnected because their readers were too
/// slow.
#[derive(Default)]
pub(crate) struct Readers(Arc<AtomicUsize>, Arc<AtomicU64>);

/// Permission for one open stream. Dropping it makes the permit available again.
pub(crate) struct StreamPermit(Arc<AtomicUsize>, Arc<AtomicU64>);

impl Readers {
    pub(crate) fn take(&self, limit: u32) -> Result<StreamPermit, Refusal> {
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let taken = self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, |open| (open < limit).then_some(open + 1));
        match taken {
            Ok(_) => Ok(StreamPermit(Arc::clone(&self.0), Arc::clone(&self.1))),
            Err(open) => {
                Err(Refusal::new(Code::RateLimited, format!("{open} event streams are open, which is the limit"))
                    .hint("end one of them, or raise limits.subscribers_max in world-config.yaml")
                    .details(serde_json::json!({ "subscribers_max": limit })))
            }
        }
    }

    /// Number of open streams.
    pub(crate) fn open(&self) -> usize {
        self.0.load(Ordering::Acquire)
    }

    /// Number of streams that were disconnected since the daemon started because their readers were
    /// too slow.
    pub(crate) fn cut_off(&self) -> u64 {
        self.1.load(Ordering::Acquire)
    }
}

impl StreamPermit {
    /// Counts its stream as disconnected.
    pub(crate) fn count_cut_off(&self) {
        self.1.fetch_add(1, Ordering::AcqRel);
    }
}

impl Drop for StreamPermit {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}
