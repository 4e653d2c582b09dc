//! When a schedule goes off: the next instant of a rule, whether a rule can be taken, and what of its slots was missed
//! (SCHED-02, SCHED-04).
//!
//! Daylight saving, in the zone of a cron rule: a rule of fixed hours and minutes whose slot falls into the hour that is
//! left out goes off at the first instant after it, and once in an hour that comes twice. A rule with a step or a star in
//! seconds, minutes or hours counts real time: nothing goes off in the hour left out, and both passes of the other count.

use std::str::FromStr;
use std::sync::LazyLock;
use std::time::Duration;

use croner::Cron;
use jiff::tz::{TimeZone, TimeZoneDatabase};

use super::When;
use super::words::{AHEAD_MAX_MS, duration_text};
use crate::refusal::{Code, Refusal};
use crate::text::{nearest, shown};
use crate::time::Timestamp;

/// Characters of a cron expression.
const EXPRESSION_MAX: usize = 200;
/// Slots that are looked at to find the least gap between two.
const GAP_SLOTS: usize = 512;
/// How far ahead they are looked for: patterns of the calendar repeat within it but for leap days.
const GAP_SPAN: Duration = Duration::from_secs(400 * 86_400);
/// Missed slots that are counted; beyond it the number is "at least".
pub const MISSED_MAX: u32 = 1_000;

/// Zones as they were when the daemon was built: what a rule means must not depend on the machine.
static ZONES: LazyLock<TimeZoneDatabase> = LazyLock::new(TimeZoneDatabase::bundled);

/// A rule that can be asked for its slots.
#[derive(Clone, Debug)]
pub enum Slots {
    /// One instant.
    At(Timestamp),
    /// Every multiple of an interval from an anchor.
    Every {
        /// Milliseconds, more than none.
        every_ms: i64,
        /// Where counting begins.
        anchor: Timestamp,
    },
    /// A cron expression in its zone.
    Cron(Box<Cron>, TimeZone),
    /// Something else sets it off.
    None,
}

impl Slots {
    /// Reads a rule.
    ///
    /// # Errors
    /// `InvalidArguments` for an expression that is none, a zone that does not exist (with the nearest) or an interval of
    /// nothing.
    pub fn of(when: &When) -> Result<Self, Refusal> {
        Ok(match when {
            When::At { at } => Self::At(*at),
            When::Every { every_ms, anchor } => {
                let every_ms = i64::try_from(*every_ms).ok().filter(|ms| *ms > 0 && *every_ms <= AHEAD_MAX_MS);
                let every_ms = every_ms.ok_or_else(|| {
                    Refusal::new(
                        Code::InvalidArguments,
                        "every: an interval is more than nothing and at most ten years",
                    )
                    .hint("write such as 10m or 1h")
                })?;
                Self::Every { every_ms, anchor: *anchor }
            }
            When::Cron { expression, zone } => {
                Self::Cron(Box::new(cron(expression)?), time_zone(zone.as_deref().unwrap_or("UTC"))?)
            }
            When::Change { .. } => Self::None,
        })
    }

    /// The first slot strictly after `after`, if there is one within the years that can be reckoned with.
    #[must_use]
    pub fn next_after(&self, after: Timestamp) -> Option<Timestamp> {
        match self {
            Self::At(at) => (*at > after).then_some(*at),
            Self::Every { every_ms, anchor } => {
                let past = after.0.checked_sub(anchor.0)?;
                let steps = past.div_euclid(*every_ms).checked_add(1)?;
                // Counting begins at the anchor, which is no slot itself unless it is still to come.
                let steps = steps.max(0);
                Some(Timestamp(anchor.0.checked_add(steps.checked_mul(*every_ms)?)?))
            }
            Self::Cron(cron, zone) => {
                let from = jiff::Timestamp::from_millisecond(after.0).ok()?.to_zoned(zone.clone());
                let next = cron.find_next_occurrence(&from, false).ok()?.timestamp().as_millisecond();
                (next > after.0).then_some(Timestamp(next))
            }
            Self::None => None,
        }
    }

