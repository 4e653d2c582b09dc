//! What is counted of the values of one column of a table, or of one place in a JSON text: sums and ranges of numbers, the
//! first and the last date, and how often each of a few words occurs. No figure is rounded.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Most different words that are counted. A column with more has no groups.
const GROUPS_MAX: usize = 8;
/// Most characters of a word that is counted.
const WORD_MAX: usize = 40;
/// Digits after the point that a sum keeps. A column with more digits has no sum.
const DIGITS: usize = 9;
/// Words in the name of a column whose numbers are names, so that a sum of them says nothing.
const NAMES: &str = "id ids key nr no num number nummer code index rank zip plz phone year jahr month monat day tag hour lat lon lng \
    latitude longitude version port uid pid";

/// The values so far.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Column {
    /// Values that are not empty.
    values: u64,
    numbers: u64,
    /// Numbers with a point, and with a comma. A column that has both has no sum, because one of them groups digits.
    marks: (u64, u64),
    sum: i128,
    /// The least and the greatest number, as they are written.
    range: Option<(String, String)>,
    dates: u64,
    /// The first and the last date, as they are written.
    days: Option<(String, String)>,
    groups: BTreeMap<String, u64>,
    /// More words than are counted.
    many: bool,
}

impl Column {
    /// Adds a value.
    pub(super) fn add(&mut self, value: &str) {
        let value = value.trim();
        if value.is_empty() {
            return;
        }
        self.values += 1;
        if let Some((number, mark)) = number(value) {
            self.numbers += 1;
            self.marks.0 += u64::from(mark == Some('.'));
            self.marks.1 += u64::from(mark == Some(','));
            self.sum = self.sum.saturating_add(number);
            widen(&mut self.range, value, |one, other| scaled(one) < scaled(other));
            return;
        }
        if is_date(value) {
            self.dates += 1;
            widen(&mut self.days, value, |one, other| one < other);
            return;
        }
        if self.many {
            return;
        }
        let short = value.chars().count() <= WORD_MAX && !value.contains([';', '\n', '|']);
        if short && (self.groups.len() < GROUPS_MAX || self.groups.contains_key(value)) {
            *self.groups.entry(value.to_owned()).or_default() += 1;
        } else {
            (self.many, self.groups) = (true, BTreeMap::new());
        }
    }

    /// How many values are not empty.
    pub(super) fn count(&self) -> u64 {
        self.values
    }

    /// What is counted, behind the column's name; `None` if nothing in it can be counted.
    pub(super) fn fact(&self, name: &str) -> Option<String> {
        let Self { values, numbers, dates, .. } = self;
        if *values == 1 {
            let one = self.range.as_ref().or(self.days.as_ref()).map(|(value, _)| value);
            return one.or_else(|| self.groups.keys().next()).map(|value| format!("{name}: {value}"));
        }
        if let Some((least, most)) = self.range.as_ref().filter(|_| numbers == values) {
            let mark = match self.marks {
                (_, 0) => '.',
                (0, _) => ',',
                _ => return None,
            };
            let sum = if is_name(name) { String::new() } else { format!("sum {}, ", written(self.sum, mark)) };
            return Some(format!("{name}: {numbers} numbers, {sum}from {least} to {most}"));
        }
        if let Some((first, last)) = self.days.as_ref().filter(|_| dates == values) {
            return Some(format!("{name}: {dates} dates, from {first} to {last}"));
        }
        // Words that occur once each are no groups.
        if self.many || numbers + dates > 0 || self.groups.values().all(|count| *count == 1) {
            return None;
        }
        let mut groups: Vec<(&String, &u64)> = self.groups.iter().collect();
        groups.sort_by(|one, other| other.1.cmp(one.1).then(one.0.cmp(other.0)));
        let groups: Vec<String> = groups.iter().map(|(word, count)| format!("{word} {count}")).collect();
        Some(format!("{name}: {values} values; {}", groups.join("; ")))
    }
}

/// Makes a range hold a value.
fn widen(range: &mut Option<(String, String)>, value: &str, is_less: impl Fn(&str, &str) -> bool) {
    let (least, most) = range.get_or_insert_with(|| (value.to_owned(), value.to_owned()));
    if is_less(value, least) {
        value.clone_into(least);
    }
    if is_less(most, value) {
        value.clone_into(most);
    }
}

/// A number in units of [`DIGITS`] digits, and the mark before its fraction. Digits in groups are no number here.
fn number(text: &str) -> Option<(i128, Option<char>)> {
    let mark = text.chars().find(|c| matches!(c, '.' | ','));
    Some((scaled(text)?, mark))
}

