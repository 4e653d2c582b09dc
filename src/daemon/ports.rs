//! The real clock, ids and random numbers. Only this module of the daemon reads the system clock.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ghost_domain::Timestamp;
use ghost_domain::ports::{Ids, Ports, Rng};
use ghost_domain::time::{BoxFuture, Clock};
use uuid::Uuid;

/// The system's clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    // This is the port. All other code must use it.
    #[allow(clippy::disallowed_methods)]
    fn now(&self) -> Timestamp {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Timestamp(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
    }

    // See above.
    #[allow(clippy::disallowed_methods)]
    fn sleep_until(&self, until: Timestamp) -> BoxFuture<'static, ()> {
        let clock = *self;
        Box::pin(async move {
            loop {
                let left = until.since(clock.now());
                if left.is_zero() {
                    return;
                }
                // Sleep at most a minute at a time, so that a change of the system clock is noticed.
                tokio::time::sleep(left.min(Duration::from_secs(60))).await;
            }
        })
    }
}

/// UUIDs of version 7. They grow with time, so new rows go to the same database pages.
#[derive(Clone, Copy, Debug, Default)]
pub struct UuidIds;

impl Ids for UuidIds {
    fn next(&self) -> Uuid {
        Uuid::now_v7()
    }
}

/// Random numbers for jitter, from UUIDs of version 4.
#[derive(Clone, Copy, Debug, Default)]
pub struct OsRng;

impl Rng for OsRng {
    fn below(&self, bound: u64) -> u64 {
        if bound == 0 {
            return 0;
        }
        // Modulo is off by less than one in 2^40 for the small bounds of jitter.
        let (high, low) = Uuid::new_v4().as_u64_pair();
        (high ^ low.rotate_left(17)) % bound
    }
}

/// The ports of a real daemon.
#[must_use]
pub fn system_ports() -> Ports {
    Ports { clock: Arc::new(SystemClock), ids: Arc::new(UuidIds), rng: Arc::new(OsRng) }
}
