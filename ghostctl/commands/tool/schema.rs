//! The description of a tool as text, with one line for each parameter of its JSON schema.
//!
//! A parameter must never be omitted because its schema is unusual.

use serde_json::Value;

use crate::text::one_line;

/// Formats a tool `{name, description, parameters}` with its parameters.
pub fn description(tool: &Value) -> String {
    let text = |name: &str| tool[name].as_str().unwrap_or_default();
    let mut lines = format!("{}\n", text("name"));
    for line in text("description").lines() {
        lines.push_str(&format!("  {line}\n"));
    }
    let schema = &tool["parameters"];
    let required: Vec<&str> = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    for (name, parameter) in schema["properties"].as_object().into_iter().flatten() {
        let needed = if required.contains(&name.as_str()) { ", required" } else { "" };
        let about = parameter["description"].as_str().unwrap_or_default();
        let about = if about.is_empty() { String::new() } else { format!("  {}", one_line(about, usize::MAX - 1)) };
        lines.push_str(&format!("  - {name} ({}{needed}){about}\n", type_text(parameter, schema, 0)));
    }
    lines
}

/// References, alternatives and array items are followed to this depth.
const DEPTH_MAX: usize = 4;

/// The type of a value, such as `string`, `integer, 1 to 9`, `"a" or "b"` or `array of string`.
fn type_text(schema: &Value, whole: &Value, depth: usize) -> String {
    if let Some(name) = schema["$ref"].as_str().and_then(|path| path.rsplit('/').next()).filter(|_| depth < DEPTH_MAX) {
        return type_text(&whole["$defs"][name], whole, depth + 1);
    }
    if let Some(value) = schema.get("const") {
        return value.to_string();
    }
    if let Some(values) = schema["enum"].as_array() {
        return values.iter().filter(|value| !value.is_null()).map(Value::to_string).collect::<Vec<_>>().join(" or ");
    }
    for alternatives in ["anyOf", "oneOf"] {
        if let Some(sorts) = schema[alternatives].as_array().filter(|_| depth < DEPTH_MAX) {
            let mut sorts: Vec<String> = sorts.iter().map(|one| type_text(one, whole, depth + 1)).collect();
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
        Some(items) if depth < DEPTH_MAX => format!(" of {}", type_text(items, whole, depth + 1)),
        _ => String::new(),
    };
    // The largest number of an integer type is no useful limit for a reader.
    let maximum = schema.get("maximum").filter(|value| value.as_u64().is_none_or(|value| value < u32::MAX.into()));
    let bounds = match (schema.get("minimum"), maximum) {
        (Some(min), Some(max)) => format!(", {min} to {max}"),
        (Some(min), None) => format!(", {min} or more"),
        (None, Some(max)) => format!(", at most {max}"),
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
    fn every_parameter_is_listed() {
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
        let text = description(&tool);
        let mut lines: Vec<&str> = text.lines().collect();
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
