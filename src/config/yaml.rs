//! YAML as a small tree in which everything knows its line. A deliberate subset: one document of plain maps, lists and
//! scalars. Anchors, aliases, tags, merge keys and keys that are not text are refused, because configuration needs none
//! of them and each is a way to make a small file mean something large or hidden. Rule files may have anchors and aliases:
//! what these stand for counts each time it is used.
//!
//! Must never: recurse on the input, or hold more than its bounds.

use std::borrow::Cow;
use std::collections::BTreeMap;

use ghost_domain::text::{clip, one_line};
use saphyr_parser::{Event, Parser, ScalarStyle};

use crate::node::Size;
pub use crate::node::{Key, Node, Value};
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

/// What a kind of file may hold.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Most bytes of the file, and of all that its aliases stand for.
    pub file: usize,
    /// Most maps, lists and scalars, keys not counted, those of aliases counted each time.
    pub nodes: usize,
    /// Most bytes of one scalar as written.
    pub scalar: usize,
    /// Whether anchors and aliases are read.
    pub aliases: bool,
}

impl Bounds {
    /// Those of configuration.
    pub const CONFIGURATION: Self = Self { file: FILE_MAX, nodes: NODES_MAX, scalar: SCALAR_MAX, aliases: false };
}

/// Most keys that stand a second time whose values are kept to be looked at.
const REPEATS_MAX: usize = 16;

/// A file as it counts, and what stands in it under keys that were there before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tree {
    /// The file, with the first of several values under one key.
    pub root: Node,
    /// The others, in the order of the file: at most 16, and none within another.
    pub repeats: Vec<Repeat>,
}

/// A key that stands in its map a second time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repeat {
    /// The way to the map: the place of each entry in its map or list, from the root.
    pub path: Vec<usize>,
    /// The key, where it stands again.
    pub key: Key,
    /// Its value there.
    pub node: Node,
}

struct Open {
    line: usize,
    /// The parser's number of its anchor; 0 if it has none.
    anchor: usize,
    what: What,
}

enum What {
    List(Vec<Node>),
    Map { pairs: Vec<(Key, Node)>, lines: BTreeMap<String, usize>, key: Option<Key>, skip: bool },
}

/// Reads one file. What is wrong goes into `report`; nothing comes out if the text cannot be read as a tree at all.
/// Repeated keys are reported and the first one counts, so that reading can go on.
#[must_use]
pub fn parse(text: &str, report: &FileReport<'_>, env: Env<'_>) -> Option<Node> {
    parse_all(text, report, Some(env), Bounds::CONFIGURATION).map(|tree| tree.root)
}

/// As [`parse`], within other bounds, with the values that do not count. Without `env` a `$` is a `$`.
#[must_use]
pub fn parse_all(text: &str, report: &FileReport<'_>, env: Option<Env<'_>>, bounds: Bounds) -> Option<Tree> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    if text.len() > bounds.file {
        let message = format!("the file has {} bytes; at most {} are read", text.len(), bounds.file);
        report.error(1, "", message, "shorten it, or put long texts into files of their own");
        return None;
    }
    // A CR alone would be counted as a line by the parser and by nobody else.
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
    let repeats = Vec::new();
    Builder { report, bounds, substitution, open, anchors, root: None, repeats, nodes: 0, aliased: 0 }.run(&text)
}

fn line_of(text: &str, at: usize) -> usize {
    text[..at].bytes().filter(|byte| *byte == b'\n').count() + 1
}

/// Adds `key` to a dotted path.
fn below(path: &mut String, key: &str) {
    let dot = if path.is_empty() { "" } else { "." };
    path.push_str(&format!("{dot}{}", one_line(&clip(key, 60))));
}

struct Builder<'a, 'r> {
    report: &'a FileReport<'r>,
    bounds: Bounds,
    substitution: Option<Substitution<'a>>,
    open: Vec<Open>,
    /// What has an anchor and is complete, by the parser's number of the anchor.
    anchors: BTreeMap<usize, Node>,
    root: Option<Node>,
    repeats: Vec<Repeat>,
    nodes: usize,
    /// Bytes that aliases stand for.
    aliased: usize,
}

impl Builder<'_, '_> {
    fn run(mut self, text: &str) -> Option<Tree> {
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
        match self.root {
            Some(root) => Some(Tree { root, repeats: self.repeats }),
            None => {
                self.report.error(1, "", "the file is empty", "write something into it, or take it away");
                None
            }
        }
    }

