//! Limits the open connections: all network listeners share one limit, and the Unix sockets share
//! another of the same size. So network clients cannot prevent the local operator from connecting.
//!
//! While a limit is reached, the connections that have been silent longest make room for new ones.
//!
//! A closed connection must never be counted. The limit must leave the rest of the daemon the descriptors that it
//! needs.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ghost_domain::Timestamp;
use ghost_world::World;
use rustix::process::{Resource, getrlimit};
use tokio::sync::Notify;

use crate::log_throttle::LogThrottle;

/// How often the limit is read again while it is reached: a reload may have raised it, and connections have become
/// silent for long enough.
const RETRY_PAUSE: Duration = Duration::from_millis(500);
/// Files that the rest of the daemon keeps open.
const OWN_FILES: u64 = 64;
/// Connections that are allowed however few files the process may open.
const CONNECTIONS_LEAST: u64 = 4;
/// How long a connection may be without a request before it makes room for others.
const SILENT_MIN: Duration = Duration::from_millis(500);

/// A connection, as the limit sees it.
pub(crate) trait Evictable: Send + Sync {
    /// Whether it has sent no request yet, and is open.
    fn is_silent(&self) -> bool;
    /// Closes it.
    fn close(&self);
}

/// A connection limit, shared by several listeners.
#[derive(Clone, Default)]
pub(crate) struct ConnectionLimit(Arc<Counted>);

#[derive(Default)]
struct Counted {
    taken: AtomicUsize,
    freed: Notify,
    /// Throttles the warning that the limit is reached.
    warned: LogThrottle,
    /// Connections without a request so far, the oldest first, and when they were accepted.
    silent: Mutex<VecDeque<(Timestamp, Arc<dyn Evictable>)>>,
}

/// Permission for one open connection. Dropping it makes the permit available again.
pub(crate) struct ConnectionPermit(Arc<Counted>, Arc<dyn Evictable>);

impl ConnectionLimit {
    /// Waits until fewer connections are open than the world's current limit, then takes a permit for `peer`.
    pub(crate) async fn take(&self, world: &World, peer: Arc<dyn Evictable>) -> ConnectionPermit {
        loop {
            let limit = limit(world.ctx().limits().connections_max);
            let counted = &self.0;
            let now = world.ctx().ports.clock.steady();
            let acquired = counted
                .taken
                .fetch_update(Ordering::AcqRel, Ordering::Acquire, |taken| (taken < limit).then_some(taken + 1));
            if acquired.is_ok() {
                let mut silent = counted.silent();
                silent.retain(|(_, peer)| peer.is_silent());
                silent.push_back((now, Arc::clone(&peer)));
                return ConnectionPermit(Arc::clone(counted), peer);
            }
            if counted.warned.is_due(now) {
                tracing::warn!(connections_max = limit, "the connection limit is reached; new connections wait");
            }
            counted.close_silent(now);
            tokio::select! {
                () = counted.freed.notified() => {}
                // A reload may have raised the limit.
                () = world.ctx().ports.clock.sleep(RETRY_PAUSE) => {}
            }
        }
    }
}

impl Counted {
    fn silent(&self) -> MutexGuard<'_, VecDeque<(Timestamp, Arc<dyn Evictable>)>> {
        // A poisoned lock is safe to use: no call panics between two changes of the list.
        self.silent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Closes the oldest connection that has been silent for some time.
    fn close_silent(&self, now: Timestamp) {
        let mut silent = self.silent();
        silent.retain(|(_, peer)| peer.is_silent());
        if silent.front().is_some_and(|(since, _)| now.since(*since) >= SILENT_MIN)
            && let Some((_, peer)) = silent.pop_front()
        {
            peer.close();
        }
    }
}

/// The limit of connections: `most`, or fewer if the process may not have so many files open.
fn limit(most: u32) -> usize {
    let files = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let room = (files.saturating_sub(OWN_FILES) / 2).max(CONNECTIONS_LEAST).min(u64::from(most));
    usize::try_from(room).unwrap_or(usize::MAX)
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        self.1.close();
        self.0.taken.fetch_sub(1, Ordering::AcqRel);
        self.0.freed.notify_one();
    }
}
