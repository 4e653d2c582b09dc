//! Connections for readers. Each query runs on one connection, inside one snapshot unless it needs
//! none.
//!
//! A connection must never return to the pool while a query may still run on it.

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
use super::writer::Alarm;
use crate::handle::{ReadWork, View};
use crate::{Reads, StoreError};

/// How long a query waits for an idle connection before it opens another. Opening one takes as long
/// as many queries.
const IDLE_WAIT: Duration = Duration::from_millis(2);

/// How long `close` waits for running queries, and then for connections that are being opened or
/// closed. Queries take milliseconds. One that hangs must not block the shutdown.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);

/// The pool of reader connections of one database. Connections are opened when they are needed.
pub(super) struct Readers {
    path: Arc<Path>,
    options: SqliteOptions,
    /// Told of damage that a query finds.
    alarm: Arc<Alarm>,
    /// One permit for each idle connection and for each lease that ended without returning its
    /// connection.
    free: Semaphore,
    idle: Mutex<Vec<Session>>,
    /// Number of connections that may still be opened.
    unopened: AtomicUsize,
    /// Number of leases: connections that are in use or being opened.
    leases: watch::Sender<usize>,
    /// Tasks that open connections, or close abandoned ones.
    background_tasks: Mutex<Vec<JoinHandle<()>>>,
}

/// A lease: a connection that is in use or being opened. If it is dropped without `give_back`, the
/// connection is closed and a waiting query may open another.
struct Lease {
    readers: Arc<Readers>,
    session: Option<Session>,
    returned: bool,
}

impl Lease {
    fn new(readers: &Arc<Readers>, session: Option<Session>) -> Self {
        readers.leases.send_modify(|leases| *leases += 1);
        Self { readers: Arc::clone(readers), session, returned: false }
    }

    /// Returns the connection to the pool, or closes it if the pool is closed.
    async fn give_back(mut self) {
        let Some(session) = self.session.take() else { return };
        if !self.readers.free.is_closed() {
            lock(&self.readers.idle).push(session);
            self.readers.free.add_permits(1);
        } else {
            close(session).await;
        }
        // The connection still exists, so no other may be opened for it.
        self.returned = true;
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if !self.returned {
            self.readers.unopened.fetch_add(1, Ordering::AcqRel);
            self.readers.free.add_permits(1);
        }
        // The store's `close` waits for this task, because a connection that closes later leaves
        // the write-ahead log behind. Without a runtime no one waits, and dropping the session
        // closes the connection.
        if let (Some(session), Ok(runtime)) = (self.session.take(), Handle::try_current()) {
            self.readers.track(runtime.spawn(close(session)));
        }
        self.readers.leases.send_modify(|leases| *leases = leases.saturating_sub(1));
    }
}

async fn close(session: Session) {
    if let Err(error) = session.close().await {
        tracing::warn!(%error, "closing a connection for queries failed");
    }
}

impl Readers {
    /// Creates an empty pool for the database at `path`.
    pub(super) fn new(path: Arc<Path>, options: SqliteOptions, alarm: Arc<Alarm>) -> Arc<Self> {
        let unopened = AtomicUsize::new(options.reader_connections.max(1));
        Arc::new(Self {
            path,
            options,
            alarm,
            free: Semaphore::new(0),
            idle: Mutex::default(),
            unopened,
            leases: watch::Sender::new(0),
            background_tasks: Mutex::default(),
        })
    }

    /// Runs a query; waits while all connections are in use. If a query is cancelled or panics, its
    /// connection is closed, because a statement may still run on it.
    pub(super) async fn query(self: &Arc<Self>, view: View, work: ReadWork) -> Result<(), StoreError> {
        let mut lease = self.take().await?;
        let Some(session) = lease.session.as_mut() else { return Err(StoreError::Closed) };
        session.share_snapshot(view == View::Snapshot);
        let reads: &mut dyn Reads = session;
        work(reads).await;
        if let Some(error) = session.failure() {
            self.alarm.raise(error);
            return Ok(());
        }
        if let Err(error) = session.end_snapshot().await {
            self.alarm.raise(&error);
            tracing::warn!(%error, "ending a query's snapshot failed; its connection is closed");
            return Ok(());
        }
        lease.give_back().await;
        Ok(())
    }

