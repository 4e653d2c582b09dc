//! Runs commands and queries on the database of a [`MemoryDisk`], one at a time, each to its end in
//! the calling task.

use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use async_trait::async_trait;

use super::disk::{Disk, MemoryDisk};
use super::outbox::{CommitOutput, Outbox};
use crate::error::StoreError;
use crate::handle::{Ack, Backend, Committed, Nack, ReadWork, View, Work};
use crate::tx::Tx;

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

/// What to do after the lock is released.
enum Outcome {
    /// The command is committed; the outbox has its events and its callback.
    Stored,
    /// The command refused and was undone.
    Refused(Nack),
    /// The commit failed and the command was undone.
    Failed(Ack, StoreError),
    /// The command panicked past the handle and was undone.
    Panicked(Box<dyn Any + Send>),
    /// The command is committed, but the simulated process died before it could report that.
    Died,
}

/// An open store on a [`MemoryDisk`].
pub(super) struct MemoryBackend {
    disk: MemoryDisk,
    generation: u64,
    committed: Committed,
    outbox: Arc<Outbox>,
}

impl MemoryBackend {
    pub(super) fn new(disk: MemoryDisk, generation: u64, committed: Committed) -> Self {
        Self { disk, generation, committed, outbox: Arc::default() }
    }

    fn run(&self, work: Work) -> Result<(), StoreError> {
        let outcome = {
            let _inside = InsideGuard::enter()?;
            let mut disk = self.disk.open_disk(self.generation)?;
            self.run_locked(&mut disk, work)
        };
        match outcome {
            Outcome::Stored => self.outbox.empty(&self.committed),
            Outcome::Refused(nack) => nack(),
            Outcome::Failed(ack, error) => ack(Err(error)),
            Outcome::Panicked(panic) => resume_unwind(panic),
            Outcome::Died => return Err(StoreError::Closed),
        }
        Ok(())
    }

    fn run_locked(&self, disk: &mut Disk, work: Work) -> Outcome {
        let Disk { session, faults, .. } = disk;
        let answer = catch_unwind(AssertUnwindSafe(|| work(session)));
        let wrote = session.has_written();
        let ack = match answer {
            Ok(Ok(ack)) => match session.keep_command() {
                Ok(()) => ack,
                Err(error) => {
                    end(session);
                    return Outcome::Failed(ack, error);
                }
            },
            Ok(Err(nack)) => {
                session.undo_command();
                end(session);
                return Outcome::Refused(nack);
            }
            Err(panic) => {
                session.undo_command();
                end(session);
                return Outcome::Panicked(panic);
            }
        };
        if wrote && let Some(error) = faults.next_commit_fails() {
            session.fail(error.clone());
        }
        let (events, signals) = match session.commit() {
            Ok(committed) => committed,
            Err(error) => return Outcome::Failed(ack, error),
        };
        if wrote && faults.next_commit_kills() {
            disk.fence();
            return Outcome::Died;
        }
        self.outbox.push(CommitOutput { events, signals, ack });
        Outcome::Stored
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
