//! The slots of a schedule: the next slot of a rule, the checks for a new rule, and the missed
//! slots.
//!
//! Daylight saving time, in the zone of a cron rule: a rule with fixed hours and minutes, also lists
//! and ranges of them, whose slot is in the skipped hour runs at the first instant after that hour.
//! In an hour that occurs twice it runs once. A rule with a step or a star in seconds, minutes or
//! hours follows real time: it does not run in the skipped hour, and it runs in both passes of the
//! hour that occurs twice.

use std::str::FromStr;
use std::sync::LazyLock;
use std::time::Duration;

use croner::Cron;
use jiff::civil::DateTime;
use jiff::tz::{AmbiguousOffset, TimeZone, TimeZoneDatabase};

use super::When;
use super::words::{AHEAD_MAX_MS, duration_text};
use crate::refusal::{Code, Refusal};
use crate::text::{nearest, shown};
use crate::time::Timestamp;

/// Most characters of a cron expression.
const EXPRESSION_MAX: usize = 200;
/// Most slots that are checked for the smallest gap between two.
const GAP_SLOTS: usize = 512;
/// How far ahead slots are checked. Patterns of the calendar repeat within it, except for leap
/// days.
const GAP_SPAN: Duration = Duration::from_secs(400 * 86_400);
/// Missed slots of a cron rule are counted up to this number.
pub const MISSED_MAX: u32 = 1_000;

/// Time zones from the time of the build: the meaning of a rule must not depend on the machine.
static ZONES: LazyLock<TimeZoneDatabase> = LazyLock::new(TimeZoneDatabase::bundled);

/// A parsed rule.
#[derive(Clone, Debug)]
pub enum Slots {
    /// One instant.
    At(Timestamp),
    /// Every multiple of an interval from an anchor.
    Every {
        /// Length of the interval in milliseconds; more than 0.
        every_ms: i64,
        /// Start of the first interval.
        anchor: Timestamp,
    },
    /// A cron expression in its zone that follows real time.
    Cron(Box<Cron>, TimeZone),
    /// A cron expression in its zone whose times of the day are fixed.
    Fixed(Box<Cron>, TimeZone),
    /// No slots: the schedule is a watch.
    None,
}

impl Slots {
    /// Parses a rule.
    ///
    /// # Errors
    /// `InvalidArguments` for an invalid expression, an unknown zone (with the nearest name), and
    /// an interval of 0 or more than ten years.
    pub fn of(when: &When) -> Result<Self, Refusal> {
        Ok(match when {
            When::At { at } => Self::At(*at),
            When::After { .. } => Self::At(when.once_at().unwrap_or_default()),
            When::Every { every_ms, anchor } => {
                let every_ms = i64::try_from(*every_ms).ok().filter(|ms| *ms > 0 && *every_ms <= AHEAD_MAX_MS);
                let every_ms = every_ms.ok_or_else(|| {
                    Refusal::new(
                        Code::InvalidArguments,
                        "every: an interval must be more than zero and at most ten years",
                    )
                    .hint("write it like 10m or 1h")
                })?;
                Self::Every { every_ms, anchor: *anchor }
            }
            When::Cron { expression, zone } => {
                let (cron, zone) = (Box::new(cron(expression)?), time_zone(zone.as_deref().unwrap_or("UTC"))?);
                if has_fixed_times(expression) { Self::Fixed(cron, zone) } else { Self::Cron(cron, zone) }
            }
            When::Change { .. } => Self::None,
        })
    }

