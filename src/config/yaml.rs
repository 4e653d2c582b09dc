//! Parses YAML into a small tree with line numbers. Only a subset is accepted: one document of
//! plain maps, lists and scalars. Anchors, aliases, tags, merge keys and keys that are not text are
//! refused: configuration does not need them, and with them a small file can expand to a large one
//! or hide its meaning. Rule files may have anchors and aliases; each use counts towards the
//! limits.
//!
//! This module must never recurse on the input, or exceed its limits.

use std::borrow::Cow;
use std::collections::BTreeMap;

use ghost_domain::text::{clip, one_line};
use saphyr_parser::{Event, Parser, ScalarStyle};

use crate::node::Size;
pub use crate::node::{Key, Node, Value};
use crate::report::FileReport;
use crate::substitute::{Env, Substitution};

/// The largest size of a YAML file, in bytes.
pub const FILE_MAX: usize = 256 * 1024;
/// The largest number of nested levels of maps and lists.
pub const DEPTH_MAX: usize = 32;
/// The largest number of maps, lists and scalars in one file, without keys.
pub const NODES_MAX: usize = 20_000;
/// The largest size of one scalar as written, in bytes.
pub const SCALAR_MAX: usize = 64 * 1024;

/// The limits for a kind of file.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// The largest size of the file, and of everything that its aliases expand to, in bytes.
    pub file: usize,
    /// The largest number of maps, lists and scalars, without keys. Aliases count each time.
    pub nodes: usize,
    /// The largest size of one scalar as written, in bytes.
    pub scalar: usize,
    /// Whether anchors and aliases are accepted.
    pub aliases: bool,
}

impl Bounds {
    /// The limits for configuration files.
    pub const CONFIGURATION: Self = Self { file: FILE_MAX, nodes: NODES_MAX, scalar: SCALAR_MAX, aliases: false };
}

struct Open {
    line: usize,
    /// The parser's number of the anchor; 0 if there is none.
    anchor: usize,
    partial: Partial,
}

enum Partial {
    List(Vec<Node>),
    Map { pairs: Vec<(Key, Node)>, lines: BTreeMap<String, usize>, key: Option<Key>, skip: bool },
}

/// Parses a configuration file. Problems go into `report`; the result is `None` if the text is not
/// YAML. A repeated key is an error, and its first value counts.
#[must_use]
pub fn parse(text: &str, report: &FileReport<'_>, env: Env<'_>) -> Option<Node> {
    parse_within(text, report, Some(env), Bounds::CONFIGURATION)
}

/// As [`parse`], with other limits. Without `env`, `$` has no meaning.
#[must_use]
pub fn parse_within(text: &str, report: &FileReport<'_>, env: Option<Env<'_>>, bounds: Bounds) -> Option<Node> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    if text.len() > bounds.file {
        let message = format!("the file has {} bytes; at most {} are read", text.len(), bounds.file);
        report.error(1, "", message, "shorten it, or put long texts into files of their own");
        return None;
    }
    // The parser counts a CR alone as a line break, unlike everything else.
    let text = if text.contains('\r') { Cow::Owned(text.replace("\r\n", "\n")) } else { Cow::Borrowed(text) };
    let bad = |c: char| (c.is_control() && c != '\n' && c != '\t') || c == '\u{feff}';
    if let Some((at, c)) = text.char_indices().find(|(_, c)| bad(*c)) {
        let line = line_of(&text, at);
        let hint = "remove it; in quoted text write it as an escape such as \\t";
        report.error(line, "", format!("the file holds the control character U+{:04X}", u32::from(c)), hint);
        return None;
    }
    let substitution = env.map(Substitution::new);
    let (open, anchors) = (Vec::new(), BTreeMap::new());
    Builder { report, bounds, substitution, open, anchors, root: None, nodes: 0, aliased: 0 }.run(&text)
}

fn line_of(text: &str, at: usize) -> usize {
    text[..at].bytes().filter(|byte| *byte == b'\n').count() + 1
}

/// Appends `key` to a dotted path.
fn push_key(path: &mut String, key: &str) {
    let dot = if path.is_empty() { "" } else { "." };
    path.push_str(&format!("{dot}{}", one_line(&clip(key, 60))));
}

