//! What every database with connections shares: one writer that commits many commands together (group commit), and several
//! connections for readers. See `docs/design.md`, "The store".
//!
//! One thread owns the connection that writes; each connection that reads has a thread of its own. The engine must never
//! acknowledge a command before its COMMIT is durable.

mod commit_delay;
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
    closing: Closing,
}

/// Set when the store closes: a driver must not wait for its server any longer.
pub(crate) type Closing = Arc<AtomicBool>;

/// Opens a store. `open` runs on a thread that may wait; it returns the writer's session and what opens the readers'.
pub(crate) async fn open_store<F>(sizes: Sizes, open: F) -> Result<Store>
where
    F: FnOnce(Closing) -> Result<(Tx, Opener)> + Send + 'static,
{
    Store::open(|committed| Engine::open(sizes, committed, open)).await
}

impl Engine {
    async fn open<F>(sizes: Sizes, committed: Committed, open: F) -> Result<Self>
    where
        F: FnOnce(Closing) -> Result<(Tx, Opener)> + Send + 'static,
    {
        let closing = Closing::default();
        let for_driver = Arc::clone(&closing);
        let (session, opener) = in_background(move || open(for_driver)).await?;
        committed.opened(session.last_seq());
        let queue = Arc::new(Queue::new(sizes.queue));
        let (state_sender, writer_state) = watch::channel(WriterState::Running);
        writer::start(session, Arc::clone(&queue), committed, sizes.batch, state_sender)?;
        let readers = Readers::new(opener, sizes.readers, Arc::clone(&queue));
        readers.open_ahead();
        Ok(Self { queue, writer_state, readers, closing })
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
        self.queue.submit(work).await
    }

    async fn query(&self, view: View, work: ReadWork) -> Result<()> {
        self.readers.query(view, work).await
    }

    async fn close(&self) {
        // The writer's connection closes last, because SQLite's last connection removes the log file.
        self.readers.close().await;
        self.closing.store(true, Ordering::Release);
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
        self.closing.store(true, Ordering::Release);
        self.queue.close();
    }
}
