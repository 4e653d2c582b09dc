//! A simulated disk: the database of a world, the number of the store that may use them, and the
//! faults that a test has planned.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::error::StoreError;
use crate::sqlite::in_memory;
use crate::tx::Tx;

/// Faults that a test has planned.
#[derive(Default)]
pub(super) struct Faults {
    /// What the next commits do: `None` succeeds.
    failures: VecDeque<Option<Box<dyn Fn() -> StoreError + Send>>>,
    commits_until_crash: Option<u64>,
}

impl Faults {
    /// Returns the error of the next commit, if it is planned to fail.
    pub(super) fn next_commit_fails(&mut self) -> Option<StoreError> {
        self.failures.pop_front().flatten().map(|error| error())
    }

    /// Counts a commit. Returns whether the process dies right after it.
    pub(super) fn next_commit_kills(&mut self) -> bool {
        let left = self.commits_until_crash.map(|left| left.saturating_sub(1));
        self.commits_until_crash = left.filter(|left| *left > 0);
        left == Some(0)
    }
}

/// The content of a disk. A lock protects it.
pub(super) struct Disk {
    pub(super) session: Tx,
    pub(super) faults: Faults,
    generation: u64,
}

impl Disk {
    /// Fences every store that is open on this disk: it can no longer read or write.
    pub(super) fn fence(&mut self) {
        self.generation += 1;
    }
}

/// The data of a world, independent of any process. To crash a simulated daemon, drop its
/// [`Store`](crate::Store) and open another one on the same disk. All acknowledged changes are
/// there. Clones of the old store can no longer read or write. Cheap to clone; all clones are the
/// same disk.
#[derive(Clone)]
pub struct MemoryDisk {
    shared: Arc<Mutex<Disk>>,
}

impl MemoryDisk {
    /// An empty disk.
    #[must_use]
    pub fn new() -> Self {
        let disk = Disk { session: in_memory(), faults: Faults::default(), generation: 0 };
        Self { shared: Arc::new(Mutex::new(disk)) }
    }

    /// Makes the next `n` commits fail with the error that `error` returns, after any failures
    /// planned before. No write of such a command is stored, and its caller gets the error.
    /// Commands that write nothing do not commit, so they are not counted.
    pub fn fail_next_commits(&self, n: usize, error: impl Fn() -> StoreError + Send + Sync + 'static) {
        let error = Arc::new(error);
        let mut disk = self.lock();
        for _ in 0..n {
            let error = Arc::clone(&error);
            disk.faults.failures.push_back(Some(Box::new(move || error())));
        }
    }

    /// Lets the next `n` commits succeed, before failures that are planned after this.
    pub fn spare_next_commits(&self, n: usize) {
        self.lock().faults.failures.extend(std::iter::repeat_with(|| None).take(n));
    }

    /// Makes the process die right after the `n`-th commit from now (0 counts as 1). That commit is
    /// stored, but it is neither published nor acknowledged. All later calls get
    /// [`StoreError::Closed`] until the disk is opened again.
    pub fn crash_after_commits(&self, n: u64) {
        self.lock().faults.commits_until_crash = Some(n.max(1));
    }

    /// Fences every store that is open on this disk, at once.
    pub fn crash(&self) {
        self.lock().fence();
    }

    /// Fences the store that was open before. Returns the generation of the new store and the last
    /// event's sequence.
    pub(super) fn reopen(&self) -> (u64, i64) {
        let mut disk = self.lock();
        disk.fence();
        (disk.generation, disk.session.last_seq())
    }

    fn lock(&self) -> MutexGuard<'_, Disk> {
        // A panic of a command is caught and undone under the lock, so the database is consistent
        // even if the lock is poisoned.
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks the content, if the store of this generation may still use it.
    pub(super) fn open_disk(&self, generation: u64) -> Result<MutexGuard<'_, Disk>, StoreError> {
        let disk = self.lock();
        if disk.generation == generation { Ok(disk) } else { Err(StoreError::Closed) }
    }

    /// Closes the store of this generation.
    pub(super) fn close(&self, generation: u64) {
        let mut disk = self.lock();
        if disk.generation == generation {
            disk.fence();
        }
    }
}

impl Default for MemoryDisk {
    fn default() -> Self {
        Self::new()
    }
}
