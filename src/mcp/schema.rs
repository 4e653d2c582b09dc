//! Schemas of a server. A schema that passes can be given to a model and to a validator.
//!
//! The check must never follow a reference: references may be cyclic, and a remote one would reach the network.

use serde_json::{Map, Value};

/// Largest size of a schema, in bytes of its JSON.
pub const SCHEMA_BYTES_MAX: usize = 64 * 1_024;
/// Deepest nesting of a schema; the root is 1.
pub const SCHEMA_DEPTH_MAX: usize = 32;
/// Keywords whose value is a reference.
const REFERENCES: [&str; 3] = ["$ref", "$dynamicRef", "$recursiveRef"];

/// Why a schema is not used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SchemaProblem {
    /// Arguments are an object, so the root has to be one.
    #[error("the schema is not of `type: object`")]
    NotAnObject,
    /// It is too large.
    #[error("the schema has {bytes} bytes, more than {SCHEMA_BYTES_MAX}")]
    TooLarge {
        /// Its size.
        bytes: usize,
    },
    /// It is nested too deeply.
    #[error("the schema is nested more than {SCHEMA_DEPTH_MAX} deep")]
    TooDeep,
    /// It refers to another document.
    #[error("the schema refers to another document: {target}")]
    Remote {
        /// The reference, shortened.
        target: String,
    },
}

/// Checks the schema of arguments: an object at its root, at most [`SCHEMA_BYTES_MAX`] and [`SCHEMA_DEPTH_MAX`], and
/// no reference to another document. References within the schema are allowed, also cyclic ones.
///
/// # Errors
/// The first problem.
pub fn check_schema(schema: &Value) -> Result<(), SchemaProblem> {
    let Some(root) = schema.as_object() else { return Err(SchemaProblem::NotAnObject) };
    if root.get("type").and_then(Value::as_str) != Some("object") {
        return Err(SchemaProblem::NotAnObject);
    }
    walk(schema, 1)?;
    let bytes = schema.to_string().len();
    if bytes > SCHEMA_BYTES_MAX { Err(SchemaProblem::TooLarge { bytes }) } else { Ok(()) }
}

/// The depth bounds the recursion.
fn walk(value: &Value, depth: usize) -> Result<(), SchemaProblem> {
    match value {
        Value::Object(_) | Value::Array(_) if depth > SCHEMA_DEPTH_MAX => Err(SchemaProblem::TooDeep),
        Value::Object(object) => {
            local(object)?;
            object.values().try_for_each(|value| walk(value, depth + 1))
        }
        Value::Array(items) => items.iter().try_for_each(|value| walk(value, depth + 1)),
        _ => Ok(()),
    }
}

/// A property can have the name `$ref`. Its value is a schema then, and no text.
fn local(object: &Map<String, Value>) -> Result<(), SchemaProblem> {
    let targets = REFERENCES.iter().filter_map(|keyword| object.get(*keyword)).filter_map(Value::as_str);
    match targets.into_iter().find(|target| !target.starts_with('#')) {
        Some(target) => Err(SchemaProblem::Remote { target: crate::limits::shown(target) }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn nested(depth: usize) -> Value {
        (1..depth).fold(json!({}), |inner, _| json!({ "not": inner }))
    }

    #[test]
    fn a_schema_is_an_object_at_its_root() {
        assert_eq!(check_schema(&json!({"type": "object", "properties": {"a": {"type": "string"}}})), Ok(()));
        for schema in [json!(true), json!({}), json!({"type": "string"}), json!({"type": ["object"]}), json!([])] {
            assert_eq!(check_schema(&schema), Err(SchemaProblem::NotAnObject), "{schema}");
        }
    }

    #[test]
    fn a_reference_to_another_document_is_refused_and_a_local_one_is_not() {
        let with = |target: &str| json!({"type": "object", "properties": {"a": {"$ref": target}}});
        for target in ["#", "#/$defs/a", "#a"] {
            assert_eq!(check_schema(&with(target)), Ok(()), "{target}");
        }
        for target in ["https://evil.example/s.json", "file:///etc/passwd", "other.json", "//evil.example", ""] {
            let problem = SchemaProblem::Remote { target: target.to_owned() };
            assert_eq!(check_schema(&with(target)), Err(problem), "{target}");
        }
        assert_eq!(check_schema(&json!({"type": "object", "properties": {"$ref": {"type": "string"}}})), Ok(()));
    }

    #[test]
    fn a_cyclic_schema_is_checked_without_following_it() {
        let schema =
            json!({"type": "object", "properties": {"next": {"$ref": "#"}}, "$defs": {"a": {"$ref": "#/$defs/a"}}});
        assert_eq!(check_schema(&schema), Ok(()));
    }

    #[test]
    fn depth_and_size_are_bounded() {
        let schema = |inner: Value| json!({"type": "object", "not": inner});
        assert_eq!(check_schema(&schema(nested(SCHEMA_DEPTH_MAX - 1))), Ok(()));
        assert_eq!(check_schema(&schema(nested(SCHEMA_DEPTH_MAX))), Err(SchemaProblem::TooDeep));
        let large = schema(json!({"description": "x".repeat(SCHEMA_BYTES_MAX)}));
        assert!(matches!(check_schema(&large), Err(SchemaProblem::TooLarge { bytes }) if bytes > SCHEMA_BYTES_MAX));
    }
}
