//! Deadlines in real time for the actions of processes.
//!
//! A test must never pass because it waited. A deadline only limits the wait for an event.

use std::time::{Duration, Instant};

/// A time limit.
#[derive(Clone, Copy, Debug)]
pub struct Deadline(Instant);

impl Deadline {
    /// The deadline `within` from now.
    // Tests of processes use real time. The Clock port is inside the processes.
    #[allow(clippy::disallowed_methods)]
    #[must_use]
    pub fn after(within: Duration) -> Self {
        Self(Instant::now() + within)
    }

    /// The deadline `seconds` from now.
    #[must_use]
    pub fn seconds(seconds: u64) -> Self {
        Self::after(Duration::from_secs(seconds))
    }

    /// The time left; zero if the deadline has passed.
    // See above.
    #[allow(clippy::disallowed_methods)]
    #[must_use]
    pub fn left(&self) -> Duration {
        self.0.saturating_duration_since(Instant::now())
    }

    /// Whether the deadline has passed.
    #[must_use]
    pub fn passed(&self) -> bool {
        self.left().is_zero()
    }

    /// Calls `check` until it returns `Ok`. `check` should take a moment, because there is no pause between two calls.
    ///
    /// # Panics
    /// If the deadline passes first; the message has `what` and the last error of `check`.
    pub fn until<T>(self, what: &str, mut check: impl FnMut() -> Result<T, String>) -> T {
        loop {
            match check() {
                Ok(found) => return found,
                Err(last) if self.passed() => panic!("waited too long for: {what}; at last: {last}"),
                Err(_) => std::thread::yield_now(),
            }
        }
    }
}
