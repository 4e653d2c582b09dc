//! Text in and out: durations and amounts as people write them, instants as machines read them, and words of agents
//! made safe for a terminal.

use std::time::Duration;

const DAY_MS: i64 = 86_400_000;

/// Reads `500ms`, `60s`, `15m`, `24h`, `7d`, or a bare number of seconds.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("`{text}` is not a duration; write a whole number and ms, s, m, h or d, such as 90s or 24h");
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

/// A limit that can be set or taken away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// At most this.
    At(u64),
    /// No limit.
    None,
}

/// Reads a count of tokens, or `none`.
pub fn parse_tokens(text: &str) -> Result<Limit, String> {
    if text == "none" {
        return Ok(Limit::None);
    }
    text.replace('_', "")
        .parse()
        .map(Limit::At)
        .map_err(|_| format!("`{text}` is not a whole number of tokens or none"))
}

/// Reads US dollars into millionths, or `none`.
pub fn parse_usd(text: &str) -> Result<Limit, String> {
    if text == "none" {
        return Ok(Limit::None);
    }
    let wrong = || format!("`{text}` is not an amount of US dollars such as 2.50, from 0 to 1000000000, or none");
    let micros = text.parse::<f64>().map_err(|_| wrong())? * 1e6;
    if !(0.0..=1e15).contains(&micros) {
        return Err(wrong());
    }
    // In range by the check above, which also refuses what is not a number.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    Ok(Limit::At(micros.round() as u64))
}

/// Millionths of a US dollar as dollars.
#[allow(clippy::cast_precision_loss)] // amounts stay far below 2^53 millionths
pub fn usd(micros: u64) -> f64 {
    micros as f64 / 1e6
}

/// `$1.2345`: cents, and smaller parts as far as they say something.
pub fn dollars(micros: u64) -> String {
    let whole = format!("{}.{:06}", micros / 1_000_000, micros % 1_000_000);
    let kept = whole.trim_end_matches('0').len().max(whole.len() - 4);
    format!("${}", &whole[..kept])
}

/// RFC 3339 in UTC with milliseconds: `2026-11-21T22:08:00.000Z`.
pub fn rfc3339(ms: i64) -> String {
    let (year, month, day) = civil(ms.div_euclid(DAY_MS));
    let rest = ms.rem_euclid(DAY_MS);
    let (hour, minute, second) = (rest / 3_600_000, rest / 60_000 % 60, rest / 1_000 % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{:03}Z", rest % 1_000)
}

/// The same for people: `2026-11-21 22:08:00`, UTC.
pub fn moment(ms: i64) -> String {
    rfc3339(ms)[..19].replace('T', " ")
}

/// Year, month and day of a day counted from 1970-01-01 in the Gregorian calendar.
fn civil(days: i64) -> (i64, i64, i64) {
    // Counted from 0000-03-01, so that the leap day is the last of its year; 400 years have 146,097 days.
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
    (era * 400 + year_of_era + i64::from(month < 3), month, day)
}

/// One line of at most `max` characters: line breaks and control characters become spaces, and a cut shows as `…`.
pub fn one_line(text: &str, max: usize) -> String {
    let mut line: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(max + 1).collect();
    if line.chars().count() > max {
        line = line.chars().take(max.saturating_sub(1)).collect();
        line.push('…');
    }
    line
}

/// Words of an agent for a terminal: without control characters that could move the cursor or rename the window.
pub fn harmless(text: &str) -> String {
    text.chars().filter(|c| !c.is_control() || matches!(c, '\n' | '\t')).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_and_nonsense_is_not() {
        assert_eq!(parse_duration("24h"), Ok(Duration::from_secs(86_400)));
        assert_eq!(parse_duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(parse_duration("90"), Ok(Duration::from_secs(90)));
        assert_eq!(parse_duration("7d"), Ok(Duration::from_secs(7 * 86_400)));
        for wrong in ["", "h", "-1s", "1.5h", "1 h", "99999999999999999999d", "18446744073709551615d", "1w", "ä"] {
            assert!(parse_duration(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn amounts_are_read_to_the_millionth() {
        assert_eq!(parse_usd("2.50"), Ok(Limit::At(2_500_000)));
        assert_eq!(parse_usd("none"), Ok(Limit::None));
        for wrong in ["-1", "NaN", "inf", "1e300", "two", ""] {
            assert!(parse_usd(wrong).is_err(), "{wrong}");
        }
        assert_eq!(parse_tokens("1_000_000"), Ok(Limit::At(1_000_000)));
        assert!(parse_tokens("-5").is_err());
        assert_eq!(dollars(1_234_500), "$1.2345");
        assert_eq!(dollars(2_000_000), "$2.00");
        assert_eq!(dollars(7), "$0.000007");
    }

    #[test]
    fn instants_read_as_the_daemon_writes_them() {
        for ms in [0, 1, -1, 951_782_400_000, 1_709_164_800_123, 4_107_542_399_999, -62_135_596_800_000] {
            assert_eq!(rfc3339(ms), ghost_domain::Timestamp(ms).rfc3339());
        }
        assert_eq!(moment(1_709_164_800_123), "2024-02-29 00:00:00");
    }

    #[test]
    fn words_of_agents_cannot_drive_a_terminal() {
        assert_eq!(one_line("a\nb\u{1b}[31mc", 20), "a b [31mc");
        assert_eq!(one_line("abcdef", 4), "abc…");
        assert_eq!(one_line("äöüß", 4), "äöüß");
        assert_eq!(harmless("a\u{1b}]0;x\u{7}\n\tb"), "a]0;x\n\tb");
    }
}
