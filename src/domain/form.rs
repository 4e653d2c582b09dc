//! Forms: what a program asks a person to fill in, as a schema of an object with flat properties (MCP, "Elicitation"). The
//! schema is a stranger's, so nothing here may evaluate a pattern of it.

use serde_json::{Map, Value};

/// Reads texts as what `schema` wants, as from a command line: `3` as a number, `true` as a truth value, `a,b` as a list.
/// What cannot be read stays a text, and is [a problem](problem) then.
pub fn read(schema: &Value, answer: &mut Map<String, Value>) {
    for (name, value) in answer {
        let property = schema.get("properties").and_then(|properties| properties.get(name)).unwrap_or(&Value::Null);
        let Some(text) = value.as_str() else { continue };
        let read = match property.get("type").and_then(Value::as_str).unwrap_or_default() {
            "integer" | "number" | "boolean" => serde_json::from_str(text.trim()).ok(),
            "array" => Some(text.split(',').map(|item| Value::from(item.trim())).collect()),
            _ => None,
        };
        if let Some(read) = read {
            *value = read;
        }
    }
}

/// Fills the defaults of `schema` into the answer where it says nothing.
pub fn fill(schema: &Value, answer: &mut Map<String, Value>) {
    let Some(properties) = schema.get("properties").and_then(Value::as_object) else { return };
    for (name, property) in properties {
        if let Some(default) = property.get("default")
            && !answer.contains_key(name)
        {
            answer.insert(name.clone(), default.clone());
        }
    }
}

/// What is wrong with the answer; `None` if it fits `schema`.
pub fn problem(schema: &Value, answer: &Map<String, Value>) -> Option<String> {
    let required = schema.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
    for name in required {
        if !answer.contains_key(name) {
            return Some(format!("`{name}` is missing"));
        }
    }
    let properties = schema.get("properties").and_then(Value::as_object);
    for (name, value) in answer {
        let Some(property) = properties.and_then(|properties| properties.get(name)) else {
            return Some(format!("`{name}` is not asked for"));
        };
        if let Some(problem) = of_value(property, value) {
            return Some(format!("`{name}` {problem}"));
        }
    }
    None
}

fn of_value(property: &Value, value: &Value) -> Option<String> {
    if let Some(choices) = choices(property)
        && !choices.contains(&value)
    {
        return Some("is none of the choices".to_owned());
    }
    match property.get("type").and_then(Value::as_str).unwrap_or_default() {
        "string" => of_text(property, value),
        "boolean" => (!value.is_boolean()).then(|| "is not true or false".to_owned()),
        "integer" if !is_whole(value) => Some("is no whole number".to_owned()),
        "integer" | "number" => of_number(property, value),
        "array" => of_list(property, value),
        _ => None,
    }
}

fn of_text(property: &Value, value: &Value) -> Option<String> {
    let Some(text) = value.as_str() else { return Some("is no text".to_owned()) };
    let length = text.chars().count() as u64;
    out_of(property, ("minLength", "maxLength"), length).map(|bound| format!("does not have {bound} characters"))
}

fn of_number(property: &Value, value: &Value) -> Option<String> {
    let Some(number) = value.as_f64() else { return Some("is no number".to_owned()) };
    let bound = |key| property.get(key).and_then(Value::as_f64);
    match (bound("minimum"), bound("maximum")) {
        (Some(min), _) if number < min => Some(format!("is less than {min}")),
        (_, Some(max)) if number > max => Some(format!("is more than {max}")),
        _ => None,
    }
}

fn of_list(property: &Value, value: &Value) -> Option<String> {
    let Some(items) = value.as_array() else { return Some("is no list".to_owned()) };
    if let Some(bound) = out_of(property, ("minItems", "maxItems"), items.len() as u64) {
        return Some(format!("does not have {bound} entries"));
    }
    let schema = property.get("items").unwrap_or(&Value::Null);
    items.iter().find_map(|item| of_value(schema, item)).map(|problem| format!("has an entry that {problem}"))
}

