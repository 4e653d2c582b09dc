//! Tools as a server defines them. A definition that is not checked must never be among them.

use std::collections::HashMap;

use serde_json::{Map, Value, json};

use crate::canonical::{canonical, sha256};
use crate::listing::Skipped;
use crate::schema::check_schema;

/// Longest name of a tool, in bytes.
pub const NAME_MAX: usize = 128;
/// Length of [`Definition::hash`], in characters.
pub const HASH_LENGTH: usize = 64;
/// Largest title, in bytes.
const TITLE_MAX: usize = 512;
/// Largest description, in bytes.
const DESCRIPTION_MAX: usize = 16 * 1_024;

/// A tool as the server defines it. Its texts are from the server.
#[derive(Clone, Debug, PartialEq)]
pub struct Definition {
    /// Its name, for [`crate::Connection::call`]. It passes [`is_tool_name`].
    pub name: String,
    /// Its name for people, at most 512 bytes.
    pub title: Option<String>,
    /// What it does, at most 16 KiB; may be empty.
    pub description: String,
    /// The schema of its arguments. It passes [`crate::check_schema`].
    pub input_schema: Value,
    /// What the server says about its effects.
    pub annotations: Annotations,
}

/// What a server says about the effects of a tool. It may lie. `None` means that it says nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Annotations {
    /// It changes nothing.
    pub read_only: Option<bool>,
    /// It may destroy something.
    pub destructive: Option<bool>,
    /// The same call twice has no more effect than once.
    pub idempotent: Option<bool>,
    /// It reaches things outside the server.
    pub open_world: Option<bool>,
}

impl Definition {
    /// The hash of everything that a model or an operator could rely on: name, title, description, schema and
    /// annotations. 64 hexadecimal digits (SHA-256). The order of keys does not matter.
    #[must_use]
    pub fn hash(&self) -> String {
        let annotations = &self.annotations;
        sha256(&canonical(&json!({
            "name": self.name,
            "title": self.title,
            "description": self.description,
            "inputSchema": self.input_schema,
            "annotations": {
                "readOnlyHint": annotations.read_only,
                "destructiveHint": annotations.destructive,
                "idempotentHint": annotations.idempotent,
                "openWorldHint": annotations.open_world,
            },
        })))
    }
}

/// Whether a server may give a tool this name: 1 to [`NAME_MAX`] of the characters `A-Z a-z 0-9 _ . - /`. Letters
/// that only look like these are refused.
#[must_use]
pub fn is_tool_name(name: &str) -> bool {
    let allowed = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-' | b'/');
    (1..=NAME_MAX).contains(&name.len()) && name.bytes().all(allowed)
}

/// The tools that can be used, and the others with a reason. Of tools with the same name none is used: nobody could
/// say which one a call reaches.
pub(crate) fn definitions(entries: Vec<Value>) -> (Vec<Definition>, Vec<Skipped>) {
    let mut count: HashMap<String, usize> = HashMap::new();
    for name in entries.iter().filter_map(name_of) {
        *count.entry(name.to_owned()).or_default() += 1;
    }
    let (mut tools, mut skipped) = (Vec::new(), Vec::new());
    for entry in entries {
        let name = name_of(&entry).unwrap_or_default().to_owned();
        let times = count.get(&name).copied().unwrap_or_default();
        let read = if times > 1 { Err(format!("{times} tools have this name")) } else { definition(entry) };
        match read {
            Ok(tool) => tools.push(tool),
            Err(why) => skipped.push(Skipped::new(&name, why)),
        }
    }
    (tools, skipped)
}

fn name_of(entry: &Value) -> Option<&str> {
    entry.get("name").and_then(Value::as_str)
}

fn definition(entry: Value) -> Result<Definition, String> {
    let Value::Object(mut entry) = entry else { return Err("it is no JSON object".to_owned()) };
    let name = match entry.remove("name") {
        Some(Value::String(name)) if is_tool_name(&name) => name,
        Some(Value::String(_)) => {
            return Err(format!("its name is not 1 to {NAME_MAX} of the characters A-Z a-z 0-9 _ . - /"));
        }
        _ => return Err("it has no name".to_owned()),
    };
    // Such a tool refuses a plain call (MCP 2025-11-25, "Tasks"), and this client declares no tasks.
    if entry.get("execution").and_then(|execution| execution.get("taskSupport")) == Some(&json!("required")) {
        return Err("it can only be called as a task, which Ghost does not do".to_owned());
    }
    let title = text(&mut entry, "title", TITLE_MAX)?;
    let description = text(&mut entry, "description", DESCRIPTION_MAX)?.unwrap_or_default();
    let input_schema = entry.remove("inputSchema").ok_or_else(|| "it has no `inputSchema`".to_owned())?;
    check_schema(&input_schema).map_err(|problem| problem.to_string())?;
    let annotations = annotations(entry.get("annotations"));
    Ok(Definition { name, title, description, input_schema, annotations })
}

