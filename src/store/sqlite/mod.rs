//! The SQLite backend: one database file, one writer that commits many commands together (group
//! commit), and several connections for readers. See `docs/design.md`, "The store".
//!
//! A statement costs sqlx 16 to 20 microseconds of CPU, so rows share statements: rows that
//! commands write wait in the [`write_buffer`] and are flushed to SQL at the end of the batch, or
//! before a query that must see them.
//!
//! This backend must never acknowledge a command before its COMMIT is durable
//! (`synchronous = FULL`). Only one task may write.

mod bounded_map;
mod commit_delay;
mod facts;
mod fault;
mod file_check;
mod flush;
mod internal_rows;
mod log_file;
mod merge;
mod open;
mod options;
mod query;
mod reader;
mod row;
mod rows;
mod schema;
mod session;
mod table_cache;
mod table_list;
mod write_buffer;
mod writer;

#[cfg(test)]
mod tests;

use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use tokio::sync::{mpsc, watch};

pub use self::open::verify;
pub use self::options::SqliteOptions;
use self::reader::Readers;
use self::writer::{Alarm, WriterState};
use crate::StoreError;
use crate::handle::{Backend, Committed, ReadWork, Store, View, Work};

/// An open database file.
pub struct SqliteBackend {
    queue: mpsc::Sender<Work>,
    alarm: Arc<Alarm>,
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
    let (conn, buffer) = open::writer(path, &options).await?;
    committed.opened(buffer.counters.events);
    let path: Arc<Path> = path.into();
    let session = session::Session::writer(conn, path.clone(), buffer)?;
    let (queue, queued) = mpsc::channel(options.queue.max(1));
    let alarm = Arc::<Alarm>::default();
    let (state_sender, writer_state) = watch::channel(WriterState::Running);
    tokio::spawn(writer::run(session, queued, alarm.orders(), committed, options.batch_max, state_sender));
    let readers = Readers::new(path, options, Arc::clone(&alarm));
    readers.open_ahead();
    Ok(SqliteBackend { queue, alarm, writer_state, readers })
}

/// Whether the database at `path` has the current schema version, so that [`open_store`] would
/// migrate nothing.
#[must_use]
pub fn is_current(path: &Path) -> bool {
    open::is_current(path)
}

/// Opens the store at `path`, with [`open`].
pub async fn open_store(path: &Path, options: SqliteOptions) -> Result<Store, StoreError> {
    let path = path.to_owned();
    Store::open(|committed| async move { open(&path, options, committed).await }).await
}

#[async_trait]
impl Backend for SqliteBackend {
    async fn submit(&self, work: Work) -> Result<(), StoreError> {
        self.queue.send(work).await.map_err(|_| StoreError::Closed)
    }

    async fn query(&self, view: View, work: ReadWork) -> Result<(), StoreError> {
        self.readers.query(view, work).await
    }

    async fn close(&self) {
        // The writer's connection closes last, because the last connection removes the log file.
        self.readers.close().await;
        self.alarm.close();
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
