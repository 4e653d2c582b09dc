//! Parses JSON and refuses repeated keys. Most parsers silently keep the last value of a repeated key,
//! so a part of the request would be lost.

use std::collections::BTreeSet;
use std::fmt;

use ghost_domain::shared_state::why_unread;
use ghost_domain::text::clip;
use serde::Deserialize;
use serde::de::{Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

/// Parses one JSON text.
///
/// # Errors
/// If the text is not JSON, contains a number that cannot be stored, or repeats a key in an object. The
/// message says which and where.
pub(super) fn strict(text: &str) -> Result<Value, String> {
    serde_json::from_str::<UniqueKeys>(text).map_err(|error| match error.classify() {
        serde_json::error::Category::Data => error.to_string(),
        _ => why_unread(&error),
    })?;
    serde_json::from_str(text).map_err(|error| why_unread(&error))
}

/// Accepts any JSON whose objects have no repeated keys. Keeps no values.
struct UniqueKeys;

impl<'de> Deserialize<'de> for UniqueKeys {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(UniqueKeysVisitor)
    }
}

struct UniqueKeysVisitor;

impl<'de> Visitor<'de> for UniqueKeysVisitor {
    type Value = UniqueKeys;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_bool<E>(self, _: bool) -> Result<UniqueKeys, E> {
        Ok(UniqueKeys)
    }

    fn visit_i64<E>(self, _: i64) -> Result<UniqueKeys, E> {
        Ok(UniqueKeys)
    }

    fn visit_u64<E>(self, _: u64) -> Result<UniqueKeys, E> {
        Ok(UniqueKeys)
    }

    fn visit_f64<E>(self, _: f64) -> Result<UniqueKeys, E> {
        Ok(UniqueKeys)
    }

    fn visit_str<E>(self, _: &str) -> Result<UniqueKeys, E> {
        Ok(UniqueKeys)
    }

    fn visit_unit<E>(self) -> Result<UniqueKeys, E> {
        Ok(UniqueKeys)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<UniqueKeys, A::Error> {
        while items.next_element::<UniqueKeys>()?.is_some() {}
        Ok(UniqueKeys)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<UniqueKeys, A::Error> {
        let mut seen = BTreeSet::new();
        while let Some(key) = fields.next_key::<String>()? {
            if seen.contains(&key) {
                fields.next_value::<IgnoredAny>()?;
                return Err(A::Error::custom(format_args!("gives the key `{}` twice", clip(&key, 80))));
            }
            fields.next_value::<UniqueKeys>()?;
            seen.insert(key);
        }
        Ok(UniqueKeys)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn a_repeated_key_is_reported_at_any_depth() {
        for text in
            [r#"{"path":"a","path":"b"}"#, r#"{"x":[{"path":1,"y":2,"path":1}]}"#, r#"{"p\u0061th":1,"path":2}"#]
        {
            let message = strict(text).unwrap_err();
            assert!(message.contains("`path`") && message.contains("line 1"), "{message}");
        }
        assert_eq!(strict(r#"{"a":{"x":1},"b":{"x":1}}"#).unwrap(), json!({ "a": { "x": 1 }, "b": { "x": 1 } }));
        assert!(strict("{").is_err());
        assert!(strict(&"[".repeat(100_000)).is_err());
    }

    proptest! {
        #[test]
        fn json_without_repeated_keys_parses_as_usual(text in r#"[\[\]{}",:0-9a-z.eE+-]{0,40}"#) {
            let lenient: Result<Value, _> = serde_json::from_str(&text);
            match strict(&text) {
                Ok(value) => prop_assert_eq!(value, lenient.unwrap()),
                Err(message) => prop_assert!(lenient.is_err() || message.contains("twice"), "{message}"),
            }
        }
    }
}
