//! Connections for queries: each query runs inside one snapshot of what is committed, unless it needs none.
//!
//! Must never: give a connection back while a query may still be running on it.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Semaphore, oneshot};
use tokio::task::JoinHandle;

use super::session::Session;
use super::{SqliteOptions, open};
use crate::handle::{ReadWork, View};
use crate::{Reads, StoreError};

/// How long a query waits for a connection to come back before another is opened: opening one takes as long as many
/// queries.
const PATIENCE: Duration = Duration::from_millis(2);

/// The readers of one database. Connections are opened when they are first needed.
pub(super) struct Readers {
    path: Arc<Path>,
    options: SqliteOptions,
    /// A permit for each idle connection, and for each place that has become free.
    free: Semaphore,
    idle: Mutex<Vec<Session>>,
    /// How many more connections may be opened.
    room: AtomicUsize,
    /// Those that are being opened.
    opening: Mutex<Vec<JoinHandle<()>>>,
}

/// A connection in use, or the place of one that is being opened. Dropped without being given back, it makes room for
/// another, and lets one of those who wait open it.
struct Taken {
    readers: Arc<Readers>,
    session: Option<Session>,
    kept: bool,
}

impl Taken {
    /// Makes the connection idle, or closes it if nobody may query any more.
    async fn give_back(mut self) {
        let Some(session) = self.session.take() else { return };
        if !self.readers.free.is_closed() {
            lock(&self.readers.idle).push(session);
            self.readers.free.add_permits(1);
        } else if let Err(error) = session.close().await {
            tracing::warn!(%error, "a connection for queries did not close well");
        }
        // The connection is there: its place stays taken.
        self.kept = true;
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        if !self.kept {
            self.readers.room.fetch_add(1, Ordering::AcqRel);
            self.readers.free.add_permits(1);
        }
    }
}

impl Readers {
    /// Readers of the database at `path`.
    pub(super) fn new(path: Arc<Path>, options: SqliteOptions) -> Arc<Self> {
        let room = AtomicUsize::new(options.reader_connections.max(1));
        Arc::new(Self {
            path,
            options,
            free: Semaphore::new(0),
            idle: Mutex::default(),
            room,
            opening: Mutex::default(),
        })
    }

    /// Runs a query; waits while all connections are taken. A query that is cancelled or panics takes its connection
    /// along: what runs on it is unknown.
    pub(super) async fn query(self: &Arc<Self>, view: View, work: ReadWork) -> Result<(), StoreError> {
        let mut taken = self.take().await?;
        let Some(session) = taken.session.as_mut() else { return Err(StoreError::Closed) };
        session.share_snapshot(view == View::Snapshot);
        let reads: &mut dyn Reads = session;
        work(reads).await;
        if session.has_failed() {
            return Ok(());
        }
        if let Err(error) = session.end_snapshot().await {
            tracing::warn!(%error, "a query's snapshot did not end; its connection is given up");
            return Ok(());
        }
        taken.give_back().await;
        Ok(())
    }

    /// An idle connection, or the next that is given back or opened, whichever is there first.
    async fn take(self: &Arc<Self>) -> Result<Taken, StoreError> {
        loop {
            if let Ok(permit) = self.free.try_acquire() {
                permit.forget();
            } else {
                tokio::select! {
                    biased;
                    permit = self.free.acquire() => permit.map_err(|_| StoreError::Closed)?.forget(),
                    Some(opened) = self.one_more() => return opened,
                }
            }
            if let Some(session) = lock(&self.idle).pop() {
                return Ok(Taken { readers: Arc::clone(self), session: Some(session), kept: false });
            }
            // The permit was that of a free place.
        }
    }

    /// A connection that is opened because those that there are did not come back soon. None if there is no room for one.
    async fn one_more(self: &Arc<Self>) -> Option<Result<Taken, StoreError>> {
        if self.room.load(Ordering::Acquire) < self.options.reader_connections.max(1) {
            // The runtime's clock and no Clock port: nothing of what happens depends on this wait, and simulation has a
            // store of its own. The event, a connection that comes back, ends it early: see `take`.
            #[allow(clippy::disallowed_methods)]
            tokio::time::sleep(PATIENCE).await;
        }
        self.open_another()?.await.ok()
    }

    /// Opens a connection, if there is room, for whoever waits; without anyone it becomes idle.
    fn open_another(self: &Arc<Self>) -> Option<oneshot::Receiver<Result<Taken, StoreError>>> {
        let fewer = |room: usize| room.checked_sub(1);
        self.room.fetch_update(Ordering::AcqRel, Ordering::Acquire, fewer).ok()?;
        let mut taken = Taken { readers: Arc::clone(self), session: None, kept: false };
        let (tell, told) = oneshot::channel();
        let opening = tokio::spawn(async move {
            let opened = open::reader(&taken.readers.path, &taken.readers.options).await;
            let opened = opened.map(|conn| {
                taken.session = Some(Session::reader(conn, taken.readers.path.clone()));
                taken
            });
            match tell.send(opened) {
                Ok(()) => {}
                Err(Ok(taken)) => taken.give_back().await,
                Err(Err(error)) => tracing::debug!(%error, "a connection for queries could not be opened"),
            }
        });
        let mut all = lock(&self.opening);
        all.retain(|opening| !opening.is_finished());
        all.push(opening);
        Some(told)
    }

    /// Refuses further queries, waits for none, and closes what is idle or still being opened: the files of the database are
    /// left to no connection of ours.
    pub(super) async fn close(&self) {
        self.free.close();
        let opening = std::mem::take(&mut *lock(&self.opening));
        for opening in opening {
            if let Err(error) = opening.await {
                tracing::debug!(%error, "a connection for queries was not opened");
            }
        }
        let idle = std::mem::take(&mut *lock(&self.idle));
        for session in idle {
            if let Err(error) = session.close().await {
                tracing::warn!(%error, "a connection for queries did not close well");
            }
        }
    }
}

/// A list of connections is whole between any two calls, whoever panicked.
fn lock<T>(list: &Mutex<Vec<T>>) -> MutexGuard<'_, Vec<T>> {
    list.lock().unwrap_or_else(PoisonError::into_inner)
}
