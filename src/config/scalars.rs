//! Readers of booleans, numbers and durations. Each returns a value within its range, or reports a
//! problem with an example of a valid value.
//!
//! A reader must never guess: `yes` is not a boolean, and `1.0` is not a whole number. It must
//! never read quoted text as a number.

use std::ops::RangeInclusive;
use std::time::Duration;

use crate::reader::Field;
use crate::yaml::Value;

/// The hint for an empty number that is optional.
const LEFT_OUT: &str = "omit the key";
/// The hint for a duration.
const DURATIONS: &str = "write 250ms, 30s, 5m, 2h or 7d, or a whole number of seconds";

impl Field<'_> {
    fn plain(&self) -> Option<&str> {
        match &self.node().value {
            Value::Scalar { text, plain: true, .. } if !self.is_null() => Some(text.trim()),
            _ => None,
        }
    }

    /// The hint for a wrong value. `wanted` describes a valid value; `left_out` is the remedy for
    /// an empty value. `reads` tells whether an unquoted text would be valid.
    fn correction(&self, wanted: &str, left_out: &str, reads: impl Fn(&str) -> bool) -> String {
        match &self.node().value {
            _ if self.is_null() => format!("write {wanted}, or {left_out}"),
            Value::Scalar { text, plain: false, .. } if reads(text.trim()) => "write it without quotes".to_owned(),
            Value::Scalar { plain: false, .. } => format!("write {wanted}, without quotes"),
            _ => format!("write {wanted}"),
        }
    }

    /// Reads a boolean: `true` or `false`.
    pub fn flag(&self) -> Option<bool> {
        match self.plain() {
            Some("true") => Some(true),
            Some("false") => Some(false),
            _ => {
                self.wanted("a truth value", "write true or false, without quotes");
                None
            }
        }
    }

    /// Reads a whole number within `range`. Underscores between digits are allowed.
    pub fn count(&self, range: RangeInclusive<u64>) -> Option<u64> {
        let wanted = format!("a whole number from {} to {}", range.start(), range.end());
        self.count_of(range, &wanted, LEFT_OUT)
    }

    /// Like [`count`](Self::count). `wanted` describes a valid value, with an example; `left_out`
    /// is the remedy for an empty value.
    pub fn count_of(&self, range: RangeInclusive<u64>, wanted: &str, left_out: &str) -> Option<u64> {
        match self.plain().and_then(whole) {
            Some(number) => self.within(number, &range),
            None => {
                self.wanted("a whole number", self.correction(wanted, left_out, |text| whole(text).is_some()));
                None
            }
        }
    }

    /// Like [`count`](Self::count), for 32 bits.
    pub fn count32(&self, range: RangeInclusive<u32>) -> Option<u32> {
        self.count(u64::from(*range.start())..=u64::from(*range.end())).and_then(|number| u32::try_from(number).ok())
    }

    /// Reads a finite number within `range`.
    pub fn number(&self, range: RangeInclusive<f64>) -> Option<f64> {
        let wanted = format!("a number from {} to {}", range.start(), range.end());
        self.number_of(range, &wanted, LEFT_OUT)
    }

    /// Like [`number`](Self::number); `wanted` and `left_out` as in [`count_of`](Self::count_of).
    pub fn number_of(&self, range: RangeInclusive<f64>, wanted: &str, left_out: &str) -> Option<f64> {
        let read = |text: &str| text.parse::<f64>().ok().filter(|number| number.is_finite());
        match self.plain().and_then(read) {
            Some(number) => self.within(number, &range),
            None => {
                self.wanted("a number", self.correction(wanted, left_out, |text| read(text).is_some()));
                None
            }
        }
    }

    fn within<T: PartialOrd + std::fmt::Display>(&self, number: T, range: &RangeInclusive<T>) -> Option<T> {
        let (min, max) = (range.start(), range.end());
        if range.contains(&number) {
            return Some(number);
        }
        let hint = if number < *min { format!("write at least {min}") } else { format!("write at most {max}") };
        self.error(format!("{number} is not within {min} to {max}"), hint);
        None
    }

    /// Reads a duration within `range`: `250ms`, `30s`, `5m`, `2h`, `7d`, or a whole number of
    /// seconds.
    pub fn duration(&self, range: RangeInclusive<Duration>) -> Option<Duration> {
        let text = match &self.node().value {
            Value::Scalar { text, .. } if !self.is_null() => Some(text.trim()),
            _ => None,
        };
        let (min, max) = (range.start(), range.end());
        match text.and_then(parse_duration) {
            Some(duration) if range.contains(&duration) => Some(duration),
            Some(duration) => {
                let bound = if duration < *min { format!("at least {min:?}") } else { format!("at most {max:?}") };
                let message = format!("{duration:?} is not within {min:?} to {max:?}");
                self.error(message, format!("write {bound}"));
                None
            }
            None => {
                self.wanted("a duration", DURATIONS);
                None
            }
        }
    }
}

