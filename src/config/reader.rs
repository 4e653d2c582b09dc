//! Typed reading of the located tree: each reader takes a field, gives a value of the wanted type within its bounds, or
//! reports what is wrong with its line and its dotted path. A map knows which keys were asked for; the rest are errors.
//!
//! Must never: guess (`yes` is no truth value, `1.0` no count), or stop at the first problem.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

use ghost_domain::Refusal;
use ghost_domain::text::{clip, one_line};

use crate::report::{FileReport, did_you_mean};
use crate::yaml::{Key, Node, Value};

/// Most entries of one list or map of configuration.
pub const ENTRIES_MAX: usize = 2_000;

/// A value with the path that leads to it.
#[derive(Clone)]
pub struct Field<'n> {
    node: &'n Node,
    line: usize,
    path: String,
    report: &'n FileReport<'n>,
}

impl<'n> Field<'n> {
    /// The root of a file.
    pub fn root(node: &'n Node, report: &'n FileReport<'n>) -> Self {
        Self { node, line: node.line, path: String::new(), report }
    }

    /// Its line: that of its key if it has one, since that is what people look for.
    pub fn line(&self) -> usize {
        self.line
    }

    /// Its dotted path.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// What stands here.
    pub fn node(&self) -> &'n Node {
        self.node
    }

    /// Reports an error at a line within this field.
    pub fn error_at(&self, line: usize, message: impl Into<String>, hint: impl Into<Option<String>>) {
        self.report.error(line, &self.path, message, hint);
    }

    /// Reports an error at this field.
    pub fn error(&self, message: impl Into<String>, hint: impl Into<Option<String>>) {
        self.report.error(self.line, &self.path, message, hint);
    }

    /// Reports a warning at this field.
    pub fn warn(&self, message: impl Into<String>, hint: impl Into<Option<String>>) {
        self.report.warn(self.line, &self.path, message, hint);
    }

    /// The value as it may be shown in a message.
    pub fn shown(&self) -> String {
        match &self.node.value {
            Value::Scalar { shown, .. } => one_line(&clip(shown, 80)),
            _ => self.node.kind().to_owned(),
        }
    }

    /// Whether it is one scalar that says something, where a map may stand too.
    pub fn is_single(&self) -> bool {
        matches!(self.node.value, Value::Scalar { .. }) && !self.node.is_null()
    }

    /// Whether it is left empty.
    pub fn is_null(&self) -> bool {
        self.node.is_null()
    }

    fn wanted(&self, what: &str) {
        let found = match &self.node.value {
            Value::Scalar { .. } if !self.node.is_null() => format!("`{}`", self.shown()),
            _ => self.node.kind().to_owned(),
        };
        self.error(format!("{found} is not {what}"), None);
    }

    /// Text that is not empty, of at most `max` bytes.
    pub fn text(&self, max: usize) -> Option<&'n str> {
        match &self.node.value {
            Value::Scalar { text, .. } if !self.node.is_null() && !text.trim().is_empty() => {
                if text.len() > max {
                    self.error(format!("the text has {} bytes; at most {max} are allowed", text.len()), None);
                    return None;
                }
                Some(text)
            }
            Value::Scalar { .. } => {
                self.error("it is empty", None);
                None
            }
            _ => {
                self.wanted("text");
                None
            }
        }
    }

    /// Text of at most `max` bytes that may be empty, if quotes say so.
    pub fn string(&self, max: usize) -> Option<&'n str> {
        match &self.node.value {
            Value::Scalar { text, .. } if text.is_empty() && !self.node.is_null() => Some(""),
            Value::Scalar { text, .. } if text.trim().is_empty() && !text.is_empty() => Some(text),
            _ => self.text(max),
        }
    }

    /// Whatever stands here as a JSON value: plain scalars by YAML's core schema, a literal as text.
    pub fn json(&self) -> serde_json::Value {
        crate::json::of(self.node)
    }

    /// A name: 1 to 64 of letters, digits, `.`, `_` and `-`, starting with a letter or a digit.
    pub fn name(&self) -> Option<&'n str> {
        let text = self.text(1_024)?;
        if is_name(text) {
            return Some(text);
        }
        self.error(
            format!("`{}` is not a name", self.shown()),
            Some("use 1 to 64 letters, digits, `.`, `_` and `-`, starting with a letter or a digit".to_owned()),
        );
        None
    }

    fn plain(&self) -> Option<&'n str> {
        match &self.node.value {
            Value::Scalar { text, plain: true, .. } if !self.node.is_null() => Some(text.trim()),
            _ => None,
        }
    }

    /// A truth value.
    pub fn flag(&self) -> Option<bool> {
        match self.plain() {
            Some("true") => Some(true),
            Some("false") => Some(false),
            _ => {
                self.error(
                    format!("`{}` is not a truth value", self.shown()),
                    Some("write true or false, without quotes".to_owned()),
                );
                None
            }
        }
    }

    /// A whole number within `range`. Underscores between digits are allowed.
    pub fn count(&self, range: RangeInclusive<u64>) -> Option<u64> {
        let number = self.plain().and_then(whole);
        match number {
            Some(number) if range.contains(&number) => Some(number),
            Some(number) => {
                self.error(format!("{number} is not within {} to {}", range.start(), range.end()), None);
                None
            }
            None => {
                self.wanted("a whole number");
                None
            }
        }
    }

    /// [`count`](Self::count) for what fits 32 bits.
    pub fn count32(&self, range: RangeInclusive<u32>) -> Option<u32> {
        self.count(u64::from(*range.start())..=u64::from(*range.end())).and_then(|number| u32::try_from(number).ok())
    }

    /// A number within `range`.
    pub fn number(&self, range: RangeInclusive<f64>) -> Option<f64> {
        match self.plain().and_then(|text| text.parse::<f64>().ok()).filter(|number| number.is_finite()) {
            Some(number) if range.contains(&number) => Some(number),
            Some(number) => {
                self.error(format!("{number} is not within {} to {}", range.start(), range.end()), None);
                None
            }
            None => {
                self.wanted("a number");
                None
            }
        }
    }

    /// A duration within `range`: `250ms`, `30s`, `5m`, `2h`, `7d`, or a whole number of seconds.
    pub fn duration(&self, range: RangeInclusive<Duration>) -> Option<Duration> {
        let text = match &self.node.value {
            Value::Scalar { text, .. } if !self.node.is_null() => Some(text.trim()),
            _ => None,
        };
        match text.and_then(parse_duration) {
            Some(duration) if range.contains(&duration) => Some(duration),
            Some(duration) => {
                let message = format!("{duration:?} is not within {:?} to {:?}", range.start(), range.end());
                self.error(message, None);
                None
            }
            None => {
                self.error(
                    format!("`{}` is not a duration", self.shown()),
                    Some("write 250ms, 30s, 5m, 2h or 7d, or a whole number of seconds".to_owned()),
                );
                None
            }
        }
    }

    /// One of `choices`.
    pub fn choice(&self, choices: &[&'static str]) -> Option<&'static str> {
        let text = self.text(1_024)?;
        let found = choices.iter().find(|choice| **choice == text).copied();
        if found.is_none() {
            let hint = match ghost_domain::text::nearest(text, choices.iter().copied()) {
                Some(near) => format!("did you mean `{near}`? It may be: {}", choices.join(", ")),
                None => format!("it may be: {}", choices.join(", ")),
            };
            self.error(format!("`{}` is not a value for this", self.shown()), Some(hint));
        }
        found
    }

    /// A value of a domain type that reads itself from text.
    pub fn parsed<T: FromStr<Err = Refusal>>(&self, what: &str) -> Option<T> {
        let text = self.text(1_024)?;
        match text.parse() {
            Ok(value) => Some(value),
            Err(refusal) => {
                self.error(format!("`{}` is not {what}", self.shown()), refusal.hint);
                None
            }
        }
    }

    /// The entries of a list; nothing written is an empty list.
    pub fn list(&self) -> Vec<Field<'n>> {
        match &self.node.value {
            Value::List(items) => {
                if items.len() > ENTRIES_MAX {
                    self.error(format!("the list has {} entries; at most {ENTRIES_MAX} are read", items.len()), None);
                    return Vec::new();
                }
                let field = |(at, node): (usize, &'n Node)| Field {
                    node,
                    line: node.line,
                    path: format!("{}[{at}]", self.path),
                    report: self.report,
                };
                items.iter().enumerate().map(field).collect()
            }
            _ if self.node.is_null() => Vec::new(),
            _ => {
                self.wanted("a list");
                Vec::new()
            }
        }
    }

    /// A list of texts, each of at most `max` bytes, with their fields.
    pub fn texts(&self, max: usize) -> Vec<(Field<'n>, &'n str)> {
        self.list().into_iter().filter_map(|field| field.text(max).map(|text| (field.clone(), text))).collect()
    }

    /// The map with keys of our choosing; nothing written is an empty map.
    pub fn map(&self) -> Option<Map<'n>> {
        match &self.node.value {
            Value::Map(_) => Some(Map { field: self.clone(), asked: RefCell::default() }),
            _ if self.node.is_null() => Some(Map { field: self.clone(), asked: RefCell::default() }),
            _ => {
                self.wanted("a map");
                None
            }
        }
    }

    /// The entries of a map whose keys the file chooses.
    pub fn entries(&self) -> Vec<(&'n Key, Field<'n>)> {
        match &self.node.value {
            Value::Map(pairs) => {
                if pairs.len() > ENTRIES_MAX {
                    self.error(format!("the map has {} entries; at most {ENTRIES_MAX} are read", pairs.len()), None);
                    return Vec::new();
                }
                let field = |(key, node)| (key, self.below(key, node));
                pairs.iter().map(|(key, node)| (key, node)).map(field).collect()
            }
            _ if self.node.is_null() => Vec::new(),
            _ => {
                self.wanted("a map");
                Vec::new()
            }
        }
    }

    fn below(&self, key: &Key, node: &'n Node) -> Field<'n> {
        let key_line = key.line;
        let key = one_line(&clip(&key.text, 60));
        let path = if self.path.is_empty() { key } else { format!("{}.{key}", self.path) };
        Field { node, line: key_line, path, report: self.report }
    }
}

