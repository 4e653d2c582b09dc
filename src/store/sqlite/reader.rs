//! Connections for queries: each query runs inside one snapshot of what is committed, unless it needs none.
//!
//! Must never: give a connection back while a query may still be running on it.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Semaphore;

use super::session::Session;
use super::{SqliteOptions, open};
use crate::handle::{ReadWork, View};
use crate::{Reads, StoreError};

/// The readers of one database. Connections are opened when they are first needed.
pub(super) struct Readers {
    path: Arc<Path>,
    options: SqliteOptions,
    permits: Semaphore,
    idle: Mutex<Vec<Session>>,
}

impl Readers {
    /// Readers of the database at `path`.
    pub(super) fn new(path: Arc<Path>, options: SqliteOptions) -> Self {
        let permits = Semaphore::new(options.reader_connections.max(1));
        Self { path, options, permits, idle: Mutex::new(Vec::new()) }
    }

    /// Runs a query; waits while all connections are taken. A query that is cancelled or panics takes its connection
    /// along: what runs on it is unknown.
    pub(super) async fn query(&self, view: View, work: ReadWork) -> Result<(), StoreError> {
        let _permit = self.permits.acquire().await.map_err(|_| StoreError::Closed)?;
        let idle = self.lock().pop();
        let mut session = match idle {
            Some(session) => session,
            None => Session::reader(open::reader(&self.path, &self.options).await?, self.path.clone()),
        };
        session.share_snapshot(view == View::Snapshot);
        let reads: &mut dyn Reads = &mut session;
        work(reads).await;
        if session.has_failed() {
            return Ok(());
        }
        if let Err(error) = session.end_snapshot().await {
            tracing::warn!(%error, "a query's snapshot did not end; its connection is given up");
            return Ok(());
        }
        if !self.permits.is_closed() {
            self.lock().push(session);
        }
        Ok(())
    }

    /// Refuses further queries, waits for nobody, and closes what is idle.
    pub(super) async fn close(&self) {
        self.permits.close();
        let idle = std::mem::take(&mut *self.lock());
        for session in idle {
            if let Err(error) = session.close().await {
                tracing::warn!(%error, "a connection for queries did not close well");
            }
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Session>> {
        // A list of connections is whole between any two calls, whoever panicked.
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
