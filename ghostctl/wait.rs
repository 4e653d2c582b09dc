//! Real time for the client: the clock, pauses, deadlines and back-off.

#![allow(clippy::disallowed_methods)] // the client is not simulated, so it uses the runtime's clock

use std::future::Future;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::Instant;

/// The first pause between two attempts. Each pause is twice as long as the one before, up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(50);
/// The longest pause between two attempts, so a started daemon is noticed within this time.
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// Milliseconds since the Unix epoch; 0 if the clock is before it.
pub fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

/// Waits for this time.
pub async fn pause(duration: Duration) {
    tokio::time::sleep(duration).await;
}

/// An instant until which to wait.
#[derive(Clone, Copy, Debug)]
pub struct Deadline(Instant);

impl Deadline {
    /// The instant `duration` from now. A duration that overflows the clock is treated as 10 years.
    pub fn after(duration: Duration) -> Self {
        let now = Instant::now();
        Self(now.checked_add(duration).unwrap_or(now + Duration::from_secs(10 * 365 * 86_400)))
    }

    /// Time left until the deadline; zero if it has passed.
    pub fn remaining(self) -> Duration {
        self.0.saturating_duration_since(Instant::now())
    }

    /// The result of `work`, or `None` if the deadline passes first.
    pub async fn within<F: Future>(self, work: F) -> Option<F::Output> {
        tokio::time::timeout_at(self.0, work).await.ok()
    }
}

/// The pauses between attempts.
#[derive(Debug)]
pub struct Backoff(Duration);

impl Backoff {
    /// A back-off that starts with the shortest pause.
    pub fn new() -> Self {
        Self(FIRST_PAUSE)
    }

    /// Returns the next pause and doubles the one after it.
    pub fn next(&mut self) -> Duration {
        let pause = self.0;
        self.0 = (pause * 2).min(LONGEST_PAUSE);
        pause
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_longest() {
        let mut backoff = Backoff::new();
        let pauses: Vec<u128> = (0..8).map(|_| backoff.next().as_millis()).collect();
        assert_eq!(pauses, [50, 100, 200, 400, 800, 1600, 2000, 2000]);
    }

    #[test]
    fn an_overflowing_duration_is_a_far_deadline() {
        assert!(Deadline::after(Duration::MAX).remaining() > Duration::from_secs(86_400));
    }
}
