//! Reads `idempotency`: how calls that the daemon's death cut off are settled (V8 of the findings; promise 2).
//!
//! Nothing here may make a call repeatable that its manifest does not declare as such.

use std::collections::BTreeMap;
use std::fmt;

use schemars::{JsonSchema, json_schema};
use serde::Deserialize;
use serde::de::{self, Deserializer, Visitor};

use crate::kinds::{Text, schema};
use crate::plan::toolbox::{CommandTool, Idempotency, ResultForm, TrustedTool};
use crate::reader::Field;
use crate::typed::{Read, Spanned, choice, problem};

/// `idempotency` of a tool: `none`, `key`, `person`, or `{ ask: TOOL }`.
#[derive(Clone, Default)]
pub(super) struct Declared(pub(super) Idempotency);

schema!(Declared, generator => json_schema!({
    "anyOf": [{ "enum": ["none", "key", "person"] }, generator.subschema_for::<AskSection>()]
}));

/// `idempotency` as a map.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct AskSection {
    /// The tool that tells what became of a call.
    #[schemars(title = "tool")]
    ask: Option<Text<128>>,
}

impl<'de> Deserialize<'de> for Declared {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = Idempotency;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("write key, person, or { ask: order-status }")
            }

            fn visit_str<E: de::Error>(self, word: &str) -> Result<Idempotency, E> {
                choice(word, &["none", "key", "person"]).map_err(|(message, hint)| problem(message, hint))?;
                Ok(match word {
                    "key" => Idempotency::Key,
                    "person" => Idempotency::Person,
                    _ => Idempotency::None,
                })
            }

            fn visit_map<A: de::MapAccess<'de>>(self, map: A) -> Result<Idempotency, A::Error> {
                let asked = AskSection::deserialize(de::value::MapAccessDeserializer::new(map))?.ask;
                let missing = || problem("`ask` is missing", "for example `ask: order-status`");
                asked.map(|tool| Idempotency::Ask(tool.0)).ok_or_else(missing)
            }
        }
        deserializer.deserialize_newtype_struct("$text_or AskSection", Either).map(Self)
    }
}

/// The declarations for the tools of a server. Names that no trusted tool has are reported.
pub(super) fn of_server<T>(
    read: &Read<'_, T>,
    declarations: &BTreeMap<String, Spanned<Declared>>,
    trusted: &[TrustedTool],
) -> BTreeMap<String, Idempotency> {
    let mut found = BTreeMap::new();
    for (name, declared) in declarations {
        let asked = match &declared.0 {
            Idempotency::Ask(tool) => Some(tool.as_str()),
            Idempotency::Key | Idempotency::Person | Idempotency::None => None,
        };
        for named in asked.into_iter().chain([name.as_str()]) {
            // Before the first `toolbox trust`, no name is known.
            if !trusted.is_empty() && !trusted.iter().any(|tool| tool.tool == named) {
                read.at(declared).warn(
                    format!("no trusted tool of this server is called `{named}`"),
                    "see `ghostctl toolbox check NAME`",
                );
            }
        }
        found.insert(name.clone(), declared.0.clone());
    }
    found
}

/// Checks the declarations of commands: whether the tools that they ask exist, and can answer.
pub(super) fn check(tools: &[(&Field<'_>, CommandTool)]) {
    for (field, tool) in tools.iter().filter(|(_, tool)| tool.idempotency != Idempotency::None) {
        if matches!(tool.result, ResultForm::CodingAgent(_) | ResultForm::Acp(_)) {
            field.error("the run of a coding agent cannot be made again", "remove `idempotency`");
        }
        let Idempotency::Ask(asked) = &tool.idempotency else { continue };
        match tools.iter().find(|(_, other)| other.name == *asked) {
            None => field.error(
                format!("`idempotency.ask` names `{asked}`, and this toolbox has no such tool"),
                "name a tool of `tools`",
            ),
            Some((_, other)) if other.result != ResultForm::Json || !takes_call_id(other) => field.error(
                format!("`{asked}` cannot say what became of a call"),
                "it needs a parameter `call_id`, and `result: json` that prints { happened: true or false, result: ... }",
            ),
            Some(_) => {}
        }
    }
}

fn takes_call_id(tool: &CommandTool) -> bool {
    tool.parameters.get("properties").is_some_and(|known| known.get("call_id").is_some())
}
