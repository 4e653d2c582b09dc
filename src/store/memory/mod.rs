//! A store in memory, for the simulation and for tests: SQLite without a file, on the calling thread. Each command runs
//! to its end in the task that called it, and is one commit. Nothing is random, so the same calls give the same results
//! (promise 8 in `docs/design.md`).
//!
//! This backend must never hold its lock while it publishes events or calls callbacks. It must
//! never wait for anything or keep a change of an undone command.

mod disk;
#[cfg(test)]
mod tests;

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use async_trait::async_trait;
use futures_util::FutureExt;

use disk::Disk;
pub use disk::MemoryDisk;

use crate::Store;
use crate::error::StoreError;
use crate::handle::{Backend, Committed, ReadWork, View, Work};
use crate::tx::Tx;

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

thread_local! {
    /// Whether this thread runs a command or a query, and so holds the lock.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// Guard that marks the thread while it runs a command or a query. A nested one would deadlock, so
/// `enter` refuses it.
struct InsideGuard;

impl InsideGuard {
    fn enter() -> Result<Self, StoreError> {
        if INSIDE.replace(true) {
            return Err(StoreError::Nested);
        }
        Ok(Self)
    }
}

impl Drop for InsideGuard {
    fn drop(&mut self) {
        INSIDE.set(false);
    }
}

/// Ends the transaction of a command that was undone, or of a query.
fn end(session: &mut Tx) {
    // Nothing was written, so an error is that of a statement, which the caller has got.
    if let Err(error) = session.commit() {
        tracing::debug!(%error, "ending a transaction without changes failed");
    }
}

/// Undoes a command that has refused or panicked.
fn undo(session: &mut Tx) {
    session.undo_command();
    end(session);
}

/// An open store on a [`MemoryDisk`].
pub(super) struct MemoryBackend {
    disk: MemoryDisk,
    generation: u64,
    committed: Committed,
}

impl MemoryBackend {
    pub(super) fn new(disk: MemoryDisk, generation: u64, committed: Committed) -> Self {
        Self { disk, generation, committed }
    }

    /// Runs a command to its end. Its events, its signals and its answer go out before the next command begins, in the
    /// order of commits. Their receivers only queue them, so none calls the store.
    fn run(&self, work: Work) -> Result<(), StoreError> {
        let _inside = InsideGuard::enter()?;
        let mut disk = self.disk.open_disk(self.generation)?;
        let Disk { session, faults, .. } = &mut *disk;
        let answer = catch_unwind(AssertUnwindSafe(|| work(session)));
        let wrote = session.has_written();
        let ack = match answer {
            Ok(Ok(ack)) => ack,
            Ok(Err(nack)) => {
                undo(session);
                nack();
                return Ok(());
            }
            // The command panicked past the handle.
            Err(panic) => {
                undo(session);
                resume_unwind(panic)
            }
        };
        let committed = match session.keep_command() {
            Ok(()) => {
                if wrote && let Some(error) = faults.next_commit_fails() {
                    session.fail(error);
                }
                session.commit()
            }
            Err(error) => {
                end(session);
                Err(error)
            }
        };
        match committed {
            Err(error) => ack(Err(error)),
            // The command is committed, but the simulated process died before it could report that.
            Ok(_) if wrote && faults.next_commit_kills() => {
                disk.fence();
                return Err(StoreError::Closed);
            }
            Ok((events, signals)) => {
                self.committed.publish(events, &signals);
                ack(Ok(()));
            }
        }
        Ok(())
    }

    fn answer(&self, work: ReadWork) -> Result<(), StoreError> {
        let answer = {
            let _inside = InsideGuard::enter()?;
            let mut disk = self.disk.open_disk(self.generation)?;
            let answer = catch_unwind(AssertUnwindSafe(|| work(&mut disk.session)));
            end(&mut disk.session);
            answer
        };
        match answer {
            Ok(()) => Ok(()),
            Err(panic) => resume_unwind(panic),
        }
    }
}

#[async_trait]
impl Backend for MemoryBackend {
    async fn submit(&self, work: Work) -> Result<(), StoreError> {
        self.run(work)
    }

    async fn query(&self, _: View, work: ReadWork) -> Result<(), StoreError> {
        self.answer(work)
    }

    async fn close(&self) {
        self.disk.close(self.generation);
    }

    async fn broken(&self) -> StoreError {
        // Commands run in their callers, so there is no task that could fail.
        std::future::pending().await
    }
}