/// The text under `key`. A null is no text.
fn text(entry: &mut Map<String, Value>, key: &str, max: usize) -> Result<Option<String>, String> {
    match entry.remove(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) if text.len() <= max => Ok(Some(text)),
        Some(Value::String(text)) => Err(format!("its {key} has {} bytes, more than {max}", text.len())),
        Some(_) => Err(format!("its {key} is no text")),
    }
}

/// A hint that is no truth value says nothing.
fn annotations(entry: Option<&Value>) -> Annotations {
    let hint = |key: &str| entry.and_then(|entry| entry.get(key)).and_then(Value::as_bool);
    Annotations {
        read_only: hint("readOnlyHint"),
        destructive: hint("destructiveHint"),
        idempotent: hint("idempotentHint"),
        open_world: hint("openWorldHint"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tool() -> Value {
        json!({
            "name": "files.read",
            "title": "Read",
            "description": "Reads a file.",
            "inputSchema": {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "number"}}},
            "annotations": {"readOnlyHint": true, "destructiveHint": "no"},
        })
    }

    fn one(entry: Value) -> Definition {
        definition(entry).unwrap()
    }

    #[test]
    fn a_definition_is_read_and_a_wrong_hint_says_nothing() {
        let tool = one(tool());
        assert_eq!((tool.name.as_str(), tool.title.as_deref()), ("files.read", Some("Read")));
        assert_eq!(tool.annotations, Annotations { read_only: Some(true), ..Annotations::default() });
    }

    #[test]
    fn every_change_of_a_definition_changes_the_hash() {
        let hash = one(tool()).hash();
        assert_eq!(hash.len(), HASH_LENGTH);
        let changes = [
            ("name", json!("files.write")),
            ("title", json!("Write")),
            ("title", Value::Null),
            ("description", json!("Reads a file!")),
            ("inputSchema", json!({"type": "object"})),
            ("annotations", json!({"readOnlyHint": false})),
            ("annotations", json!({"readOnlyHint": true, "openWorldHint": true})),
        ];
        for (key, value) in changes {
            let mut changed = tool();
            changed[key] = value.clone();
            assert_ne!(one(changed).hash(), hash, "{key} {value}");
        }
    }

    #[test]
    fn the_order_of_keys_does_not_change_the_hash() {
        let mut other = tool();
        other["inputSchema"] =
            json!({"properties": {"b": {"type": "number"}, "a": {"type": "string"}}, "type": "object"});
        assert_eq!(one(other).hash(), one(tool()).hash());
    }

    #[test]
    fn names_that_only_look_right_are_refused() {
        for name in ["", "re\u{430}d", "read file", "read\u{200b}", "x\n", &"x".repeat(129), "ｒｅａｄ", "a:b"] {
            assert!(!is_tool_name(name), "{name:?}");
        }
        for name in ["a", "A/b.c-d_9", &"x".repeat(128)] {
            assert!(is_tool_name(name), "{name:?}");
        }
    }

    #[test]
    fn a_tool_that_needs_tasks_is_not_used() {
        let with = |support: &str| {
            let mut tool = tool();
            tool["execution"] = json!({ "taskSupport": support });
            definitions(vec![tool])
        };
        assert_eq!((with("required").0.len(), with("required").1.len()), (0, 1));
        assert_eq!((with("optional").0.len(), with("forbidden").0.len()), (1, 1));
    }

    #[test]
    fn of_tools_with_the_same_name_none_is_used() {
        let mut other = tool();
        other["description"] = json!("Deletes a file.");
        let mut single = tool();
        single["name"] = json!("single");
        let (tools, skipped) = definitions(vec![tool(), single, other]);
        assert_eq!(tools.iter().map(|tool| tool.name.as_str()).collect::<Vec<_>>(), ["single"]);
        let twice = Skipped { name: "files.read".to_owned(), why: "2 tools have this name".to_owned() };
        assert_eq!(skipped, [twice.clone(), twice]);
    }
}
