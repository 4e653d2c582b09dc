//! Real time: what processes are given to do what is expected of them.
//!
//! Must never: make a test pass by waiting. Everything here is a bound on waiting for an event.

use std::time::{Duration, Instant};

/// An instant by which something must have happened.
#[derive(Clone, Copy, Debug)]
pub struct Deadline(Instant);

impl Deadline {
    /// So long from now.
    // Processes live in real time; the Clock port is inside of them.
    #[allow(clippy::disallowed_methods)]
    #[must_use]
    pub fn after(within: Duration) -> Self {
        Self(Instant::now() + within)
    }

    /// So many seconds from now.
    #[must_use]
    pub fn seconds(seconds: u64) -> Self {
        Self::after(Duration::from_secs(seconds))
    }

    /// What is left; zero if it has passed.
    // See above.
    #[allow(clippy::disallowed_methods)]
    #[must_use]
    pub fn left(&self) -> Duration {
        self.0.saturating_duration_since(Instant::now())
    }

    /// Whether it has passed.
    #[must_use]
    pub fn passed(&self) -> bool {
        self.left().is_zero()
    }

    /// Looks again and again until `look` finds what it looks for. A look should take a moment by itself, as asking a
    /// process does.
    ///
    /// # Panics
    /// When the deadline passes first, with `what` and what the last look said.
    pub fn until<T>(self, what: &str, mut look: impl FnMut() -> Result<T, String>) -> T {
        loop {
            match look() {
                Ok(found) => return found,
                Err(last) if self.passed() => panic!("in vain waited for: {what}; at last: {last}"),
                Err(_) => std::thread::yield_now(),
            }
        }
    }
}
