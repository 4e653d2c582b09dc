//! Time: timestamps in milliseconds since the Unix epoch, and the port [`Clock`], which a test can
//! control.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A boxed future, the return type of ports and store commands.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Milliseconds since 1970-01-01T00:00:00Z.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Timestamp(pub i64);

impl Timestamp {
    /// This instant plus `duration`, saturating.
    #[must_use]
    pub fn plus(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)))
    }

    /// This instant minus `duration`, saturating.
    #[must_use]
    pub fn minus(self, duration: Duration) -> Self {
        Self(self.0.saturating_sub(i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)))
    }

    /// The time from `earlier` to this instant; zero if `earlier` is later, because clocks can jump
    /// back.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }

    /// RFC 3339 in UTC with seconds, such as `2026-11-21T22:08:00Z`.
    #[must_use]
    pub fn rfc3339_seconds(self) -> String {
        let whole = self.rfc3339();
        whole.split_once('.').map_or_else(|| whole.clone(), |(seconds, _)| format!("{seconds}Z"))
    }

    /// RFC 3339 in UTC with milliseconds, such as `2026-11-21T22:08:00.000Z`.
    #[must_use]
    pub fn rfc3339(self) -> String {
        // Civil-from-days, H. Hinnant, "chrono-Compatible Low-Level Date Algorithms".
        let (days, ms) = (self.0.div_euclid(86_400_000), self.0.rem_euclid(86_400_000));
        let z = days + 719_468;
        let era = z.div_euclid(146_097);
        let doe = z.rem_euclid(146_097);
        let yoe = (doe - doe / 1_460 + doe / 36_524 - doe / 146_096) / 365;
        let doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
        let mp = (5 * doy + 2) / 153;
        let day = doy - (153 * mp + 2) / 5 + 1;
        let month = if mp < 10 { mp + 3 } else { mp - 9 };
        let year = yoe + era * 400 + i64::from(month <= 2);
        let (h, m, s) = (ms / 3_600_000, ms / 60_000 % 60, ms / 1_000 % 60);
        format!("{year:04}-{month:02}-{day:02}T{h:02}:{m:02}:{s:02}.{:03}Z", ms % 1_000)
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.rfc3339())
    }
}

/// The only source of time. All waiting uses this port, so a simulation can control time.
///
/// The wall clock is input, not truth: it may jump in either direction. What is stored or shown uses
/// [`Clock::now`]. What one process measures uses [`Clock::steady`] and [`Clock::sleep`].
pub trait Clock: Send + Sync + 'static {
    /// The present time of the wall clock.
    fn now(&self) -> Timestamp;

    /// The time that has passed, as an instant that never jumps. It began as the time of the wall
    /// clock. It must not be stored, because it has no meaning in another process.
    fn steady(&self) -> Timestamp;

    /// Completes after `duration`. A jump of the wall clock does not matter.
    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()>;

    /// Completes when the time from now to `until` has passed, at once if `until` has passed. If the
    /// wall clock jumps meanwhile, that does not matter: a deadline moves with the clock.
    fn sleep_until(&self, until: Timestamp) -> BoxFuture<'static, ()> {
        self.sleep(until.since(self.now()))
    }

    /// The time of the wall clock at an instant of [`Clock::steady`].
    fn wall_of(&self, steady: Timestamp) -> Timestamp {
        Timestamp(self.now().0.saturating_add(steady.0.saturating_sub(self.steady().0)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rfc3339_of_known_instants() {
        assert_eq!(Timestamp(0).rfc3339(), "1970-01-01T00:00:00.000Z");
        assert_eq!(Timestamp(951_782_400_000).rfc3339(), "2000-02-29T00:00:00.000Z");
        assert_eq!(Timestamp(1_795_298_880_123).rfc3339(), "2026-11-21T22:08:00.123Z");
        assert_eq!(Timestamp(-1).rfc3339(), "1969-12-31T23:59:59.999Z");
    }

    #[test]
    fn arithmetic_saturates() {
        assert_eq!(Timestamp(i64::MAX).plus(Duration::MAX), Timestamp(i64::MAX));
        assert_eq!(Timestamp(5).since(Timestamp(9)), Duration::ZERO);
    }
}
