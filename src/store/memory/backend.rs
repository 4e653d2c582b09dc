//! Commands and queries over the tables of a [`MemoryDisk`]: run to their end in the caller, one at a time.

use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use async_trait::async_trait;
use futures_util::FutureExt;

use super::disk::{Disk, MemoryDisk};
use super::outbox::{Outbox, Owed};
use super::session::Session;
use crate::StoreError;
use crate::handle::{Ack, Backend, Committed, Nack, ReadWork, View, Work};

thread_local! {
    /// Whether this thread runs a command or a query now and so holds the lock.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// Marks the thread for the time of one command; a second one inside it would wait for itself.
struct Inside;

impl Inside {
    fn enter() -> Result<Self, StoreError> {
        if INSIDE.replace(true) {
            return Err(StoreError::Nested);
        }
        Ok(Self)
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        INSIDE.set(false);
    }
}

fn must_not_wait(what: &str) -> StoreError {
    StoreError::Database(format!("a {what} waited for something other than its tables; it was undone"))
}

/// What is left to do when the lock is free again.
enum Settle {
    /// Kept; the outbox has it.
    Kept,
    /// Undone by the command's own refusal.
    Refused(Nack),
    /// Undone because the commit failed.
    Failed(Ack, StoreError),
    /// Undone because the command broke the rules of this backend.
    Broken(StoreError),
    /// Undone by a panic that got past the handle.
    Panicked(Box<dyn Any + Send>),
    /// Kept, and the process died before it could say so.
    Died,
}

/// One opening of a [`MemoryDisk`].
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
        let settle = {
            let _inside = Inside::enter()?;
            let mut disk = self.disk.open_disk(self.generation)?;
            self.run_locked(&mut disk, work)
        };
        match settle {
            Settle::Kept => self.outbox.empty(&self.committed),
            Settle::Refused(nack) => nack(),
            Settle::Failed(ack, error) => ack(Err(error)),
            Settle::Broken(error) => return Err(error),
            Settle::Panicked(panic) => resume_unwind(panic),
            Settle::Died => return Err(StoreError::Closed),
        }
        Ok(())
    }

    fn run_locked(&self, disk: &mut Disk, work: Work) -> Settle {
        let Disk { tables, faults, .. } = disk;
        let mut session = Session::new(tables);
        let answer = catch_unwind(AssertUnwindSafe(|| work(&mut session).now_or_never()));
        let ack = match answer {
            Ok(Some(Ok(ack))) => ack,
            Ok(Some(Err(nack))) => {
                tables.undo();
                return Settle::Refused(nack);
            }
            Ok(None) => {
                tables.undo();
                return Settle::Broken(must_not_wait("command"));
            }
            Err(panic) => {
                tables.undo();
                return Settle::Panicked(panic);
            }
        };
        let (events, signals) = session.finish();
        if tables.changed() {
            if let Some(error) = faults.next_commit_fails() {
                tables.undo();
                return Settle::Failed(ack, error);
            }
            tables.commit();
            if faults.next_commit_kills() {
                disk.fence();
                return Settle::Died;
            }
        }
        self.outbox.push(Owed { events, signals, ack });
        Settle::Kept
    }

    fn answer(&self, work: ReadWork) -> Result<(), StoreError> {
        let answer = {
            let _inside = Inside::enter()?;
            let mut disk = self.disk.open_disk(self.generation)?;
            let mut session = Session::new(&mut disk.tables);
            catch_unwind(AssertUnwindSafe(|| work(&mut session).now_or_never()))
        };
        match answer {
            Ok(Some(())) => Ok(()),
            Ok(None) => Err(must_not_wait("query")),
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

    async fn broken(&self) -> String {
        // Commands run in their callers: there is nothing that could end by itself.
        std::future::pending().await
    }
}
