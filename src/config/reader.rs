//! Typed readers for the parsed YAML tree. Each reader takes a field and returns a checked value,
//! or reports the problem with line and path. A map records which keys were read; the others are
//! errors.
//!
//! A reader must never guess a value, or stop at the first problem.

use std::cell::RefCell;
use std::collections::BTreeSet;

use ghost_domain::Refusal;
use ghost_domain::text::{clip, one_line};

use crate::plan::origins::Origin;
use crate::problem::Hint;
use crate::report::{FileReport, did_you_mean};
use crate::yaml::{Key, Node, Value};

/// The largest number of entries in a list or map of configuration.
pub const ENTRIES_MAX: usize = 2_000;

/// A value with its path.
#[derive(Clone, Debug)]
pub struct Field<'n> {
    node: &'n Node,
    line: usize,
    path: String,
    report: &'n FileReport<'n>,
}

impl<'n> Field<'n> {
    /// The field for a file's root.
    pub fn root(node: &'n Node, report: &'n FileReport<'n>) -> Self {
        Self { node, line: node.line, path: String::new(), report }
    }

    /// The line of its key; for a value without a key, its own line.
    pub fn line(&self) -> usize {
        self.line
    }

    /// The dotted path.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The parsed value.
    pub fn node(&self) -> &'n Node {
        self.node
    }

    /// The position of the field.
    pub(crate) fn origin(&self) -> Origin {
        Origin { file: self.report.path().to_owned(), line: self.line, field: self.path.clone() }
    }

    /// Whether a variable in it could not be substituted. That was reported, so all other reports
    /// about this field are suppressed.
    pub(crate) fn is_unset(&self) -> bool {
        matches!(self.node.value, Value::Scalar { unset: true, .. })
    }

    /// Reports an error on a line within this field.
    pub fn error_at(&self, line: usize, message: impl Into<String>, hint: impl Into<Hint>) {
        if self.is_unset() {
            return;
        }
        self.report.error(line, &self.path, message, hint);
    }

    /// Reports an error at this field.
    pub fn error(&self, message: impl Into<String>, hint: impl Into<Hint>) {
        self.error_at(self.line, message, hint);
    }

    /// Reports a refusal of the domain at this field. `otherwise` is the hint if the refusal has
    /// none.
    pub fn refused(&self, refusal: Refusal, otherwise: &str) {
        self.error(refusal.message, Hint::of(refusal.hint, otherwise));
    }

    /// Reports a warning at this field.
    pub fn warn(&self, message: impl Into<String>, hint: impl Into<Hint>) {
        if !self.is_unset() {
            self.report.warn(self.line, &self.path, message, hint);
        }
    }

    /// The value in a form that messages may show.
    pub fn shown(&self) -> String {
        match &self.node.value {
            Value::Scalar { shown, .. } => one_line(&clip(shown, 80)),
            _ => self.node.kind().to_owned(),
        }
    }

    /// The text before variables are substituted. Empty if the value is not a scalar.
    pub(crate) fn written(&self) -> &'n str {
        match &self.node.value {
            Value::Scalar { shown, .. } => shown,
            _ => "",
        }
    }

    /// Whether the value is a scalar that is not null.
    pub fn is_single(&self) -> bool {
        matches!(self.node.value, Value::Scalar { .. }) && !self.node.is_null()
    }

    /// Whether the value is null or empty.
    pub fn is_null(&self) -> bool {
        self.node.is_null()
    }

    /// Reports that the value is not of the expected kind `what`.
    pub(crate) fn wanted(&self, what: &str, hint: impl Into<Hint>) {
        let found = match &self.node.value {
            Value::Scalar { .. } if !self.node.is_null() => format!("`{}`", self.shown()),
            _ => self.node.kind().to_owned(),
        };
        self.error(format!("{found} is not {what}"), hint);
    }

    /// Reads text that is not empty, of at most `max` bytes.
    pub fn text(&self, max: usize) -> Option<&'n str> {
        match &self.node.value {
            Value::Scalar { text, .. } if !self.node.is_null() && !text.trim().is_empty() => {
                if text.len() > max {
                    self.error(format!("the text has {} bytes; at most {max} are allowed", text.len()), "shorten it");
                    return None;
                }
                Some(text)
            }
            Value::Scalar { .. } => {
                self.error("it is empty", "write a text here, or remove it");
                None
            }
            _ => {
                self.wanted("text", "write one text, on the line of its key");
                None
            }
        }
    }

    /// Reads text of at most `max` bytes. It may be empty if it is in quotes.
    pub fn string(&self, max: usize) -> Option<&'n str> {
        match &self.node.value {
            Value::Scalar { text, .. } if text.is_empty() && !self.node.is_null() => Some(""),
            Value::Scalar { text, .. } if text.trim().is_empty() && !text.is_empty() => Some(text),
            _ => self.text(max),
        }
    }

    /// The value as JSON. Plain scalars follow YAML's core schema.
    pub fn json(&self) -> serde_json::Value {
        self.node.json()
    }

    /// The number of entries, even if they are too many to be read.
    pub fn length(&self) -> usize {
        match &self.node.value {
            Value::List(items) => items.len(),
            Value::Map(pairs) => pairs.len(),
            _ => 0,
        }
    }

    /// The entries of a list, without a check. Empty if the value is none.
    pub(crate) fn items(&self) -> Vec<Field<'n>> {
        match &self.node.value {
            Value::List(items) => items.iter().enumerate().map(|(at, node)| self.item(at, node)).collect(),
            _ => Vec::new(),
        }
    }

    /// The entries of a list. Null is an empty list.
    pub fn list(&self) -> Vec<Field<'n>> {
        match &self.node.value {
            Value::List(items) => {
                if items.len() > ENTRIES_MAX {
                    let message = format!("the list has {} entries; at most {ENTRIES_MAX} are read", items.len());
                    self.error(message, "shorten it");
                    return Vec::new();
                }
                items.iter().enumerate().map(|(at, node)| self.item(at, node)).collect()
            }
            _ if self.node.is_null() => Vec::new(),
            _ => {
                let each = "each entry on a line of its own after `- `";
                let hint = match &self.node.value {
                    Value::Scalar { shown, .. } if shown.len() <= 80 => format!("write [{}], or {each}", self.shown()),
                    _ => format!("write {each}"),
                };
                self.wanted("a list", hint);
                Vec::new()
            }
        }
    }

    /// Reads a list of texts, each of at most `max` bytes, with their fields.
    pub fn texts(&self, max: usize) -> Vec<(Field<'n>, &'n str)> {
        self.list().into_iter().filter_map(|field| field.text(max).map(|text| (field.clone(), text))).collect()
    }

    /// Reads a map with fixed keys. Null is an empty map.
    pub fn map(&self) -> Option<Map<'n>> {
        match &self.node.value {
            Value::Map(_) => Some(Map { field: self.clone(), read_keys: RefCell::default() }),
            _ if self.node.is_null() => Some(Map { field: self.clone(), read_keys: RefCell::default() }),
            _ => {
                self.wanted_map();
                None
            }
        }
    }

    /// The entries of a map with arbitrary keys.
    pub fn entries(&self) -> Vec<(&'n Key, Field<'n>)> {
        match &self.node.value {
            Value::Map(pairs) => {
                if pairs.len() > ENTRIES_MAX {
                    let message = format!("the map has {} entries; at most {ENTRIES_MAX} are read", pairs.len());
                    self.error(message, "remove some");
                    return Vec::new();
                }
                let field = |(key, node)| (key, self.child(key, node));
                pairs.iter().map(|(key, node)| (key, node)).map(field).collect()
            }
            _ if self.node.is_null() => Vec::new(),
            _ => {
                self.wanted_map();
                Vec::new()
            }
        }
    }

    fn wanted_map(&self) {
        self.wanted("a map", "write `key: value` on indented lines below it, or { key: value }");
    }

    /// The value of `key`, if this is a map that contains it.
    pub fn get(&self, key: &str) -> Option<Field<'n>> {
        match &self.node.value {
            Value::Map(pairs) => {
                pairs.iter().find(|(found, _)| found.text == key).map(|(key, node)| self.child(key, node))
            }
            _ => None,
        }
    }

    /// The entry of this list at `at`.
    pub(crate) fn item(&self, at: usize, node: &'n Node) -> Field<'n> {
        Field { node, line: node.line, path: format!("{}[{at}]", self.path), report: self.report }
    }

    pub(crate) fn child(&self, key: &Key, node: &'n Node) -> Field<'n> {
        let key_line = key.line;
        let key = one_line(&clip(&key.text, 60));
        let path = if self.path.is_empty() { key } else { format!("{}.{key}", self.path) };
        Field { node, line: key_line, path, report: self.report }
    }
}

/// A map that records which keys were read.
pub struct Map<'n> {
    field: Field<'n>,
    read_keys: RefCell<BTreeSet<&'static str>>,
}

