//! The shapes of bodies and records as JSON schemas: types and words are those of the contract's descriptors.
//!
//! Must never: say of a field what the contract does not.

use std::collections::BTreeMap;

use ghost_proto::FILE_DESCRIPTOR_SET;
use prost::Message as _;
use prost_types::field_descriptor_proto::{Label, Type};
use prost_types::{FieldDescriptorProto, FileDescriptorSet};
use serde_json::{Map, Value, json};

use super::route::Record;

/// Places of messages in a file and of fields in a message, as `descriptor.proto` numbers them.
const MESSAGES: i32 = 4;
const FIELDS: i32 = 2;

/// One message of the contract.
#[derive(Default)]
struct Shape {
    about: String,
    fields: Vec<(FieldDescriptorProto, String)>,
}

/// The messages of the contract by name.
pub(super) struct Shapes(BTreeMap<String, Shape>);

impl Shapes {
    /// Reads them from the descriptors. Those that cannot be read, which a test says there are none of, are without fields.
    pub(super) fn read() -> Self {
        let set = FileDescriptorSet::decode(FILE_DESCRIPTOR_SET).unwrap_or_default();
        let mut shapes = BTreeMap::new();
        for file in set.file {
            let info = file.source_code_info.unwrap_or_default();
            let said: BTreeMap<Vec<i32>, String> = info
                .location
                .into_iter()
                .filter_map(|place| Some((place.path, place.leading_comments.filter(|said| !said.is_empty())?)))
                .collect();
            let about = |path: &[i32]| {
                said.get(path).map(|said| said.split_whitespace().collect::<Vec<_>>().join(" ")).unwrap_or_default()
            };
            for (at, message) in (0_i32..).zip(file.message_type) {
                let name = message.name().to_owned();
                let fields = (0_i32..).zip(message.field);
                let fields =
                    fields.map(|(field_at, field)| (field, about(&[MESSAGES, at, FIELDS, field_at]))).collect();
                shapes.insert(name, Shape { about: about(&[MESSAGES, at]), fields });
            }
        }
        Self(shapes)
    }

    /// A body with these fields of a message.
    pub(super) fn body(&self, message: &str, fields: &[&str]) -> Value {
        let mut properties = Map::new();
        if let Some(shape) = self.0.get(message) {
            for (field, about) in shape.fields.iter().filter(|(field, _)| fields.contains(&field.name())) {
                properties.insert(field.name().to_owned(), described(of_field(field), about));
            }
        }
        json!({ "type": "object", "properties": properties, "additionalProperties": false })
    }

    /// A record: the keys that it has, with what the contract says of the fields that they are made from.
    pub(super) fn record(&self, record: Record) -> Value {
        let like = (record.like)();
        let mut properties = Map::new();
        for (key, value) in like.as_object().into_iter().flatten() {
            properties.insert(key.clone(), self.key(record.message, key, value));
        }
        let about = self.0.get(record.message).map(|shape| shape.about.clone()).unwrap_or_default();
        json!({ "type": "object", "description": about, "properties": properties })
    }

    fn key(&self, message: &str, key: &str, like: &Value) -> Value {
        for (field, about) in self.own_and_inner(message) {
            let name = field.name();
            if name == key {
                return described(of_field(field), about);
            }
            if name.strip_suffix("_ms") == Some(key) {
                let schema = json!({ "type": nullable("string", field), "format": "date-time" });
                // The contract has milliseconds, a record the instant itself.
                return described(schema, &about.replace(", in milliseconds since the Unix epoch", ""));
            }
            if name.strip_suffix("_json") == Some(key) {
                return described(json!({}), about);
            }
            if name.strip_suffix("_micros").is_some_and(|stem| key.strip_suffix("_usd") == Some(stem)) {
                return json!({ "type": nullable("number", field), "description": "In US dollars." });
            }
        }
        match like {
            Value::Bool(_) => json!({ "type": "boolean" }),
            Value::Number(_) => json!({ "type": "number" }),
            Value::String(_) => json!({ "type": "string" }),
            Value::Array(_) => json!({ "type": "array" }),
            Value::Null | Value::Object(_) => json!({}),
        }
    }

    /// The fields of a message, then those of the messages in it: a record may show them side by side.
    fn own_and_inner<'s>(&'s self, message: &str) -> impl Iterator<Item = &'s (FieldDescriptorProto, String)> {
        let own = self.0.get(message).map(|shape| shape.fields.as_slice()).unwrap_or_default();
        let one = |field: &&(FieldDescriptorProto, String)| {
            field.0.r#type() == Type::Message && field.0.label() != Label::Repeated
        };
        let inner =
            own.iter().filter(one).filter_map(move |(field, _)| self.0.get(field.type_name().rsplit('.').next()?));
        own.iter().chain(inner.flat_map(|shape| &shape.fields))
    }
}

/// The type of a field, alone or in a list; one that may be absent may be null.
fn of_field(field: &FieldDescriptorProto) -> Value {
    // A list that may be absent and empty.
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

fn described(mut schema: Value, about: &str) -> Value {
    if let Value::Object(schema) = &mut schema
        && !about.is_empty()
    {
        schema.insert("description".into(), about.into());
    }
    schema
}
