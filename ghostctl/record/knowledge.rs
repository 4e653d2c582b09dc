//! Knowledge and shared state as JSON objects.

use ghost_proto::v1;
use serde_json::{Value, json};

use super::parsed;
use crate::text::rfc3339;

/// An entry; in lists without its text.
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

/// An earlier version of an entry.
pub fn version(version: &v1::KnowledgeVersion) -> Value {
    json!({
        "version": version.version,
        "title": version.title,
        "content": version.content,
        "by": version.by,
        "at": rfc3339(version.at_ms),
    })
}

/// A value of the shared state.
pub fn state(entry: &v1::StateEntry) -> Value {
    json!({
        "key": entry.key,
        "value": parsed(&entry.value_json),
        "version": entry.version,
        "writer": entry.writer,
        "updated_at": rfc3339(entry.updated_at_ms),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_keeps_its_shape_and_no_record_has_a_bare_id() {
        let value = |text: &str| state(&v1::StateEntry { value_json: text.into(), ..Default::default() });
        assert_eq!(value("{\"n\": [1]}")["value"], json!({ "n": [1] }));
        assert_eq!(value("\"calm\"")["value"], "calm");
        assert_eq!(value("null")["value"], Value::Null);
        let entry = entry(&v1::KnowledgeEntry { content: "c".into(), ..Default::default() }, true);
        assert_eq!(entry["content"], "c");
        for record in [entry, version(&Default::default()), value("1")] {
            assert!(record.get("id").is_none(), "{record}");
        }
    }
}