impl<'n> Map<'n> {
    /// The map as a field.
    pub fn field(&self) -> &Field<'n> {
        &self.field
    }

    /// The value of `key`, if present.
    pub fn get(&self, key: &'static str) -> Option<Field<'n>> {
        self.read_keys.borrow_mut().insert(key);
        match &self.field.node.value {
            Value::Map(pairs) => {
                pairs.iter().find(|(found, _)| found.text == key).map(|(key, node)| self.field.child(key, node))
            }
            _ => None,
        }
    }

    /// The value of `key`, which is required. `such_as` is a valid example for the hint.
    pub fn need(&self, key: &'static str, such_as: &str) -> Option<Field<'n>> {
        let found = self.get(key);
        if found.is_none() {
            self.field.error(format!("`{key}` is missing"), format!("for example `{key}: {such_as}`"));
        }
        found
    }

    /// Reports every key that was not read. `hints` explains keys that people expect but that do
    /// not belong here.
    pub fn finish(self, hints: &[(&str, &str)]) {
        let Value::Map(pairs) = &self.field.node.value else { return };
        let read_keys = self.read_keys.borrow();
        for (key, node) in pairs.iter().filter(|(key, _)| !read_keys.contains(key.text.as_str()) && !is_free(&key.text))
        {
            let child = self.field.child(key, node);
            let path = child.path();
            match hints.iter().find(|(name, _)| *name == key.text) {
                Some((_, hint)) => {
                    let message = format!("there is no key `{}` here", key.text);
                    self.field.report.error(key.line, path, message, *hint);
                }
                None => self.field.report.unknown_key(key.line, path, &key.text, read_keys.iter().copied()),
            }
        }
    }
}

/// Whether a key is reserved for users' own notes.
pub fn is_free(key: &str) -> bool {
    key.starts_with("x-")
}

/// Whether `text` is a name: 1 to 64 letters, digits, `.`, `_` and `-`, starting with a letter or a
/// digit.
pub fn is_name(text: &str) -> bool {
    let valid = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
    (1..=64).contains(&text.len())
        && text.bytes().all(valid)
        && text.bytes().next().is_some_and(|b| b.is_ascii_alphanumeric())
}

/// Reports that `field` names an unknown thing of kind `what`. The hint is the nearest of `known`,
/// else `otherwise`.
pub fn no_such<'k>(field: &Field<'_>, what: &str, known: impl Iterator<Item = &'k str> + Clone, otherwise: &str) {
    let name = match &field.node.value {
        Value::Scalar { text, .. } => text.as_str(),
        _ => "",
    };
    field.error(format!("there is no {what} `{}`", field.shown()), did_you_mean(name, known, otherwise));
}

