//! Knowledge and shared state as JSON objects.

use ghost_proto::v1;
use ghost_record::parsed;
use serde_json::{Value, json};

use crate::text::rfc3339;

/// A knowledge entry as JSON; lists leave out its text.
pub fn entry(entry: &v1::KnowledgeEntry, with_text: bool) -> Value {
    let mut object = json!({
        "entry_id": entry.entry_id,
        "title": entry.title,
        "tags": entry.tags,
        "readers": entry.readers,
        "writers": entry.writers,
        "version": entry.version,
        "creator": entry.creator,
        "updated_by": entry.updated_by,
        "created_at": rfc3339(entry.created_at_ms),
        "updated_at": rfc3339(entry.updated_at_ms),
        "deleted": entry.deleted,
    });
    if with_text {
        object["content"] = json!(entry.content);
    }
    object
}

/// An earlier version of a knowledge entry as JSON.
pub fn version(version: &v1::KnowledgeVersion) -> Value {
    json!({
        "version": version.version,
        "title": version.title,
        "content": version.content,
        "by": version.by,
        "at": rfc3339(version.at_ms),
    })
}

/// A value of the shared state as JSON text. The value is copied as written, so numbers keep all their digits.
pub fn state_text(entry: &v1::StateEntry) -> String {
    // Text that is not JSON becomes a string.
    let value = match parsed(&entry.value_json) {
        Value::Null => "null".to_owned(),
        Value::String(text) if text == entry.value_json => json!(text).to_string(),
        _ => entry.value_json.clone(),
    };
    let fields = [
        ("key", json!(entry.key).to_string()),
        ("value", value),
        ("version", entry.version.to_string()),
        ("writer", json!(entry.writer).to_string()),
        ("updated_at", json!(rfc3339(entry.updated_at_ms)).to_string()),
    ];
    let lines: Vec<String> = fields.iter().map(|(name, value)| format!("  \"{name}\": {value}")).collect();
    format!("{{\n{}\n}}", lines.join(",\n"))
}

/// Joins JSON texts to the text of one array.
pub fn array(items: impl Iterator<Item = String>) -> String {
    // JSON strings contain no raw line breaks, so indenting every line is safe.
    let items: Vec<String> = items.map(|item| format!("  {}", item.replace('\n', "\n  "))).collect();
    if items.is_empty() { "[]".to_owned() } else { format!("[\n{}\n]", items.join(",\n")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_keeps_its_form_and_no_record_has_a_field_named_id() {
        let written = |text: &str| state_text(&v1::StateEntry { value_json: text.into(), ..Default::default() });
        let value = |text: &str| serde_json::from_str::<Value>(&written(text)).unwrap();
        assert_eq!(value("{\"n\": [1]}")["value"], json!({ "n": [1] }));
        assert_eq!(value("\"calm\"")["value"], "calm");
        assert_eq!(value("null")["value"], Value::Null);
        assert_eq!((&value("{oops")["value"], &value("")["value"]), (&json!("{oops"), &Value::Null));
        let long = "12345678901234567890.123";
        assert!(written(long).contains(&format!("\"value\": {long},")));
        let list = array([written(long), written("[\n1]")].into_iter());
        assert!(list.contains(long) && serde_json::from_str::<Vec<Value>>(&list).unwrap().len() == 2, "{list}");
        assert_eq!(array(std::iter::empty()), "[]");
        let entry = entry(&v1::KnowledgeEntry { content: "c".into(), ..Default::default() }, true);
        assert_eq!(entry["content"], "c");
        for record in [entry, version(&Default::default()), value("1")] {
            assert!(record.get("id").is_none(), "{record}");
        }
    }
}
