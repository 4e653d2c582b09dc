//! What a command answers, and how it is printed: as JSON, or as text in a time zone and for a width of the screen.

use std::io::{self, Write};
use std::path::Path;

use ghost_proto::json;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde::Serialize;

use crate::failure::Failure;
use crate::text::{escaped_json, harmless, rfc3339};
use crate::wait::now_ms;

/// Standard output.
pub struct Output {
    writer: Box<dyn Write>,
    screen: Option<usize>,
}

impl Output {
    /// Writes answers to `writer`. `screen` is the width of the terminal in columns, if it is one.
    pub fn new(writer: Box<dyn Write>, screen: Option<usize>) -> Self {
        Self { writer, screen }
    }

    /// Width of the terminal in columns; `None` for a pipe or a file.
    pub fn screen(&self) -> Option<usize> {
        self.screen
    }

    /// Writes text, without control characters: also into a pipe, because what reads it may be a terminal in the end.
    pub fn text(&mut self, text: &str) -> io::Result<()> {
        self.writer.write_all(harmless(text).as_bytes())
    }

    /// Writes JSON. Its strings escape control characters themselves; those that it leaves as they are get an escape of
    /// JSON, which a program reads as the same text.
    pub fn json(&mut self, json: &str) -> io::Result<()> {
        self.writer.write_all(escaped_json(json).as_bytes())
    }

    /// Flushes the writer.
    pub fn flush(&mut self) -> io::Result<()> {
        self.writer.flush()
    }
}

/// A note to an answer, printed to standard error.
#[derive(Clone, Debug, PartialEq)]
pub enum Note {
    /// A note for people; not printed with `--json`.
    Word(String),
    /// A note that the list is incomplete. A program cannot see that in the list, so `--json` prints it as `{"note"}`.
    Cut(String),
}

/// A command's outcome. The default one prints nothing: the command printed its output itself.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Answer {
    /// Printed with `--json`.
    pub json: String,
    /// Printed without `--json`.
    pub text: String,
    /// A note for standard error.
    pub note: Option<Note>,
    /// Set if the command failed although there is an answer to print. It sets the exit code.
    pub failure: Option<Failure>,
}

impl Answer {
    /// An answer that `--json` prints as this record, or list of records, and that people read as `text`.
    pub fn new(record: &impl Serialize, text: impl Into<String>) -> Self {
        // `{:#}` of a Value is its indented JSON.
        Self::written(format!("{:#}", json::value(record)), text)
    }

    /// An answer whose JSON is already formatted.
    pub fn written(json: String, text: impl Into<String>) -> Self {
        Self { json, text: text.into(), note: None, failure: None }
    }

    /// Prints the answer.
    pub fn print(&self, as_json: bool, out: &mut Output) -> io::Result<()> {
        match as_json {
            true => out.json(&with_newline(&self.json))?,
            false => out.text(&with_newline(&self.text))?,
        }
        out.flush()
    }
}

/// The text with a line break at its end, unless it is empty.
fn with_newline(text: &str) -> String {
    if text.is_empty() || text.ends_with('\n') { text.to_owned() } else { format!("{text}\n") }
}

/// A record as one line of JSON, for commands that print while they run.
pub fn json_line(record: &impl Serialize) -> String {
    format!("{}\n", escaped_json(&json::value(record).to_string()))
}

/// Prints a failure to standard error: one object with `--json`, else the message and its hint.
pub fn report(failure: &Failure, as_json: bool, err: &mut dyn Write) {
    if failure.is_silent() {
        return;
    }
    let written = if as_json {
        err.write_all(json_line(&failure.to_json()).as_bytes())
    } else {
        let hint = failure.hint.as_deref().map(|hint| format!("\nhint: {hint}")).unwrap_or_default();
        writeln!(err, "error: {}", harmless(&format!("{}{hint}", failure.message)))
    };
    // If standard error is closed, only the exit code reports the failure.
    drop(written);
}

/// The time zone file of this machine.
const LOCALTIME: &str = "/etc/localtime";
/// Largest time zone file that is read, in bytes.
const ZONE_BYTES: u64 = 1024 * 1024;

/// Settings of the text output.
#[derive(Clone, Debug, Default)]
pub struct View {
    /// Time zone; `None` means UTC.
    pub zone: Option<TimeZone>,
    /// Width of the terminal in columns; `None` for a pipe or a file.
    pub screen: Option<usize>,
}

impl View {
    /// An instant to the second, with its UTC offset: `2026-11-21 23:08:00+01`, or `2026-11-21 22:08:00Z` in UTC.
    pub fn moment(&self, ms: i64) -> String {
        let utc = || rfc3339(ms).get(..19).map_or_else(|| rfc3339(ms), |at| format!("{}Z", at.replace('T', " ")));
        let Some((zone, at)) = self.zone.clone().zip(Timestamp::from_millisecond(ms).ok()) else { return utc() };
        let zoned = at.to_zoned(zone);
        match zoned.offset().seconds() {
            0 => utc(),
            _ => zoned.strftime("%Y-%m-%d %H:%M:%S%:::z").to_string(),
        }
    }

    /// How long ago an instant was: `12s`, `3m`, `7h`, `5d`; `in 3m` if it is in the future.
    pub fn age(&self, ms: i64) -> String {
        age(now_ms(), ms)
    }

    /// Instant and age: `2026-11-21 23:08:00+01 (3m ago)`.
    pub fn when(&self, ms: i64) -> String {
        when(self.moment(ms), &self.age(ms))
    }
}

