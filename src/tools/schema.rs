//! JSON schemas of parameters, in the plain form that every provider takes: nothing referred to, nothing nullable,
//! nothing that only costs tokens.

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

/// The schema of `P`: an object that takes no unknown members.
pub(crate) fn of<P: JsonSchema>() -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| settings.inline_subschemas = true);
    let mut schema = settings.into_generator().into_root_schema_for::<P>().to_value();
    if let Some(object) = schema.as_object_mut() {
        for costly in ["$schema", "title", "description"] {
            object.remove(costly);
        }
        if let Some(properties) = object.get_mut("properties").and_then(Value::as_object_mut) {
            properties.values_mut().for_each(plain);
        }
        object.entry("type").or_insert_with(|| "object".into());
        object.entry("properties").or_insert_with(|| json!({}));
        object.insert("additionalProperties".into(), Value::Bool(false));
    }
    schema
}

/// An optional parameter is one that may be left out; that it may be null besides is said nowhere (see
/// [`crate::tool::Tool::normalise`]).
fn plain(schema: &mut Value) {
    let Some(object) = schema.as_object_mut() else { return };
    object.remove("format");
    if object.get("default").is_some_and(Value::is_null) {
        object.remove("default");
    }
    if let Some(Value::Array(values)) = object.get_mut("enum") {
        values.retain(|value| !value.is_null());
    }
    if let Some(Value::Array(types)) = object.get_mut("type") {
        types.retain(|name| name != "null");
        if let [only] = types.as_slice() {
            let only = only.clone();
            object.insert("type".into(), only);
        }
    }
    if let Some(Value::Array(choices)) = object.get("anyOf") {
        let mut real = choices.iter().filter(|choice| choice.get("type").is_none_or(|name| name != "null"));
        if let (Some(Value::Object(only)), None) = (real.next(), real.next()) {
            let only: Map<String, Value> = only.clone();
            object.remove("anyOf");
            for (key, value) in only {
                object.entry(key).or_insert(value);
            }
        }
    }
    if let Some(items) = object.get_mut("items") {
        plain(items);
    }
    if let Some(Value::Object(members)) = object.get_mut("properties") {
        members.values_mut().for_each(plain);
    }
}
