//! What a YAML file says, as a small tree in which everything knows its line.
//!
//! Must never: recurse.

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
        /// Whether it was written below a `|`, so that its lines are those of the file, from the next one on.
        literal: bool,
        /// Whether a `${NAME}` in it stands for nothing. That is told where it is found, and nothing more of the value.
        unset: bool,
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

/// How much a node holds.
pub(crate) struct Size {
    /// Maps, lists and scalars.
    pub(crate) nodes: usize,
    /// Bytes of keys and scalars.
    pub(crate) bytes: usize,
    /// Levels of maps and lists.
    pub(crate) depth: usize,
    /// The last line on which something of it begins.
    pub(crate) last_line: usize,
}

impl Size {
    pub(crate) fn of(node: &Node) -> Self {
        let mut size = Self { nodes: 0, bytes: 0, depth: 0, last_line: node.line };
        let mut rest = vec![(node, 0)];
        while let Some((node, above)) = rest.pop() {
            size.nodes += 1;
            size.last_line = size.last_line.max(node.line);
            match &node.value {
                Value::Scalar { text, .. } => size.bytes += text.len(),
                Value::List(items) => rest.extend(items.iter().map(|item| (item, above + 1))),
                Value::Map(pairs) => rest.extend(pairs.iter().map(|(key, item)| {
                    size.bytes += key.text.len();
                    size.last_line = size.last_line.max(key.line);
                    (item, above + 1)
                })),
            }
            size.depth = size.depth.max(if matches!(node.value, Value::Scalar { .. }) { above } else { above + 1 });
        }
        size
    }
}
