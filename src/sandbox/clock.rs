//! The real clock, and work with a time limit.

use std::sync::OnceLock;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ghost_domain::time::BoxFuture;
use ghost_domain::{Clock, Timestamp};
use rustix::time::{ClockId, clock_gettime};

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
    #[allow(clippy::disallowed_methods, reason = "this is the port, which all other code uses")]
    fn now(&self) -> Timestamp {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Timestamp(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
    }

    fn steady(&self) -> Timestamp {
        static BEGAN: OnceLock<(Timestamp, Duration)> = OnceLock::new();
        let (wall, began) = *BEGAN.get_or_init(|| (self.now(), monotonic()));
        wall.plus(monotonic().saturating_sub(began))
    }

    #[allow(clippy::disallowed_methods, reason = "this is the port, which all other code uses")]
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

/// Waits for `work`, at most so long; then `None`.
pub async fn within<T>(clock: &dyn Clock, most: Duration, work: impl Future<Output = T>) -> Option<T> {
    tokio::select! {
        biased;
        done = work => Some(done),
        () = clock.sleep(most) => None,
    }
}
