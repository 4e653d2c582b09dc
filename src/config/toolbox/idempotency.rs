//! Reads `idempotency`: how calls that the daemon's death cut off are settled (V8 of the findings; promise 2).
//!
//! Nothing here may make a call repeatable that its manifest does not declare as such.

use std::collections::BTreeMap;

use crate::plan::toolbox::{CommandTool, Idempotency, ResultForm};
use crate::reader::{Field, Map};

/// What the field should be.
const SUCH_AS: &str = "key, or { ask: order-status }";

/// Reads one declaration: `none`, `key`, or `{ ask: TOOL }`.
pub(super) fn idempotency(field: &Field<'_>) -> Idempotency {
    if field.is_single() {
        return match field.choice(&["none", "key"]) {
            Some("key") => Idempotency::Key,
            _ => Idempotency::None,
        };
    }
    let Some(map) = field.map_of(SUCH_AS) else { return Idempotency::None };
    let tool = map.need("ask", "order-status").and_then(|field| field.text(128)).map(str::to_owned);
    map.finish(&[("tool", "write `ask`"), ("key", "write `idempotency: key`")]);
    tool.map_or(Idempotency::None, Idempotency::Ask)
}

/// Reads the declarations for the tools of a server.
pub(super) fn of_server(map: &Map<'_>) -> BTreeMap<String, Idempotency> {
    let Some(field) = map.get("idempotency") else { return BTreeMap::new() };
    field.entries().into_iter().map(|(key, field)| (key.text.clone(), idempotency(&field))).collect()
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
