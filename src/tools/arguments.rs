//! What a model wrote, in the form that a tool takes. Done before validation, so that schemas stay plain.

use serde_json::Value;

use crate::tool::Tool;

impl Tool {
    /// Arguments as the tool takes them: a null for a parameter that may be left out is left out, an alias brings what
    /// it presets (BI-01, BI-02), and `target_agent` is `to` (BI-31). Call it before [`validate`](Tool::validate), with
    /// the alias that [`crate::Registry::find`] gave; journal and ledger keep what the model wrote.
    #[must_use]
    pub fn normalise(&self, alias: Option<&str>, mut arguments: Value) -> Value {
        let Some(object) = arguments.as_object_mut() else {
            // A tool without parameters is often called with nothing at all.
            return if arguments.is_null() { Value::Object(serde_json::Map::new()) } else { arguments };
        };
        let required = |name: &str| {
            let list = self.spec.parameters.get("required").and_then(Value::as_array);
            list.is_some_and(|list| list.iter().any(|item| item == name))
        };
        object.retain(|name, value| !value.is_null() || required(name));
        if matches!(alias, Some("file_read" | "file_write")) {
            object.entry("scope").or_insert_with(|| "world".into());
        }
        if self.spec.name == "syscall.message.send"
            && !object.contains_key("to")
            && let Some(target) = object.remove("target_agent")
        {
            object.insert("to".into(), target);
        }
        arguments
    }
}