    /// What lies between a slot that is due and `now`.
    #[must_use]
    pub fn passed(&self, due: Timestamp, now: Timestamp) -> Passed {
        let mut passed = Passed { last: due, count: 1 };
        if let Self::Every { every_ms, .. } = self {
            let more = now.0.saturating_sub(due.0).max(0) / every_ms;
            passed.last = Timestamp(due.0 + more * every_ms);
            passed.count = u32::try_from(more).unwrap_or(u32::MAX).saturating_add(1);
            return passed;
        }
        while passed.count < MISSED_MAX
            && let Some(next) = self.next_after(passed.last).filter(|next| *next <= now)
        {
            passed = Passed { last: next, count: passed.count + 1 };
        }
        passed
    }
}

/// Slots that have come, the one that was due included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Passed {
    /// The last of them.
    pub last: Timestamp,
    /// How many; [`MISSED_MAX`] means that or more for a cron rule.
    pub count: u32,
}

/// The first slot of a rule strictly after `after`.
///
/// # Errors
/// As [`Slots::of`].
pub fn next_after(when: &When, after: Timestamp) -> Result<Option<Timestamp>, Refusal> {
    Ok(Slots::of(when)?.next_after(after))
}

/// The first slot after `now` of a rule that someone wants to set.
///
/// # Errors
/// `InvalidArguments`: an expression or zone as in [`Slots::of`], an instant that has passed, nothing within ten years.
/// `RateLimited`: two slots with less than `gap_seconds` between them.
pub fn first_slot(when: &When, now: Timestamp, gap_seconds: u32) -> Result<Timestamp, Refusal> {
    let slots = Slots::of(when)?;
    let horizon = now.plus(Duration::from_millis(AHEAD_MAX_MS));
    let Some(first) = slots.next_after(now).filter(|first| *first <= horizon) else {
        return Err(match when {
            When::At { at } if *at <= now => {
                Refusal::new(Code::InvalidArguments, format!("at: {at} has passed; it is {now} now"))
                    .hint("give a time that is still to come, or a duration from now")
            }
            When::At { at } => Refusal::new(Code::InvalidArguments, format!("at: {at} is more than ten years ahead"))
                .hint("give a nearer time"),
            _ => Refusal::new(Code::InvalidArguments, "there is no next time within ten years")
                .hint("look at the day and the month of the expression: they never meet"),
        });
    };
    let least = Duration::from_secs(u64::from(gap_seconds));
    if let Some((one, next)) = too_close(&slots, first, least) {
        let gap = next.since(one);
        return Err(Refusal::new(
            Code::RateLimited,
            format!(
                "it would go off at {one} and again {} later; the least between two slots is {}",
                duration_text(gap),
                duration_text(least)
            ),
        )
        .hint("choose a rule with fewer slots; limits.cron_gap_seconds is the bound"));
    }
    Ok(first)
}

/// Two slots that are closer than `least`, if there are any.
fn too_close(slots: &Slots, first: Timestamp, least: Duration) -> Option<(Timestamp, Timestamp)> {
    match slots {
        Slots::At(_) | Slots::None => None,
        Slots::Every { .. } => {
            let next = slots.next_after(first)?;
            (next.since(first) < least).then_some((first, next))
        }
        Slots::Cron(..) => {
            let mut last = first;
            for _ in 0..GAP_SLOTS {
                let next = slots.next_after(last)?;
                if next.since(last) < least {
                    return Some((last, next));
                }
                if next.since(first) > GAP_SPAN {
                    return None;
                }
                last = next;
            }
            None
        }
    }
}