struct Builder<'a, 'r> {
    report: &'a FileReport<'r>,
    bounds: Bounds,
    substitution: Option<Substitution<'a>>,
    open: Vec<Open>,
    /// The completed nodes with an anchor, by the parser's number of the anchor.
    anchors: BTreeMap<usize, Node>,
    root: Option<Node>,
    nodes: usize,
    /// The number of bytes that aliases expand to.
    aliased: usize,
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
                    let hint = if tab || error.info().contains("a tab") {
                        "indent with spaces: YAML forbids tabs there"
                    } else {
                        "check the indentation, the quotes and the `:` around this line"
                    };
                    self.report.error(line, "", format!("this is not YAML: {}", error.info()), hint);
                    return None;
                }
            };
            let line = span.start.line().clamp(1, lines);
            if matches!(event, Event::DocumentStart(_)) {
                documents += 1;
                if documents > 1 {
                    self.report.error(line, "", "there is a second document (`---`) in the file", "keep one");
                    return None;
                }
            }
            self.event(event, line)?;
        }
        if self.root.is_none() {
            self.report.error(1, "", "the file is empty", "write something into it, or remove it");
        }
        self.root
    }

    /// Handles one event. Returns `None` if parsing must stop.
    fn event(&mut self, event: Event<'_>, line: usize) -> Option<()> {
        let (anchor, tag) = match &event {
            Event::Alias(anchor) if self.bounds.aliases => return self.alias(*anchor, line),
            Event::Alias(_) => {
                let message = "aliases (`*name`) are not read";
                self.report.error(line, "", message, "write the value out where it is needed");
                return None;
            }
            Event::Scalar(_, _, anchor, tag) | Event::SequenceStart(anchor, tag) | Event::MappingStart(anchor, tag) => {
                (*anchor, tag.as_ref())
            }
            _ => (0, None),
        };
        if anchor != 0 && !self.bounds.aliases {
            let message = "anchors (`&name`) are not read";
            self.report.error(line, "", message, "write the value out where it is needed");
            return None;
        }
        if let Some(tag) = tag {
            let message = format!("tags (`{}`) are not read", clip(&tag.to_string(), 60));
            self.report.error(line, "", message, "leave it out; quote text that looks like a number");
            return None;
        }
        match event {
            Event::Scalar(text, style, ..) => self.scalar(&text, style, line, anchor),
            Event::SequenceStart(..) => self.start(Open { line, anchor, partial: Partial::List(Vec::new()) }),
            Event::MappingStart(..) => {
                let partial = Partial::Map { pairs: Vec::new(), lines: BTreeMap::new(), key: None, skip: false };
                self.start(Open { line, anchor, partial })
            }
            Event::SequenceEnd | Event::MappingEnd => self.end(),
            _ => Some(()),
        }
    }

    fn start(&mut self, open: Open) -> Option<()> {
        self.check_depth(open.line, 1)?;
        if self.wants_key() {
            let message = "a key must be plain text, not a map or a list";
            self.report.error(open.line, "", message, "quote a key that begins with `{`, `[` or `?`");
            return None;
        }
        self.open.push(open);
        Some(())
    }

    /// Checks that `depth` more levels are allowed here.
    fn check_depth(&self, line: usize, depth: usize) -> Option<()> {
        if self.open.len() + depth <= DEPTH_MAX {
            return Some(());
        }
        let message = format!("maps and lists are nested more than {DEPTH_MAX} deep");
        self.report.error(line, "", message, "nothing here needs that: take levels out");
        None
    }

    fn wants_key(&self) -> bool {
        matches!(self.open.last(), Some(Open { partial: Partial::Map { key: None, .. }, .. }))
    }

    /// Whether `key` is the next key of the open map, and already in the map.
    fn is_repeated(&self, key: &str) -> bool {
        let map = self.open.last().map(|open| &open.partial);
        matches!(map, Some(Partial::Map { key: None, lines, .. }) if lines.contains_key(key))
    }

    fn end(&mut self) -> Option<()> {
        let Open { line, anchor, partial } = self.open.pop()?;
        let value = match partial {
            Partial::List(items) => Value::List(items),
            Partial::Map { pairs, .. } => Value::Map(pairs),
        };
        self.insert(Node { line, value }, anchor)
    }

    /// Inserts a copy of the node that `anchor` names.
    fn alias(&mut self, anchor: usize, line: usize) -> Option<()> {
        if self.wants_key() {
            self.report.error(line, "", "a key must be plain text, not an alias", "write the key out");
            return None;
        }
        let Some(node) = self.anchors.get(&anchor) else {
            self.report.error(line, "", "an alias is inside the value that it names", "write the value out");
            return None;
        };
        let size = Size::of(node);
        self.aliased = self.aliased.saturating_add(size.bytes);
        if self.aliased > self.bounds.file || self.nodes + size.nodes > self.bounds.nodes {
            self.report.error(line, "", "the aliases of the file expand to too much", "write fewer of them");
            return None;
        }
        let node = node.clone();
        self.check_depth(line, size.depth)?;
        self.nodes += size.nodes - 1;
        self.insert(node, 0)
    }

    fn scalar(&mut self, text: &str, style: ScalarStyle, line: usize, anchor: usize) -> Option<()> {
        if text.len() > self.bounds.scalar {
            let message = format!("the value has {} bytes; at most {} are read", text.len(), self.bounds.scalar);
            self.report.error(line, "", message, "put long text into a file of its own");
            return None;
        }
        let field = if self.is_repeated(text) { self.field(text) } else { String::new() };
        if let Some(Open { partial: Partial::Map { key: key @ None, lines, skip, .. }, .. }) = self.open.last_mut() {
            if text == "<<" {
                let message = "merge keys (`<<`) are not read";
                self.report.error(line, "", message, "write the keys out where they are needed");
                return None;
            }
            *skip = match lines.get(text) {
                Some(first) => {
                    let message = format!("the key `{}` is repeated", clip(text, 60));
                    self.report.error(line, &field, message, format!("it is already on line {first}; keep one"));
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
        let path = if text.contains('$') { self.path() } else { String::new() };
        let substituted = match &mut self.substitution {
            Some(substitution) => substitution.apply(text, (line, &path), self.report),
            None => Some(text.to_owned()),
        };
        let unset = substituted.is_none();
        let substituted = substituted.unwrap_or_else(|| text.to_owned());
        let (plain, literal) = (style == ScalarStyle::Plain, style == ScalarStyle::Literal);
        let block = literal || style == ScalarStyle::Folded;
        // The parser gives a block scalar the line of its first line that is not blank, unless it
        // has an anchor. Use the line of its `|`.
        let line = match text.bytes().take_while(|byte| *byte == b'\n').count() {
            blank if block && anchor == 0 && blank < text.len() => line.saturating_sub(blank + 1).max(1),
            _ => line,
        };
        let value = Value::Scalar { text: substituted, shown: text.to_owned(), plain, literal, unset };
        self.insert(Node { line, value }, anchor)
    }

    /// The dotted path of `key` in the open map.
    fn field(&self, key: &str) -> String {
        let mut path = self.path();
        push_key(&mut path, key);
        path
    }

    /// The dotted path of the next value.
    fn path(&self) -> String {
        let mut path = String::new();
        for open in &self.open {
            match &open.partial {
                Partial::List(items) => path.push_str(&format!("[{}]", items.len())),
                Partial::Map { key: Some(key), .. } => push_key(&mut path, &key.text),
                Partial::Map { key: None, .. } => {}
            }
        }
        path
    }

    fn insert(&mut self, node: Node, anchor: usize) -> Option<()> {
        self.nodes += 1;
        if self.nodes > self.bounds.nodes {
            let message = format!("the file has more than {} values", self.bounds.nodes);
            self.report.error(node.line, "", message, "shorten it");
            return None;
        }
        if anchor != 0 {
            self.anchors.insert(anchor, node.clone());
        }
        match self.open.last_mut().map(|open| &mut open.partial) {
            None => self.root = Some(node),
            Some(Partial::List(items)) => items.push(node),
            Some(Partial::Map { pairs, key, skip, .. }) => {
                // A key always precedes its value; `start` and `scalar` ensure it.
                if let Some(key) = key.take() {
                    // The parser gives an empty value the line of the next token. Use the key's
                    // line.
                    let node = if node.is_null() { Node { line: key.line, ..node } } else { node };
                    if !*skip {
                        pairs.push((key, node));
                    }
                }
            }
        }
        Some(())
    }
}

#[cfg(test)]
#[path = "yaml_tests.rs"]
mod tests;
