//! What the arguments of commands mean: numbers, durations, instants, amounts, and texts from standard input or a file.
//! Wherever a command takes a text or a value, `-` means standard input.

use std::io::{ErrorKind, Read};
use std::num::{IntErrorKind, ParseIntError};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::failure::Failure;
use crate::wait::now_ms;

/// Parses a whole number from `min` to `max`. The error text follows the name of the option in a message.
pub fn whole_number<T: TryFrom<i64>>(text: &str, min: i64, max: i64) -> Result<T, String> {
    let too_large = || "it is too large".to_owned();
    match text.parse() {
        Ok(number) if (min..=max).contains(&number) => T::try_from(number).map_err(|_| too_large()),
        Err(error) if max == i64::MAX && *error.kind() == IntErrorKind::PosOverflow => Err(too_large()),
        // `i64::MAX` would not help the reader.
        _ if max == i64::MAX => Err(format!("it must be a whole number, {min} or more")),
        _ => Err(format!("it must be a whole number, from {min} to {max}")),
    }
}

/// Parses a whole number, 0 or more.
pub fn from_0<T: TryFrom<i64>>(text: &str) -> Result<T, String> {
    whole_number(text, 0, i64::MAX)
}

/// Parses a whole number, 1 or more.
pub fn from_1<T: TryFrom<i64>>(text: &str) -> Result<T, String> {
    whole_number(text, 1, i64::MAX)
}

/// Parses `500ms`, `60s`, `15m`, `24h`, `7d`, or a bare number of seconds.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let wrong = || match text.starts_with('-') {
        true => format!("`{text}` is below 0; a duration is 0 or more, such as 90s or 24h"),
        false => format!("`{text}` is not a duration; write a whole number and ms, s, m, h or d, such as 90s or 24h"),
    };
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().map_err(|_| wrong())?;
    let factor_ms: u64 = match unit {
        "ms" => 1,
        "" | "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return Err(wrong()),
    };
    number.checked_mul(factor_ms).map(Duration::from_millis).ok_or_else(wrong)
}

/// Milliseconds as the wire has them.
pub fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// The latest valid instant: the end of the year 9999.
const LATEST_MS: i64 = 253_402_300_799_999;

/// Parses a duration and returns the instant that is this long before `now_ms`.
fn parse_since(text: &str, now_ms: i64) -> Result<i64, String> {
    let back = i64::try_from(parse_duration(text)?.as_millis()).ok();
    back.and_then(|back| now_ms.checked_sub(back))
        .filter(|at| *at >= 0)
        .ok_or_else(|| format!("`{text}` reaches back before 1970; use a shorter time, such as 24h or 30d"))
}

/// Parses a duration and returns the instant that is this long after `now_ms`.
fn parse_due(text: &str, now_ms: i64) -> Result<i64, String> {
    let ahead = i64::try_from(parse_duration(text)?.as_millis()).ok();
    ahead
        .and_then(|ahead| now_ms.checked_add(ahead))
        .filter(|at| *at <= LATEST_MS)
        .ok_or_else(|| format!("`{text}` reaches beyond the year 9999; use a shorter time, such as 24h or 30d"))
}

/// Parses `--since` into an instant, in milliseconds since 1970.
pub fn since(text: &str) -> Result<i64, String> {
    parse_since(text, now_ms())
}

/// Parses `--due-in` into an instant, in milliseconds since 1970.
pub fn due(text: &str) -> Result<i64, String> {
    parse_due(text, now_ms())
}

/// A new limit of a budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// This limit.
    At(u64),
    /// No limit.
    None,
}

/// Parses a number of tokens, or `none`.
pub fn parse_tokens(text: &str) -> Result<Limit, String> {
    if text == "none" {
        return Ok(Limit::None);
    }
    text.replace('_', "").parse().map(Limit::At).map_err(|error: ParseIntError| match error.kind() {
        IntErrorKind::PosOverflow => format!("`{text}` is too large; none means no limit"),
        _ => format!("`{text}` is neither none nor a whole number of tokens, 0 or more"),
    })
}

