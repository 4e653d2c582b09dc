//! `let:`, the named sub-expressions of a rule file and of its rules.
//!
//! Must never: evaluate one that nothing uses. What a definition looks at may not be there yet when another rule is tried.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use minijinja::Value as Jinja;
use minijinja::value::merge_maps;
use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::Value;

use super::template::{Expr, Templates};

/// Most definitions in one place.
pub(super) const LETS_MAX: usize = 200;

/// Definitions as they are written, in order, doubles and all.
#[derive(Default)]
pub(super) struct RawLets(pub(super) Vec<(String, Value)>);

impl<'de> Deserialize<'de> for RawLets {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Pairs;

        impl<'de> Visitor<'de> for Pairs {
            type Value = RawLets;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("names and their expressions")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<RawLets, A::Error> {
                let mut pairs = Vec::new();
                while let Some(pair) = map.next_entry()? {
                    pairs.push(pair);
                }
                Ok(RawLets(pairs))
            }
        }

        deserializer.deserialize_map(Pairs)
    }
}

/// One definition.
#[derive(Clone)]
pub(super) struct Let {
    pub(super) name: String,
    pub(super) expression: Expr,
    /// The definitions above it that it uses.
    pub(super) uses: BTreeSet<String>,
}

/// Those of `all` that `used` names, and those that they use, in order. Names are used only below their definition, so
/// one look from the end finds them all.
pub(super) fn needed(all: &[Let], used: &BTreeSet<String>) -> Vec<Let> {
    let mut wanted = used.clone();
    let mut found = Vec::new();
    for definition in all.iter().rev() {
        if wanted.contains(&definition.name) {
            wanted.extend(definition.uses.iter().cloned());
            found.push(definition.clone());
        }
    }
    found.reverse();
    found
}

/// The context with what the definitions come to, each evaluated once, in order.
pub(super) fn known(lets: &[Let], templates: &Templates, mut context: Jinja) -> Result<Jinja, String> {
    for definition in lets {
        let value = templates
            .value(&definition.expression, &context)
            .map_err(|error| format!("in `let` of `{}`: {error}", definition.name))?;
        let one = BTreeMap::from([(Jinja::from(definition.name.as_str()), value)]);
        context = merge_maps([Jinja::from_object(one), context]);
    }
    Ok(context)
}
