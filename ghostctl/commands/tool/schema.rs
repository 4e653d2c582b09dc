//! What a tool takes, for people: its parameters one a line, from its JSON schema.
//!
//! Must never: leave a parameter out because its schema is unusual.

use serde_json::Value;

use crate::text::one_line;

/// A tool with its description and its parameters: `{name, description, parameters}`.
pub fn told(tool: &Value) -> String {
    let text = |name: &str| tool[name].as_str().unwrap_or_default();
    let mut told = format!("{}\n", text("name"));
    for line in text("description").lines() {
        told.push_str(&format!("  {line}\n"));
    }
    let schema = &tool["parameters"];
    let required: Vec<&str> = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    for (name, parameter) in schema["properties"].as_object().into_iter().flatten() {
        let needed = if required.contains(&name.as_str()) { ", required" } else { "" };
        let about = parameter["description"].as_str().unwrap_or_default();
        let about = if about.is_empty() { String::new() } else { format!("  {}", one_line(about, usize::MAX - 1)) };
        told.push_str(&format!("  - {name} ({}{needed}){about}\n", sort(parameter, schema, 0)));
    }
    told
}

/// References and alternatives are followed no further.
const DEEPEST: usize = 4;

/// The sort of a value: `string`, `integer, 1 to 9`, `"a" or "b"`, `array of string`.
fn sort(schema: &Value, whole: &Value, depth: usize) -> String {
    if let Some(name) = schema["$ref"].as_str().and_then(|path| path.rsplit('/').next()).filter(|_| depth < DEEPEST) {
        return sort(&whole["$defs"][name], whole, depth + 1);
    }
    if let Some(value) = schema.get("const") {
        return value.to_string();
    }
    if let Some(values) = schema["enum"].as_array() {
        return values.iter().filter(|value| !value.is_null()).map(Value::to_string).collect::<Vec<_>>().join(" or ");
    }
    for alternatives in ["anyOf", "oneOf"] {
        if let Some(sorts) = schema[alternatives].as_array().filter(|_| depth < DEEPEST) {
            let mut sorts: Vec<String> = sorts.iter().map(|one| sort(one, whole, depth + 1)).collect();
            sorts.retain(|sort| sort != "null");
            return sorts.join(" or ");
        }
    }
    let sorts = match &schema["type"] {
        Value::String(sort) => sort.clone(),
        Value::Array(sorts) => {
            let sorts: Vec<&str> = sorts.iter().filter_map(Value::as_str).filter(|sort| *sort != "null").collect();
            sorts.join(" or ")
        }
        _ => "any value".to_owned(),
    };
    let of = match schema.get("items") {
        Some(items) if depth < DEEPEST => format!(" of {}", sort(items, whole, depth + 1)),
        _ => String::new(),
    };
    // The last number that a machine can count to says nothing to a person.
    let most = schema.get("maximum").filter(|most| most.as_u64().is_none_or(|most| most < u32::MAX.into()));
    let bounds = match (schema.get("minimum"), most) {
        (Some(least), Some(most)) => format!(", {least} to {most}"),
        (Some(least), None) => format!(", {least} or more"),
        (None, Some(most)) => format!(", at most {most}"),
        (None, None) => String::new(),
    };
    let default = match schema.get("default") {
        Some(default) if !default.is_null() => format!(", {default} by default"),
        _ => String::new(),
    };
    format!("{sorts}{of}{bounds}{default}")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_parameter_is_told() {
        let tool = json!({ "name": "t", "description": "Does it.\nWell.", "parameters": {
            "required": ["path"],
            "$defs": { "Scope": { "enum": ["agent", "world"] } },
            "properties": {
                "path": { "type": "string", "description": "Where\nto look" },
                "depth": { "type": ["integer", "null"], "minimum": 1, "maximum": 9, "default": 3 },
                "scope": { "anyOf": [{ "$ref": "#/$defs/Scope" }, { "type": "null" }] },
                "tags": { "type": "array", "items": { "type": "string" } },
                "odd": true,
            },
        } });
        let told = told(&tool);
        let mut lines: Vec<&str> = told.lines().collect();
        assert_eq!(lines.drain(..3).collect::<Vec<_>>(), ["t", "  Does it.", "  Well."]);
        lines.sort_unstable();
        let wanted = [
            "  - depth (integer, 1 to 9, 3 by default)",
            "  - odd (any value)",
            "  - path (string, required)  Where to look",
            "  - scope (\"agent\" or \"world\")",
            "  - tags (array of string)",
        ];
        assert_eq!(lines, wanted);
    }
}