    /// The first slot strictly after `after`, if there is one in the range of times that the
    /// library supports.
    #[must_use]
    pub fn next_after(&self, after: Timestamp) -> Option<Timestamp> {
        match self {
            Self::At(at) => (*at > after).then_some(*at),
            Self::Every { every_ms, anchor } => {
                let elapsed = after.0.checked_sub(anchor.0)?;
                let steps = elapsed.div_euclid(*every_ms).checked_add(1)?;
                // No slot is before the anchor. An anchor in the future is the first slot.
                let steps = steps.max(0);
                Some(Timestamp(anchor.0.checked_add(steps.checked_mul(*every_ms)?)?))
            }
            Self::Cron(cron, zone) => {
                let from = jiff::Timestamp::from_millisecond(after.0).ok()?.to_zoned(zone.clone());
                let next = cron.find_next_occurrence(&from, false).ok()?.timestamp().as_millisecond();
                (next > after.0).then_some(Timestamp(next))
            }
            Self::Fixed(cron, zone) => {
                // The expression is walked on the wall clock, which has no changes, and each of its times is then looked up
                // in the zone. The library does that for a single time only, loses it if the skipped hour ends on another
                // day, and ends where a zone skips more than two hours.
                let from = jiff::Timestamp::from_millisecond(after.0).ok()?.to_zoned(zone.clone()).datetime();
                let mut wall = from.to_zoned(TimeZone::UTC).ok()?;
                loop {
                    wall = cron.find_next_occurrence(&wall, false).ok()?;
                    let next = first_instant(wall.datetime(), zone)?;
                    // In the second pass of a repeated hour, its times have been.
                    if next > after {
                        return Some(next);
                    }
                }
            }
            Self::None => None,
        }
    }

    /// The slots from the due one up to `now`.
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

/// Slots that have passed, including the due one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Passed {
    /// The last slot.
    pub last: Timestamp,
    /// Number of slots. For a cron rule, [`MISSED_MAX`] means that many or more.
    pub count: u32,
}

/// Checks a new rule and returns its first slot after `now`.
///
/// # Errors
/// `InvalidArguments` as for [`Slots::of`], for an instant in the past, and for a rule without a
/// slot within ten years. `RateLimited` if two slots are less than `gap_seconds` apart.
pub fn first_slot(when: &When, now: Timestamp, gap_seconds: u32) -> Result<Timestamp, Refusal> {
    let slots = Slots::of(when)?;
    let horizon = now.plus(Duration::from_millis(AHEAD_MAX_MS));
    let Some(first) = slots.next_after(now).filter(|first| *first <= horizon) else {
        return Err(match when.once_at() {
            Some(at) if at <= now => {
                Refusal::new(Code::InvalidArguments, format!("at: {at} has passed; it is {now} now"))
                    .hint("give a time that is still to come, or a duration from now")
            }
            Some(at) => Refusal::new(Code::InvalidArguments, format!("at: {at} is more than ten years ahead"))
                .hint("give a nearer time"),
            None => Refusal::new(Code::InvalidArguments, "there is no next time within ten years")
                .hint("check the day and the month of the expression: no date has both"),
        });
    };
    let least = Duration::from_secs(u64::from(gap_seconds));
    if let Some((one, next)) = too_close(&slots, first, least) {
        let gap = next.since(one);
        return Err(Refusal::new(
            Code::RateLimited,
            format!(
                "it would run at {one} and again {} later; two slots must be at least {} apart",
                duration_text(gap),
                duration_text(least)
            ),
        )
        .hint("choose a rule with fewer slots; limits.cron_gap_seconds is the limit"));
    }
    Ok(first)
}

/// The first two slots that are less than `least` apart, if there are any.
fn too_close(slots: &Slots, first: Timestamp, least: Duration) -> Option<(Timestamp, Timestamp)> {
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

/// The error of the parser of expressions, as a part of a message.
fn parser_error(error: &str) -> String {
    if error.contains("Step cannot be zero") {
        return "a step, the number after `/`, must be 1 or more".to_owned();
    }
    let text = error.split_once("error: ").map_or(error, |(_, text)| text).trim().trim_end_matches('.');
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| first.to_lowercase().chain(chars).collect())
}

/// Parses a cron expression of five or six fields.
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
        let why = parser_error(&error.to_string());
        Refusal::new(Code::InvalidArguments, format!("`{shown}` is not a cron expression: {why}")).hint(
            "minute 0-59, hour 0-23, day 1-31, month 1-12, weekday 0-7 or SUN-SAT, such as `*/15 8-18 * * MON-FRI`",
        )
    })
}