/// A map that remembers which keys were asked for.
pub struct Map<'n> {
    field: Field<'n>,
    asked: RefCell<BTreeSet<&'static str>>,
}

impl<'n> Map<'n> {
    /// The map as a field.
    pub fn field(&self) -> &Field<'n> {
        &self.field
    }

    /// The value of `key`, if the file has it.
    pub fn get(&self, key: &'static str) -> Option<Field<'n>> {
        self.asked.borrow_mut().insert(key);
        match &self.field.node.value {
            Value::Map(pairs) => {
                pairs.iter().find(|(found, _)| found.text == key).map(|(key, node)| self.field.below(key, node))
            }
            _ => None,
        }
    }

    /// The value of `key`, which must be there.
    pub fn need(&self, key: &'static str) -> Option<Field<'n>> {
        let found = self.get(key);
        if found.is_none() {
            self.field.error(format!("`{key}` is missing"), None);
        }
        found
    }

    /// Reports every key that was never asked for. `hints` explains keys that people expect and that are not here.
    pub fn finish(self, hints: &[(&str, &str)]) {
        let Value::Map(pairs) = &self.field.node.value else { return };
        let asked = self.asked.borrow();
        for (key, node) in pairs.iter().filter(|(key, _)| !asked.contains(key.text.as_str()) && !is_free(&key.text)) {
            let below = self.field.below(key, node);
            let path = below.path();
            match hints.iter().find(|(name, _)| *name == key.text) {
                Some((_, hint)) => {
                    let message = format!("there is no key `{}` here", key.text);
                    self.field.report.error(key.line, path, message, Some((*hint).to_owned()));
                }
                None => self.field.report.unknown_key(key.line, path, &key.text, asked.iter().copied()),
            }
        }
    }
}

/// Whether a key is free for people's own use.
pub fn is_free(key: &str) -> bool {
    key.starts_with("x-")
}

/// Whether `text` is a name: 1 to 64 of letters, digits, `.`, `_` and `-`, starting with a letter or a digit.
pub fn is_name(text: &str) -> bool {
    let fits = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
    (1..=64).contains(&text.len())
        && text.bytes().all(fits)
        && text.bytes().next().is_some_and(|b| b.is_ascii_alphanumeric())
}

/// Reports that nothing is called `name`, with the nearest of `known`.
pub fn no_such<'k>(field: &Field<'_>, what: &str, known: impl Iterator<Item = &'k str> + Clone) {
    let name = match &field.node.value {
        Value::Scalar { text, .. } => text.as_str(),
        _ => "",
    };
    field.error(format!("there is no {what} `{}`", field.shown()), did_you_mean(name, known));
}

