//! Recognises logs by the beginning of their lines and counts the lines by level.
//!
//! This module must never panic on any text or return a time or a line that is not in the text.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use regex::Regex;

/// Minimum lines of a log.
const LOG_MIN: usize = 3;
/// The level is searched for in this many bytes at the beginning of a line.
const LEVEL_WITHIN: usize = 120;
/// Maximum log lines that are shown: the first lines of the worst level.
const WORST_MAX: usize = 3;
/// Levels, the worst first.
const LEVELS: [&str; 10] =
    ["PANIC", "FATAL", "CRITICAL", "ERROR", "HTTP 5xx", "WARN", "HTTP 4xx", "NOTICE", "INFO", "DEBUG"];

// The patterns are constants that the tests compile. A pattern that did not compile would find
// nothing.
static TIME: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(r"^\[?(\d{4}[-/]\d\d[-/]\d\d[T ]\d\d:\d\d(?::\d\d)?(?:[.,]\d{1,9})?(?: ?(?:Z|[+-]\d\d:?\d\d))?|\d\d\.\d\d\.\d{4},? \d\d:\d\d(?::\d\d)?|[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d|\d\d:\d\d:\d\d(?:[.,]\d{1,9})?)(?:\]|:)? ").ok()
});
static ACCESS: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r#"^\S+ \S+ \S+ \[([^\]\n]{1,40})\] "[^"\n]*" ([1-5])\d\d\b"#).ok());
static LEVEL: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(r#"(?:^|[\s\[<(=:|"])(PANIC|FATAL|CRITICAL|CRIT|ERROR|ERR|WARNING|WARN|NOTICE|INFO|DEBUG|TRACE)(?:[\s\]>):|,"]|$)|(?:\blevel["=: ]{1,4}|\[)(?i:(PANIC|FATAL|CRITICAL|CRIT|ERROR|ERR|WARNING|WARN|NOTICE|INFO|DEBUG|TRACE))\b"#).ok()
});
/// The counted lines of a log.
pub(super) struct Log<'t> {
    lines: usize,
    levels: BTreeMap<&'static str, usize>,
    /// The times of the first and of the last line.
    pub(super) times: (&'t str, &'t str),
    /// The worst level with its first lines.
    pub(super) worst: (usize, Vec<&'t str>),
}

impl<'t> Log<'t> {
    /// Reads `text` as a log; `None` if fewer than half of its lines begin like log lines.
    pub(super) fn of(text: &'t str) -> Option<Self> {
        let mut log = Self { lines: 0, levels: BTreeMap::new(), times: ("", ""), worst: (LEVELS.len(), Vec::new()) };
        let mut begun = 0_usize;
        for line in text.lines().map(str::trim_end).filter(|line| !line.is_empty()) {
            log.lines += 1;
            let Some((time, level)) = begins(line) else {
                // Most texts are not logs. The first lines show that, so the rest is not read.
                if log.lines > 64 && begun * 4 < log.lines {
                    return None;
                }
                continue;
            };
            begun += 1;
            if !time.is_empty() {
                log.times = (if log.times.0.is_empty() { time } else { log.times.0 }, time);
            }
            let Some(level) = level else { continue };
            *log.levels.entry(level).or_default() += 1;
            let rank = LEVELS.iter().position(|known| *known == level).unwrap_or(LEVELS.len());
            if rank < log.worst.0 {
                log.worst = (rank, Vec::new());
            }
            if rank == log.worst.0 && log.worst.1.len() < WORST_MAX {
                log.worst.1.push(line);
            }
        }
        (begun >= LOG_MIN && begun * 2 >= log.lines).then_some(log)
    }

    /// The number of lines and the number of each level, in words.
    pub(super) fn tally(&self) -> String {
        let known = LEVELS.iter().filter_map(|level| self.levels.get_key_value(level));
        let rest = self.levels.iter().filter(|(level, _)| !LEVELS.contains(level));
        let levels: Vec<String> = known.chain(rest).map(|(level, count)| format!(", {count} {level}")).collect();
        format!("{} lines{}", self.lines, levels.concat())
    }
}

/// The time and the level of a log line; `None` if the line does not begin like a log line.
fn begins(line: &str) -> Option<(&str, Option<&'static str>)> {
    if let Some(found) = ACCESS.as_ref().and_then(|access| access.captures(line)) {
        let time = found.get(1).map_or("", |time| time.as_str());
        let level = match found.get(2).map_or("", |class| class.as_str()) {
            "5" => "HTTP 5xx",
            "4" => "HTTP 4xx",
            "3" => "HTTP 3xx",
            "2" => "HTTP 2xx",
            _ => "HTTP 1xx",
        };
        return Some((time, Some(level)));
    }
    let time = TIME.as_ref().and_then(|time| time.captures(line)).and_then(|found| found.get(1));
    let head = ghost_domain::text::prefix_bytes(line, LEVEL_WITHIN);
    let found = LEVEL.as_ref().and_then(|level| level.captures(head));
    let at_once = found.as_ref().and_then(|found| found.get(0)).is_some_and(|level| level.start() <= 1);
    if time.is_none() && !at_once && !line.starts_with("time=") {
        return None;
    }
    let level = found.and_then(|found| found.get(1).or(found.get(2))).map(|level| level_named(level.as_str()));
    Some((time.map_or("", |time| time.as_str()), level))
}

fn level_named(word: &str) -> &'static str {
    match word.to_ascii_uppercase().as_str() {
        "PANIC" => "PANIC",
        "FATAL" => "FATAL",
        "CRITICAL" | "CRIT" => "CRITICAL",
        "ERROR" | "ERR" => "ERROR",
        "WARNING" | "WARN" => "WARN",
        "NOTICE" => "NOTICE",
        "INFO" => "INFO",
        "DEBUG" => "DEBUG",
        _ => "TRACE",
    }
}

#[cfg(test)]
mod tests {
    use super::super::shapes::shape;
    use serde_json::json;

    #[test]
    fn a_log_is_counted_by_level() {
        let text = "2024-05-01 12:00:00,123 INFO start\n2024-05-01 12:00:01,001 ERROR disk full\n  at main\n2024-05-01 12:00:02 [warn] slow\n2024-05-02 00:00:00 WARNING again\n";
        let log = shape(text, 3, true);
        assert_eq!(log["tally"], "5 lines, 1 ERROR, 2 WARN, 1 INFO");
        assert_eq!(
            (&log["log"]["first"], &log["log"]["last"]),
            (&json!("2024-05-01 12:00:00,123"), &json!("2024-05-02 00:00:00"))
        );
        assert_eq!(log["log"]["worst"], json!(["2024-05-01 12:00:01,001 ERROR disk full"]));
        let access = "1.2.3.4 - - [01/May/2024:12:00:00 +0000] \"GET / HTTP/1.1\" 200 5\n".repeat(2)
            + "1.2.3.4 - - [01/May/2024:12:00:09 +0000] \"GET /x HTTP/1.1\" 404 5\n";
        assert_eq!(shape(&access, 3, true)["tally"], "3 lines, 1 HTTP 4xx, 2 HTTP 2xx");
        assert_eq!(shape("ERROR: a\nINFO: b\nINFO c\n", 3, true)["tally"], "3 lines, 1 ERROR, 2 INFO");
        assert_eq!(shape("2024-05-01 12:00;5\n2024-05-01 13:00;6\n2024-05-01 14:00;7\n", 3, true)["tally"], "3 rows");
    }
}
