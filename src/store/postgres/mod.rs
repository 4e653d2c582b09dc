//! The PostgreSQL backend: one schema a world, one connection that writes, and several for readers.

#[cfg(any(test, feature = "testing"))]
pub mod cluster;

#[cfg(test)]
mod tests;

use crate::error::StoreError;
use crate::handle::Store;

/// Options for opening a world's schema.
#[derive(Clone)]
pub struct PostgresOptions {
    /// The connection URL: `postgres://user:password@host:port/database`. It is never shown.
    pub url: String,
    /// The schema of the world. It is created if it does not exist.
    pub schema: String,
    /// Number of connections for queries; at least 1.
    pub reader_connections: usize,
    /// Maximum number of commands in one batch; at least 1.
    pub batch_max: usize,
    /// Maximum number of queued commands; further callers wait for space. At least 1.
    pub queue: usize,
    /// If set, the schema must exist already and hold data. The text is the reason.
    pub expected: Option<&'static str>,
}

impl PostgresOptions {
    /// The options for a world.
    #[must_use]
    pub fn new(url: impl Into<String>, schema: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            schema: schema.into(),
            reader_connections: 4,
            batch_max: 512,
            queue: 1_024,
            expected: None,
        }
    }
}

/// Opens the store of a world.
pub async fn open_store(options: PostgresOptions) -> Result<Store, StoreError> {
    let _ = options;
    Err(StoreError::Database("not built".to_owned()))
}
