//! Runs commands and queries on the tables of a [`MemoryDisk`], one at a time, each to its end in
//! the calling task.

use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use async_trait::async_trait;

use super::disk::{Disk, MemoryDisk};
use super::outbox::{CommitOutput, Outbox};
use super::session::Session;
use crate::StoreError;
use crate::handle::{Ack, Backend, Committed, Nack, ReadWork, View, Work};

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
        let Disk { tables, faults, .. } = disk;
        let mut session = Session::new(tables);
        let answer = catch_unwind(AssertUnwindSafe(|| work(&mut session)));
        let ack = match answer {
            Ok(Ok(ack)) => ack,
            Ok(Err(nack)) => {
                tables.undo();
                return Outcome::Refused(nack);
            }
            Err(panic) => {
                tables.undo();
                return Outcome::Panicked(panic);
            }
        };
        let (events, signals) = session.finish();
        if tables.changed() {
            if let Some(error) = faults.next_commit_fails() {
                tables.undo();
                return Outcome::Failed(ack, error);
            }
            tables.commit();
            if faults.next_commit_kills() {
                disk.fence();
                return Outcome::Died;
            }
        }
        self.outbox.push(CommitOutput { events, signals, ack });
        Outcome::Stored
    }

    fn answer(&self, work: ReadWork) -> Result<(), StoreError> {
        let answer = {
            let _inside = InsideGuard::enter()?;
            let mut disk = self.disk.open_disk(self.generation)?;
            let mut session = Session::new(&mut disk.tables);
            catch_unwind(AssertUnwindSafe(|| work(&mut session)))
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
