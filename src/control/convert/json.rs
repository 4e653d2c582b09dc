//! JSON in which no object names a key twice. What most readers make of a repeated key is its last value, in silence: half
//! of what was asked for would be gone.

use std::collections::BTreeSet;
use std::fmt;

use ghost_domain::shared_state::why_unread;
use ghost_domain::text::clip;
use serde::Deserialize;
use serde::de::{Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

/// Reads one JSON text.
///
/// # Errors
/// When it is no JSON, has a number beyond what is kept, or an object in it repeats a key; the message says which and where.
pub(super) fn strict(text: &str) -> Result<Value, String> {
    serde_json::from_str::<Once>(text).map_err(|error| match error.classify() {
        serde_json::error::Category::Data => error.to_string(),
        _ => why_unread(&error),
    })?;
    serde_json::from_str(text).map_err(|error| why_unread(&error))
}

/// Any JSON whose objects name each key once. Keeps nothing.
struct Once;

impl<'de> Deserialize<'de> for Once {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Look)
    }
}

struct Look;

impl<'de> Visitor<'de> for Look {
    type Value = Once;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_bool<E>(self, _: bool) -> Result<Once, E> {
        Ok(Once)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Once, E> {
        Ok(Once)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Once, E> {
        Ok(Once)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Once, E> {
        Ok(Once)
    }

    fn visit_str<E>(self, _: &str) -> Result<Once, E> {
        Ok(Once)
    }

    fn visit_unit<E>(self) -> Result<Once, E> {
        Ok(Once)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Once, A::Error> {
        while items.next_element::<Once>()?.is_some() {}
        Ok(Once)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Once, A::Error> {
        let mut seen = BTreeSet::new();
        while let Some(key) = fields.next_key::<String>()? {
            if seen.contains(&key) {
                fields.next_value::<IgnoredAny>()?;
                return Err(A::Error::custom(format_args!("gives the key `{}` twice", clip(&key, 80))));
            }
            fields.next_value::<Once>()?;
            seen.insert(key);
        }
        Ok(Once)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn a_key_given_twice_is_told_wherever_it_is() {
        for text in
            [r#"{"path":"a","path":"b"}"#, r#"{"x":[{"path":1,"y":2,"path":1}]}"#, r#"{"p\u0061th":1,"path":2}"#]
        {
            let told = strict(text).unwrap_err();
            assert!(told.starts_with("gives the key `path` twice at line 1"), "{told}");
        }
        assert_eq!(strict(r#"{"a":{"x":1},"b":{"x":1}}"#).unwrap(), json!({ "a": { "x": 1 }, "b": { "x": 1 } }));
        assert!(strict("{").unwrap_err().starts_with("is not JSON: "));
        assert!(strict(&"[".repeat(100_000)).unwrap_err().starts_with("is not JSON: "));
    }

    proptest! {
        #[test]
        fn what_has_no_key_twice_is_read_as_ever(text in r#"[\[\]{}",:0-9a-z.eE+-]{0,40}"#) {
            let usual: Result<Value, _> = serde_json::from_str(&text);
            match strict(&text) {
                Ok(value) => prop_assert_eq!(value, usual.unwrap()),
                Err(told) => prop_assert!(usual.is_err() || told.contains("twice"), "{told}"),
            }
        }
    }
}
