//! YAML as a small tree in which everything knows its line. A deliberate subset: one document of plain maps, lists and
//! scalars. Anchors, aliases, tags, merge keys and keys that are not text are refused, because configuration needs none
//! of them and each is a way to make a small file mean something large or hidden.
//!
//! Must never: recurse on the input, or hold more than its bounds.

use std::collections::BTreeMap;

use ghost_domain::text::clip;
use saphyr_parser::{Event, Parser, ScalarStyle};

use crate::report::FileReport;
use crate::substitute::{Env, Substitution};

/// Most bytes of a YAML file.
pub const FILE_MAX: usize = 256 * 1024;
/// Most levels of maps and lists in one another.
pub const DEPTH_MAX: usize = 32;
/// Most maps, lists and scalars in one file, keys not counted.
pub const NODES_MAX: usize = 20_000;
/// Most bytes of one scalar as written.
pub const SCALAR_MAX: usize = 64 * 1024;

/// A value and where it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// The line, from 1.
    pub line: usize,
    /// What it is.
    pub value: Value,
}

/// What stands at a place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// Text, a number, a truth value or nothing: the reader decides.
    Scalar {
        /// The text with `${NAME}` substituted.
        text: String,
        /// The text as it may be shown: never with a substituted value in it.
        shown: String,
        /// Whether it was written without quotes, so that it may be a number, a truth value or nothing.
        plain: bool,
    },
    /// A list.
    List(Vec<Node>),
    /// A map, in the order of the file. Keys are unique.
    Map(Vec<(Key, Node)>),
}

/// A key and where it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key {
    /// The line, from 1.
    pub line: usize,
    /// The key.
    pub text: String,
}

impl Node {
    /// Whether it is left empty: nothing, `~` or `null`.
    #[must_use]
    pub fn is_null(&self) -> bool {
        matches!(&self.value, Value::Scalar { text, plain: true, .. } if matches!(text.as_str(), "" | "~" | "null" | "Null" | "NULL"))
    }

    /// What it is, in words.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match &self.value {
            _ if self.is_null() => "nothing",
            Value::Scalar { .. } => "a single value",
            Value::List(_) => "a list",
            Value::Map(_) => "a map",
        }
    }

    /// The value of `key`, if this is a map that has it.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Node> {
        match &self.value {
            Value::Map(pairs) => pairs.iter().find(|(found, _)| found.text == key).map(|(_, node)| node),
            _ => None,
        }
    }

    /// The text, if this is a scalar that is not empty.
    #[must_use]
    pub fn text(&self) -> Option<&str> {
        match &self.value {
            Value::Scalar { text, .. } if !self.is_null() => Some(text),
            _ => None,
        }
    }
}

enum Open {
    List { line: usize, items: Vec<Node> },
    Map { line: usize, pairs: Vec<(Key, Node)>, lines: BTreeMap<String, usize>, key: Option<Key>, skip: bool },
}

/// Reads one file. What is wrong goes into `report`; nothing comes out if the text cannot be read as a tree at all.
/// Repeated keys are reported and the first one counts, so that reading can go on.
#[must_use]
pub fn parse(text: &str, report: &FileReport<'_>, env: Env<'_>) -> Option<Node> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    if text.len() > FILE_MAX {
        report.error(0, "", format!("the file has {} bytes; at most {FILE_MAX} are read", text.len()), None);
        return None;
    }
    // A CR alone would be counted as a line by the parser and by nobody else.
    let text = text.replace("\r\n", "\n");
    let bad = |c: char| (c.is_control() && c != '\n' && c != '\t') || c == '\u{feff}';
    if let Some((at, c)) = text.char_indices().find(|(_, c)| bad(*c)) {
        let line = line_of(&text, at);
        let hint = "remove it; in quoted text write it as an escape such as \\t".to_owned();
        report.error(line, "", format!("the file holds the control character U+{:04X}", u32::from(c)), Some(hint));
        return None;
    }
    Builder { report, substitution: Substitution::new(env), open: Vec::new(), root: None, nodes: 0 }.run(&text)
}

fn line_of(text: &str, at: usize) -> usize {
    text[..at].bytes().filter(|byte| *byte == b'\n').count() + 1
}

struct Builder<'a, 'r> {
    report: &'a FileReport<'r>,
    substitution: Substitution<'a>,
    open: Vec<Open>,
    root: Option<Node>,
    nodes: usize,
}