/// Whether the seconds, minutes and hours of a valid expression are numbers, lists or ranges: no star and no step.
fn has_fixed_times(expression: &str) -> bool {
    let fields: Vec<&str> = expression.split_whitespace().collect();
    // The date is the last three fields.
    let times = fields.len().saturating_sub(3);
    !fields.iter().take(times).any(|field| field.contains(['*', '/']))
}

/// The first instant at which the clocks of a zone show `wall`, or the end of the time that they skip.
fn first_instant(wall: DateTime, zone: &TimeZone) -> Option<Timestamp> {
    let at = match zone.to_ambiguous_timestamp(wall).offset() {
        AmbiguousOffset::Unambiguous { offset } | AmbiguousOffset::Fold { before: offset, .. } => {
            offset.to_timestamp(wall).ok()?
        }
        AmbiguousOffset::Gap { after, .. } => {
            let before_the_change = after.to_timestamp(wall).ok()?;
            zone.following(before_the_change).take(4).find(|change| change.offset() == after)?.timestamp()
        }
    };
    Some(Timestamp(at.as_millisecond()))
}

/// The time zone with the IANA name `name`.
///
/// # Errors
/// `InvalidArguments` for an unknown name; the hint gives the nearest one.
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
    // The name of a city alone suggests the zone of that city.
    let city = all.iter().find(|zone| {
        zone.rsplit_once('/').is_some_and(|(_, city)| city.eq_ignore_ascii_case(&name.trim().replace(' ', "_")))
    });
    Err(match city.map(String::as_str).or_else(|| nearest(name, all.iter().map(String::as_str))) {
        Some(near) => refusal.hint(format!("did you mean `{near}`?")),
        None => refusal.hint("use an IANA name such as Europe/Berlin, or UTC"),
    })
}