/// Parses US dollars into millionths of a dollar, or `none`.
pub fn parse_usd(text: &str) -> Result<Limit, String> {
    if text == "none" {
        return Ok(Limit::None);
    }
    let wrong = || format!("`{text}` is not an amount of US dollars such as 2.50, from 0 to 1000000000, or none");
    let micros = text.parse::<f64>().map_err(|_| wrong())? * 1e6;
    if !(0.0..=1e15).contains(&micros) {
        return Err(wrong());
    }
    if micros > 0.0 && micros.round() < 1.0 {
        return Err(format!("`{text}` is less than a millionth of a dollar, the smallest unit"));
    }
    // The check above keeps it in range and refuses NaN.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    Ok(Limit::At(micros.round() as u64))
}

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

/// The argument that means standard input.
const STANDARD_INPUT: &str = "-";
/// Largest text in bytes. It is larger than any world accepts.
pub const TEXT_MAX: u64 = 2 * 1024 * 1024;

/// Whether standard input was read already.
static TAKEN: AtomicBool = AtomicBool::new(false);

/// The text itself, or for `-` the content of standard input without its final line break.
pub fn text_or_stdin(text: String) -> Result<String, Failure> {
    if text != STANDARD_INPUT {
        return Ok(text);
    }
    let mut text = standard_input()?;
    if text.ends_with('\n') {
        text.pop();
        if text.ends_with('\r') {
            text.pop();
        }
    }
    Ok(text)
}

/// Like [`text_or_stdin`] for an optional text.
pub fn optional_text(text: Option<String>) -> Result<Option<String>, Failure> {
    text.map(text_or_stdin).transpose()
}

/// A document from an argument, from a file, or (for `-` as either) from standard input. It is not changed, so a final
/// line break stays.
pub fn document(text: Option<String>, file: Option<&Path>) -> Result<String, Failure> {
    match (text, file) {
        (Some(text), _) if text != STANDARD_INPUT => Ok(text),
        (_, Some(path)) if path.as_os_str() != STANDARD_INPUT => {
            let file = std::fs::File::open(path).map_err(|error| unreadable(path, &error))?;
            read(file, &path.display().to_string(), |error| unreadable(path, error))
        }
        _ => standard_input(),
    }
}

fn standard_input() -> Result<String, Failure> {
    if TAKEN.swap(true, Ordering::SeqCst) {
        return Err(Failure::new("invalid_arguments", "`-` was given twice, but standard input can be read only once")
            .hint("pass one of the two as text"));
    }
    read(std::io::stdin(), "standard input", |error| {
        Failure::new("internal", format!("cannot read standard input: {error}")).hint("pipe a text into ghostctl")
    })
}

fn read(from: impl Read, name: &str, failed: impl Fn(&std::io::Error) -> Failure) -> Result<String, Failure> {
    let mut bytes = Vec::new();
    from.take(TEXT_MAX + 1).read_to_end(&mut bytes).map_err(|error| failed(&error))?;
    if bytes.len() as u64 > TEXT_MAX {
        return Err(Failure::new("too_large", format!("{name} holds more than {TEXT_MAX} bytes"))
            .hint("split it, or write it to a workspace file and send the path"));
    }
    String::from_utf8(bytes).map_err(|_| {
        Failure::new("invalid_arguments", format!("{name} is not UTF-8")).hint("it must be text; save it as UTF-8")
    })
}

