//! The SQLite backend: one database file, one writer that commits many commands together (group
//! commit), and several connections for readers. See `docs/design.md`, "The store".
//!
//! One thread owns the connection that writes; each connection that reads has a thread of its own.
//!
//! This backend must never acknowledge a command before its COMMIT is durable
//! (`synchronous = FULL`). Only one thread may write.

mod commit_delay;
pub(crate) mod fault;
pub(crate) mod file_check;
mod log_file;
mod open;
mod options;
mod queue;
mod reader;
pub(crate) mod schema;
mod writer;

#[cfg(test)]
pub(crate) mod tests;

use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use tokio::sync::watch;

pub(crate) use self::open::in_memory;
pub use self::options::SqliteOptions;
use self::queue::Queue;
use self::reader::Readers;
use self::writer::WriterState;
use crate::error::StoreError;
use crate::handle::{Backend, Committed, ReadWork, Store, View, Work};
use crate::tx::Tx;

/// An open database file.
pub struct SqliteBackend {
    queue: Arc<Queue>,
    writer_state: watch::Receiver<WriterState>,
    readers: Arc<Readers>,
}

/// Opens the database at `path`, creating it (mode 0600) if it does not exist, and starts its
/// writer.
///
/// Errors: [`StoreError::Open`] if the file cannot be opened; [`StoreError::Newer`] if a newer
/// ghostd wrote it; [`StoreError::Damaged`] if it is damaged, belongs to another program, or is
/// empty or missing although a log beside it or `options.expected` shows that it held data. The
/// content of the file stays unchanged in all these cases.
pub async fn open(path: &Path, options: SqliteOptions, committed: Committed) -> Result<SqliteBackend, StoreError> {
    // SQLite keeps the log beside the file that a link names.
    let real = std::fs::canonicalize(path).ok();
    let path = real.as_deref().unwrap_or(path);
    let path: Arc<Path> = path.into();
    let opened = in_background({
        let (path, options) = (Arc::clone(&path), options.clone());
        move || {
            let (conn, counters) = open::writer(&path, &options)?;
            let last_seq = counters.events;
            let identity = file_check::identity(&path)
                .map_err(|error| StoreError::Open { path: path.to_path_buf(), what: error.to_string() })?;
            Ok((Tx::writer(conn, path, counters)?, last_seq, identity))
        }
    });
    let (session, last_seq, identity) = opened.await?;
    committed.opened(last_seq);
    let queue = Arc::new(Queue::new(options.queue));
    let (state_sender, writer_state) = watch::channel(WriterState::Running);
    writer::start(session, Arc::clone(&queue), committed, options.batch_max, state_sender)?;
    let readers = Readers::new(path, identity, options, Arc::clone(&queue));
    readers.open_ahead();
    Ok(SqliteBackend { queue, writer_state, readers })
}

/// Runs work that waits for the disk on a thread that may.
async fn in_background<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, StoreError> + Send + 'static,
) -> Result<T, StoreError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // Only the end of the runtime cancels such work.
            Err(_) => Err(StoreError::Closed),
        },
    }
}

/// Whether the database at `path` has the current schema version, so that [`open_store`] would
/// migrate nothing.
#[must_use]
pub fn is_current(path: &Path) -> bool {
    open::is_current(path)
}

/// Checks a database at rest completely: its log, its identity and schema version, every page, every index and that no
/// table is missing. Returns its schema version and number of pages. Changes neither the database nor its log.
///
/// Errors: as [`open`].
pub async fn verify(path: &Path, expected: Option<&str>) -> Result<(i64, i64), StoreError> {
    let (path, expected) = (path.to_owned(), expected.map(str::to_owned));
    in_background(move || open::verify(&path, expected.as_deref())).await
}

/// Opens the store at `path`, with [`open`].
pub async fn open_store(path: &Path, options: SqliteOptions) -> Result<Store, StoreError> {
    let path = path.to_owned();
    Store::open(|committed| async move { open(&path, options, committed).await }).await
}

#[async_trait]
impl Backend for SqliteBackend {
    async fn submit(&self, work: Work) -> Result<(), StoreError> {
        self.queue.submit(work).await
    }

    async fn query(&self, view: View, work: ReadWork) -> Result<(), StoreError> {
        self.readers.query(view, work).await
    }

    async fn close(&self) {
        // The writer's connection closes last, because the last connection removes the log file.
        self.readers.close().await;
        self.queue.close();
        // An error means that the writer has ended.
        let mut state = self.writer_state.clone();
        while state.changed().await.is_ok() {}
    }

    async fn broken(&self) -> StoreError {
        let mut state = self.writer_state.clone();
        // An error means that the runtime is shutting down.
        let cause =
            state.wait_for(|state| state.cause().is_some()).await.ok().and_then(|end| end.cause().map(fault::copy));
        match cause {
            Some(cause) => cause,
            None => std::future::pending().await,
        }
    }
}

impl Drop for SqliteBackend {
    /// Ends the threads of a store that nobody closed.
    fn drop(&mut self) {
        self.readers.stop();
        self.queue.close();
    }
}
