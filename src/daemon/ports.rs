//! The real clock, ids and random numbers. Only this module of the daemon reads the system clock.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ghost_domain::Timestamp;
use ghost_domain::ports::{Ids, Ports, Rng};
use ghost_domain::time::{BoxFuture, Clock};
use rustix::time::{ClockId, clock_gettime};
use uuid::Uuid;

/// The monotonic clock. On Linux it also counts the time in which the machine sleeps, so that a sleep is no jump of the
/// wall clock.
#[cfg(target_os = "linux")]
const MONOTONIC: ClockId = ClockId::Boottime;
#[cfg(not(target_os = "linux"))]
const MONOTONIC: ClockId = ClockId::Monotonic;

/// The longest single wait of the runtime's timer, which does not count the time in which the machine sleeps.
const WAIT_MAX: Duration = Duration::from_secs(60);

fn monotonic() -> Duration {
    let time = clock_gettime(MONOTONIC);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}

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

    fn steady(&self) -> Timestamp {
        static BEGAN: OnceLock<(Timestamp, Duration)> = OnceLock::new();
        let (wall, began) = *BEGAN.get_or_init(|| (self.now(), monotonic()));
        wall.plus(monotonic().saturating_sub(began))
    }

    // See above.
    #[allow(clippy::disallowed_methods)]
    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        let until = monotonic().saturating_add(duration);
        Box::pin(async move {
            loop {
                let left = until.saturating_sub(monotonic());
                if left.is_zero() {
                    return;
                }
                tokio::time::sleep(left.min(WAIT_MAX)).await;
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