/// The failure for a local file that cannot be read. Exit code 3 if it is missing, 4 if access is denied, else 2.
pub fn unreadable(path: &Path, error: &std::io::Error) -> Failure {
    let (code, hint) = match error.kind() {
        ErrorKind::NotFound => ("not_found", "name an existing file, or - for standard input"),
        ErrorKind::PermissionDenied => ("access_denied", "you need permission to read the file"),
        _ => ("invalid_arguments", "name a readable file"),
    };
    Failure::new(code, format!("cannot read {}: {error}", path.display())).hint(hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_for_a_number_out_of_range_names_the_range() {
        assert_eq!(
            (from_0::<u32>("0"), from_1::<i64>("7"), whole_number::<u32>("500", 1, 500)),
            (Ok(0), Ok(7), Ok(500))
        );
        for (wrong, bound) in [
            (from_0::<i64>("-1"), "0"),
            (from_1::<i64>("0"), "1"),
            (from_1::<i64>("x"), "1"),
            (from_1::<i64>("1.5"), "1"),
            (from_0::<u32>("4294967296").map(i64::from), ""),
            (from_0::<i64>("99999999999999999999"), ""),
            (whole_number("501", 1, 500), "1 to 500"),
            (whole_number("99999999999999999999", 1, 500), "1 to 500"),
        ] {
            assert!(wrong.as_ref().is_err_and(|message| message.contains(bound)), "{bound}: {wrong:?}");
        }
        assert!(parse_duration("-1h").unwrap_err().contains('0'));
        assert!(parse_tokens("-1").unwrap_err().contains('0'));
    }

    #[test]
    fn durations_are_parsed_and_other_text_is_refused() {
        assert_eq!(parse_duration("24h"), Ok(Duration::from_secs(86_400)));
        assert_eq!(parse_duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(parse_duration("90"), Ok(Duration::from_secs(90)));
        assert_eq!(parse_duration("7d"), Ok(Duration::from_secs(7 * 86_400)));
        for wrong in ["", "h", "-1s", "1.5h", "1 h", "99999999999999999999d", "18446744073709551615d", "1w", "ä"] {
            assert!(parse_duration(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn instants_stay_between_1970_and_9999() {
        let now = 1_709_164_800_123;
        assert_eq!(parse_since("1d", now), Ok(now - 86_400_000));
        assert_eq!(parse_since("0s", 0), Ok(0));
        assert_eq!(parse_due("2h", now), Ok(now + 7_200_000));
        for wrong in ["99999d", "213503982334d", "18446744073709551615ms", "soon"] {
            assert!(parse_since(wrong, now).is_err(), "{wrong}");
        }
        for wrong in ["99999999d", "213503982334d", "18446744073709551615ms", "soon"] {
            assert!(parse_due(wrong, now).is_err(), "{wrong}");
        }
    }

    #[test]
    fn amounts_are_parsed_to_the_millionth() {
        assert_eq!(parse_usd("2.50"), Ok(Limit::At(2_500_000)));
        assert_eq!(parse_usd("none"), Ok(Limit::None));
        for wrong in ["-1", "NaN", "inf", "1e300", "two", "", "0.0000001"] {
            assert!(parse_usd(wrong).is_err(), "{wrong}");
        }
        assert_eq!(parse_tokens("1_000_000"), Ok(Limit::At(1_000_000)));
        assert!(parse_tokens("-5").is_err());
        assert!(parse_tokens("99999999999999999999").is_err());
    }

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

    #[test]
    fn a_file_must_be_text_within_the_size_limit() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str, bytes: &[u8]| {
            let path = dir.path().join(name);
            std::fs::write(&path, bytes).unwrap();
            path
        };
        assert_eq!(document(Some("as it is".into()), None).unwrap(), "as it is");
        assert_eq!(document(None, Some(&path("a", "äöü\n".as_bytes()))).unwrap(), "äöü\n");
        let large = vec![b'x'; usize::try_from(TEXT_MAX).unwrap() + 1];
        assert_eq!(document(None, Some(&path("b", &large))).unwrap_err().exit_code(), 8);
        assert_eq!(document(None, Some(&path("c", b"\xff"))).unwrap_err().exit_code(), 2);
        let missing = document(None, Some(&dir.path().join("none"))).unwrap_err();
        assert_eq!((missing.exit_code(), missing.message.contains("none"), missing.hint.is_some()), (3, true, true));
        assert_eq!(document(None, Some(dir.path())).unwrap_err().exit_code(), 2);
        assert_eq!(text_or_stdin("--".into()).unwrap(), "--");
        assert_eq!(optional_text(None).unwrap(), None);
    }
}