/// What the reader of expressions says, as a part of a sentence of ours.
fn in_our_words(error: &str) -> String {
    if error.contains("Step cannot be zero") {
        return "a step, the number behind `/`, is 1 or more".to_owned();
    }
    let said = error.split_once("error: ").map_or(error, |(_, said)| said).trim().trim_end_matches('.');
    let mut chars = said.chars();
    chars.next().map_or_else(String::new, |first| first.to_lowercase().chain(chars).collect())
}

/// Reads a cron expression of five or six fields.
fn cron(expression: &str) -> Result<Cron, Refusal> {
    let shown = shown(expression, 80);
    let fields = expression.split_whitespace().count();
    if expression.len() > EXPRESSION_MAX || !(5..=6).contains(&fields) {
        return Err(Refusal::new(
            Code::InvalidArguments,
            format!("`{shown}` is not a cron expression, which has five fields, or six with seconds in front"),
        )
        .hint("minute hour day month weekday, such as `0 9 * * 1-5`"));
    }
    Cron::from_str(expression).map_err(|error| {
        let why = in_our_words(&error.to_string());
        Refusal::new(Code::InvalidArguments, format!("`{shown}` is not a cron expression: {why}")).hint(
            "minute 0-59, hour 0-23, day 1-31, month 1-12, weekday 0-7 or SUN-SAT, such as `*/15 8-18 * * MON-FRI`",
        )
    })
}

/// The zone of that name.
///
/// # Errors
/// `InvalidArguments` with the nearest name.
pub fn time_zone(name: &str) -> Result<TimeZone, Refusal> {
    if name == "UTC" {
        return Ok(TimeZone::UTC);
    }
    let known = name.len() <= 64 && name.is_ascii();
    if let Some(zone) = known.then(|| ZONES.get(name).ok()).flatten() {
        return Ok(zone);
    }
    let refusal = Refusal::new(Code::InvalidArguments, format!("there is no time zone `{}`", shown(name, 64)));
    let all: Vec<String> = ZONES.available().map(|zone| zone.to_string()).collect();
    // Whoever writes the city alone means the zone of that city.
    let city = all.iter().find(|zone| {
        zone.rsplit_once('/').is_some_and(|(_, city)| city.eq_ignore_ascii_case(&name.trim().replace(' ', "_")))
    });
    Err(match city.map(String::as_str).or_else(|| nearest(name, all.iter().map(String::as_str))) {
        Some(near) => refusal.hint(format!("did you mean `{near}`?")),
        None => refusal.hint("use an IANA name such as Europe/Berlin, or UTC"),
    })
}

/// The wall clock of a zone at an instant, as `HH:MM` in minutes since midnight.
///
/// # Errors
/// As [`time_zone`].
pub fn minute_of_day(at: Timestamp, zone: &str) -> Result<u32, Refusal> {
    let zone = time_zone(zone)?;
    let out = |_| Refusal::new(Code::InvalidArguments, format!("{at} is beyond what can be reckoned with"));
    let local = jiff::Timestamp::from_millisecond(at.0).map_err(out)?.to_zoned(zone);
    Ok(u32::from(local.hour().unsigned_abs()) * 60 + u32::from(local.minute().unsigned_abs()))
}

#[cfg(test)]
mod tests {
    use super::super::words::instant;
    use super::*;
    use proptest::prelude::*;

    fn at(text: &str) -> Timestamp {
        instant("t", text).unwrap()
    }

    fn rule(expression: &str, zone: &str) -> When {
        When::Cron { expression: expression.into(), zone: Some(zone.into()) }
    }

    /// The first slots after an instant, in UTC.
    fn slots(when: &When, after: &str, count: usize) -> Vec<String> {
        let slots = Slots::of(when).unwrap();
        let mut last = at(after);
        (0..count)
            .map_while(|_| {
                last = slots.next_after(last)?;
                Some(last.rfc3339()[..16].to_owned())
            })
            .collect()
    }

