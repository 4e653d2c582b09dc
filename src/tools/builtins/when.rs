//! Parses instants that a model writes: RFC 3339, with an offset or `Z`.

use ghost_domain::text::clip;
use ghost_domain::{Code, Refusal, Timestamp};

/// Parses an instant, to the millisecond.
pub(super) fn parse(field: &str, text: &str) -> Result<Timestamp, Refusal> {
    read(text.trim()).ok_or_else(|| {
        Refusal::new(Code::InvalidArguments, format!("{field}: `{}` is not a time", clip(text, 60)))
            .hint("write it like 2026-11-30T18:00:00Z")
    })
}

fn read(text: &str) -> Option<Timestamp> {
    if !text.is_ascii() {
        return None;
    }
    let (date, rest) = text.split_once(['T', 't', ' '])?;
    let [year, month, day] = numbers(date, '-')?;
    let zone = rest.find(['Z', 'z', '+', '-'])?;
    let (clock, zone) = rest.split_at(zone);
    let (clock, fraction) = clock.split_once('.').unwrap_or((clock, "0"));
    let [hour, minute, second] = numbers(clock, ':')?;
    if fraction.is_empty() || fraction.len() > 9 || !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let millis: i64 = format!("{fraction:0<3}")[..3].parse().ok()?;
    let valid = (1970..=9999).contains(&year)
        && (1..=12).contains(&month)
        && (1..=days_of(year, month)).contains(&day)
        && hour < 24
        && minute < 60
        && second < 60;
    if !valid {
        return None;
    }
    let offset = match zone {
        "Z" | "z" => 0,
        zone => {
            let [hours, minutes] = numbers(&zone[1..], ':')?;
            if hours > 23 || minutes > 59 {
                return None;
            }
            (hours * 60 + minutes) * if zone.starts_with('-') { -1 } else { 1 }
        }
    };
    let before = (1970..year).map(|year| if leap(year) { 366 } else { 365 }).sum::<i64>();
    let days = before + (1..month).map(|month| days_of(year, month)).sum::<i64>() + day - 1;
    Some(Timestamp((((days * 24 + hour) * 60 + minute - offset) * 60 + second) * 1_000 + millis))
}

/// Parses exactly `N` numbers of two to four digits, separated by `mark`.
fn numbers<const N: usize>(text: &str, mark: char) -> Option<[i64; N]> {
    let parts: Vec<i64> = text
        .split(mark)
        .map(|part| {
            let digits = (2..=4).contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_digit());
            digits.then(|| part.parse().ok()).flatten()
        })
        .collect::<Option<_>>()?;
    parts.try_into().ok()
}

fn leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

fn days_of(year: i64, month: i64) -> i64 {
    match month {
        2 if leap(year) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn known_instants_are_parsed() {
        for (text, millis) in [
            ("1970-01-01T00:00:00Z", 0),
            ("2000-02-29T00:00:00.5Z", 951_782_400_500),
            ("2026-11-21T23:08:00.123456+01:00", 1_795_298_880_123),
            ("2026-11-21 19:38:00-02:30", 1_795_298_880_000),
        ] {
            assert_eq!(parse("due_at", text).unwrap(), Timestamp(millis), "{text}");
        }
        for bad in ["", "tomorrow", "2026-02-29T00:00:00Z", "2026-11-21", "2026-11-21T25:00:00Z", "2026-11-21T10:00:00"]
        {
            assert!(parse("due_at", bad).is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn a_printed_instant_is_parsed_to_the_same_instant(millis in 0i64..200_000_000_000_000) {
            prop_assert_eq!(parse("t", &Timestamp(millis).rfc3339()).unwrap(), Timestamp(millis));
        }

        #[test]
        fn no_text_causes_a_panic(text in "[0-9TZ:.+\\-é ]{0,40}") {
            let _ = parse("t", &text);
        }
    }
}