fn when(moment: String, age: &str) -> String {
    match age.strip_prefix("in ") {
        Some(_) => format!("{moment} ({age})"),
        None => format!("{moment} ({age} ago)"),
    }
}

fn age(now_ms: i64, ms: i64) -> String {
    let past = now_ms.saturating_sub(ms);
    let seconds = past.unsigned_abs() / 1_000;
    let long = match seconds {
        0..60 => format!("{seconds}s"),
        60..3_600 => format!("{}m", seconds / 60),
        3_600..172_800 => format!("{}h", seconds / 3_600),
        _ => format!("{}d", seconds / 86_400),
    };
    // The clocks of daemon and client may differ slightly.
    if past < -1_000 { format!("in {long}") } else { long }
}

/// The time zone of `TZ`, else of this machine. An invalid value means UTC; printed times show that.
pub fn local_zone(tz: Option<&str>) -> Option<TimeZone> {
    match tz.map(|tz| tz.strip_prefix(':').unwrap_or(tz)) {
        None => from_file(Path::new(LOCALTIME)),
        Some("") => None,
        Some(path) if path.starts_with('/') => from_file(Path::new(path)),
        Some(name) => TimeZone::get(name).or_else(|_| TimeZone::posix(name)).ok(),
    }
}

fn from_file(path: &Path) -> Option<TimeZone> {
    let size = std::fs::metadata(path).ok().filter(std::fs::Metadata::is_file)?.len();
    let bytes = if size <= ZONE_BYTES { std::fs::read(path).ok()? } else { return None };
    TimeZone::tzif("local", &bytes).ok()
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;

    use serde_json::{Value, json};

    use super::*;

    #[derive(Clone, Default)]
    struct Written(Rc<RefCell<Vec<u8>>>);

    impl Write for Written {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.borrow_mut().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn printed(answer: &Answer, as_json: bool, screen: Option<usize>) -> String {
        let written = Written::default();
        answer.print(as_json, &mut Output::new(Box::new(written.clone()), screen)).unwrap();
        let bytes = written.0.borrow().clone();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn no_way_out_carries_what_steers_a_terminal() {
        let hostile = "a\u{1b}]0;title\u{7}\u{1b}[2Jb\u{9b}31mc\u{7f}\u{202e}d\r\n\te\u{85}";
        let value = json!({ "text": hostile });
        for screen in [None, Some(80)] {
            for answer in [Answer::new(&value, hostile), Answer::written(value.to_string(), hostile)] {
                for as_json in [false, true] {
                    let shown = printed(&answer, as_json, screen);
                    let steers = |c: char| (c.is_control() && !matches!(c, '\n' | '\t')) || c == '\u{202e}';
                    assert!(!shown.contains(steers), "{answer:?} {as_json} {shown:?}");
                    if as_json {
                        let read: Value = serde_json::from_str(&shown).unwrap();
                        assert_eq!(read, value, "a program reads the same text: {shown}");
                    }
                }
            }
        }
    }

    #[test]
    fn failures_are_one_object_as_json_and_message_and_hint_as_text() {
        let failure = Failure::new("not_found", "there is no agent `x`").hint("did you mean `y`?");
        let (mut program, mut person) = (Vec::new(), Vec::new());
        report(&failure, true, &mut program);
        report(&failure, false, &mut person);
        let object: Value = serde_json::from_slice(&program).unwrap();
        assert_eq!(object, json!({"error": "there is no agent `x`", "code": "not_found", "hint": "did you mean `y`?"}));
        assert_eq!(String::from_utf8(person).unwrap(), "error: there is no agent `x`\nhint: did you mean `y`?\n");
    }

    fn in_zone(name: &str) -> View {
        View { zone: local_zone(Some(name)), screen: None }
    }

    #[test]
    fn a_time_shows_its_utc_offset() {
        let at = 1_709_164_800_123;
        for (zone, moment) in [
            ("UTC", "2024-02-29 00:00:00Z"),
            ("Europe/Berlin", "2024-02-29 01:00:00+01"),
            (":America/New_York", "2024-02-28 19:00:00-05"),
            ("Asia/Kolkata", "2024-02-29 05:30:00+05:30"),
            ("<+03>-3", "2024-02-29 03:00:00+03"),
            ("", "2024-02-29 00:00:00Z"),
            ("No/Such Zone", "2024-02-29 00:00:00Z"),
            ("/no/such/file", "2024-02-29 00:00:00Z"),
        ] {
            assert_eq!(in_zone(zone).moment(at), moment, "{zone}");
        }
        // In summer the same zone has another offset.
        assert_eq!(in_zone("Europe/Berlin").moment(1_720_000_000_000), "2024-07-03 11:46:40+02");
        // An instant outside the range of the zone is still printed, in UTC.
        assert!(in_zone("Europe/Berlin").moment(i64::MAX / 2).ends_with('Z'));
    }

    #[test]
    fn an_age_has_one_unit() {
        let now = 1_709_164_800_123;
        for (seconds, text) in
            [(0, "0s"), (59, "59s"), (60, "1m"), (7_100, "1h"), (172_799, "47h"), (900_000, "10d"), (-90, "in 1m")]
        {
            assert_eq!(age(now, now - seconds * 1_000), text);
        }
        assert_eq!(age(now, now + 900), "0s", "two clocks");
        assert_eq!(when("x".into(), "3m"), "x (3m ago)");
        assert_eq!(when("x".into(), "in 3m"), "x (in 3m)");
    }
}