    /// Takes one event; nothing comes back if reading must end.
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
            Event::SequenceStart(..) => self.start(Open { line, anchor, what: What::List(Vec::new()) }),
            Event::MappingStart(..) => {
                let what = What::Map { pairs: Vec::new(), lines: BTreeMap::new(), key: None, skip: false };
                self.start(Open { line, anchor, what })
            }
            Event::SequenceEnd | Event::MappingEnd => self.end(),
            _ => Some(()),
        }
    }

    fn start(&mut self, open: Open) -> Option<()> {
        self.fits(open.line, 1)?;
        if self.wants_key() {
            let message = "a key must be plain text, not a map or a list";
            self.report.error(open.line, "", message, "quote a key that begins with `{`, `[` or `?`");
            return None;
        }
        self.open.push(open);
        Some(())
    }

    /// Whether so many more levels may stand here.
    fn fits(&self, line: usize, depth: usize) -> Option<()> {
        if self.open.len() + depth <= DEPTH_MAX {
            return Some(());
        }
        let message = format!("maps and lists are nested more than {DEPTH_MAX} deep");
        self.report.error(line, "", message, "nothing here needs that: take levels out");
        None
    }

    fn wants_key(&self) -> bool {
        matches!(self.open.last(), Some(Open { what: What::Map { key: None, .. }, .. }))
    }

    fn end(&mut self) -> Option<()> {
        let Open { line, anchor, what } = self.open.pop()?;
        let value = match what {
            What::List(items) => Value::List(items),
            What::Map { pairs, .. } => Value::Map(pairs),
        };
        self.place(Node { line, value }, anchor)
    }

    /// Puts what `anchor` names here once more.
    fn alias(&mut self, anchor: usize, line: usize) -> Option<()> {
        if self.wants_key() {
            self.report.error(line, "", "a key must be plain text, not an alias", "write the key out");
            return None;
        }
        let Some(node) = self.anchors.get(&anchor) else {
            self.report.error(line, "", "an alias stands within what it names", "write the value out");
            return None;
        };
        let size = Size::of(node);
        self.aliased = self.aliased.saturating_add(size.bytes);
        if self.aliased > self.bounds.file || self.nodes + size.nodes > self.bounds.nodes {
            self.report.error(line, "", "the aliases of the file stand for too much", "write fewer of them");
            return None;
        }
        let node = node.clone();
        self.fits(line, size.depth)?;
        self.nodes += size.nodes - 1;
        self.place(node, 0)
    }

    fn scalar(&mut self, text: &str, style: ScalarStyle, line: usize, anchor: usize) -> Option<()> {
        if text.len() > self.bounds.scalar {
            let message = format!("the value has {} bytes; at most {} are read", text.len(), self.bounds.scalar);
            self.report.error(line, "", message, "put long text into a file of its own");
            return None;
        }
        let field = if self.wants_key() { self.field(text) } else { String::new() };
        if let Some(Open { what: What::Map { key: key @ None, lines, skip, .. }, .. }) = self.open.last_mut() {
            if text == "<<" {
                let message = "merge keys (`<<`) are not read";
                self.report.error(line, "", message, "write the keys out where they are needed");
                return None;
            }
            *skip = match lines.get(text) {
                Some(first) => {
                    let message = format!("the key `{}` stands here a second time", clip(text, 60));
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
        // The parser places a block at its first line that is not blank, unless it has an anchor; here it is at its `|`.
        let line = match text.bytes().take_while(|byte| *byte == b'\n').count() {
            blank if block && anchor == 0 && blank < text.len() => line.saturating_sub(blank + 1).max(1),
            _ => line,
        };
        let value = Value::Scalar { text: substituted, shown: text.to_owned(), plain, literal, unset };
        self.place(Node { line, value }, anchor)
    }

    /// The dotted path of `key` in the map that is open.
    fn field(&self, key: &str) -> String {
        let mut path = self.path();
        below(&mut path, key);
        path
    }

    /// The dotted path of the value that comes next.
    fn path(&self) -> String {
        let mut path = String::new();
        for open in &self.open {
            match &open.what {
                What::List(items) => path.push_str(&format!("[{}]", items.len())),
                What::Map { key: Some(key), .. } => below(&mut path, &key.text),
                What::Map { key: None, .. } => {}
            }
        }
        path
    }

    /// Keeps a value that does not count, unless all of what it stands in does not.
    fn repeat(&mut self, key: Key, node: Node) {
        let above = &self.open[..self.open.len().saturating_sub(1)];
        let passed_over = above.iter().any(|open| matches!(open.what, What::Map { skip: true, .. }));
        if passed_over || self.repeats.len() >= REPEATS_MAX {
            return;
        }
        let place = |open: &Open| match &open.what {
            What::List(items) => items.len(),
            What::Map { pairs, .. } => pairs.len(),
        };
        let path = above.iter().map(place).collect();
        self.repeats.push(Repeat { path, key, node });
    }

    fn place(&mut self, node: Node, anchor: usize) -> Option<()> {
        self.nodes += 1;
        if self.nodes > self.bounds.nodes {
            let message = format!("the file has more than {} values", self.bounds.nodes);
            self.report.error(node.line, "", message, "shorten it");
            return None;
        }
        if anchor != 0 {
            self.anchors.insert(anchor, node.clone());
        }
        match self.open.last_mut().map(|open| &mut open.what) {
            None => self.root = Some(node),
            Some(What::List(items)) => items.push(node),
            Some(What::Map { pairs, key, skip, .. }) => {
                // A key always precedes its value; `start` and `scalar` see to it.
                if let Some(key) = key.take() {
                    // An empty value is placed by the parser at what follows; the key's line is what people look for.
                    let node = if node.is_null() { Node { line: key.line, ..node } } else { node };
                    if *skip {
                        self.repeat(key, node);
                    } else {
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
