//! JSON in one form, for hashes: two values that are equal must never have two forms.

use serde_json::Value;
use sha2::{Digest as _, Sha256};

/// The JSON of `value` without spaces and with sorted keys.
pub(crate) fn canonical(value: &Value) -> String {
    let mut text = String::new();
    write(value, &mut text);
    text
}

/// The SHA-256 of `text` in hexadecimal digits.
pub(crate) fn sha256(text: &str) -> String {
    hex::encode(Sha256::digest(text.as_bytes()))
}

/// The parser of JSON bounds the depth, and so the recursion.
fn write(value: &Value, text: &mut String) {
    match value {
        Value::Object(object) => {
            let mut entries: Vec<_> = object.iter().collect();
            entries.sort_unstable_by_key(|(key, _)| key.as_str());
            text.push('{');
            for (index, (key, value)) in entries.into_iter().enumerate() {
                if index > 0 {
                    text.push(',');
                }
                text.push_str(&Value::from(key.as_str()).to_string());
                text.push(':');
                write(value, text);
            }
            text.push('}');
        }
        Value::Array(items) => {
            text.push('[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    text.push(',');
                }
                write(item, text);
            }
            text.push(']');
        }
        scalar => text.push_str(&scalar.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_order_of_keys_does_not_matter_and_the_order_of_items_does() {
        let text = canonical(&json!({"b": [2, 1], "a": {"y": "\"", "x": null}}));
        assert_eq!(text, r#"{"a":{"x":null,"y":"\""},"b":[2,1]}"#);
    }

    #[test]
    fn the_hash_is_the_one_of_the_standard() {
        assert_eq!(sha256("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    }
}
