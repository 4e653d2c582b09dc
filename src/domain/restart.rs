//! Restart rules: which children restart after a crash, after what delay, and when a supervisor
//! stops restarting. They are pure types; the actor library has no restart rules for its
//! supervisors. See `docs/design.md`, "Supervision and restart".

use std::collections::VecDeque;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::macros::text_enum;
use crate::time::Timestamp;

text_enum! {
    /// When a child is restarted.
    RestartType, "restart type" {
        /// Always.
        Permanent = "permanent",
        /// After a crash only.
        Transient = "transient",
        /// Never.
        Temporary = "temporary",
    }
}

text_enum! {
    /// Which children are restarted when one crashes.
    Strategy, "team strategy" {
        /// Only the crashed child.
        OneForOne = "one_for_one",
        /// All members of the team.
        OneForAll = "one_for_all",
        /// The crashed child and the children declared after it.
        RestForOne = "rest_for_one",
    }
}

/// How many restarts a supervisor accepts within a time window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Intensity {
    /// Restarts allowed within the window.
    pub max: u32,
    /// Length of the window.
    pub window: Duration,
}

impl Default for Intensity {
    fn default() -> Self {
        Self { max: 5, window: Duration::from_secs(60) }
    }
}

/// The delay before a restart. It doubles from `base` to `cap`. Then up to a fifth is subtracted at
/// random, so that agents that crashed together do not restart together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Backoff {
    /// Delay before the first restart.
    pub base: Duration,
    /// Longest delay.
    pub cap: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Self { base: Duration::from_millis(200), cap: Duration::from_secs(30) }
    }
}

impl Backoff {
    /// The delay before restart number `attempt` (from 0). `jitter` is a random number in
    /// `0..1000`.
    pub fn delay(&self, attempt: u32, jitter: u64) -> Duration {
        let full = self.base.saturating_mul(2u32.saturating_pow(attempt.min(20))).min(self.cap);
        let off = full.as_millis().saturating_mul(u128::from(jitter.min(999))) / 5_000;
        full.saturating_sub(Duration::from_millis(u64::try_from(off).unwrap_or(0)))
    }
}

/// The recent restarts of one supervisor.
#[derive(Clone, Debug, Default)]
pub struct RestartWindow {
    recent: VecDeque<Timestamp>,
}

impl RestartWindow {
    /// Records a crash at `now`. Returns the number of earlier restarts within the window. Returns
    /// `None` if the window already contains `intensity.max` restarts: then the supervisor must not
    /// restart the child.
    pub fn record(&mut self, now: Timestamp, intensity: Intensity) -> Option<u32> {
        let start = now.minus(intensity.window);
        // If the clock jumped back, restarts in the future would otherwise count for ever.
        self.recent.retain(|at| *at > start && *at <= now);
        let before = u32::try_from(self.recent.len()).unwrap_or(u32::MAX);
        if before >= intensity.max {
            return None;
        }
        self.recent.push_back(now);
        Some(before)
    }

    /// Clears all restarts, for example after an operator starts the agent.
    pub fn clear(&mut self) {
        self.recent.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    // covers: WORLD-12
    #[test]
    fn a_window_allows_max_restarts_and_forgets_old_ones() {
        let intensity = Intensity { max: 2, window: Duration::from_secs(10) };
        let mut window = RestartWindow::default();
        assert_eq!(window.record(Timestamp(0), intensity), Some(0));
        assert_eq!(window.record(Timestamp(1_000), intensity), Some(1));
        assert_eq!(window.record(Timestamp(2_000), intensity), None);
        assert_eq!(window.record(Timestamp(10_500), intensity), Some(1));
    }

    proptest! {
        // covers: WORLD-12
        #[test]
        fn backoff_is_bounded_and_never_shrinks_by_more_than_a_fifth(attempt in 0u32..100, jitter in 0u64..2_000) {
            let backoff = Backoff::default();
            let delay = backoff.delay(attempt, jitter);
            prop_assert!(delay <= backoff.cap);
            prop_assert!(delay >= backoff.base * 4 / 5);
            prop_assert!(backoff.delay(attempt + 1, jitter) >= delay);
        }

        #[test]
        fn at_most_max_restarts_in_any_window(times in prop::collection::vec(0i64..60_000, 1..80)) {
            let mut times = times;
            times.sort_unstable();
            let intensity = Intensity { max: 3, window: Duration::from_secs(5) };
            let mut window = RestartWindow::default();
            let granted: Vec<i64> = times.iter().copied()
                .filter(|at| window.record(Timestamp(*at), intensity).is_some()).collect();
            for at in &granted {
                let within = granted.iter().filter(|other| **other > at - 5_000 && **other <= *at).count();
                prop_assert!(within <= 3);
            }
        }
    }
}