/// The bound that `number` breaks.
fn out_of(property: &Value, (min, max): (&str, &str), number: u64) -> Option<String> {
    let bound = |key| property.get(key).and_then(Value::as_u64);
    match (bound(min), bound(max)) {
        (Some(min), _) if number < min => Some(format!("at least {min}")),
        (_, Some(max)) if number > max => Some(format!("at most {max}")),
        _ => None,
    }
}

/// The values of a choice: `enum`, or `const` in `oneOf` or `anyOf`.
fn choices(property: &Value) -> Option<Vec<&Value>> {
    if let Some(values) = property.get("enum").and_then(Value::as_array) {
        return Some(values.iter().collect());
    }
    let titled = property.get("oneOf").or_else(|| property.get("anyOf")).and_then(Value::as_array)?;
    titled.iter().map(|choice| choice.get("const")).collect()
}

fn is_whole(value: &Value) -> bool {
    value.is_i64() || value.is_u64() || value.as_f64().is_some_and(|number| number.fract() == 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn schema() -> Value {
        json!({"type": "object", "required": ["name"], "properties": {
            "name": {"type": "string", "minLength": 2, "maxLength": 4},
            "age": {"type": "integer", "minimum": 0, "maximum": 150, "default": 30},
            "ok": {"type": "boolean", "default": true},
            "color": {"type": "string", "enum": ["red", "blue"]},
            "size": {"type": "string", "oneOf": [{"const": "s", "title": "Small"}, {"const": "l", "title": "Large"}]},
            "tags": {"type": "array", "maxItems": 2, "items": {"anyOf": [{"const": "a"}, {"const": "b"}]}},
        }})
    }

    fn checked(answer: Value) -> Option<String> {
        problem(&schema(), answer.as_object().unwrap())
    }

    #[test]
    fn defaults_are_filled_and_nothing_is_overwritten() {
        let mut answer = json!({"age": 7}).as_object().unwrap().clone();
        fill(&schema(), &mut answer);
        assert_eq!(Value::Object(answer), json!({"age": 7, "ok": true}));
    }

    #[test]
    fn texts_are_read_as_what_the_schema_wants() {
        let mut answer = json!({"name": "7", "age": " 36", "ok": "true", "tags": "a, b"}).as_object().unwrap().clone();
        read(&schema(), &mut answer);
        assert_eq!(Value::Object(answer), json!({"name": "7", "age": 36, "ok": true, "tags": ["a", "b"]}));
        let mut wrong = json!({"age": "old", "x": "1"}).as_object().unwrap().clone();
        read(&schema(), &mut wrong);
        assert_eq!(Value::Object(wrong), json!({"age": "old", "x": "1"}));
    }

    #[test]
    fn an_answer_that_fits_has_no_problem() {
        assert_eq!(checked(json!({"name": "Ada", "age": 36, "color": "red", "size": "l", "tags": ["a", "b"]})), None);
    }

    #[test]
    fn an_answer_that_does_not_fit_has_one() {
        let cases = [
            (json!({}), "`name` is missing"),
            (json!({"name": "Ada", "x": 1}), "`x` is not asked for"),
            (json!({"name": "A"}), "`name` does not have at least 2 characters"),
            (json!({"name": "Adaaaa"}), "`name` does not have at most 4 characters"),
            (json!({"name": 7}), "`name` is no text"),
            (json!({"name": "Ada", "age": 1.5}), "`age` is no whole number"),
            (json!({"name": "Ada", "age": 151}), "`age` is more than 150"),
            (json!({"name": "Ada", "ok": "yes"}), "`ok` is not true or false"),
            (json!({"name": "Ada", "color": "green"}), "`color` is none of the choices"),
            (json!({"name": "Ada", "size": "Small"}), "`size` is none of the choices"),
            (json!({"name": "Ada", "tags": ["a", "b", "a"]}), "`tags` does not have at most 2 entries"),
            (json!({"name": "Ada", "tags": ["c"]}), "`tags` has an entry that is none of the choices"),
        ];
        for (answer, expected) in cases {
            assert_eq!(checked(answer.clone()).as_deref(), Some(expected), "{answer}");
        }
    }
}
