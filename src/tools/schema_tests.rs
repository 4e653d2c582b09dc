//! Schemas of tools that come from elsewhere: nulls in arguments, and faults in the schema.

use serde_json::{Value, json};

use crate::builtins::all;
use crate::parameters::lenient;
use crate::tool::Tool;

fn tool_with(schema: Value) -> Tool {
    Tool::with_schema("box.tool", "A tool.", schema, all().remove(0).run)
}

#[test]
fn a_null_goes_only_where_the_schema_has_none() {
    let parameters = json!({
        "type": "object",
        "properties": {
            "type": { "type": "string" }, "types": { "type": ["string", "null"] }, "number": { "type": "integer" },
            "any": { "anyOf": [{ "type": "string" }, { "type": "null" }] }, "one": { "oneOf": [{ "const": 1 }, { "const": null }] },
            "all": { "allOf": [{ "type": ["string", "null"] }, { "type": "string" }] },
            "nullable": { "type": "string", "nullable": true }, "choice": { "type": "string", "enum": ["a"], "nullable": true },
            "not_nullable": { "type": "string", "nullable": false },
            "enum": { "enum": ["a", null] }, "no_enum": { "enum": ["a"] }, "const": { "const": null },
            "open": {}, "true": true, "never": false, "not": { "not": { "type": "null" } },
            "ref": { "$ref": "#/$defs/maybe" }, "no_ref": { "$ref": "#/$defs/sure" }, "a/b~c": { "type": "string" },
            "needed": { "type": "string" },
        },
        "required": ["needed"],
        "$defs": { "maybe": { "type": ["array", "null"] }, "sure": { "type": "array" } },
        "additionalProperties": false,
    });
    let names: Vec<String> = parameters["properties"].as_object().unwrap().keys().cloned().collect();
    let tool = tool_with(parameters.clone());
    let nulls = |names: &[&str]| Value::Object(names.iter().map(|name| ((*name).to_owned(), Value::Null)).collect());
    let all: Vec<&str> = names.iter().map(String::as_str).chain(["unknown"]).collect();
    let kept = tool.normalise(None, nulls(&all));
    let mut expected = ["any", "choice", "const", "enum", "needed", "nullable", "one", "open", "ref", "true", "types"];
    expected.sort_unstable();
    let mut kept: Vec<&str> = kept.as_object().unwrap().keys().map(String::as_str).collect();
    kept.sort_unstable();
    assert_eq!(kept, expected);
    // What is kept passes the check.
    let mut arguments = nulls(&expected);
    arguments["needed"] = json!("x");
    tool.validate(&tool.normalise(None, arguments.clone())).unwrap();
    assert_eq!(tool.normalise(None, arguments.clone()), arguments);
    // An open object takes any member.
    let mut open = parameters;
    open["additionalProperties"] = json!(true);
    assert_eq!(tool_with(open).normalise(None, nulls(&["unknown", "type"])), nulls(&["unknown"]));
}

#[test]
fn harmless_faults_of_a_schema_are_left_out_and_others_name_their_key() {
    let with = |key: &str, value: Value| {
        let mut schema = json!({ "type": "object", "properties": { "a": { "type": "string" } } });
        schema[key] = value;
        schema
    };
    let property = |key: &str, value: Value| {
        let mut schema = with("additionalProperties", json!(false));
        schema["properties"]["a"][key] = value;
        schema
    };
    for schema in [
        with("required", Value::Null),
        with("required", json!(["a", 7])),
        with("properties", Value::Null),
        with("additionalProperties", Value::Null),
        with("$defs", Value::Null),
        with("description", Value::Null),
        with("anyOf", Value::Null),
        property("required", json!(true)),
        property("required", json!(false)),
        property("pattern", json!("(unclosed")),
        property("pattern", json!(7)),
        property("items", Value::Null),
        property("enum", Value::Null),
        property("enum", json!("a")),
        property("format", json!("no-such-format")),
        property("format", Value::Null),
        property("type", Value::Null),
        property("minLength", json!("1")),
        property("maxLength", json!(-1)),
        property("exclusiveMinimum", json!(true)),
        property("description", json!(7)),
        property("title", Value::Null),
    ] {
        let clean = lenient(&schema).unwrap_or_else(|why| panic!("{schema}: {why}"));
        let tool = tool_with(clean.clone());
        tool.validate(&json!({ "a": "x" })).unwrap_or_else(|refusal| panic!("{clean}: {refusal}"));
        assert!(
            clean["type"] == "object" && (clean.get("properties").is_none() || clean["properties"]["a"].is_object())
        );
    }
    let whole = property("pattern", json!("^[a-z]+$"));
    assert_eq!(lenient(&whole).unwrap(), whole, "a schema without faults stays as it is");
    assert!(tool_with(whole).validate(&json!({ "a": "1" })).is_err());
    for (schema, key) in [
        (property("type", json!("strng")), "/properties/a/type"),
        (property("properties", json!([1])), "/properties/a/properties"),
        (property("anyOf", json!({})), "/properties/a/anyOf"),
        (with("properties", json!({ "pattern": 7 })), "/properties/pattern"),
    ] {
        let why = lenient(&schema).unwrap_err();
        assert!(why.contains(key), "{why}");
    }
}
