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

use super::words::{AHEAD_MAX_MS, duration_text};
use super::{Schedule, When};
use crate::refusal::{Refusal, refusal};
use crate::text::{nearest, shown};
use crate::time::Timestamp;
use crate::wall_clock::Jump;

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
                    refusal!(InvalidArguments, "every: an interval must be more than zero and at most ten years")
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
            Some(at) if at <= now => refusal!(InvalidArguments, "at: {at} has passed; it is {now} now")
                .hint("give a time that is still to come, or a duration from now"),
            Some(at) => refusal!(InvalidArguments, "at: {at} is more than ten years ahead").hint("give a nearer time"),
            None => refusal!(InvalidArguments, "there is no next time within ten years")
                .hint("check the day and the month of the expression: no date has both"),
        });
    };
    let least = Duration::from_secs(u64::from(gap_seconds));
    if let Some((one, next)) = too_close(&slots, first, least) {
        let gap = next.since(one);
        return Err(refusal!(
            RateLimited,
            "it would run at {one} and again {} later; two slots must be at least {} apart",
            duration_text(gap),
            duration_text(least)
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
        return Err(refusal!(
            InvalidArguments,
            "`{shown}` is not a cron expression, which has five fields, or six with seconds in front"
        )
        .hint("minute hour day month weekday, such as `0 9 * * 1-5`"));
    }
    Cron::from_str(expression).map_err(|error| {
        let why = parser_error(&error.to_string());
        refusal!(InvalidArguments, "`{shown}` is not a cron expression: {why}").hint(
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
    let refusal = refusal!(InvalidArguments, "there is no time zone `{}`", shown(name, 64));
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
    let out = |_| refusal!(InvalidArguments, "{at} is out of range");
    let local = jiff::Timestamp::from_millisecond(at.0).map_err(out)?.to_zoned(zone);
    Ok(u32::from(local.hour().unsigned_abs()) * 60 + u32::from(local.minute().unsigned_abs()))
}

/// The wait until a one-shot that could not go off is tried again.
pub const TRY_AGAIN: Duration = Duration::from_secs(30);

/// A slot that is no further ahead than this may have gone off before the clock was put back. It does
/// not go off twice.
const DONE_MAX: Duration = Duration::from_secs(60);

impl Schedule {
    /// The schedule as it must be at `now`, after this jump of the clock if there was one. `None` if
    /// nothing changes.
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
#[path = "slots_tests.rs"]
mod tests;
