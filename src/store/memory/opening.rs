//! Opens stores on a disk in memory.

use futures_util::FutureExt;

use super::backend::MemoryBackend;
use super::disk::MemoryDisk;
use crate::Store;

impl MemoryDisk {
    /// Opens a store on this disk. The store that was open before can no longer read or write, as
    /// if its process had died.
    #[must_use]
    #[allow(clippy::expect_used)] // see below
    pub fn open(&self) -> Store {
        let opening = Store::open(|committed| async {
            let (generation, last_seq) = self.reopen();
            committed.opened(last_seq);
            Ok(MemoryBackend::new(self.clone(), generation, committed))
        });
        // The closure above never waits and always returns Ok.
        opening.now_or_never().and_then(Result::ok).expect("opening memory neither waits nor fails")
    }
}

/// A store in memory. Its data is lost when the last clone is dropped.
pub struct MemoryStore;

impl MemoryStore {
    /// Opens a new, empty store.
    #[must_use]
    pub fn open() -> Store {
        MemoryDisk::new().open()
    }
}
