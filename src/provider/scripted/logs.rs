//! Recognises logs by the beginning of their lines, and counts the lines by level and by message, part by part.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use regex::Regex;
use serde::{Deserialize, Serialize};

/// Minimum lines of a log.
const LOG_MIN: usize = 3;
/// The level is searched for in this many bytes at the beginning of a line.
const LEVEL_WITHIN: usize = 120;
/// Maximum messages of one level that are counted, and characters of a message.
const MESSAGES_MAX: usize = 6;
const MESSAGE_MAX: usize = 120;
/// Levels, the worst first.
const LEVELS: [&str; 10] =
    ["PANIC", "FATAL", "CRITICAL", "ERROR", "HTTP 5xx", "WARN", "HTTP 4xx", "NOTICE", "INFO", "DEBUG"];

// The patterns are constants that the tests compile. A pattern that did not compile would find
// nothing.
static TIME: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(r"^\[?(\d{4}[-/]\d\d[-/]\d\d[T ]\d\d:\d\d(?::\d\d)?(?:[.,]\d{1,9})?(?: ?(?:Z|[+-]\d\d:?\d\d))?|\d\d\.\d\d\.\d{4},? \d\d:\d\d(?::\d\d)?|[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d|\d\d:\d\d:\d\d(?:[.,]\d{1,9})?)(?:\]|:)? ").ok()
});
static ACCESS: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r#"^\S+ \S+ \S+ \[([^\]\n]{1,40})\] "([^"\n]*)" ([1-5])\d\d\b"#).ok());
static LEVEL: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(r#"(?:^|[\s\[<(=:|"])(PANIC|FATAL|CRITICAL|CRIT|ERROR|ERR|WARNING|WARN|NOTICE|INFO|DEBUG|TRACE)(?:[\s\]>):|,"]|$)|(?:\blevel["=: ]{1,4}|\[)(?i:(PANIC|FATAL|CRITICAL|CRIT|ERROR|ERR|WARNING|WARN|NOTICE|INFO|DEBUG|TRACE))\b"#).ok()
});
/// What changes from one line of the same message to the next.
static CHANGES: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"\b[0-9a-fA-F]{8,}\b|[0-9]+").ok());

/// The lines of a log so far.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Log {
    lines: usize,
    levels: BTreeMap<String, usize>,
    /// The times of the first and of the last line.
    times: (String, String),
    messages: Vec<Message>,
}

/// Lines that differ only in their numbers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Message {
    rank: usize,
    text: String,
    count: usize,
    /// The times of the first and of the last of them, and the number of the first line.
    times: (String, String),
    line: usize,
}

impl Log {
    /// Reads the first part of a log; `None` if fewer than half of its lines begin like log lines.
    pub(super) fn begin(text: &str, line: usize) -> Option<Self> {
        let (mut lines, mut begun) = (0_usize, 0_usize);
        for line in text.lines().filter(|line| !line.trim_end().is_empty()) {
            lines += 1;
            begun += usize::from(begins(line).is_some());
            // Most texts are not logs. The first lines show that, so the rest is not read.
            if lines > 64 && begun * 4 < lines {
                return None;
            }
        }
        if begun < LOG_MIN || begun * 2 < lines {
            return None;
        }
        let mut log = Self::default();
        log.add(text, line);
        Some(log)
    }

    /// Adds the next part, which begins with line number `first`.
    pub(super) fn add(&mut self, text: &str, first: usize) {
        for (at, line) in text.lines().enumerate() {
            let line = line.trim_end();
            if line.is_empty() {
                continue;
            }
            self.lines += 1;
            let Some((time, level)) = begins(line) else { continue };
            if !time.is_empty() {
                if self.times.0.is_empty() {
                    time.clone_into(&mut self.times.0);
                }
                time.clone_into(&mut self.times.1);
            }
            if let Some(level) = level {
                *self.levels.entry(level.to_owned()).or_default() += 1;
            }
            self.message(line, time, level, first + at);
        }
    }

    fn message(&mut self, line: &str, time: &str, level: Option<&str>, number: usize) {
        let rank = level.and_then(|level| LEVELS.iter().position(|known| *known == level)).unwrap_or(LEVELS.len());
        let text = message(line, level.unwrap_or_default());
        let alike = self.messages.iter().filter(|known| known.rank == rank).count();
        if let Some(known) = self.messages.iter_mut().find(|known| known.text == text) {
            known.count += 1;
            time.clone_into(&mut known.times.1);
        } else if alike < MESSAGES_MAX {
            // A message that is counted at all is counted from its first line on.
            let times = (time.to_owned(), time.to_owned());
            self.messages.push(Message { rank, text, count: 1, times, line: number });
        }
    }

    /// The number of lines and the number of each level, in words.
    pub(super) fn tally(&self) -> String {
        let known = LEVELS.iter().filter_map(|level| self.levels.get_key_value(*level));
        let rest = self.levels.iter().filter(|(level, _)| !LEVELS.contains(&level.as_str()));
        let levels: Vec<String> = known.chain(rest).map(|(level, count)| format!(", {count} {level}")).collect();
        format!("{} lines{}", self.lines, levels.concat())
    }