    /// Leases an idle connection, or the first one that is returned or opened.
    async fn take(self: &Arc<Self>) -> Result<Lease, StoreError> {
        loop {
            if let Ok(permit) = self.free.try_acquire() {
                permit.forget();
            } else {
                tokio::select! {
                    biased;
                    permit = self.free.acquire() => permit.map_err(|_| StoreError::Closed)?.forget(),
                    Some(opened) = self.open_another_if_slow() => return opened,
                }
            }
            if let Some(session) = lock(&self.idle).pop() {
                return Ok(Lease::new(self, Some(session)));
            }
            // The permit came from a lease that ended without returning its connection. Try again;
            // now a connection may be opened.
        }
    }

    /// Opens a connection, after a short wait if others exist that may become idle. `None` if the
    /// limit is reached.
    async fn open_another_if_slow(self: &Arc<Self>) -> Option<Result<Lease, StoreError>> {
        if self.unopened.load(Ordering::Acquire) < self.options.reader_connections.max(1) {
            // This uses the runtime's clock, not the Clock port: no result depends on this wait,
            // and the simulation has its own backend. A returned connection ends the wait early;
            // see `take`.
            #[allow(clippy::disallowed_methods)]
            tokio::time::sleep(IDLE_WAIT).await;
        }
        self.open_another()?.await.ok()
    }

    /// Opens the first connection before it is needed, because the first query is part of the
    /// daemon's start.
    pub(super) fn open_ahead(self: &Arc<Self>) {
        drop(self.open_another());
    }

    /// Starts a task that opens a connection, unless the limit is reached. The receiver gets the
    /// lease; if it was dropped, the connection becomes idle.
    fn open_another(self: &Arc<Self>) -> Option<oneshot::Receiver<Result<Lease, StoreError>>> {
        let fewer = |unopened: usize| unopened.checked_sub(1);
        self.unopened.fetch_update(Ordering::AcqRel, Ordering::Acquire, fewer).ok()?;
        let mut lease = Lease::new(self, None);
        let (sender, receiver) = oneshot::channel();
        let opening = tokio::spawn(async move {
            let opened = open::reader(&lease.readers.path, &lease.readers.options).await;
            let opened = opened.inspect_err(|error| lease.readers.alarm.raise(error)).map(|conn| {
                lease.session = Some(Session::reader(conn, lease.readers.path.clone()));
                lease
            });
            match sender.send(opened) {
                Ok(()) => {}
                Err(Ok(lease)) => lease.give_back().await,
                Err(Err(error)) => tracing::debug!(%error, "a connection for queries could not be opened"),
            }
        });
        self.track(opening);
        Some(receiver)
    }

    fn track(&self, task: JoinHandle<()>) {
        let mut all = lock(&self.background_tasks);
        all.retain(|task| !task.is_finished());
        all.push(task);
    }

    /// Refuses further queries, waits for running ones, then closes all connections.
    pub(super) async fn close(&self) {
        self.free.close();
        let mut leases = self.leases.subscribe();
        // This uses the runtime's clock for the same reason as `open_another_if_slow`. The sender
        // belongs to `self`, so the wait itself cannot fail.
        #[allow(clippy::disallowed_methods)]
        let ended = tokio::time::timeout(DRAIN_TIMEOUT, leases.wait_for(|leases| *leases == 0)).await.is_ok();
        if !ended {
            tracing::warn!("a query is still under way while the store closes");
        }
        let finish_tasks = async {
            loop {
                let background_tasks = std::mem::take(&mut *lock(&self.background_tasks));
                if background_tasks.is_empty() {
                    break;
                }
                for task in background_tasks {
                    if let Err(error) = task.await {
                        tracing::debug!(%error, "opening or closing a connection for queries failed");
                    }
                }
            }
        };
        // As in the first wait of `close`: a connection that hangs must not block the shutdown.
        #[allow(clippy::disallowed_methods)]
        if tokio::time::timeout(DRAIN_TIMEOUT, finish_tasks).await.is_err() {
            tracing::warn!("a connection for queries is still being closed while the store closes");
        }
        let idle = std::mem::take(&mut *lock(&self.idle));
        for session in idle {
            close(session).await;
        }
    }
}

/// A poisoned lock is safe to use: no call panics between two changes of the list.
fn lock<T>(list: &Mutex<Vec<T>>) -> MutexGuard<'_, Vec<T>> {
    list.lock().unwrap_or_else(PoisonError::into_inner)
}
