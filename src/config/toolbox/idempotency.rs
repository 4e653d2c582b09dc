//! Reads `idempotency`: how calls that the daemon's death cut off are settled (V8 of the findings; promise 2).
//!
//! Nothing here may make a call repeatable that its manifest does not declare as such.

use std::collections::BTreeMap;

use crate::plan::toolbox::{CommandTool, Idempotency, ResultForm, TrustedTool};
use crate::reader::{Field, Map};

/// What the field should be.
const SUCH_AS: &str = "key, person, or { ask: order-status }";

/// Reads one declaration: `none`, `key`, `person`, or `{ ask: TOOL }`.
pub(super) fn idempotency(field: &Field<'_>) -> Idempotency {
    if field.is_single() {
        return match field.choice(&["none", "key", "person"]) {
            Some("key") => Idempotency::Key,
            Some("person") => Idempotency::Person,
            _ => Idempotency::None,
        };
    }
    let Some(map) = field.map_of(SUCH_AS) else { return Idempotency::None };
    let tool = map.need("ask", "order-status").and_then(|field| field.text(128)).map(str::to_owned);
    map.finish(&[("tool", "write `ask`"), ("key", "write `idempotency: key`")]);
    tool.map_or(Idempotency::None, Idempotency::Ask)
}

/// Reads the declarations for the tools of a server.
pub(super) fn of_server(map: &Map<'_>, trusted: &[TrustedTool]) -> BTreeMap<String, Idempotency> {
    let Some(field) = map.get("idempotency") else { return BTreeMap::new() };
    let mut found = BTreeMap::new();
    for (key, field) in field.entries() {
        let declared = idempotency(&field);
        let asked = match &declared {
            Idempotency::Ask(tool) => Some(tool.as_str()),
            Idempotency::Key | Idempotency::Person | Idempotency::None => None,
        };
        for name in asked.into_iter().chain([key.text.as_str()]) {
            // Before the first `toolbox trust`, no name is known.
            if !trusted.is_empty() && !trusted.iter().any(|tool| tool.tool == name) {
                field.warn(
                    format!("no trusted tool of this server is called `{name}`"),
                    "see `ghostctl toolbox check NAME`",
                );
            }
        }
        found.insert(key.text.clone(), declared);
    }
    found
}

/// Checks the declarations of commands: whether the tools that they ask exist, and can answer.
pub(super) fn check(tools: &[(Field<'_>, CommandTool)]) {
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