    #[test]
    fn a_fixed_slot_in_the_hour_left_out_moves_behind_it_and_the_hour_twice_has_it_once() {
        // Berlin goes from 02:00 to 03:00 on 29 March 2026 and from 03:00 to 02:00 on 25 October.
        let daily = rule("30 2 * * *", "Europe/Berlin");
        assert_eq!(slots(&daily, "2026-03-28T00:00Z", 3), ["2026-03-28T01:30", "2026-03-29T01:00", "2026-03-30T00:30"]);
        assert_eq!(slots(&daily, "2026-10-24T12:00Z", 2), ["2026-10-25T00:30", "2026-10-26T01:30"]);
        let half_hours = rule("*/30 * * * *", "Europe/Berlin");
        assert_eq!(
            slots(&half_hours, "2026-10-25T00:00Z", 4),
            ["2026-10-25T00:30", "2026-10-25T01:00", "2026-10-25T01:30", "2026-10-25T02:00"]
        );
        assert_eq!(slots(&half_hours, "2026-03-29T00:30Z", 2), ["2026-03-29T01:00", "2026-03-29T01:30"]);
    }

    #[test]
    fn leap_days_and_the_far_future_have_slots() {
        let leap = rule("0 12 29 2 *", "UTC");
        assert_eq!(slots(&leap, "2026-01-01T00:00Z", 2), ["2028-02-29T12:00", "2032-02-29T12:00"]);
        assert_eq!(slots(&rule("0 0 1 1 *", "UTC"), "2999-06-01", 1), ["3000-01-01T00:00"]);
        assert_eq!(Slots::of(&rule("* * * * *", "UTC")).unwrap().next_after(Timestamp(i64::MAX)), None);
    }

    #[test]
    fn what_is_wrong_with_an_expression_is_told_in_our_words() {
        let told = |expression: &str| next_after(&rule(expression, "UTC"), Timestamp(0)).unwrap_err().message;
        assert!(told("*/0 * * * *").ends_with("a step, the number behind `/`, is 1 or more"));
        for wrong in ["61 * * * *", "x * * * *"] {
            let message = told(wrong);
            assert!(!message.contains("error:") && !message.ends_with('.'), "{message}");
        }
    }

    #[test]
    fn what_cannot_be_set_is_refused_with_its_reason() {
        let now = at("2026-11-21T22:00Z");
        let refused = |when: &When| first_slot(when, now, 10).unwrap_err();
        for never in ["0 0 30 2 *", "0 0 31 4,6,9,11 *"] {
            assert!(refused(&rule(never, "UTC")).message.contains("no next time"), "{never}");
        }
        for fields in ["", "* * * *", "0 0 0 1 1 * 2030", "@daily"] {
            assert!(refused(&rule(fields, "UTC")).message.contains("fields"), "{fields}");
        }
        for wrong in ["61 * * * *", "* 24 * * *", "a b c d e", "*/0 * * * *", "5-1 * * * *"] {
            assert!(refused(&rule(wrong, "UTC")).message.contains("not a cron expression"), "{wrong}");
        }
        assert!(refused(&rule("* * * * *", "Europe/Berln")).hint.unwrap().contains("Europe/Berlin"));
        assert!(refused(&rule("* * * * *", "berlin")).hint.unwrap().contains("Europe/Berlin"));
        assert!(refused(&rule("* * * * *", "Mars/Olympus_Mons_and_more")).hint.is_some());
        assert_eq!(refused(&rule("* * * * * *", "UTC")).code, Code::RateLimited);
        assert!(first_slot(&rule("0,50 0,59 0,23 * * *", "UTC"), now, 10).is_ok());
        assert!(first_slot(&rule("0,50 0,59 0,23 * * *", "UTC"), now, 11).unwrap_err().message.contains("10s"));
        assert_eq!(refused(&When::Every { every_ms: 9_999, anchor: now }).code, Code::RateLimited);
        assert_eq!(refused(&When::Every { every_ms: 0, anchor: now }).code, Code::InvalidArguments);
        assert!(refused(&When::At { at: now }).message.contains("has passed"));
        assert!(refused(&When::At { at: Timestamp(i64::MAX / 2) }).message.contains("ten years"));
        assert_eq!(first_slot(&rule("0 9 * * 1-5", "Europe/Berlin"), now, 10).unwrap(), at("2026-11-23T08:00Z"));
    }

