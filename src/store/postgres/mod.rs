//! The PostgreSQL backend: one schema a world, one connection that writes, and several for readers. See
//! `docs/design.md`, "The store".
//!
//! This backend must never write to a schema that another daemon has open, and never show the URL, which may hold a
//! password.

mod connect;
mod driver;
mod schema;

#[cfg(any(test, feature = "testing"))]
pub mod testing;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use self::connect::{Link, Target};
use self::driver::PostgresDriver;
use crate::driver::Driver;
use crate::engine::{Opener, Sizes};
use crate::error::StoreError;
use crate::handle::Store;
use crate::tx::Tx;

/// Options for opening a world's schema.
#[derive(Clone)]
pub struct PostgresOptions {
    /// The connection URL: `postgres://user:password@host:port/database`. It is never shown.
    pub url: String,
    /// The schema of the world: lower-case letters, digits and `_`, at most 63. It is created if it does not exist.
    pub schema: String,
    /// Number of connections for queries; at least 1. People's requests get half of them at most, and one at least.
    pub reader_connections: usize,
    /// Maximum number of commands in one batch; at least 1.
    pub batch_max: usize,
    /// Maximum number of queued commands; further callers wait for space. At least 1.
    pub queue: usize,
    /// If set, the schema must exist already and hold data; otherwise opening is refused and nothing is created. The text
    /// is the reason, for example `a world has run in its directory`.
    pub expected: Option<&'static str>,
}

impl PostgresOptions {
    /// The options for a schema of the database at a URL.
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

/// Opens the store in a schema, creating it if it does not exist, and starts its writer.
///
/// Errors: [`StoreError::Open`] if the database cannot be reached, refuses the role or is too old, or if the schema is empty or missing
/// although `options.expected` shows that it held data;
/// [`StoreError::InUse`] if another daemon has the schema open; [`StoreError::Newer`] if a newer ghostd wrote it; [`StoreError::Damaged`] if the schema belongs to another program. Nothing is changed in all these
/// cases.
pub async fn open_store(options: PostgresOptions) -> Result<Store, StoreError> {
    open_with(options, |writer| writer).await
}

/// As [`open_store`], and records what the writer tells its server.
///
/// # Errors
/// As there.
#[cfg(any(test, feature = "testing"))]
pub async fn open_recorded(options: PostgresOptions) -> Result<(Store, testing::Recording), StoreError> {
    let recording = testing::Recording::default();
    let recorder = recording.clone();
    let store = open_with(options, |inner| Box::new(testing::Recorder { inner, recording: recorder })).await?;
    Ok((store, recording))
}

async fn open_with<F>(options: PostgresOptions, wrap: F) -> Result<Store, StoreError>
where
    F: FnOnce(Box<dyn Driver>) -> Box<dyn Driver> + Send + 'static,
{
    let sizes = Sizes { readers: options.reader_connections, batch: options.batch_max, queue: options.queue };
    crate::engine::open_store(sizes, move |doubt| {
        let target = Arc::new(Target::parse(&options.url, &options.schema)?);
        let mut link = Link::new(Arc::clone(&target))?;
        let found = schema::open(&mut link, options.expected)?;
        let writer = Tx::writer(wrap(Box::new(PostgresDriver::writer(link, found.mark, doubt))), found.counters);
        let opener: Opener =
            Box::new(move || Ok(Tx::reader(Box::new(PostgresDriver::reader(Link::new(Arc::clone(&target))?)))));
        Ok((writer, opener))
    })
    .await
}