    pub(super) fn gist(&self) -> String {
        let (first, last) = &self.times;
        let span = if first.is_empty() { String::new() } else { format!(" from {first} to {last}") };
        format!("A log of {}{span}.", self.tally())
    }

    /// The messages, the worst level and the most frequent first: how often each occurs, and when.
    pub(super) fn facts(&self) -> Vec<String> {
        let mut messages: Vec<&Message> = self.messages.iter().collect();
        messages.sort_by_key(|message| (message.rank, std::cmp::Reverse(message.count), message.line));
        let fact = |message: &&Message| {
            let Message { text, count, times: (first, last), line, .. } = message;
            let span = match (first.is_empty(), first == last) {
                (true, _) => String::new(),
                (_, true) => format!(", at {first}"),
                _ => format!(", from {first} to {last}"),
            };
            format!("{count} × {text}{span} (line {line})")
        };
        messages.iter().map(fact).collect()
    }
}

/// The message of a line: without its time, with `#` for what changes from line to line.
fn message(line: &str, level: &str) -> String {
    let request = ACCESS.as_ref().and_then(|access| access.captures(line)).and_then(|found| found.get(2));
    let unchanging =
        |text: &str| CHANGES.as_ref().map_or_else(String::new, |changes| changes.replace_all(text, "#").into_owned());
    let text = match request {
        // The version of the protocol is no part of what was asked for.
        Some(request) => {
            let words: Vec<&str> = request.as_str().split(' ').take(2).collect();
            format!("{level} {}", unchanging(&words.join(" ")))
        }
        None => {
            let time = TIME.as_ref().and_then(|time| time.find(line)).map_or(0, |time| time.end());
            unchanging(line.get(time..).unwrap_or_default().trim())
        }
    };
    ghost_domain::text::clip(&text, MESSAGE_MAX)
}

/// The time and the level of a log line; `None` if the line does not begin like a log line.
fn begins(line: &str) -> Option<(&str, Option<&'static str>)> {
    if let Some(found) = ACCESS.as_ref().and_then(|access| access.captures(line)) {
        let time = found.get(1).map_or("", |time| time.as_str());
        let level = match found.get(3).map_or("", |class| class.as_str()) {
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
    let word = word.to_ascii_uppercase();
    match word.as_str() {
        "CRIT" => "CRITICAL",
        "ERR" => "ERROR",
        "WARNING" => "WARN",
        word => LEVELS.iter().copied().find(|level| *level == word).unwrap_or("TRACE"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(text: &str) -> Log {
        Log::begin(text, 1).unwrap()
    }

    #[test]
    fn a_log_is_counted_by_level_and_by_message() {
        let text = "2024-05-01 12:00:00,123 INFO start\n2024-05-01 12:00:01,001 ERROR disk 7 full\n  at main\n2024-05-01 12:00:02 [warn] slow\n2024-05-02 00:00:00 WARNING again\n";
        let mut log = log(text);
        assert_eq!(
            log.gist(),
            "A log of 5 lines, 1 ERROR, 2 WARN, 1 INFO from 2024-05-01 12:00:00,123 to 2024-05-02 00:00:00."
        );
        log.add("2024-05-02 01:00:00 ERROR disk 12 full\n2024-05-02 01:00:01 FATAL gone deadbeef01\n", 6);
        let wanted = [
            "1 × FATAL gone #, at 2024-05-02 01:00:01 (line 7)",
            "2 × ERROR disk # full, from 2024-05-01 12:00:01,001 to 2024-05-02 01:00:00 (line 2)",
            "1 × [warn] slow, at 2024-05-01 12:00:02 (line 4)",
        ];
        assert_eq!(log.facts()[..3], wanted);
        // Of many messages of a level, the first are counted; all lines are.
        let letters = |at: u8| char::from(b'a' + at).to_string();
        let many: String = (0..20).map(|at| format!("2024-05-02 02:00:00 INFO {}\n", letters(at % 10))).collect();
        log.add(&many, 8);
        assert_eq!((log.facts().len(), log.tally().as_str()), (10, "27 lines, 1 FATAL, 2 ERROR, 2 WARN, 21 INFO"));
        assert!(log.facts()[8].starts_with("2 × INFO e, at"), "{:?}", log.facts());
    }

    #[test]
    fn access_logs_and_lines_without_a_time_are_logs() {
        let access = "1.2.3.4 - - [01/May/2024:12:00:00 +0000] \"GET /a/7 HTTP/1.1\" 200 5\n".repeat(2)
            + "1.2.3.4 - - [01/May/2024:12:00:09 +0000] \"GET /x HTTP/1.1\" 404 5\n";
        assert_eq!(log(&access).tally(), "3 lines, 1 HTTP 4xx, 2 HTTP 2xx");
        assert!(log(&access).facts()[1].starts_with("2 × HTTP 2xx GET /a/#, at 01/May/2024:12:00:00 +0000"));
        let plain = log("ERROR: a\nINFO: b\nINFO c\n");
        assert_eq!(
            (plain.tally().as_str(), plain.facts()[0].as_str()),
            ("3 lines, 1 ERROR, 2 INFO", "1 × ERROR: a (line 1)")
        );
        assert!(Log::begin("2024-05-01 12:00;5\n2024-05-01 13:00;6\n2024-05-01 14:00;7\n", 1).is_none());
    }
}
