//! Time: timestamps in milliseconds since the Unix epoch, and the port [`Clock`], which a test can
//! control.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use jiff::fmt::temporal::DateTimePrinter;
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
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }

    /// RFC 3339 in UTC with seconds, such as `2026-11-21T22:08:00Z`.
    pub fn rfc3339_seconds(self) -> String {
        self.written(0)
    }

    /// RFC 3339 in UTC with milliseconds, such as `2026-11-21T22:08:00.000Z`.
    pub fn rfc3339(self) -> String {
        self.written(3)
    }

    fn written(self, digits: u8) -> String {
        // The calendar ends with the year 9999; its end stands for all that is later.
        let end = if self.0 < 0 { jiff::Timestamp::MIN } else { jiff::Timestamp::MAX };
        let at = jiff::Timestamp::from_millisecond(self.0).unwrap_or(end);
        DateTimePrinter::new().precision(Some(digits)).timestamp_to_string(&at)
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
        assert_eq!(Timestamp(1_795_298_880_999).rfc3339_seconds(), "2026-11-21T22:08:00Z");
        assert_eq!(Timestamp(i64::MAX).rfc3339(), "9999-12-30T22:00:00.999Z");
    }

    #[test]
    fn arithmetic_saturates() {
        assert_eq!(Timestamp(i64::MAX).plus(Duration::MAX), Timestamp(i64::MAX));
        assert_eq!(Timestamp(5).since(Timestamp(9)), Duration::ZERO);
    }
}
