//! Times of schedules: durations with several units, and instants in ISO 8601.

use std::time::Duration;

use crate::text::parse_duration;

/// Parses `90s`, `5m`, `1h30m`, or a bare number of seconds.
pub fn parse_span(text: &str) -> Result<Duration, String> {
    let wrong = || match text.starts_with('-') {
        true => format!("`{text}` is below 0; use a form such as 90s, 5m, 1h30m or 2d"),
        false => format!("`{text}` is not a duration; use a form such as 90s, 5m, 1h30m or 2d"),
    };
    let mut rest = text;
    let (mut total, mut last) = (Duration::ZERO, Duration::MAX);
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let letters = rest[digits..].bytes().take_while(u8::is_ascii_alphabetic).count();
        let (part, after) = rest.split_at(digits + letters);
        let unit = parse_duration(&format!("1{}", &part[digits..])).map_err(|_| wrong())?;
        // Units must come in decreasing order, each at most once. Anything else is probably a typo.
        if digits == 0 || unit >= last || (letters == 0 && part.len() < text.len()) {
            return Err(wrong());
        }
        last = unit;
        total = total.checked_add(parse_duration(part).map_err(|_| wrong())?).ok_or_else(wrong)?;
        rest = after;
    }
    if total.is_zero() { Err(wrong()) } else { Ok(total) }
}

/// Parses a duration into milliseconds.
pub fn parse_span_ms(text: &str) -> Result<i64, String> {
    i64::try_from(parse_span(text)?.as_millis()).map_err(|_| format!("`{text}` is too long"))
}

/// Parses an instant such as `2026-11-30T18:00:00Z` into milliseconds since 1970; without a zone it is UTC.
pub fn parse_instant(text: &str) -> Result<i64, String> {
    let wrong = || format!("`{text}` is not a time; use a form such as 2026-11-30T18:00:00Z (UTC if there is no zone)");
    let ms = match text.parse::<jiff::Timestamp>() {
        Ok(at) => at.as_millisecond(),
        Err(_) => {
            // An invalid offset must not be ignored.
            let clock = text.split_once(['T', 't', ' ']).map_or("", |(_, clock)| clock);
            if clock.contains(['Z', 'z', '+', '-', '[']) {
                return Err(wrong());
            }
            let civil: jiff::civil::DateTime = text.parse().map_err(|_| wrong())?;
            jiff::tz::TimeZone::UTC.to_timestamp(civil).map_err(|_| wrong())?.as_millisecond()
        }
    };
    if ms < 0 { Err(wrong()) } else { Ok(ms) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_and_instants_are_parsed() {
        for (text, seconds) in [("90s", 90), ("90", 90), ("1h30m", 5_400), ("2d1h", 176_400)] {
            assert_eq!(parse_span(text), Ok(Duration::from_secs(seconds)), "{text}");
        }
        for bad in ["", "m", "30m1h", "5m5m", "0s", "1.5h", "5 m", "5m3", "-5m", "é"] {
            assert!(parse_span(bad).is_err(), "{bad}");
        }
        assert_eq!(parse_instant("2026-11-21T22:08:00"), parse_instant("2026-11-21T23:08:00+01:00"));
        assert_eq!(parse_instant("1970-01-02"), Ok(86_400_000));
        for bad in ["", "soon", "2026-02-30", "2026-11-21T10:00+99:00", "1969-01-01T00:00:00Z"] {
            assert!(parse_instant(bad).is_err(), "{bad}");
        }
    }
}