/// Parses a whole number in decimal digits. Underscores between them are allowed.
pub(crate) fn whole(text: &str) -> Option<u64> {
    let digits = text.bytes().all(|b| b.is_ascii_digit() || b == b'_');
    let edges = text.bytes().next().is_some_and(|b| b.is_ascii_digit()) && !text.ends_with('_');
    (digits && edges).then(|| text.replace('_', "")).and_then(|text| text.parse().ok())
}

/// Parses `250ms`, `30s`, `5m`, `2h`, `7d`, or a whole number of seconds.
pub(crate) fn parse_duration(text: &str) -> Option<Duration> {
    let end = text.bytes().position(|b| !b.is_ascii_digit()).unwrap_or(text.len());
    let (digits, unit) = text.split_at(end);
    let number: u64 = digits.parse().ok()?;
    let seconds = |each: u64| number.checked_mul(each).map(Duration::from_secs);
    match unit {
        "ms" => Some(Duration::from_millis(number)),
        "s" | "" => seconds(1),
        "m" => seconds(60),
        "h" => seconds(3_600),
        "d" => seconds(86_400),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reader::problems_of;

    #[test]
    fn durations_are_parsed() {
        assert_eq!(parse_duration("250ms"), Some(Duration::from_millis(250)));
        assert_eq!(parse_duration("7d"), Some(Duration::from_secs(604_800)));
        assert_eq!(parse_duration("45"), Some(Duration::from_secs(45)));
        for bad in ["", "s", "-1s", "1.5s", "1 s", "99999999999999999999s", "18446744073709551615d", "1w"] {
            assert_eq!(parse_duration(bad), None, "{bad}");
        }
    }

    #[test]
    fn every_reader_says_what_to_write_instead() {
        let count = |field: &Field<'_>| assert_eq!(field.count(1..=9), None);
        let number = |field: &Field<'_>| assert_eq!(field.number(0.5..=2.0), None);
        let flag = |field: &Field<'_>| assert_eq!(field.flag(), None);
        let duration =
            |field: &Field<'_>| assert_eq!(field.duration(Duration::from_secs(1)..=Duration::from_secs(60)), None);
        let list = |field: &Field<'_>| assert!(field.list().is_empty());
        let map = |field: &Field<'_>| assert!(field.map_of("{ tokens: 5000 }").is_none());
        let text = |field: &Field<'_>| assert_eq!(field.text(4), None);
        let choice = |field: &Field<'_>| assert_eq!(field.choice(&["full", "none"]), None);
        type Read<'r> = &'r dyn Fn(&Field<'_>);
        let cases: [(&str, Read<'_>, &str); 27] = [
            ("'5'", &count, "`5`"),
            ("'$5'", &count, "1 to 9"),
            ("5,0", &count, "1 to 9"),
            ("~", &count, "1 to 9"),
            ("[5]", &count, "1 to 9"),
            ("0", &count, "1"),
            ("10", &count, "9"),
            ("'1.5'", &number, "`1.5`"),
            ("$1.5", &number, "0.5 to 2"),
            ("", &number, "0.5 to 2"),
            ("0.25", &number, "0.5"),
            ("3", &number, "2"),
            ("yes", &flag, "true or false"),
            ("'true'", &flag, "true or false"),
            ("", &flag, "true or false"),
            ("{ a: 1 }", &flag, "true or false"),
            ("soon", &duration, "30s"),
            ("", &duration, "30s"),
            ("500ms", &duration, "1s"),
            ("2h", &duration, "60s"),
            ("a, b", &list, "[a, b]"),
            ("{ a: 1 }", &list, "`- `"),
            ("5000", &map, "{ tokens: 5000 }"),
            ("[5000]", &map, "{ tokens: 5000 }"),
            ("", &text, ""),
            ("words", &text, "4"),
            ("", &choice, "full, none"),
        ];
        for (value, read, expected) in cases {
            let found = problems_of(&format!("key: {value}\n"), |map| read(&map.get("key").unwrap()));
            assert!(found.starts_with("error: w.yaml:1: key: ") && found.contains(expected), "{value}: {found}");
        }
    }
}
