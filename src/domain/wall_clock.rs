//! The wall clock as an input: how a jump is noticed, what it moves, and how far retention trusts the
//! clock after it.
//!
//! A jump is a difference to the monotonic clock. Until the world follows a jump, its clock goes on as if
//! there had been none, so nothing ends because of a reading that was not yet dealt with. This module
//! must never decide what a jump means for a record.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::time::{BoxFuture, Clock, Timestamp};

/// A smaller difference between the two clocks is no jump: corrections by small steps are usual.
pub const JUMP_MIN: Duration = Duration::from_secs(2);

/// A start whose clock is further ahead than this of all that is stored counts as a jump. Less is a
/// daemon that was down.
pub const DOWN_MAX: Duration = Duration::from_secs(7 * 86_400);

/// A jump of the wall clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Jump {
    /// The time that the clock would have shown without the jump.
    pub from: Timestamp,
    /// The time that it shows.
    pub to: Timestamp,
}

impl Jump {
    /// Its size in milliseconds; negative for a clock that went back.
    pub fn by_ms(self) -> i64 {
        self.to.0.saturating_sub(self.from.0)
    }

    /// An instant that is a duration away from the present, after the jump: just as far away.
    pub fn moved(self, at: Timestamp) -> Timestamp {
        Timestamp(at.0.saturating_add(self.by_ms()))
    }
}

/// A wall clock that is watched. See the module.
pub struct WatchedClock {
    inner: Arc<dyn Clock>,
    /// Milliseconds from the steady time to the wall clock's, as far as the world has followed it.
    offset: AtomicI64,
}

impl WatchedClock {
    /// Watches `inner` from now on.
    pub fn over(inner: Arc<dyn Clock>) -> Self {
        let offset = inner.now().0.saturating_sub(inner.steady().0);
        Self { inner, offset: AtomicI64::new(offset) }
    }

    /// The time without a jump, and what the wall clock shows.
    fn readings(&self) -> Jump {
        let steady = self.inner.steady();
        let from = Timestamp(steady.0.saturating_add(self.offset.load(Ordering::Acquire)));
        Jump { from, to: self.inner.now() }
    }

    /// The jump that the world has not followed yet, if there is one.
    pub fn jump(&self) -> Option<Jump> {
        let jump = self.readings();
        if is_jump(jump) {
            // A process that is stopped between two readings sees a difference that does not last.
            return Some(self.readings()).filter(|jump| is_jump(*jump));
        }
        self.offset.fetch_add(jump.by_ms(), Ordering::AcqRel);
        None
    }

    /// Follows a jump of this many milliseconds: from now on the time is what the wall clock shows.
    pub fn follow(&self, by_ms: i64) {
        self.offset.fetch_add(by_ms, Ordering::AcqRel);
    }
}

fn is_jump(jump: Jump) -> bool {
    u128::from(jump.to.0.abs_diff(jump.from.0)) >= JUMP_MIN.as_millis()
}

impl Clock for WatchedClock {
    fn now(&self) -> Timestamp {
        let readings = self.readings();
        if is_jump(readings) { readings.from } else { readings.to }
    }

    fn steady(&self) -> Timestamp {
        self.inner.steady()
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        self.inner.sleep(duration)
    }
}

/// A step forward is small beside the time that the daemon has run if it is no more than this part of it.
const SMALL_STEP: u64 = 1_000;

/// How far a wall clock may be ahead of the time that has really passed. Retention deletes nothing
/// because of it: after a jump forward it deletes only what is old by the time that passed since then,
/// until the daemon has run as long as the clock jumped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Doubt {
    /// Milliseconds that the clock jumped forward.
    pub ahead_ms: u64,
    /// Milliseconds that the daemon has run since the last jump forward.
    pub ran_ms: u64,
}

