//! What every database with connections shares: one writer that commits many commands together (group commit), and several
//! connections for readers. See `docs/design.md`, "The store".
//!
//! One thread owns the connection that writes; each connection that reads has a thread of its own. The engine must never
//! acknowledge a command before its COMMIT is durable.

mod queue;
mod reader;
mod writer;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use tokio::sync::watch;

use self::queue::Queue;
pub(crate) use self::reader::Opener;
use self::reader::Readers;
use self::writer::WriterState;
use crate::error::{Result, StoreError};
use crate::handle::{Backend, Committed, ReadWork, Store, View, Work};
use crate::tx::Tx;

/// How much an engine does at once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    /// Number of connections for queries; at least 1. People's requests get half of them at most, and one at least.
    pub(crate) readers: usize,
    /// Maximum number of commands in one batch; at least 1.
    pub(crate) batch: usize,
    /// Maximum number of queued commands; further callers wait for space. At least 1.
    pub(crate) queue: usize,
}

/// An open database.
pub(crate) struct Engine {
    queue: Arc<Queue>,
    writer_state: watch::Receiver<WriterState>,
    readers: Arc<Readers>,
    doubt: Doubt,
}

/// What an engine and its driver tell each other while nobody knows whether a COMMIT has happened.
#[derive(Clone)]
pub(crate) struct Doubt {
    flags: Arc<(AtomicBool, AtomicBool)>,
    committed: Committed,
}

impl Doubt {
    /// Whether the store closes, so that the driver must not wait for its server any longer.
    pub(crate) fn must_end(&self) -> bool {
        self.flags.0.load(Ordering::Acquire)
    }

    /// Refuses new commands until [`Doubt::end`], and reports why.
    pub(crate) fn begin(&self, why: &StoreError) {
        self.flags.1.store(true, Ordering::Release);
        if self.committed.failed(&why.to_string()).is_some() {
            tracing::warn!(error = %why, "the answer to a COMMIT was lost; the store asks whether it has happened");
        }
    }

    pub(crate) fn end(&self) {
        self.flags.1.store(false, Ordering::Release);
    }
}

/// Opens a store. `open` runs on a thread that may wait; it returns the writer's session and what opens the readers'.
pub(crate) async fn open_store<F>(sizes: Sizes, open: F) -> Result<Store>
where
    F: FnOnce(Doubt) -> Result<(Tx, Opener)> + Send + 'static,
{
    Store::open(|committed| Engine::open(sizes, committed, open)).await
}

impl Engine {
    async fn open<F>(sizes: Sizes, committed: Committed, open: F) -> Result<Self>
    where
        F: FnOnce(Doubt) -> Result<(Tx, Opener)> + Send + 'static,
    {
        let doubt = Doubt { flags: Arc::default(), committed: committed.clone() };
        let for_driver = doubt.clone();
        let (session, opener) = in_background(move || open(for_driver)).await?;
        committed.opened(session.last_seq());
        let queue = Arc::new(Queue::new(sizes.queue));
        let (state_sender, writer_state) = watch::channel(WriterState::Running);
        writer::start(session, Arc::clone(&queue), committed, sizes.batch, state_sender)?;
        let readers = Readers::new(opener, sizes.readers, Arc::clone(&queue));
        readers.open_ahead();
        Ok(Self { queue, writer_state, readers, doubt })
    }
}

/// Runs work that waits for the disk on a thread that may.
pub(crate) async fn in_background<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // Only the end of the runtime cancels such work.
            Err(_) => Err(StoreError::Closed),
        },
    }
}

#[async_trait]
impl Backend for Engine {
    async fn submit(&self, work: Work) -> Result<()> {
        if self.doubt.flags.1.load(Ordering::Acquire) {
            return Err(StoreError::Busy(
                "the database has not said yet whether it stored the last changes".to_owned(),
            ));
        }
        self.queue.submit(work).await
    }

    async fn query(&self, view: View, work: ReadWork) -> Result<()> {
        self.readers.query(view, work).await
    }

    async fn close(&self) {
        // The writer's connection closes last, because SQLite's last connection removes the log file.
        self.readers.close().await;
        self.doubt.flags.0.store(true, Ordering::Release);
        self.queue.close();
        // An error means that the writer has ended.
        let mut state = self.writer_state.clone();
        while state.changed().await.is_ok() {}
    }

    async fn broken(&self) -> StoreError {
        let mut state = self.writer_state.clone();
        // An error means that the runtime is shutting down.
        let cause = state.wait_for(|state| state.cause().is_some()).await.ok().and_then(|end| end.cause().cloned());
        match cause {
            Some(cause) => cause,
            None => std::future::pending().await,
        }
    }
}

impl Drop for Engine {
    /// Ends the threads of a store that nobody closed.
    fn drop(&mut self) {
        self.readers.stop();
        self.doubt.flags.0.store(true, Ordering::Release);
        self.queue.close();
    }
}
