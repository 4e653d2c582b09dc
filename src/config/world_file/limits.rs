//! `limits`: the limits of a world by name, each within its own range.

use ghost_domain::Limits;
use schemars::json_schema;
use serde::Deserialize;
use serde::de::{self, Deserializer, MapAccess, Visitor};

use crate::kinds::{Range, schema};

/// `limits`, each within its own range.
#[derive(Default)]
pub struct LimitsByName(pub Limits);

schema!(LimitsByName, _ => {
    let one = |((name, default, least, most), meaning): ((&str, _, _, _), &str)| {
        let schema = serde_json::json!({
            "description": meaning, "type": "integer", "default": default, "minimum": least, "maximum": most
        });
        (name.to_owned(), schema)
    };
    let limits = Limits::default().table().into_iter().zip(Limits::meanings());
    let properties: serde_json::Map<_, _> = limits.map(one).collect();
    json_schema!({ "type": "object", "properties": properties, "additionalProperties": false })
});

impl<'de> Deserialize<'de> for LimitsByName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Bounds;
        impl<'de> Visitor<'de> for Bounds {
            type Value = Limits;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("limits")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Limits, A::Error> {
                let mut values = serde_json::Map::new();
                while let Some(LimitName(name, range)) = map.next_key()? {
                    values.insert(name.to_owned(), map.next_value_seed(range)?.into());
                }
                serde_json::from_value(values.into()).map_err(de::Error::custom)
            }
        }
        deserializer.deserialize_struct("Limits", &[], Bounds).map(Self)
    }
}

struct LimitName(&'static str, Range);

impl<'de> Deserialize<'de> for LimitName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        static NAMES: std::sync::LazyLock<Vec<&str>> =
            std::sync::LazyLock::new(|| Limits::default().table().iter().map(|(name, ..)| *name).collect());
        let key = String::deserialize(deserializer)?;
        let range = Limits::default().table().into_iter().find(|(name, ..)| *name == key);
        range
            .map(|(name, _, least, most)| Self(name, Range(least, most)))
            .ok_or_else(|| de::Error::unknown_field(&key, &NAMES))
    }
}
