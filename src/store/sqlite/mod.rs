//! The store on SQLite: one file, one writer that commits many commands together, many readers (DESIGN.md section 2,
//! "Writing", and section 4).
//!
//! sqlx costs 16 to 20 microseconds of CPU a statement, so rows share statements: what commands write waits in
//! [`buffer`] and goes to SQL at the end of the batch, or before a query that must see it.
//!
//! Must never: acknowledge before COMMIT at full synchronous durability, or let more than one task write.

mod commit_delay;
mod fault;
mod file_identity;
mod flush;
mod internal_rows;
mod merge;
mod open;
mod open_turn;
mod options;
mod query;
mod reader;
mod row;
mod rows;
mod schema;
mod session;
mod table_cache;
mod table_set;
mod write_buffer;
mod writer;

#[cfg(test)]
mod tests;

use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use tokio::sync::{mpsc, watch};

pub use self::options::SqliteOptions;
use self::reader::Readers;
use self::writer::Standing;
use crate::StoreError;
use crate::handle::{Backend, Committed, ReadWork, Store, View, Work};

/// A database file in use.
pub struct SqliteBackend {
    queue: mpsc::Sender<Work>,
    stop: watch::Sender<bool>,
    standing: watch::Receiver<Standing>,
    readers: Arc<Readers>,
}

/// Opens the database at `path`, creating it (mode 0600) if there is none, and starts its writer.
///
/// Errors: [`StoreError::Open`] if the file cannot be reached, [`StoreError::Damaged`] if it is not a whole database of
/// ours, or holds nothing though a log beside it or the options say that it must, [`StoreError::Newer`] if a newer ghostd
/// wrote it; in none of these cases is any file changed.
pub async fn open(path: &Path, options: SqliteOptions, committed: Committed) -> Result<SqliteBackend, StoreError> {
    let (conn, buffer) = open::writer(path, &options).await?;
    committed.opened(buffer.counters.events);
    let path: Arc<Path> = path.into();
    let session = session::Session::writer(conn, path.clone(), buffer);
    let (queue, queued) = mpsc::channel(options.queue.max(1));
    let (stop, stopped) = watch::channel(false);
    let (ending, standing) = watch::channel(Standing::Runs);
    tokio::spawn(writer::run(session, queued, stopped, committed, options.batch_max, ending));
    let readers = Readers::new(path, options);
    readers.open_ahead();
    Ok(SqliteBackend { queue, stop, standing, readers })
}

/// Whether there is a database at `path` that [`open_store`] would take as it is, without bringing it to another version.
#[must_use]
pub fn is_current(path: &Path) -> bool {
    open::is_current(path)
}

/// Opens the store at `path`.
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
        // The writer's connection is the last: with it the files beside the database go.
        self.readers.close().await;
        self.stop.send_replace(true);
        // An error says that the writer is gone, which is what is waited for.
        let _ = self.standing.clone().wait_for(|standing| *standing != Standing::Runs).await;
    }

    async fn broken(&self) -> String {
        let mut standing = self.standing.clone();
        // An error says that the runtime ends, and everything with it.
        let why = standing.wait_for(|standing| standing.why().is_some()).await.ok().and_then(|end| end.why().cloned());
        match why {
            Some(why) => why,
            None => std::future::pending().await,
        }
    }
}