/// The local time of a zone at an instant, in minutes since midnight.
///
/// # Errors
/// As [`time_zone`], and `InvalidArguments` for an instant out of range.
pub fn minute_of_day(at: Timestamp, zone: &str) -> Result<u32, Refusal> {
    let zone = time_zone(zone)?;
    let out = |_| Refusal::new(Code::InvalidArguments, format!("{at} is out of range"));
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
    fn a_fixed_slot_moves_out_of_a_skipped_hour_and_runs_once_in_a_repeated_hour() {
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

    /// For each rule, its slots within a span around a change of the clock.
    fn expect(zone: &str, (from, to): (&str, &str), rules: &[(&str, &[&str])]) {
        for (expression, expected) in rules {
            let found = slots(&rule(expression, zone), from, 1_000);
            let found: Vec<&String> = found.iter().take_while(|slot| slot.as_str() < to).collect();
            assert_eq!(found, *expected, "{expression} in {zone}");
        }
    }

    // covers: SCHED-04
    #[test]
    fn times_of_the_day_have_one_slot_each_over_a_skipped_and_a_repeated_hour() {
        // Berlin, as above.
        let spring = ("2026-03-29T00:00Z", "2026-03-29T02:30");
        let (before, after) = ("2026-03-29T00:30", "2026-03-29T01:00");
        expect(
            "Europe/Berlin",
            spring,
            &[
                ("30 2 * * *", &[after]),
                ("0,30 2 * * *", &[after]),
                ("15-45 2 * * *", &[after]),
                ("0 2,14 * * *", &[after]),
                ("30 1-3 * * *", &[before, after, "2026-03-29T01:30"]),
                ("0 2,3 * * *", &[after]),
                ("0 30 2 * * *", &[after]),
                // Real time goes on: nothing is skipped, so nothing is made up for.
                ("0 * * * *", &[after, "2026-03-29T02:00"]),
                ("*/15 2 * * *", &[]),
            ],
        );
        let autumn = ("2026-10-24T23:00Z", "2026-10-25T02:30");
        let (first, second) = ("2026-10-25T00:30", "2026-10-25T01:30");
        expect(
            "Europe/Berlin",
            autumn,
            &[
                ("30 2 * * *", &[first]),
                ("0,30 2 * * *", &["2026-10-25T00:00", first]),
                ("30 2,14 * * *", &[first]),
                ("30 1-3 * * *", &["2026-10-24T23:30", first, "2026-10-25T02:30"][..2]),
                ("30 * * * *", &["2026-10-24T23:30", first, second]),
                ("*/30 2 * * *", &["2026-10-25T00:00", first, "2026-10-25T01:00", second]),
            ],
        );
        // From the second pass, the times of the first one have been.
        assert_eq!(slots(&rule("0,30 2 * * *", "Europe/Berlin"), "2026-10-25T01:10Z", 1), ["2026-10-26T01:00"]);
        // New York, 8 March and 1 November 2026.
        let daily = "30 2 * * *";
        expect(
            "America/New_York",
            ("2026-03-07T12:00Z", "2026-03-09T12:00"),
            &[(daily, &["2026-03-08T07:00", "2026-03-09T06:30"])],
        );
        let nightly = "30 1,13 * * *";
        let once = ["2026-11-01T05:30", "2026-11-01T18:30", "2026-11-02T06:30"];
        expect("America/New_York", ("2026-11-01T00:00Z", "2026-11-02T12:00"), &[(nightly, &once)]);
    }

    // covers: SCHED-04
    #[test]
    fn zones_that_change_by_half_an_hour_at_midnight_or_by_a_day_lose_no_slot() {
        // Lord Howe goes back by half an hour on 5 April 2026 (02:00 to 01:30) and ahead on 4 October (02:00 to 02:30).
        expect(
            "Australia/Lord_Howe",
            ("2026-04-04T14:00Z", "2026-04-04T17:00"),
            &[
                ("45 1 * * *", &["2026-04-04T14:45"]),
                ("45 1,2 * * *", &["2026-04-04T14:45", "2026-04-04T16:15"]),
                ("45 * * * *", &["2026-04-04T14:45", "2026-04-04T15:15", "2026-04-04T16:15"]),
            ],
        );
        expect(
            "Australia/Lord_Howe",
            ("2026-10-03T12:00Z", "2026-10-04T00:00"),
            &[("15 2 * * *", &["2026-10-03T15:30"])],
        );
        // Nuuk skips the last hour of Saturday, 28 March 2026: the first instant after it is a Sunday.
        let saturday = ("2026-03-28T12:00Z", "2026-03-30T12:00");
        expect(
            "America/Nuuk",
            saturday,
            &[("30 23 * * 6", &["2026-03-29T01:00"]), ("0 23 28 3 *", &["2026-03-29T01:00"])],
        );
        // Havana skips the first hour of 8 March 2026.
        expect("America/Havana", ("2026-03-07T12:00Z", "2026-03-08T12:00"), &[("0 0 * * 0", &["2026-03-08T05:00"])]);
        // Apia had no 30 December 2011.
        let month = ("2011-12-29T00:00Z", "2011-12-31T23:00");
        let friday = ["2011-12-30T10:00"];
        expect("Pacific/Apia", month, &[("30 2 30 * *", &friday), ("0,15,30 2,20 * * 5", &friday)]);
        let daily = ["2011-12-29T12:30", "2011-12-30T10:00", "2011-12-30T12:30", "2011-12-31T12:30"];
        expect("Pacific/Apia", month, &[("30 2 * * *", &daily), ("30 */24 30 12 *", &[])]);
    }

    #[test]
    fn leap_days_and_the_far_future_have_slots() {
        let leap = rule("0 12 29 2 *", "UTC");
        assert_eq!(slots(&leap, "2026-01-01T00:00Z", 2), ["2028-02-29T12:00", "2032-02-29T12:00"]);
        assert_eq!(slots(&rule("0 0 1 1 *", "UTC"), "2999-06-01", 1), ["3000-01-01T00:00"]);
        assert_eq!(Slots::of(&rule("* * * * *", "UTC")).unwrap().next_after(Timestamp(i64::MAX)), None);
    }

    #[test]
    fn errors_of_the_expression_parser_are_reworded() {
        let message = |expression: &str| Slots::of(&rule(expression, "UTC")).unwrap_err().message;
        assert!(message("*/0 * * * *").contains("`/`"));
        for wrong in ["61 * * * *", "x * * * *"] {
            let message = message(wrong);
            assert!(!message.contains("error:") && !message.ends_with('.'), "{message}");
        }
    }

    #[test]
    fn invalid_rules_are_refused_with_a_reason() {
        let now = at("2026-11-21T22:00Z");
        let refused = |when: &When| first_slot(when, now, 10).unwrap_err();
        for never in ["0 0 30 2 *", "0 0 31 4,6,9,11 *"] {
            assert_eq!(refused(&rule(never, "UTC")).code, Code::InvalidArguments, "{never}");
        }
        for fields in ["", "* * * *", "0 0 0 1 1 * 2030", "@daily"] {
            assert_eq!(refused(&rule(fields, "UTC")).code, Code::InvalidArguments, "{fields}");
        }
        for wrong in ["61 * * * *", "* 24 * * *", "a b c d e", "*/0 * * * *", "5-1 * * * *"] {
            assert_eq!(refused(&rule(wrong, "UTC")).code, Code::InvalidArguments, "{wrong}");
        }
        assert!(refused(&rule("* * * * *", "Europe/Berln")).hint.unwrap().contains("Europe/Berlin"));
        assert!(refused(&rule("* * * * *", "berlin")).hint.unwrap().contains("Europe/Berlin"));
        assert!(refused(&rule("* * * * *", "Mars/Olympus_Mons_and_more")).hint.is_some());
        assert_eq!(refused(&rule("* * * * * *", "UTC")).code, Code::RateLimited);
        assert!(first_slot(&rule("0,50 0,59 0,23 * * *", "UTC"), now, 10).is_ok());
        assert!(first_slot(&rule("0,50 0,59 0,23 * * *", "UTC"), now, 11).unwrap_err().message.contains("10s"));
        assert_eq!(refused(&When::Every { every_ms: 9_999, anchor: now }).code, Code::RateLimited);
        assert_eq!(refused(&When::Every { every_ms: 0, anchor: now }).code, Code::InvalidArguments);
        assert_eq!(refused(&When::At { at: now }).code, Code::InvalidArguments);
        assert_eq!(refused(&When::At { at: Timestamp(i64::MAX / 2) }).code, Code::InvalidArguments);
        assert_eq!(first_slot(&rule("0 9 * * 1-5", "Europe/Berlin"), now, 10).unwrap(), at("2026-11-23T08:00Z"));
    }

    #[test]
    fn a_clock_that_jumps_ahead_passes_slots_and_one_that_goes_back_passes_none() {
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
    fn minute_of_day_follows_the_zone() {
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

    /// A field and the numbers that it means; whether it has a star or a step.
    fn field(most: u32) -> impl Strategy<Value = (String, Vec<u32>, bool)> {
        prop_oneof![
            Just(("*".to_owned(), (0..most).collect(), true)),
            (2..most).prop_map(move |n| (format!("*/{n}"), (0..most).step_by(n as usize).collect(), true)),
            (0..most).prop_map(|n| (n.to_string(), vec![n], false)),
            prop::collection::btree_set(0..most, 2..5).prop_map(|set| {
                let texts: Vec<String> = set.iter().map(u32::to_string).collect();
                (texts.join(","), set.into_iter().collect(), false)
            }),
            (0..most, 0..most).prop_map(|(one, other)| {
                let (from, to) = (one.min(other), one.max(other));
                (format!("{from}-{to}"), (from..=to).collect(), false)
            }),
        ]
    }

    /// A zone, and an instant up to a day before it changes its clocks.
    fn change() -> impl Strategy<Value = (&'static str, &'static str)> {
        prop::sample::select(vec![
            ("Europe/Berlin", "2026-03-28T12:00Z"),
            ("Europe/Berlin", "2026-10-24T12:00Z"),
            ("Europe/Dublin", "2026-10-24T12:00Z"),
            ("America/New_York", "2026-03-07T12:00Z"),
            ("America/New_York", "2026-10-31T12:00Z"),
            ("America/Nuuk", "2026-03-28T06:00Z"),
            ("America/Nuuk", "2026-10-24T06:00Z"),
            ("America/Havana", "2026-03-07T12:00Z"),
            ("America/Havana", "2026-10-31T12:00Z"),
            ("America/Santiago", "2026-09-05T12:00Z"),
            ("Antarctica/Troll", "2026-03-28T12:00Z"),
            ("Antarctica/Troll", "2026-10-24T12:00Z"),
            ("Australia/Lord_Howe", "2026-04-04T06:00Z"),
            ("Australia/Lord_Howe", "2026-10-03T06:00Z"),
            ("Pacific/Chatham", "2026-04-04T06:00Z"),
            ("Pacific/Apia", "2011-12-29T20:00Z"),
            ("Pacific/Kwajalein", "1993-08-20T20:00Z"),
            ("UTC", "2026-03-28T12:00Z"),
        ])
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]

        // covers: SCHED-04
        #[test]
        fn over_a_change_of_the_clock_every_slot_is_there_once(
            (minute, minutes, minute_runs) in field(60),
            (hour, hours, hour_runs) in field(24),
            weekday in prop::option::of(0i8..7),
            (zone, start) in change(),
        ) {
            let expression = format!("{minute} {hour} * * {}", weekday.map_or("*".to_owned(), |day| day.to_string()));
            let (found, place) = (Slots::of(&rule(&expression, zone)).unwrap(), time_zone(zone).unwrap());
            let is_meant = |wall: DateTime| {
                minutes.contains(&u32::from(wall.minute().unsigned_abs()))
                    && hours.contains(&u32::from(wall.hour().unsigned_abs()))
                    && weekday.is_none_or(|day| wall.weekday().to_sunday_zero_offset() == day)
            };
            // What the clocks of the zone show, minute by minute, and what they never show.
            let start = at(start);
            let instants: Vec<Timestamp> = (0..2 * 24 * 60).map(|n| Timestamp(start.0 + n * 60_000)).collect();
            let wall = |at: Timestamp| jiff::Timestamp::from_millisecond(at.0).unwrap().to_zoned(place.clone()).datetime();
            let (mut latest, mut expected) = (wall(Timestamp(start.0 - 60_000)), Vec::new());
            for instant in instants {
                let shown = wall(instant);
                let mut skipped = latest + jiff::Span::new().minutes(1);
                let mut is_slot = false;
                while !(minute_runs || hour_runs) && skipped < shown {
                    is_slot |= is_meant(skipped);
                    skipped += jiff::Span::new().minutes(1);
                }
                let is_new = shown > latest || minute_runs || hour_runs;
                if is_slot || (is_new && is_meant(shown)) {
                    expected.push(instant);
                }
                latest = latest.max(shown);
            }
            let end = Timestamp(start.0 + 2 * 24 * 3_600_000);
            let mut last = Timestamp(start.0 - 1);
            let mut seen = Vec::new();
            while let Some(next) = found.next_after(last).filter(|next| *next < end) {
                seen.push(next);
                last = next;
            }
            prop_assert_eq!(&seen, &expected, "{} in {}", expression, zone);
            // Whenever the daemon looks, it finds the next of them.
            for pair in seen.windows(2) {
                let between = Timestamp(pair[0].0 + (pair[1].0 - pair[0].0) / 2);
                prop_assert_eq!(found.next_after(between), Some(pair[1]), "{} in {}", expression, zone);
            }
        }
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
                // From any time between two slots the next slot is the same.
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
        fn no_expression_and_no_zone_causes_a_panic(expression in "[0-9*,/#LW?@A-Z\\- ]{0,40}", zone in "\\PC{0,20}") {
            let _ = Slots::of(&rule(&expression, &zone));
        }
    }
}