impl Builder<'_, '_> {
    fn run(mut self, text: &str) -> Option<Node> {
        let lines = text.lines().count().max(1);
        let mut documents = 0;
        let mut parser = Parser::new_from_str(text);
        while let Some(next) = parser.next_event() {
            let (event, span) = match next {
                Ok(found) => found,
                Err(error) => {
                    let line = error.marker().line().clamp(1, lines);
                    let tab =
                        text.lines().nth(line - 1).is_some_and(|line| line.trim_start_matches(' ').starts_with('\t'));
                    let hint = if tab {
                        "indent with spaces: YAML forbids tabs there"
                    } else {
                        "check the indentation, the quotes and the `:` around this line"
                    };
                    self.report.error(line, "", format!("this is not YAML: {}", error.info()), Some(hint.to_owned()));
                    return None;
                }
            };
            let line = span.start.line().clamp(1, lines);
            if matches!(event, Event::DocumentStart(_)) {
                documents += 1;
                if documents > 1 {
                    self.report.error(line, "", "there is a second document (`---`) in the file", hint("keep one"));
                    return None;
                }
            }
            self.event(event, line)?;
        }
        match self.root {
            Some(root) => Some(root),
            None => {
                self.report.error(0, "", "the file is empty", None);
                None
            }
        }
    }

    /// Takes one event; nothing comes back if reading must end.
    fn event(&mut self, event: Event<'_>, line: usize) -> Option<()> {
        let (anchor, tag) = match &event {
            Event::Alias(_) => {
                let message = "aliases (`*name`) are not read";
                self.report.error(line, "", message, hint("write the value out where it is needed"));
                return None;
            }
            Event::Scalar(_, _, anchor, tag) | Event::SequenceStart(anchor, tag) | Event::MappingStart(anchor, tag) => {
                (*anchor, tag.as_ref())
            }
            _ => (0, None),
        };
        if anchor != 0 {
            let message = "anchors (`&name`) are not read";
            self.report.error(line, "", message, hint("write the value out where it is needed"));
            return None;
        }
        if let Some(tag) = tag {
            let message = format!("tags (`{}`) are not read", clip(&tag.to_string(), 60));
            self.report.error(line, "", message, hint("leave it out; quote text that looks like a number"));
            return None;
        }
        match event {
            Event::Scalar(text, style, ..) => self.scalar(&text, style, line),
            Event::SequenceStart(..) => self.start(Open::List { line, items: Vec::new() }, line),
            Event::MappingStart(..) => {
                let map = Open::Map { line, pairs: Vec::new(), lines: BTreeMap::new(), key: None, skip: false };
                self.start(map, line)
            }
            Event::SequenceEnd | Event::MappingEnd => self.end(),
            _ => Some(()),
        }
    }

    fn start(&mut self, open: Open, line: usize) -> Option<()> {
        if self.open.len() >= DEPTH_MAX {
            self.report.error(line, "", format!("maps and lists are nested more than {DEPTH_MAX} deep"), None);
            return None;
        }
        if let Some(Open::Map { key: None, .. }) = self.open.last() {
            self.report.error(line, "", "a key must be plain text, not a map or a list", None);
            return None;
        }
        self.open.push(open);
        Some(())
    }

    fn end(&mut self) -> Option<()> {
        let node = match self.open.pop()? {
            Open::List { line, items } => Node { line, value: Value::List(items) },
            Open::Map { line, pairs, .. } => Node { line, value: Value::Map(pairs) },
        };
        self.place(node)
    }

    fn scalar(&mut self, text: &str, style: ScalarStyle, line: usize) -> Option<()> {
        if text.len() > SCALAR_MAX {
            let message = format!("the value has {} bytes; at most {SCALAR_MAX} are read", text.len());
            self.report.error(line, "", message, hint("put long text into a file of its own"));
            return None;
        }
        if let Some(Open::Map { key: key @ None, lines, skip, .. }) = self.open.last_mut() {
            if text == "<<" {
                let message = "merge keys (`<<`) are not read";
                self.report.error(line, "", message, hint("write the keys out where they are needed"));
                return None;
            }
            *skip = match lines.get(text) {
                Some(first) => {
                    let message = format!("the key `{}` stands here a second time", clip(text, 60));
                    self.report.error(line, "", message, Some(format!("it is already on line {first}; keep one")));
                    true
                }
                None => {
                    lines.insert(text.to_owned(), line);
                    false
                }
            };
            *key = Some(Key { line, text: text.to_owned() });
            return Some(());
        }
        let substituted = self.substitution.apply(text, line, self.report);
        let value = Value::Scalar { text: substituted, shown: text.to_owned(), plain: style == ScalarStyle::Plain };
        self.place(Node { line, value })
    }

    fn place(&mut self, node: Node) -> Option<()> {
        self.nodes += 1;
        if self.nodes > NODES_MAX {
            self.report.error(node.line, "", format!("the file has more than {NODES_MAX} values"), None);
            return None;
        }
        match self.open.last_mut() {
            None => self.root = Some(node),
            Some(Open::List { items, .. }) => items.push(node),
            Some(Open::Map { pairs, key, skip, .. }) => {
                // A key always precedes its value; `start` and `scalar` see to it.
                if let Some(key) = key.take()
                    && !*skip
                {
                    // An empty value is placed by the parser at what follows; the key's line is what people look for.
                    let node = if node.is_null() { Node { line: key.line, ..node } } else { node };
                    pairs.push((key, node));
                }
            }
        }
        Some(())
    }
}

fn hint(text: &str) -> Option<String> {
    Some(text.to_owned())
}

#[cfg(test)]
#[path = "yaml_tests.rs"]
mod tests;
