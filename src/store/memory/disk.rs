//! What survives a store: the tables of a world, who may use them, and the faults that a test has planned.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::tables::Tables;
use crate::StoreError;

/// Faults that a test has planned.
#[derive(Default)]
pub(super) struct Faults {
    failures: VecDeque<Box<dyn Fn() -> StoreError + Send>>,
    commits_to_live: Option<u64>,
}

impl Faults {
    /// The error of the commit that is about to happen, if it is to fail.
    pub(super) fn next_commit_fails(&mut self) -> Option<StoreError> {
        self.failures.pop_front().map(|error| error())
    }

    /// Counts a commit. Says whether the process is to die right after it.
    pub(super) fn next_commit_kills(&mut self) -> bool {
        let left = self.commits_to_live.map(|left| left.saturating_sub(1));
        self.commits_to_live = left.filter(|left| *left > 0);
        left == Some(0)
    }
}

/// The content of a disk, under its lock.
#[derive(Default)]
pub(super) struct Disk {
    pub(super) tables: Tables,
    pub(super) faults: Faults,
    generation: u64,
}

impl Disk {
    /// Shuts out every store that is open on this disk.
    pub(super) fn fence(&mut self) {
        self.generation += 1;
    }
}

/// A world's data apart from any process that uses it. To crash a simulated daemon, drop its [`Store`](crate::Store) and open another
/// on the same disk: what was acknowledged is there, and the old store, should someone still hold a clone of it, can
/// neither read nor write any more. Cheap to clone; clones are the same disk.
#[derive(Clone, Default)]
pub struct MemoryDisk {
    shared: Arc<Mutex<Disk>>,
}

impl MemoryDisk {
    /// An empty disk.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Lets the next `n` commits fail with what `error` makes, in the order of planning: nothing of such a command is
    /// kept and its caller gets the error. Commands that write nothing commit nothing and do not count.
    pub fn fail_next_commits(&self, n: usize, error: impl Fn() -> StoreError + Send + Sync + 'static) {
        let error = Arc::new(error);
        let mut disk = self.lock();
        for _ in 0..n {
            let error = Arc::clone(&error);
            disk.faults.failures.push_back(Box::new(move || error()));
        }
    }

    /// Lets the process die right after the `n`-th commit from now (0 counts as 1): that commit is kept, but neither
    /// published nor acknowledged, and everything after it finds the store closed until the disk is opened again.
    pub fn crash_after_commits(&self, n: u64) {
        self.lock().faults.commits_to_live = Some(n.max(1));
    }

    /// Shuts out every store that is open on this disk, at once.
    pub fn crash(&self) {
        self.lock().fence();
    }

    /// Shuts out the store that was open before, and gives the new opening's number and the last event there is.
    pub(super) fn reopen(&self) -> (u64, i64) {
        let mut disk = self.lock();
        disk.fence();
        (disk.generation, disk.tables.counters.event)
    }

    fn lock(&self) -> MutexGuard<'_, Disk> {
        // A command's panic is caught and undone under the lock, so a poisoned lock still guards whole tables.
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The content, for the store of that opening.
    pub(super) fn open_disk(&self, generation: u64) -> Result<MutexGuard<'_, Disk>, StoreError> {
        let disk = self.lock();
        if disk.generation == generation { Ok(disk) } else { Err(StoreError::Closed) }
    }

    /// Ends one opening.
    pub(super) fn close(&self, generation: u64) {
        let mut disk = self.lock();
        if disk.generation == generation {
            disk.fence();
        }
    }
}