    #[test]
    fn a_jump_of_the_clock_passes_slots_and_going_back_passes_none() {
        let hourly = Slots::of(&rule("0 * * * *", "UTC")).unwrap();
        let due = at("2026-11-21T12:00Z");
        let three = Passed { last: at("2026-11-21T14:00Z"), count: 3 };
        assert_eq!(hourly.passed(due, at("2026-11-21T14:59Z")), three);
        assert_eq!(hourly.passed(due, at("2026-11-21T11:00Z")), Passed { last: due, count: 1 });
        let minutes = Slots::of(&When::Every { every_ms: 60_000, anchor: due }).unwrap();
        assert_eq!(minutes.passed(due, at("2026-11-22T12:00:30Z")).count, 1_441);
        assert_eq!(minutes.next_after(due), Some(at("2026-11-21T12:01Z")));
        assert_eq!(minutes.next_after(at("2026-11-20")), Some(due));
    }

    // covers: SCHED-04
    #[test]
    fn the_wall_clock_of_a_zone() {
        assert_eq!(minute_of_day(at("2026-11-21T22:30Z"), "Europe/Berlin").unwrap(), 23 * 60 + 30);
        assert_eq!(minute_of_day(at("2026-07-01T22:30Z"), "Europe/Berlin").unwrap(), 30);
    }

    fn expression() -> impl Strategy<Value = String> {
        let field = |most: u32| {
            prop_oneof![
                Just("*".to_owned()),
                (0..most).prop_map(|n| n.to_string()),
                (2..most.max(3)).prop_map(|n| format!("*/{n}"))
            ]
        };
        (field(60), field(24), (1u32..=31), field(7)).prop_map(|(minute, hour, day, weekday)| {
            let day = if day % 3 == 0 { day.to_string() } else { "*".to_owned() };
            format!("{minute} {hour} {day} * {weekday}")
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn slots_rise_strictly_over_both_changes_of_the_clock(
            expression in expression(),
            zone in prop::sample::select(vec!["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe"]),
            start in prop::sample::select(vec!["2026-03-28T20:00Z", "2026-10-24T20:00Z", "2027-12-31T00:00Z"]),
        ) {
            let slots = Slots::of(&rule(&expression, zone)).unwrap();
            let mut last = at(start);
            for _ in 0..40 {
                let Some(next) = slots.next_after(last) else { break };
                prop_assert!(next > last);
                // From anywhere between two slots the next is the same: nothing is lost and nothing comes twice.
                let between = Timestamp(last.0 + (next.0 - last.0) / 2);
                prop_assert_eq!(slots.next_after(between), Some(next), "{} in {} after {}", expression, zone, between);
                last = next;
            }
        }

        // covers: SCHED-04
        #[test]
        fn intervals_are_multiples_of_their_anchor(every in 1i64..100_000_000, anchor in 0i64..4_000_000_000_000, after in 0i64..4_000_000_000_000) {
            let slots = Slots::of(&When::Every { every_ms: every.unsigned_abs(), anchor: Timestamp(anchor) }).unwrap();
            let next = slots.next_after(Timestamp(after)).unwrap();
            prop_assert!(next.0 > after && next.0 >= anchor);
            prop_assert_eq!((next.0 - anchor) % every, 0);
            prop_assert!(next.0 == anchor || next.0 - every <= after);
        }

        #[test]
        fn no_expression_and_no_zone_makes_them_panic(expression in "[0-9*,/#LW?@A-Z\\- ]{0,40}", zone in "\\PC{0,20}") {
            let _ = Slots::of(&rule(&expression, &zone));
        }
    }
}
