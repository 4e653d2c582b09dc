//! Parses what people and models write in schedules: names, durations such as `1h30m`, and instants
//! in ISO 8601.

use std::time::Duration;

use crate::refusal::{Code, Refusal, refusal};
use crate::text::{clip, one_line, shown};
use crate::time::Timestamp;

/// The farthest time that a schedule can be set to, in milliseconds from now: ten years.
pub const AHEAD_MAX_MS: u64 = 3_653 * 86_400_000;

/// Most characters of a schedule's name.
pub const NAME_MAX: usize = 64;

/// Units with their milliseconds, longest first.
const UNITS: [(&str, u64); 6] =
    [("w", 604_800_000), ("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

/// Parses a duration such as `90s`, `5m` or `1h30m`: whole numbers with `w`, `d`, `h`, `m`, `s` or
/// `ms`, each unit once and the longest first. From one millisecond to ten years.
///
/// # Errors
/// `InvalidArguments` with the name of the field and the format.
pub fn duration(field: &str, text: &str) -> Result<Duration, Refusal> {
    let wrong = |why: &str| {
        refusal!(InvalidArguments, "{field}: `{}` {why}", shown(text, 60))
            .hint("write whole numbers with their units, such as 90s, 5m, 1h30m or 2d")
    };
    let mut rest = text.trim();
    let (mut total, mut next) = (0_u64, 0);
    if rest.is_empty() {
        return Err(wrong("is not a duration"));
    }
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let (number, after) = rest.split_at(digits);
        let letters = after.bytes().take_while(u8::is_ascii_alphabetic).count();
        let (unit, after) = after.split_at(letters);
        let index = UNITS.iter().position(|(name, _)| *name == unit).filter(|index| *index >= next);
        let (Some(index), Ok(number)) = (index, number.parse::<u64>()) else { return Err(wrong("is not a duration")) };
        next = index + 1;
        total = number
            .checked_mul(UNITS[index].1)
            .and_then(|part| total.checked_add(part))
            .filter(|total| *total <= AHEAD_MAX_MS)
            .ok_or_else(|| wrong("is longer than ten years"))?;
        rest = after;
    }
    if total == 0 {
        return Err(wrong("is zero"));
    }
    Ok(Duration::from_millis(total))
}

/// The duration in the form that the function [`duration`] parses: `1h30m`.
pub fn duration_text(duration: Duration) -> String {
    let mut left = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    let mut text = String::new();
    for (unit, ms) in UNITS {
        if left >= ms {
            text.push_str(&format!("{}{unit}", left / ms));
            left %= ms;
        }
    }
    if text.is_empty() { "0s".to_owned() } else { text }
}

/// Parses an instant in ISO 8601, to the millisecond. Without an offset or `Z` it is UTC. A date
/// without a time is midnight.
///
/// # Errors
/// `InvalidArguments` with the name of the field and the format.
pub fn instant(field: &str, text: &str) -> Result<Timestamp, Refusal> {
    read_instant(text.trim()).ok_or_else(|| {
        refusal!(InvalidArguments, "{field}: `{}` is not a time", shown(text, 60))
            .hint("write it like 2026-11-30T18:00:00Z; without a zone it is UTC")
    })
}

fn read_instant(text: &str) -> Option<Timestamp> {
    // A very long text must not reach the parser.
    if text.len() > 64 || !text.is_ascii() {
        return None;
    }
    let ms = match text.parse::<jiff::Timestamp>() {
        Ok(at) => at.as_millisecond(),
        Err(_) => {
            // The parser of civil times ignores an offset, also an invalid one. So such a text is
            // refused here.
            let clock = text.split_once(['T', 't', ' ']).map_or("", |(_, clock)| clock);
            if clock.contains(['Z', 'z', '+', '-', '[']) {
                return None;
            }
            let civil = text.parse::<jiff::civil::DateTime>().ok()?;
            jiff::tz::TimeZone::UTC.to_timestamp(civil).ok()?.as_millisecond()
        }
    };
    (ms >= 0).then_some(Timestamp(ms))
}

/// A schedule's name, without white space around it.
///
/// # Errors
/// `InvalidArguments`, or `TooLarge` for a name that is too long.
pub fn checked_name(name: &str) -> Result<String, Refusal> {
    let bad = |why: &str| {
        let code = if name.trim().chars().count() > NAME_MAX { Code::TooLarge } else { Code::InvalidArguments };
        Err(Refusal::new(code, format!("name: `{}` {why}", clip(&one_line(name), 80)))
            .hint(format!("use 1 to {NAME_MAX} characters, no line breaks and no `/`")))
    };
    let trimmed = name.trim();
    match trimmed {
        "" => bad("is empty"),
        _ if trimmed.contains(crate::text::is_strange) => bad("contains control characters"),
        _ if trimmed.contains('/') => bad("contains a `/`"),
        _ if trimmed.chars().count() > NAME_MAX => bad("is too long"),
        _ => Ok(trimmed.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn durations_are_parsed_and_printed() {
        for (text, ms) in
            [("90s", 90_000), ("5m", 300_000), ("1h30m", 5_400_000), (" 2d ", 172_800_000), ("1s500ms", 1_500)]
        {
            assert_eq!(duration("in", text).unwrap(), Duration::from_millis(ms), "{text}");
        }
        assert_eq!(duration_text(Duration::from_secs(5_400)), "1h30m");
        for bad in
            ["", "5", "m", "5 m", "30m1h", "5m5m", "-5m", "1.5h", "0s", "11y", "600w", "99999999999999999999s", "5mé"]
        {
            let refusal = duration("in", bad).unwrap_err();
            assert_eq!(refusal.code, Code::InvalidArguments, "{bad}");
            assert!(refusal.message.starts_with("in: "), "{bad}");
        }
    }

    // covers: SCHED-04
    #[test]
    fn instants_without_a_zone_are_utc() {
        for (text, ms) in [
            ("2000-02-29T00:00:00.5Z", 951_782_400_500),
            ("2026-11-21T23:08:00.123456+01:00", 1_795_298_880_123),
            ("2026-11-21T22:08", 1_795_298_880_000),
            ("2026-11-21 22:08:00", 1_795_298_880_000),
            ("1970-01-02", 86_400_000),
        ] {
            assert_eq!(instant("at", text).unwrap(), Timestamp(ms), "{text}");
        }
        let bad =
            ["", "soon", "2026-02-29", "2026-11-21T25:00:00Z", "2026-11-21T10:00+99:00", "1969-01-01", "2026-13-01"];
        for text in bad {
            assert_eq!(instant("at", text).unwrap_err().code, Code::InvalidArguments, "{text}");
        }
    }

    proptest! {
        #[test]
        fn a_printed_duration_parses_to_itself(ms in 1..=AHEAD_MAX_MS) {
            let given = Duration::from_millis(ms);
            prop_assert_eq!(duration("d", &duration_text(given)).unwrap(), given);
        }

        #[test]
        fn a_printed_instant_parses_to_itself(ms in 0i64..200_000_000_000_000) {
            prop_assert_eq!(instant("t", &Timestamp(ms).rfc3339()).unwrap(), Timestamp(ms));
        }

        #[test]
        fn no_text_causes_a_panic(text in "[0-9TZ:.+\\-a-z\u{e9} \\[\\]]{0,70}") {
            let _ = (duration("t", &text), instant("t", &text));
        }
    }
}
