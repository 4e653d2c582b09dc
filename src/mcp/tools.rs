//! Tools as a server defines them: checked, hashed, and under the names that Ghost uses.

use std::collections::{BTreeMap, HashMap};

use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

use crate::limits::check_schema;
use crate::lists::{NAME_MAX, Sorted, sorted};

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
        sha256(json!({
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
        }))
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
pub(crate) fn definitions(entries: Vec<Value>) -> Sorted<Definition> {
    let mut count: HashMap<String, usize> = HashMap::new();
    for name in entries.iter().filter_map(name_of) {
        *count.entry(name.to_owned()).or_default() += 1;
    }
    sorted(entries, |entry| match count.get(name_of(&entry).unwrap_or_default()) {
        Some(times) if *times > 1 => Err(format!("{times} tools have this name")),
        _ => definition(entry),
    })
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

/// The SHA-256, in hexadecimal digits, of the JSON of `value` without spaces and with sorted keys.
fn sha256(mut value: Value) -> String {
    value.sort_all_objects();
    hex::encode(Sha256::digest(value.to_string()))
}

/// Longest name, in bytes.
pub const GHOST_NAME_MAX: usize = 64;

/// The names of the tools of one server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GhostNames {
    /// The names of the server by the names that Ghost uses.
    pub names: BTreeMap<String, String>,
    /// Names of the server that would get the same name; by that name. None of them is in `names`.
    pub clashes: BTreeMap<String, Vec<String>>,
    /// Names of the server that have no form here.
    pub impossible: Vec<String>,
}

/// The name that Ghost uses for a tool: in lower case, 1 to [`GHOST_NAME_MAX`] of the characters `a-z 0-9 - _`. It
/// begins with a letter or a digit and has no two underscores in a row. `None` if nothing is left of it, or too much.
#[must_use]
pub fn ghost_name(name: &str) -> Option<String> {
    let mut short = String::with_capacity(name.len());
    for c in name.chars() {
        let c = if c.is_ascii_alphanumeric() || c == '-' { c.to_ascii_lowercase() } else { '_' };
        let is_wanted = match c {
            '_' => !short.is_empty() && !short.ends_with('_'),
            '-' => !short.is_empty(),
            _ => true,
        };
        if is_wanted {
            short.push(c);
        }
    }
    short.truncate(short.trim_end_matches('_').len());
    (1..=GHOST_NAME_MAX).contains(&short.len()).then_some(short)
}

/// The names of a whole list. Each name of the server has to be in it once.
pub fn ghost_names<'a>(names: impl IntoIterator<Item = &'a str>) -> GhostNames {
    let mut all: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut result = GhostNames::default();
    for name in names {
        match ghost_name(name) {
            Some(short) => all.entry(short).or_default().push(name.to_owned()),
            None => result.impossible.push(name.to_owned()),
        }
    }
    for (short, mut servers) in all {
        if servers.len() > 1 {
            result.clashes.insert(short, servers);
        } else {
            result.names.extend(servers.pop().map(|only| (short, only)));
        }
    }
    result
}

#[cfg(test)]
mod definition_tests {
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
        let twice = crate::lists::Skipped { name: "files.read".to_owned(), why: "2 tools have this name".to_owned() };
        assert_eq!(skipped, [twice.clone(), twice]);
    }
}

#[cfg(test)]
mod hash_tests {
    use super::*;

    #[test]
    fn the_order_of_keys_does_not_matter_and_the_order_of_items_does() {
        let hash = |json: &str| sha256(serde_json::from_str(json).unwrap());
        let sorted = hash(r#"{"a":{"x":null,"y":"\""},"b":[2,1]}"#);
        assert_eq!(hash(r#"{ "b": [2, 1], "a": {"y": "\"", "x": null} }"#), sorted);
        assert_ne!(hash(r#"{"a":{"x":null,"y":"\""},"b":[1,2]}"#), sorted);
    }

    #[test]
    fn the_hash_is_the_one_of_the_standard() {
        // Of `"abc"` and of `{"a":{"x":null,"y":"\""},"b":[2,1]}`, by sha256sum.
        assert_eq!(sha256(json!("abc")), "6cc43f858fbb763301637b5af970e2a46b46f461f27e5a0f41e009c59b827b25");
        let value = json!({"b": [2, 1], "a": {"y": "\"", "x": null}});
        assert_eq!(sha256(value), "f22bdca829b7439efc04a108164e9dd12b791e7747f6542fae96b23809d8cb08");
    }
}

#[cfg(test)]
mod names_tests {
    use super::*;

    #[test]
    fn names_get_the_form_that_ghost_uses() {
        let cases = [
            ("read_file", "read_file"),
            ("Get-Sum", "get-sum"),
            ("files/read.all", "files_read_all"),
            ("a__b", "a_b"),
            ("__init__", "init"),
            ("-x", "x"),
            ("a_/.b", "a_b"),
        ];
        for (name, short) in cases {
            assert_eq!(ghost_name(name).as_deref(), Some(short), "{name}");
        }
        for name in ["", "_", "./-", &"x".repeat(65)] {
            assert_eq!(ghost_name(name), None, "{name}");
        }
    }

    #[test]
    fn names_that_clash_are_reported_and_none_of_them_is_used() {
        let names = ghost_names(["read", "a.b", "a/b", "A_b", "..."]);
        assert_eq!(names.names, BTreeMap::from([("read".to_owned(), "read".to_owned())]));
        let clash = vec!["a.b".to_owned(), "a/b".to_owned(), "A_b".to_owned()];
        assert_eq!(names.clashes, BTreeMap::from([("a_b".to_owned(), clash)]));
        assert_eq!(names.impossible, ["..."]);
    }
}
