//! What happens over and over and is told once in a while: a flood of connections must not become one of lines.
//!
//! Must never: keep the first of them to itself.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use ghost_domain::Timestamp;

/// It is told once in so long.
const TELL_EVERY: Duration = Duration::from_secs(60);
/// The time of what was never told.
const NEVER: i64 = i64::MIN;

/// When something was told last, in milliseconds.
pub(crate) struct LogThrottle(AtomicI64);

impl Default for LogThrottle {
    fn default() -> Self {
        Self(AtomicI64::new(NEVER))
    }
}

impl LogThrottle {
    /// Whether it is to be told now. A clock that goes back keeps nothing from being told.
    pub(crate) fn is_due(&self, now: Timestamp) -> bool {
        let told = self.0.load(Ordering::Relaxed);
        let due = told == NEVER || now >= Timestamp(told).plus(TELL_EVERY) || now < Timestamp(told);
        if due {
            self.0.store(now.0, Ordering::Relaxed);
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_happens_every_second_is_told_once_a_minute() {
        let seldom = LogThrottle::default();
        let told: Vec<i64> = (0..=120_i64).filter(|second| seldom.is_due(Timestamp(second * 1_000))).collect();
        assert_eq!(told, [0, 60, 120]);
        assert!(seldom.is_due(Timestamp(5)), "the clock has gone back");
    }
}
