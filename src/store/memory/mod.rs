//! A store in memory, for the simulation and for tests: SQLite without a file, on the calling thread. Each command runs
//! to its end in the task that called it, and is one commit. Nothing is random, so the same calls give the same results
//! (promise 8 in `docs/design.md`).
//!
//! This backend must never hold its lock while it publishes events or calls callbacks. It must
//! never wait for anything or keep a change of an undone command.

mod backend;
mod disk;

#[cfg(test)]
mod tests;

use backend::MemoryBackend;
pub use disk::MemoryDisk;
use futures_util::FutureExt;

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
