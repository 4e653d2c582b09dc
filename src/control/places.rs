//! How many connections may be held at once, whatever they speak: as many from the network, over all of its doors together, as
//! over the daemon's own sockets. Peers elsewhere therefore never keep the operator of this machine waiting.
//!
//! Must never: hold a place for a connection that is gone.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::time::Duration;

use ghost_domain::Timestamp;
use ghost_world::World;
use tokio::sync::Notify;

/// The limit is looked at again this often while no place is free: it may have been raised.
const AGAIN: Duration = Duration::from_secs(1);
/// That there is no place is told once in so long: a flood of connections must not become one of lines.
const TELL_EVERY: Duration = Duration::from_secs(60);

/// The places of the doors that share them.
#[derive(Clone, Default)]
pub(crate) struct Places(Arc<Counted>);

#[derive(Default)]
struct Counted {
    taken: AtomicUsize,
    freed: Notify,
    /// When it was last told that there is no place, in milliseconds.
    told_at: AtomicI64,
}

/// One connection's place, free again when this is dropped.
pub(crate) struct Place(Arc<Counted>);

impl Places {
    /// Takes one as soon as fewer are taken than the limits of the world say then.
    pub(crate) async fn take(&self, world: &World) -> Place {
        loop {
            let most = usize::try_from(world.cx().limits().connections_max).unwrap_or(usize::MAX);
            let counted = &self.0;
            let took = counted
                .taken
                .fetch_update(Ordering::AcqRel, Ordering::Acquire, |taken| (taken < most).then_some(taken + 1));
            if took.is_ok() {
                return Place(Arc::clone(counted));
            }
            let now = world.cx().now();
            let told = Timestamp(counted.told_at.load(Ordering::Relaxed));
            if told == Timestamp(0) || now >= told.plus(TELL_EVERY) || now < told {
                counted.told_at.store(now.0, Ordering::Relaxed);
                tracing::warn!(connections_max = most, "no more connections can be held; the next waits for a place");
            }
            tokio::select! {
                () = counted.freed.notified() => {}
                // The limit itself may have been raised meanwhile.
                () = world.cx().ports.clock.sleep(AGAIN) => {}
            }
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.taken.fetch_sub(1, Ordering::AcqRel);
        self.0.freed.notify_one();
    }
}
