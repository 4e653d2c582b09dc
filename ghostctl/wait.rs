//! Waiting and the time of day, for a client.
//!
//! Must never: be used where a simulation could own the time. There is none here: the Clock port lives on the other
//! side of the wire, and a person waits in real time.

#![allow(clippy::disallowed_methods)] // a client has no simulation: it waits with the runtime's own clock

use std::future::Future;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::Instant;

/// First pause between two attempts; each next one is twice as long, up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(50);
/// A daemon that boots is noticed within this time.
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// Milliseconds since the Unix epoch; 0 on a clock that stands before it.
pub fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

/// Waits.
pub async fn pause(duration: Duration) {
    tokio::time::sleep(duration).await;
}

/// The instant at which patience ends.
#[derive(Clone, Copy, Debug)]
pub struct Deadline(Instant);

impl Deadline {
    /// The instant `duration` from now. A duration that no clock can hold counts as 10 years.
    pub fn after(duration: Duration) -> Self {
        let now = Instant::now();
        Self(now.checked_add(duration).unwrap_or(now + Duration::from_secs(10 * 365 * 86_400)))
    }

    /// What is left until then; zero when it has passed.
    pub fn remaining(self) -> Duration {
        self.0.saturating_duration_since(Instant::now())
    }

    /// The outcome of `work`, or nothing if the deadline comes first.
    pub async fn within<F: Future>(self, work: F) -> Option<F::Output> {
        tokio::time::timeout_at(self.0, work).await.ok()
    }
}

/// The pauses between attempts.
#[derive(Debug)]
pub struct Backoff(Duration);

impl Backoff {
    /// Starts with the shortest pause.
    pub fn new() -> Self {
        Self(FIRST_PAUSE)
    }

    /// The next pause.
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
    fn pauses_double_up_to_their_bound() {
        let mut backoff = Backoff::new();
        let pauses: Vec<u128> = (0..8).map(|_| backoff.next().as_millis()).collect();
        assert_eq!(pauses, [50, 100, 200, 400, 800, 1600, 2000, 2000]);
    }

    #[test]
    fn an_endless_deadline_is_still_a_deadline() {
        assert!(Deadline::after(Duration::MAX).remaining() > Duration::from_secs(86_400));
    }
}
