//! Parsing and formatting of values: durations, numbers, amounts and instants; and text of agents made safe for a
//! terminal.

use std::num::{IntErrorKind, ParseIntError};
use std::time::Duration;

pub use ghost_proto::json::rfc3339;

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

/// The latest valid instant: the end of the year 9999.
const LATEST_MS: i64 = 253_402_300_799_999;

/// Parses a duration and returns the instant that is this long before `now_ms`.
pub fn parse_since(text: &str, now_ms: i64) -> Result<i64, String> {
    let back = i64::try_from(parse_duration(text)?.as_millis()).ok();
    back.and_then(|back| now_ms.checked_sub(back))
        .filter(|at| *at >= 0)
        .ok_or_else(|| format!("`{text}` reaches back before 1970; use a shorter time, such as 24h or 30d"))
}

/// Parses a duration and returns the instant that is this long after `now_ms`.
pub fn parse_due(text: &str, now_ms: i64) -> Result<i64, String> {
    let ahead = i64::try_from(parse_duration(text)?.as_millis()).ok();
    ahead
        .and_then(|ahead| now_ms.checked_add(ahead))
        .filter(|at| *at <= LATEST_MS)
        .ok_or_else(|| format!("`{text}` reaches beyond the year 9999; use a shorter time, such as 24h or 30d"))
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

/// Formats money as `$1.2345`: at least two decimals, then up to the last digit that is not zero.
/// Prints the same as the daemon.
pub fn dollars(micros: u64) -> String {
    let whole = format!("{}.{:06}", micros / 1_000_000, micros % 1_000_000);
    let kept = whole.trim_end_matches('0').len().max(whole.len() - 4);
    format!("${}", &whole[..kept])
}

/// A count with its noun: `1 agent`, `2 agents`.
pub fn plural(count: impl Into<u64>, noun: &str) -> String {
    let count = count.into();
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

/// The cost as text. Tokens of models without a known price are listed separately.
pub fn cost(micros: u64, unpriced_tokens: u64) -> String {
    match (micros, unpriced_tokens) {
        (known, 0) => dollars(known),
        (0, tokens) => format!("unknown ({tokens} tokens without a price)"),
        (known, tokens) => format!("{} + {tokens} tokens without a price", dollars(known)),
    }
}

/// Whether a character changes the direction in which a terminal shows the text around it.
fn is_bidi(c: char) -> bool {
    matches!(c, '\u{200e}' | '\u{200f}' | '\u{061c}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// The text with direction characters escaped, as `\u{202e}`.
fn escape_bidi(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    for c in text.chars() {
        if is_bidi(c) { plain.extend(c.escape_default()) } else { plain.push(c) }
    }
    plain
}

/// Whether a character would end the line, or control the terminal.
fn breaks_line(c: char) -> bool {
    c.is_control() || matches!(c, '\u{2028}' | '\u{2029}')
}

/// The text as one line of at most `max` characters. Control characters and line breaks become
/// spaces, direction characters are escaped, and `…` marks a truncation.
pub fn one_line(text: &str, max: usize) -> String {
    let text = escape_bidi(text);
    let mut line: String =
        text.chars().map(|c| if breaks_line(c) { ' ' } else { c }).take(max.saturating_add(1)).collect();
    if line.chars().count() > max {
        line = line.chars().take(max.saturating_sub(1)).collect();
        line.push('…');
    }
    line
}

/// Text from an agent, a model or a server for whoever reads it. Control characters, which could move a terminal's cursor or
/// rename its window, and direction characters are escaped, as `\u{1b}`. A line may end in CR LF.
pub fn harmless(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        match c {
            '\r' if rest.peek() == Some(&'\n') => {}
            '\n' | '\t' => plain.push(c),
            c if c.is_control() || is_bidi(c) => plain.extend(c.escape_default()),
            c => plain.push(c),
        }
    }
    plain
}

/// JSON whose strings hold no character that a terminal takes for a command: serde leaves those above U+007E as they are.
pub fn escaped_json(json: &str) -> String {
    let mut plain = String::with_capacity(json.len());
    for c in json.chars() {
        let steers = is_bidi(c) || (c.is_control() && !matches!(c, '\n' | '\t' | '\r'));
        // Each of them is one unit of UTF-16. Outside a string no such character may stand.
        if steers {
            plain.push_str(&format!("\\u{:04x}", u32::from(c)));
        } else {
            plain.push(c);
        }
    }
    plain
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
    fn direction_characters_are_escaped() {
        assert_eq!(one_line("a\u{202e}b\nc", 40), "a\\u{202e}b c");
        assert_eq!(harmless("\u{2066}x\u{1b}[2J\n"), "\\u{2066}x\\u{1b}[2J\n");
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
    fn money_and_instants_have_the_daemons_format() {
        for micros in [0, 1, 7, 10, 990_000, 1_000_000, 1_234_500, 1_234_567, 20_000_000, u64::MAX] {
            assert_eq!(dollars(micros), ghost_domain::Money(micros).to_string());
        }
        for ms in [0, 1, -1, 951_782_400_000, 1_709_164_800_123, 4_107_542_399_999, -62_135_596_800_000] {
            assert_eq!(rfc3339(ms), ghost_domain::Timestamp(ms).rfc3339());
        }
    }

    #[test]
    fn text_of_agents_cannot_control_a_terminal() {
        assert_eq!(one_line("a\nb\u{1b}[31mc", 20), "a b [31mc");
        assert_eq!(one_line("abcdef", 4), "abc…");
        assert_eq!(one_line("äöüß", 4), "äöüß");
        assert_eq!(harmless("a\u{1b}]0;x\u{7}\n\tb\r\nc\rd"), "a\\u{1b}]0;x\\u{7}\n\tb\nc\\rd");
    }
}