fn scaled(text: &str) -> Option<i128> {
    let (negative, digits) = match text.strip_prefix(['-', '+']) {
        Some(digits) => (text.starts_with('-'), digits),
        None => (false, text),
    };
    let (whole, fraction) = digits.split_once(['.', ',']).unwrap_or((digits, ""));
    let plain = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let pointed = whole.len() < digits.len();
    if !plain(whole) || !plain(fraction) || whole.is_empty() || whole.len() > 18 || fraction.len() > DIGITS {
        return None;
    }
    // "007" is a name, and "12." is not a number.
    if (whole.len() > 1 && whole.starts_with('0')) || (pointed && fraction.is_empty()) {
        return None;
    }
    let number: i128 = format!("{whole}{fraction:0<DIGITS$}").parse().ok()?;
    Some(if negative { -number } else { number })
}

/// A sum as it is written, without zeros at its end.
fn written(sum: i128, mark: char) -> String {
    let unit = 10_i128.pow(DIGITS as u32);
    let (whole, fraction) = (sum.abs() / unit, sum.abs() % unit);
    let fraction = format!("{fraction:0>DIGITS$}");
    let fraction = fraction.trim_end_matches('0');
    let sign = if sum < 0 { "-" } else { "" };
    if fraction.is_empty() { format!("{sign}{whole}") } else { format!("{sign}{whole}{mark}{fraction}") }
}

/// Whether a value begins with a day as in 2024-05-01.
fn is_date(value: &str) -> bool {
    let bytes = value.as_bytes();
    let digits = |from: usize, to: usize| bytes.get(from..to).is_some_and(|part| part.iter().all(u8::is_ascii_digit));
    let behind = bytes.get(10).is_none_or(|byte| matches!(byte, b'T' | b' '));
    let marks = bytes.get(4) == Some(&b'-') && bytes.get(7) == Some(&b'-');
    marks && digits(0, 4) && digits(5, 7) && digits(8, 10) && behind && value.len() <= 32
}

fn is_name(name: &str) -> bool {
    // `order_id`, `orderId` and `site.lat`.
    let mut words: Vec<String> = vec![String::new()];
    for c in name.chars() {
        if !c.is_alphanumeric() || c.is_uppercase() {
            words.push(String::new());
        }
        if let Some(word) = words.last_mut().filter(|_| c.is_alphanumeric()) {
            word.extend(c.to_lowercase());
        }
    }
    let whole = name.to_lowercase();
    words.iter().any(|word| NAMES.split_whitespace().any(|known| known == word))
        || NAMES.split_whitespace().any(|known| known == whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fact(name: &str, values: &[&str]) -> Option<String> {
        let mut column = Column::default();
        for value in values {
            column.add(value);
            // The state goes through the notes.
            column = serde_json::from_str(&serde_json::to_string(&column).unwrap()).unwrap();
        }
        column.fact(name)
    }

    #[test]
    fn numbers_are_summed_exactly_and_names_are_not() {
        let sum = |values: &[&str]| fact("mm", values).unwrap();
        assert_eq!(sum(&["0.1", "0.2", "", "-3"]), "mm: 3 numbers, sum -2.7, from -3 to 0.2");
        assert_eq!(sum(&["1,50", "2"]), "mm: 2 numbers, sum 3,5, from 1,50 to 2");
        assert_eq!(fact("order_id", &["7", "8"]).unwrap(), "order_id: 2 numbers, from 7 to 8");
        assert_eq!(fact("orderId", &["7", "8"]).unwrap(), "orderId: 2 numbers, from 7 to 8");
        // A number with two marks, one that begins with 0, a mark without digits, and two kinds of marks.
        for values in [&["1,204.50", "7"][..], &["007", "1"], &["12.", "7"], &["1.5", "2,5"]] {
            assert_eq!(fact("mm", values), None, "{values:?}");
        }
    }

    #[test]
    fn words_are_counted_if_they_are_few_and_dates_have_a_range() {
        assert_eq!(fact("region", &["b", "a", "a"]).unwrap(), "region: 3 values; a 2; b 1");
        assert_eq!(fact("name", &["a", "b", "c"]), None);
        assert_eq!(
            [fact("mm", &["7.50"]), fact("name", &["a"])],
            ["mm: 7.50", "name: a"].map(|one| Some(one.to_owned()))
        );
        let many: Vec<String> = (0..9).map(|n| format!("w{n}")).collect();
        let many: Vec<&str> = many.iter().chain(&many).map(String::as_str).collect();
        assert_eq!(fact("name", &many), None);
        let days = ["2024-05-02", "2023-12-31T10:00:00Z", "2024-01-01 08:00"];
        assert_eq!(fact("day", &days).unwrap(), "day: 3 dates, from 2023-12-31T10:00:00Z to 2024-05-02");
        assert_eq!(fact("day", &["2024-05-02", "never", "never"]), None);
    }
}
