//! The SQLite backend: one database file. See `docs/design.md`, "The store".
//!
//! This backend must never acknowledge a command before its COMMIT is durable (`synchronous = FULL`).

mod driver;
mod file_check;
mod log_file;
mod open;
pub(crate) mod schema;

#[cfg(test)]
pub(crate) mod tests;

use std::path::Path;
use std::sync::Arc;

pub(crate) use self::driver::SqliteDriver;
pub use self::open::SqliteOptions;
pub(crate) use self::open::in_memory;
use crate::engine::{Opener, Sizes, in_background};
use crate::error::StoreError;
use crate::handle::Store;
use crate::tx::Tx;

/// Opens the store at `path`, creating it (mode 0600) if it does not exist, and starts its writer.
///
/// Errors: [`StoreError::Open`] if the file cannot be opened; [`StoreError::Newer`] if a newer
/// ghostd wrote it; [`StoreError::Damaged`] if it is damaged, belongs to another program, or is
/// empty or missing although a log beside it or `options.expected` shows that it held data. The
/// content of the file stays unchanged in all these cases.
pub async fn open_store(path: &Path, options: SqliteOptions) -> Result<Store, StoreError> {
    // SQLite keeps the log beside the file that a link names.
    let path: Arc<Path> = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned()).into();
    let sizes = Sizes { readers: options.reader_connections, batch: options.batch_max, queue: options.queue };
    crate::engine::open_store(sizes, move |_| {
        let (conn, counters) = open::writer(&path, &options)?;
        let identity = file_check::identity(&path)
            .map_err(|error| StoreError::Open { path: path.to_path_buf(), what: error.to_string() })?;
        let writer = Tx::writer(Box::new(SqliteDriver::writer(conn, Arc::clone(&path))?), counters);
        let opener: Opener = Box::new(move || {
            let conn = open::reader(&path, identity, &options)?;
            Ok(Tx::reader(Box::new(SqliteDriver::new(conn, Arc::clone(&path)))))
        });
        Ok((writer, opener))
    })
    .await
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
/// Errors: as [`open_store`].
pub async fn verify(path: &Path, expected: Option<&str>) -> Result<(i64, i64), StoreError> {
    let (path, expected) = (path.to_owned(), expected.map(str::to_owned));
    in_background(move || open::verify(&path, expected.as_deref())).await
}
