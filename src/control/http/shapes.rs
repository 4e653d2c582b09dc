//! JSON schemas of bodies and records, from the types and comments of the proto descriptors.
//!
//! A schema must never state anything about a field that the contract does not state.

use std::collections::BTreeMap;

use ghost_proto::FILE_DESCRIPTOR_SET;
use prost::Message as _;
use prost_types::field_descriptor_proto::{Label, Type};
use prost_types::{FieldDescriptorProto, FileDescriptorSet};
use serde_json::{Map, Value, json};

use super::route::Record;

/// Field numbers of messages in a file, and of fields in a message, as `descriptor.proto` defines them.
const MESSAGES: i32 = 4;
const FIELDS: i32 = 2;

/// One message of the contract: its comment, and its fields with their comments.
#[derive(Default)]
struct Shape {
    comment: String,
    fields: Vec<(FieldDescriptorProto, String)>,
}

/// The messages of the contract by name.
pub(super) struct Shapes(BTreeMap<String, Shape>);

impl Shapes {
    /// Reads the descriptors. A test checks that they can be decoded.
    pub(super) fn read() -> Self {
        let set = FileDescriptorSet::decode(FILE_DESCRIPTOR_SET).unwrap_or_default();
        let mut shapes = BTreeMap::new();
        for file in set.file {
            let info = file.source_code_info.unwrap_or_default();
            let comments: BTreeMap<Vec<i32>, String> = info
                .location
                .into_iter()
                .filter_map(|location| {
                    Some((location.path, location.leading_comments.filter(|comments| !comments.is_empty())?))
                })
                .collect();
            let comment = |path: &[i32]| {
                comments
                    .get(path)
                    .map(|comments| comments.split_whitespace().collect::<Vec<_>>().join(" "))
                    .unwrap_or_default()
            };
            for (at, message) in (0_i32..).zip(file.message_type) {
                let name = message.name().to_owned();
                let fields = (0_i32..).zip(message.field);
                let fields =
                    fields.map(|(field_at, field)| (field, comment(&[MESSAGES, at, FIELDS, field_at]))).collect();
                shapes.insert(name, Shape { comment: comment(&[MESSAGES, at]), fields });
            }
        }
        Self(shapes)
    }

    /// The schema of a body with these fields of a message.
    pub(super) fn body(&self, message: &str, fields: &[&str]) -> Value {
        let mut properties = Map::new();
        if let Some(shape) = self.0.get(message) {
            for (field, comment) in &shape.fields {
                // What the contract has as JSON text is an object here.
                let (name, schema) = match field.name().strip_suffix("_json") {
                    Some(name) => (name, json!({ "type": "object" })),
                    None => (field.name(), schema_of(field)),
                };
                if fields.contains(&name) {
                    properties.insert(name.to_owned(), with_description(schema, comment));
                }
            }
        }
        json!({ "type": "object", "properties": properties, "additionalProperties": false })
    }

    /// The schema of a record: its keys, with the contract's comments on the fields behind them.
    pub(super) fn record(&self, record: Record) -> Value {
        let example = (record.example)();
        let mut properties = Map::new();
        for (key, value) in example.as_object().into_iter().flatten() {
            properties.insert(key.clone(), self.key(record.message, key, value));
        }
        let comment = self.0.get(record.message).map(|shape| shape.comment.clone()).unwrap_or_default();
        json!({ "type": "object", "description": comment, "properties": properties })
    }

    fn key(&self, message: &str, key: &str, example: &Value) -> Value {
        for (field, comment) in self.fields_and_nested(message) {
            let name = field.name();
            if name == key {
                return with_description(schema_of(field), comment);
            }
            if name.strip_suffix("_ms") == Some(key) {
                let schema = json!({ "type": nullable("string", field), "format": "date-time" });
                // The contract has milliseconds where the record has an RFC 3339 time.
                return with_description(schema, &comment.replace(", in milliseconds since the Unix epoch", ""));
            }
            if name.strip_suffix("_json") == Some(key) {
                return with_description(json!({}), comment);
            }
            if name.strip_suffix("_micros").is_some_and(|stem| key.strip_suffix("_usd") == Some(stem)) {
                return json!({ "type": nullable("number", field), "description": "In US dollars." });
            }
        }
        match example {
            Value::Bool(_) => json!({ "type": "boolean" }),
            Value::Number(_) => json!({ "type": "number" }),
            Value::String(_) => json!({ "type": "string" }),
            Value::Array(_) => json!({ "type": "array" }),
            Value::Null | Value::Object(_) => json!({}),
        }
    }

    /// The fields of a message, then those of the messages in it, because a record may flatten them.
    fn fields_and_nested<'s>(&'s self, message: &str) -> impl Iterator<Item = &'s (FieldDescriptorProto, String)> {
        let own = self.0.get(message).map(|shape| shape.fields.as_slice()).unwrap_or_default();
        let is_single_message = |field: &&(FieldDescriptorProto, String)| {
            field.0.r#type() == Type::Message && field.0.label() != Label::Repeated
        };
        let inner = own
            .iter()
            .filter(is_single_message)
            .filter_map(move |(field, _)| self.0.get(field.type_name().rsplit('.').next()?));
        own.iter().chain(inner.flat_map(|shape| &shape.fields))
    }
}

/// The JSON type of a field. An optional field may be null.
fn schema_of(field: &FieldDescriptorProto) -> Value {
    // A list that may be absent as well as empty.
    if field.type_name().ends_with(".TaskIds") {
        return json!({ "type": ["array", "null"], "items": { "type": "string" } });
    }
    let name = match field.r#type() {
        Type::String | Type::Bytes | Type::Enum => "string",
        Type::Bool => "boolean",
        Type::Double | Type::Float => "number",
        Type::Message | Type::Group => "object",
        _ => "integer",
    };
    match field.label() {
        Label::Repeated => json!({ "type": "array", "items": { "type": name } }),
        _ => json!({ "type": nullable(name, field) }),
    }
}

fn nullable(name: &str, field: &FieldDescriptorProto) -> Value {
    if field.proto3_optional() { json!([name, "null"]) } else { json!(name) }
}

fn with_description(mut schema: Value, comment: &str) -> Value {
    if let Value::Object(schema) = &mut schema
        && !comment.is_empty()
    {
        schema.insert("description".into(), comment.into());
    }
    schema
}
