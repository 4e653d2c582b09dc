//! Opening a store on a disk in memory.

use futures_util::FutureExt;

use super::backend::MemoryBackend;
use super::disk::MemoryDisk;
use crate::Store;

impl MemoryDisk {
    /// Opens a store on this disk and shuts out the one that was open before, as its process' death would.
    #[must_use]
    #[allow(clippy::expect_used)] // see below
    pub fn open(&self) -> Store {
        let opening = Store::open(|committed| async {
            let (generation, last_seq) = self.reopen();
            committed.opened(last_seq);
            Ok(MemoryBackend::new(self.clone(), generation, committed))
        });
        // The closure above awaits nothing and gives Ok.
        opening.now_or_never().and_then(Result::ok).expect("opening memory neither waits nor fails")
    }
}

/// A store whose data lives as long as it does.
pub struct MemoryStore;

impl MemoryStore {
    /// A fresh, empty store.
    #[must_use]
    pub fn open() -> Store {
        MemoryDisk::new().open()
    }
}
