//! Connections for queries: each query runs inside one snapshot of what is committed, unless it needs none.
//!
//! Must never: give a connection back while a query may still be running on it.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::{Semaphore, oneshot, watch};
use tokio::task::JoinHandle;

use super::open;
use super::options::SqliteOptions;
use super::session::Session;
use crate::handle::{ReadWork, View};
use crate::{Reads, StoreError};

/// How long a query waits for a connection to come back before another is opened: opening one takes as long as many
/// queries.
const PATIENCE: Duration = Duration::from_millis(2);

/// How long a close waits for queries that are under way. They take milliseconds; one that hangs keeps nobody from ending.
const FAREWELL: Duration = Duration::from_secs(1);

/// The readers of one database. Connections are opened when they are first needed.
pub(super) struct Readers {
    path: Arc<Path>,
    options: SqliteOptions,
    /// A permit for each idle connection, and for each place that has become free.
    free: Semaphore,
    idle: Mutex<Vec<Session>>,
    /// How many more connections may be opened.
    room: AtomicUsize,
    /// How many are in use, or being opened.
    taken: watch::Sender<usize>,
    /// What opens connections, and closes those that were given up.
    under_way: Mutex<Vec<JoinHandle<()>>>,
}

/// A connection in use, or the place of one that is being opened. Dropped without being given back, it makes room for
/// another, and lets one of those who wait open it.
struct Taken {
    readers: Arc<Readers>,
    session: Option<Session>,
    kept: bool,
}

impl Taken {
    fn new(readers: &Arc<Readers>, session: Option<Session>) -> Self {
        readers.taken.send_modify(|taken| *taken += 1);
        Self { readers: Arc::clone(readers), session, kept: false }
    }

    /// Makes the connection idle, or closes it if nobody may query any more.
    async fn give_back(mut self) {
        let Some(session) = self.session.take() else { return };
        if !self.readers.free.is_closed() {
            lock(&self.readers.idle).push(session);
            self.readers.free.add_permits(1);
        } else {
            close(session).await;
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
        // The store's close waits for it: a connection that went later would leave the write-ahead log behind. Without a
        // runtime nobody waits, and the connection closes when its thread finds that nobody has it.
        if let (Some(session), Ok(runtime)) = (self.session.take(), Handle::try_current()) {
            self.readers.track(runtime.spawn(close(session)));
        }
        self.readers.taken.send_modify(|taken| *taken = taken.saturating_sub(1));
    }
}

async fn close(session: Session) {
    if let Err(error) = session.close().await {
        tracing::warn!(%error, "a connection for queries did not close well");
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
            taken: watch::Sender::new(0),
            under_way: Mutex::default(),
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
                return Ok(Taken::new(self, Some(session)));
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

    /// Opens a first connection before anyone asks: the first query of a world is part of its start.
    pub(super) fn open_ahead(self: &Arc<Self>) {
        drop(self.open_another());
    }

    /// Opens a connection, if there is room, for whoever waits; without anyone it becomes idle.
    fn open_another(self: &Arc<Self>) -> Option<oneshot::Receiver<Result<Taken, StoreError>>> {
        let fewer = |room: usize| room.checked_sub(1);
        self.room.fetch_update(Ordering::AcqRel, Ordering::Acquire, fewer).ok()?;
        let mut taken = Taken::new(self, None);
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
        self.track(opening);
        Some(told)
    }

    fn track(&self, task: JoinHandle<()>) {
        let mut all = lock(&self.under_way);
        all.retain(|task| !task.is_finished());
        all.push(task);
    }

    /// Refuses further queries, lets those under way end, and closes what is idle, given up or still being opened: the files
    /// of the database are left to no connection of ours.
    pub(super) async fn close(&self) {
        self.free.close();
        let mut taken = self.taken.subscribe();
        // The runtime's clock for the reason that `one_more` gives. The sender is ours, so the wait itself does not fail.
        #[allow(clippy::disallowed_methods)]
        let ended = tokio::time::timeout(FAREWELL, taken.wait_for(|taken| *taken == 0)).await.is_ok();
        if !ended {
            tracing::warn!("a query is still under way while the store closes");
        }
        let all = async {
            loop {
                let under_way = std::mem::take(&mut *lock(&self.under_way));
                if under_way.is_empty() {
                    break;
                }
                for task in under_way {
                    if let Err(error) = task.await {
                        tracing::debug!(%error, "a connection for queries was not opened or closed");
                    }
                }
            }
        };
        // As above: a connection that hangs must not keep the daemon from ending, whatever any clock says.
        #[allow(clippy::disallowed_methods)]
        if tokio::time::timeout(FAREWELL, all).await.is_err() {
            tracing::warn!("a connection for queries is still being closed while the store closes");
        }
        let idle = std::mem::take(&mut *lock(&self.idle));
        for session in idle {
            close(session).await;
        }
    }
}

/// A list of connections is whole between any two calls, whoever panicked.
fn lock<T>(list: &Mutex<Vec<T>>) -> MutexGuard<'_, Vec<T>> {
    list.lock().unwrap_or_else(PoisonError::into_inner)
}
