//! Limits the open connections: all network listeners share one limit, and the Unix sockets share
//! another of the same size. So network clients cannot prevent the local operator from connecting.
//!
//! A closed connection must never be counted.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ghost_world::World;
use tokio::sync::Notify;

use crate::log_throttle::LogThrottle;

/// How often the limit is read again while it is reached: a reload may have raised it.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// A connection limit, shared by several listeners.
#[derive(Clone, Default)]
pub(crate) struct ConnectionLimit(Arc<Counted>);

#[derive(Default)]
struct Counted {
    taken: AtomicUsize,
    freed: Notify,
    /// Throttles the warning that the limit is reached.
    warned: LogThrottle,
}

/// Permission for one open connection. Dropping it makes the permit available again.
pub(crate) struct ConnectionPermit(Arc<Counted>);

impl ConnectionLimit {
    /// Waits until fewer connections are open than the world's current limit, then takes a permit.
    pub(crate) async fn take(&self, world: &World) -> ConnectionPermit {
        loop {
            let limit = usize::try_from(world.ctx().limits().connections_max).unwrap_or(usize::MAX);
            let counted = &self.0;
            let acquired = counted
                .taken
                .fetch_update(Ordering::AcqRel, Ordering::Acquire, |taken| (taken < limit).then_some(taken + 1));
            if acquired.is_ok() {
                return ConnectionPermit(Arc::clone(counted));
            }
            if counted.warned.is_due(world.ctx().ports.clock.steady()) {
                tracing::warn!(connections_max = limit, "the connection limit is reached; new connections wait");
            }
            tokio::select! {
                () = counted.freed.notified() => {}
                // A reload may have raised the limit.
                () = world.ctx().ports.clock.sleep(RETRY_PAUSE) => {}
            }
        }
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        self.0.taken.fetch_sub(1, Ordering::AcqRel);
        self.0.freed.notify_one();
    }
}
