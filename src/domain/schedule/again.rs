//! What a schedule has computed from the wall clock, computed again: its next slot lies no
//! further ahead than its own rule permits, whatever the clock showed when it was computed.
//!
//! This module must never move a date that a person gave.

use std::time::Duration;

use super::slots::Slots;
use super::{Schedule, When};
use crate::time::Timestamp;
use crate::wall_clock::Jump;

/// The wait until a one-shot that could not go off is tried again.
pub const TRY_AGAIN: Duration = Duration::from_secs(30);

/// A slot that is no further ahead than this may have gone off before the clock was put back. It does
/// not go off twice.
const DONE_MAX: Duration = Duration::from_secs(60);

impl Schedule {
    /// The schedule as it must be at `now`, after this jump of the clock if there was one. `None` if
    /// nothing changes.
    #[must_use]
    pub fn computed_again(&self, jump: Option<Jump>, now: Timestamp) -> Option<Self> {
        let next_at = self.next_at?;
        let mut again = self.clone();
        match &mut again.when {
            // A duration goes on from where it was, and it never began in the future.
            When::After { anchor, .. } => *anchor = jump.map_or(*anchor, |jump| jump.moved(*anchor)).min(now),
            // Its first interval began when it was made. A later anchor is a person's date.
            When::Every { every_ms, anchor } if now < *anchor && *anchor <= self.created_at => {
                // Back by whole intervals.
                let every_ms = i64::try_from(*every_ms).unwrap_or(i64::MAX).max(1);
                let over = (i128::from(anchor.0) - i128::from(now.0)).rem_euclid(i128::from(every_ms));
                let over = i64::try_from(over).unwrap_or(0);
                *anchor = Timestamp(now.0.saturating_add(over).saturating_sub(every_ms));
            }
            _ => {}
        }
        again.next_at = Some(match (self.when.once_at(), again.when.once_at()) {
            (Some(before), Some(at)) if before == next_at => at,
            // It could not go off at its time and is tried again.
            (_, Some(at)) => next_at.min(at.max(now.plus(TRY_AGAIN))),
            _ => {
                let slots = Slots::of(&again.when).ok()?;
                match slots.next_after(now.plus(DONE_MAX)) {
                    Some(latest) if latest < next_at => slots.next_after(now).unwrap_or(next_at),
                    _ => next_at,
                }
            }
        });
        (again != *self).then_some(again)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use uuid::Uuid;

    use super::super::words::instant;
    use super::super::{JobMode, Missed, ScheduleKind};
    use super::*;
    use crate::ids::{RootId, ScheduleId};
    use crate::party::Party;

    const DAY_MS: i64 = 86_400_000;

    fn at(text: &str) -> Timestamp {
        instant("t", text).unwrap()
    }

    fn days(at: Timestamp, days: i64) -> Timestamp {
        Timestamp(at.0.saturating_add(days.saturating_mul(DAY_MS)))
    }

    fn every(minutes: u64, anchor: Timestamp) -> When {
        When::Every { every_ms: minutes * 60_000, anchor }
    }

    fn cron(expression: &str) -> When {
        When::Cron { expression: expression.into(), zone: None }
    }

    /// A schedule that was made at `made` with its first slot.
    fn made(when: When, made: Timestamp) -> Schedule {
        let next_at = Slots::of(&when).unwrap().next_after(made);
        Schedule {
            schedule_id: ScheduleId(Uuid::nil()),
            kind: ScheduleKind::Cron,
            agent_id: "ada".parse().unwrap(),
            name: "job".into(),
            when,
            message: "go".into(),
            missed: Missed::Skip,
            mode: JobMode::default(),
            enabled: true,
            root_id: RootId(Uuid::nil()),
            hop: 0,
            conversation_id: None,
            next_at,
            last_at: None,
            last_status: None,
            runs: 0,
            creator: Party::System,
            created_at: made,
        }
    }

    #[test]
    fn a_slot_that_a_wrong_clock_computed_is_the_next_correct_one_again() {
        let now = at("2026-11-21T10:00Z");
        for ahead in [1, 400, 40_000] {
            let wrong = days(now, ahead);
            for (when, right) in [
                (cron("0 12 * * *"), at("2026-11-21T12:00Z")),
                (cron("*/5 * * * *"), at("2026-11-21T10:05Z")),
                (cron("0 12 1 1 *"), at("2027-01-01T12:00Z")),
                (every(7, wrong), at("2026-11-21T10:07Z")),
                (every(7, days(now, -1)), at("2026-11-21T10:02Z")),
            ] {
                let again = made(when.clone(), wrong).computed_again(None, now);
                if let Some(again) = &again {
                    let next_at = again.next_at.unwrap();
                    assert!(next_at > now && next_at <= right, "{when:?} by {ahead} d: {next_at}");
                }
                assert!(again.is_some() || made(when, wrong).next_at == Some(right));
            }
        }
        // A small step back sets off nothing twice.
        let done = Schedule { next_at: Some(at("2026-11-22T10:00Z")), ..made(cron("0 10 * * *"), days(now, -9)) };
        assert_eq!(done.computed_again(None, at("2026-11-21T09:59:10Z")), None);
        assert!(done.computed_again(None, at("2026-11-21T09:50Z")).is_some());
    }

    #[test]
    fn a_duration_moves_with_the_clock_and_a_date_never() {
        let now = at("2026-11-21T10:00Z");
        let tea = made(When::After { after_ms: 600_000, anchor: now }, now);
        for by in [400, -4_000] {
            let later = now.plus(Duration::from_secs(60));
            let jump = Jump { from: later, to: days(later, by) };
            let moved = tea.computed_again(Some(jump), jump.to).unwrap();
            assert_eq!(moved.next_at, Some(jump.to.plus(Duration::from_secs(540))));
            assert_eq!(moved.when.once_at(), moved.next_at);
            let back = moved.computed_again(Some(Jump { from: jump.to, to: later }), later).unwrap();
            assert_eq!(back, tea);
        }
        // Set by a clock that was ahead, and no jump was seen.
        let wrong = made(tea.when.clone(), days(now, -30)).computed_again(None, days(now, -30)).unwrap();
        assert_eq!(wrong.next_at, Some(days(now, -30).plus(Duration::from_secs(600))));
        let date = made(When::At { at: days(now, 300) }, now);
        let jump = Jump { from: days(now, 90), to: now };
        assert_eq!(date.computed_again(Some(jump), now), None);
        let monday = made(every(60, days(now, 2)), now);
        assert_eq!(monday.computed_again(Some(jump), now), None, "an anchor that a person gave is a date, too");
        // A one-shot that is tried again is not tried later than that.
        let refused = Schedule { next_at: Some(days(now, 400)), ..made(When::At { at: days(now, -1) }, days(now, -2)) };
        assert_eq!(refused.computed_again(None, now).unwrap().next_at, Some(now.plus(TRY_AGAIN)));
        let off = Schedule { next_at: None, ..date };
        assert_eq!(off.computed_again(Some(jump), now), None);
    }

    proptest! {
        #[test]
        fn no_slot_lies_further_ahead_than_its_interval(
            minutes in 1u64..100_000, anchor in any::<i64>(), created in any::<i64>(), next in any::<i64>(), now in any::<i64>(), by in any::<i64>(),
        ) {
            let schedule = Schedule { next_at: Some(Timestamp(next)), ..made(every(minutes, Timestamp(anchor.min(created))), Timestamp(created)) };
            let jump = Jump { from: Timestamp(now.saturating_sub(by)), to: Timestamp(now) };
            let again = schedule.computed_again(Some(jump), Timestamp(now)).unwrap_or(schedule);
            let interval = Duration::from_secs(minutes * 60);
            let latest = Timestamp(now).plus(interval).plus(DONE_MAX);
            // At the very end of time there is no slot.
            if let Some(Timestamp(_)) = Slots::of(&again.when).unwrap().next_after(Timestamp(now).plus(DONE_MAX)) {
                prop_assert!(again.next_at.unwrap() <= latest, "{again:?}");
            }
            for when in [When::After { after_ms: minutes, anchor: Timestamp(anchor) }, When::At { at: Timestamp(anchor) }, cron("0 12 * * *")] {
                let _ = made(when, Timestamp(created)).computed_again(Some(jump), Timestamp(now));
            }
        }
    }
}
