//! A YAML file as a tree in which each value and key has its line.
//!
//! No function on a tree may recurse.

/// A value and its line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// The line, from 1.
    pub line: usize,
    /// The value.
    pub value: Value,
}

/// A YAML value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// Text, a number, a boolean or null. The typed reader decides which.
    Scalar {
        /// The text with `${NAME}` substituted.
        text: String,
        /// The text as written, without substituted values. Safe to show in a message.
        shown: String,
        /// Whether it was written without quotes. Only a scalar without quotes may be a number, a
        /// boolean or null.
        plain: bool,
        /// Whether it was written as a block after `|`. Its lines are then lines of the file,
        /// starting with the next one.
        literal: bool,
        /// Whether a `${NAME}` in it could not be substituted. That was reported, so other problems
        /// of the value are not reported.
        unset: bool,
    },
    /// A list.
    List(Vec<Node>),
    /// A map, in the order of the file. Keys are unique.
    Map(Vec<(Key, Node)>),
}

/// A key and its line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key {
    /// The line, from 1.
    pub line: usize,
    /// The text of the key.
    pub text: String,
}

impl Node {
    /// Whether the value is empty: nothing, `~` or `null`.
    #[must_use]
    pub fn is_null(&self) -> bool {
        matches!(&self.value, Value::Scalar { text, plain: true, .. } if matches!(text.as_str(), "" | "~" | "null" | "Null" | "NULL"))
    }

    /// The kind of the value, for messages.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match &self.value {
            _ if self.is_null() => "nothing",
            Value::Scalar { .. } => "a single value",
            Value::List(_) => "a list",
            Value::Map(_) => "a map",
        }
    }

    /// The value of `key`, if this is a map that contains it.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Node> {
        match &self.value {
            Value::Map(pairs) => pairs.iter().find(|(found, _)| found.text == key).map(|(_, node)| node),
            _ => None,
        }
    }

    /// The entries, if this is a list.
    #[must_use]
    pub fn items(&self) -> &[Node] {
        match &self.value {
            Value::List(items) => items,
            _ => &[],
        }
    }

    /// The keys, if this is a map.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        let pairs = match &self.value {
            Value::Map(pairs) => pairs.as_slice(),
            _ => &[],
        };
        pairs.iter().map(|(key, _)| key.text.as_str())
    }

    /// The value as JSON. Plain scalars follow YAML's core schema; one that is no null, boolean or number becomes a string.
    #[must_use]
    pub fn json(&self) -> serde_json::Value {
        match &self.value {
            _ if self.is_null() => serde_json::Value::Null,
            Value::Scalar { text, plain: true, .. } => plain(text),
            Value::Scalar { text, .. } => text.as_str().into(),
            Value::List(items) => items.iter().map(Self::json).collect(),
            Value::Map(pairs) => {
                serde_json::Value::Object(pairs.iter().map(|(key, value)| (key.text.clone(), value.json())).collect())
            }
        }
    }

    /// The text, if this is a scalar that is not null.
    #[must_use]
    pub fn text(&self) -> Option<&str> {
        match &self.value {
            Value::Scalar { text, .. } if !self.is_null() => Some(text),
            _ => None,
        }
    }
}

/// The size of a tree.
pub(crate) struct Size {
    /// The number of maps, lists and scalars.
    pub(crate) nodes: usize,
    /// The number of bytes in keys and scalars.
    pub(crate) bytes: usize,
    /// The number of nested levels of maps and lists.
    pub(crate) depth: usize,
    /// The last line on which a value or key begins.
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

/// Converts a plain scalar by YAML's core schema.
fn plain(text: &str) -> serde_json::Value {
    match text {
        "true" | "True" | "TRUE" => return true.into(),
        "false" | "False" | "FALSE" => return false.into(),
        _ => {}
    }
    let based = |prefix, radix| text.strip_prefix(prefix).and_then(|digits| u64::from_str_radix(digits, radix).ok());
    if let Some(number) = based("0x", 16).or_else(|| based("0o", 8)) {
        return number.into();
    }
    let digits = text.trim_start_matches(['+', '-']);
    let is_number = text.len() - digits.len() <= 1
        && digits.bytes().any(|b| b.is_ascii_digit())
        && digits.bytes().all(|b| b.is_ascii_digit() || matches!(b, b'.' | b'e' | b'E' | b'+' | b'-'))
        && digits.starts_with(|c: char| c.is_ascii_digit() || c == '.')
        // `007` is an identifier, not the number seven.
        && !(digits.len() > 1 && digits.starts_with('0') && digits.bytes().all(|b| b.is_ascii_digit()));
    if !is_number {
        return text.into();
    }
    let plus = text.strip_prefix('+').unwrap_or(text);
    let number = plus.parse::<u64>().map(serde_json::Value::from).or_else(|_| plus.parse::<i64>().map(Into::into));
    number.or_else(|_| plus.parse::<f64>().map(Into::into)).unwrap_or_else(|_| text.into())
}

#[cfg(test)]
mod tests {
    use crate::report::Report;

    #[test]
    fn every_kind_of_scalar_becomes_json() {
        let text = "a: [1, -2, +3, 1.5, 1e3, 0x1F, 0o17, true, False, ~, '', null, 'null', '7', 007, 1.2.3, 5 %, e5]\nb:\n  c: |\n    x\n";
        let report = Report::default();
        let file = report.file("w.yaml");
        let node = crate::yaml::parse(text, &file, &|_| None).unwrap();
        let expected = serde_json::json!({
            "a": [1, -2, 3, 1.5, 1000.0, 31, 15, true, false, null, "", null, "null", "7", "007", "1.2.3", "5 %", "e5"],
            "b": { "c": "x\n" },
        });
        assert_eq!(node.json(), expected);
    }
}