/// The problems reported when `read` reads a file with this text.
#[cfg(test)]
pub(crate) fn problems_of(text: &str, read: impl Fn(&Map<'_>)) -> String {
    let report = crate::report::Report::default();
    let file = report.file("w.yaml");
    let node = crate::yaml::parse(text, &file, &|_| Some("from-the-environment".to_owned())).unwrap();
    let map = Field::root(&node, &file).map().unwrap();
    read(&map);
    map.finish(&[]);
    report.finish().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    // covers: WORLD-08
    #[test]
    fn values_are_checked_and_unknown_keys_refused() {
        let text = "a: yes\nb: 99\nc: 5x\nd: [1]\nconcurency: 1\nx-note: anything\ne: ${SECRET}\n";
        let found = problems_of(text, |map| {
            assert_eq!(map.get("a").unwrap().flag(), None);
            assert_eq!(map.get("b").unwrap().count(1..=9), None);
            assert!(map.get("c").unwrap().list().is_empty());
            assert_eq!(map.get("d").unwrap().text(9), None);
            assert_eq!(map.get("e").unwrap().count(1..=9), None);
            assert!(map.get("concurrency").is_none());
        });
        let places: Vec<&str> = found.lines().filter(|line| line.starts_with("error: w.yaml:")).collect();
        let expected = ["1: a: ", "2: b: ", "3: c: ", "4: d: ", "5: concurency: ", "7: e: "];
        assert_eq!(places.len(), expected.len(), "{found}");
        for (place, expected) in places.iter().zip(expected) {
            assert!(place.starts_with(&format!("error: w.yaml:{expected}")), "{expected}: {found}");
        }
        assert!(found.contains("`concurrency`") && !found.contains("from-the-environment"), "{found}");
    }
}