impl Doubt {
    /// The doubt after a jump. A jump back takes a jump forward back. What was recorded while a clock was
    /// behind looks old when it is right again, so a jump forward counts whatever was before it.
    #[must_use]
    pub fn jumped(self, by_ms: i64) -> Self {
        match by_ms {
            ..0 => Self { ahead_ms: self.ahead_ms.saturating_sub(by_ms.unsigned_abs()), ..self },
            // A small step makes what was recorded before it look only that much older.
            _ if by_ms.unsigned_abs() <= self.ran_ms / SMALL_STEP => Self {
                ahead_ms: self.ahead_ms.saturating_add(by_ms.unsigned_abs()),
                ran_ms: self.ran_ms - by_ms.unsigned_abs(),
            },
            _ => Self { ahead_ms: self.ahead_ms.saturating_add(by_ms.unsigned_abs()), ran_ms: 0 },
        }
    }

    /// The doubt after the daemon has run for some time.
    #[must_use]
    pub fn ran(self, time: Duration) -> Self {
        let time = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let after = Self { ran_ms: self.ran_ms.saturating_add(time), ..self };
        if after.is_over() { Self::default() } else { after }
    }

    /// Whether the clock is trusted.
    pub fn is_over(self) -> bool {
        self.ran_ms >= self.ahead_ms
    }

    /// Whether rows that are older than `age` by the clock may be deleted.
    pub fn allows(self, age: Duration) -> bool {
        self.is_over() || u128::from(self.ran_ms) >= age.as_millis()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::testing::ManualClock;

    const DAY_MS: i64 = 86_400_000;

    #[test]
    fn a_jump_is_seen_once_and_time_goes_on_until_it_is_followed() {
        let inner = ManualClock::at(1_000_000);
        let clock = WatchedClock::over(inner.clone());
        assert_eq!(clock.jump(), None);
        for by in [400 * DAY_MS, -4_000 * DAY_MS, 2_000, -2_000] {
            let before = clock.now();
            inner.jump(by);
            assert_eq!(clock.now(), before, "nothing happens before it is dealt with");
            inner.advance(Duration::from_millis(700));
            let jump = clock.jump().unwrap();
            assert_eq!((jump.by_ms(), jump.from), (by, before.plus(Duration::from_millis(700))));
            assert_eq!(jump.moved(before.plus(Duration::from_millis(700))), jump.to);
            clock.follow(jump.by_ms());
            assert_eq!((clock.now(), clock.jump()), (inner.now(), None));
        }
        for _ in 0..10 {
            inner.jump(1_999);
            assert_eq!((clock.now(), clock.jump()), (inner.now(), None), "a small correction is followed at once");
        }
    }

    #[test]
    fn retention_trusts_a_clock_again_when_it_has_run_as_long_as_it_jumped() {
        let day = |days: u64| Duration::from_secs(days * 86_400);
        let ahead = Doubt::default().jumped(40 * DAY_MS).ran(day(3));
        assert!(!ahead.allows(day(7)) && ahead.allows(day(2)), "what is older was recorded after the jump");
        assert!(ahead.jumped(-40 * DAY_MS).allows(day(7)), "the clock is right again");
        assert!(ahead.ran(day(4)).allows(day(7)) && !ahead.ran(day(36)).allows(day(90)));
        assert_eq!(ahead.ran(day(37)), Doubt::default());
        let behind = Doubt::default().jumped(-4_000 * DAY_MS);
        assert!(behind.allows(day(7)));
        assert!(!behind.jumped(4_000 * DAY_MS).allows(day(7)), "what was recorded meanwhile looks old");
    }

    proptest! {
        #[test]
        fn no_clock_is_too_far_away(start in any::<i64>(), jumps in prop::collection::vec(any::<i64>(), 0..20), age in any::<u64>()) {
            let inner = ManualClock::at(start);
            let clock = WatchedClock::over(inner.clone());
            let mut doubt = Doubt::default();
            for by in jumps {
                inner.jump(by);
                let _ = (clock.now(), clock.wall_of(Timestamp(by)), clock.now().rfc3339());
                if let Some(jump) = clock.jump() {
                    clock.follow(jump.by_ms());
                    doubt = doubt.jumped(jump.by_ms()).ran(Duration::from_millis(age));
                    prop_assert!(doubt.allows(Duration::ZERO));
                }
            }
        }
    }
}
