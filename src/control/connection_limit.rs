//! How many connections may be held at once, whatever they speak: as many from the network, over all of its doors together, as
//! over the daemon's own sockets. Peers elsewhere therefore never keep the operator of this machine waiting.
//!
//! Must never: hold a place for a connection that is gone.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ghost_world::World;
use tokio::sync::Notify;

use crate::log_throttle::LogThrottle;

/// The limit is looked at again this often while no place is free: it may have been raised.
const AGAIN: Duration = Duration::from_secs(1);

/// The places of the doors that share them.
#[derive(Clone, Default)]
pub(crate) struct ConnectionLimit(Arc<Counted>);

#[derive(Default)]
struct Counted {
    taken: AtomicUsize,
    freed: Notify,
    /// That there is no place.
    told: LogThrottle,
}

/// One connection's place, free again when this is dropped.
pub(crate) struct ConnectionPermit(Arc<Counted>);

impl ConnectionLimit {
    /// Takes one as soon as fewer are taken than the limits of the world say then.
    pub(crate) async fn take(&self, world: &World) -> ConnectionPermit {
        loop {
            let most = usize::try_from(world.ctx().limits().connections_max).unwrap_or(usize::MAX);
            let counted = &self.0;
            let took = counted
                .taken
                .fetch_update(Ordering::AcqRel, Ordering::Acquire, |taken| (taken < most).then_some(taken + 1));
            if took.is_ok() {
                return ConnectionPermit(Arc::clone(counted));
            }
            if counted.told.is_due(world.ctx().now()) {
                tracing::warn!(connections_max = most, "no more connections can be held; the next waits for a place");
            }
            tokio::select! {
                () = counted.freed.notified() => {}
                // The limit itself may have been raised meanwhile.
                () = world.ctx().ports.clock.sleep(AGAIN) => {}
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