/// A whole number of decimal digits, underscores between them allowed.
pub fn whole(text: &str) -> Option<u64> {
    let digits = text.bytes().all(|b| b.is_ascii_digit() || b == b'_');
    let edges = text.bytes().next().is_some_and(|b| b.is_ascii_digit()) && !text.ends_with('_');
    (digits && edges).then(|| text.replace('_', "")).and_then(|text| text.parse().ok())
}

/// `250ms`, `30s`, `5m`, `2h`, `7d`, or a whole number of seconds.
pub fn parse_duration(text: &str) -> Option<Duration> {
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
    use crate::report::Report;

    #[test]
    fn durations() {
        assert_eq!(parse_duration("250ms"), Some(Duration::from_millis(250)));
        assert_eq!(parse_duration("7d"), Some(Duration::from_secs(604_800)));
        assert_eq!(parse_duration("45"), Some(Duration::from_secs(45)));
        for bad in ["", "s", "-1s", "1.5s", "1 s", "99999999999999999999s", "18446744073709551615d", "1w"] {
            assert_eq!(parse_duration(bad), None, "{bad}");
        }
    }

    fn problems(text: &str, read: impl Fn(&Map<'_>)) -> String {
        let report = Report::default();
        let file = report.file("w.yaml");
        let node = crate::yaml::parse(text, &file, &|_| Some("from-the-environment".to_owned())).unwrap();
        let map = Field::root(&node, &file).map().unwrap();
        read(&map);
        map.finish(&[]);
        report.finish().to_string()
    }

    #[test]
    fn values_are_checked_and_unknown_keys_refused() {
        let text = "a: yes\nb: 99\nc: 5x\nd: [1]\nconcurency: 1\nx-note: anything\ne: ${SECRET}\n";
        let found = problems(text, |map| {
            assert_eq!(map.get("a").unwrap().flag(), None);
            assert_eq!(map.get("b").unwrap().count(1..=9), None);
            assert_eq!(map.get("c").unwrap().duration(Duration::ZERO..=Duration::MAX), None);
            assert_eq!(map.get("d").unwrap().text(9), None);
            assert_eq!(map.get("e").unwrap().count(1..=9), None);
            assert!(map.get("concurrency").is_none());
        });
        assert_eq!(
            found,
            "error: w.yaml:1: a: `yes` is not a truth value\n  hint: write true or false, without quotes\n\
             error: w.yaml:2: b: 99 is not within 1 to 9\n\
             error: w.yaml:3: c: `5x` is not a duration\n  hint: write 250ms, 30s, 5m, 2h or 7d, or a whole number of \
             seconds\n\
             error: w.yaml:4: d: a list is not text\n\
             error: w.yaml:5: concurency: there is no key `concurency` here\n  hint: did you mean `concurrency`?\n\
             error: w.yaml:7: e: `${SECRET}` is not a whole number"
        );
    }
}
