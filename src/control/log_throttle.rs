//! Limits how often a repeated event is logged, so that a flood of connections does not flood the log.
//!
//! The first occurrence must never be suppressed.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use ghost_domain::Timestamp;

/// Shortest time between two log lines.
const LOG_EVERY: Duration = Duration::from_secs(60);
/// Marks a throttle that has not logged yet.
const NEVER: i64 = i64::MIN;

/// Time of the last log line, in milliseconds.
pub(crate) struct LogThrottle(AtomicI64);

impl Default for LogThrottle {
    fn default() -> Self {
        Self(AtomicI64::new(NEVER))
    }
}

impl LogThrottle {
    /// Whether to log now, at an instant of the steady clock.
    pub(crate) fn is_due(&self, now: Timestamp) -> bool {
        let last = self.0.load(Ordering::Relaxed);
        let due = last == NEVER || now >= Timestamp(last).plus(LOG_EVERY);
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
    fn an_event_that_repeats_every_second_is_logged_once_a_minute() {
        let throttle = LogThrottle::default();
        let last: Vec<i64> = (0..=120_i64).filter(|second| throttle.is_due(Timestamp(second * 1_000))).collect();
        assert_eq!(last, [0, 60, 120]);
    }
}
