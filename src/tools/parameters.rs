//! The parameters of a tool: parsing of arguments into them, where every refusal names its field; and their JSON
//! schemas, in a plain form that every provider accepts: no references, no nullable types, no text that only costs tokens.

use ghost_domain::text::{clip, shown};
use ghost_domain::{Code, Refusal};
use ghost_operations::Result;
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use serde_path_to_error::Segment;

/// The parameters of a tool: a documented struct from which the JSON schema is generated. It must
/// refuse unknown fields.
pub trait Params: DeserializeOwned + JsonSchema + Send + 'static {}

impl<T: DeserializeOwned + JsonSchema + Send + 'static> Params for T {}

/// The refusal for wrong arguments, with each field and its problem.
pub(crate) fn wrong_arguments(tool: Option<&str>, problems: &[(String, String)]) -> Refusal {
    let problems: Vec<(String, String)> =
        problems.iter().map(|(field, problem)| (shown(field, 80), clip(problem, 200))).collect();
    let words: Vec<String> = problems.iter().map(|(field, problem)| format!("{field}: {problem}")).collect();
    let words = words.join("; ");
    let details: Vec<Value> =
        problems.iter().map(|(field, problem)| json!({ "field": field, "problem": problem })).collect();
    Refusal::new(Code::InvalidArguments, tool.map_or(words.clone(), |tool| format!("{tool}: {words}")))
        .hint("nothing was run; correct the arguments and call again")
        .details(json!({ "problems": details }))
}

/// Parses the arguments into the parameters of a tool.
///
/// # Errors
/// `InvalidArguments` with the field and the problem.
pub fn parse<P: Params>(arguments: Value) -> Result<P> {
    serde_path_to_error::deserialize(arguments).map_err(|error| {
        let problem = error.inner().to_string();
        // A type of the domain refuses a text with a refusal of its own, whose code this one has, too.
        let own_code = format!("{}: ", Code::InvalidArguments);
        let problem = problem.strip_prefix(&own_code).unwrap_or(&problem).to_owned();
        let parts: Vec<String> = error
            .path()
            .iter()
            .filter_map(|part| match part {
                Segment::Seq { index } => Some(index.to_string()),
                Segment::Map { key } => Some(key.clone()),
                Segment::Enum { .. } | Segment::Unknown => None,
            })
            .collect();
        let field = match parts.is_empty() {
            // Serde names a missing or unknown field only in its message.
            true => named_in(&problem).unwrap_or("arguments").to_owned(),
            false => parts.join("."),
        };
        wrong_arguments(None, &[(field, problem)])
    })
}

/// The field that serde reports as missing or unknown.
fn named_in(problem: &str) -> Option<&str> {
    let rest = ["missing field `", "unknown field `"].into_iter().find_map(|words| problem.strip_prefix(words))?;
    rest.split_once('`').map(|(name, _)| name)
}

/// The schema of `P`: an object without unknown members.
pub(crate) fn of<P: JsonSchema>() -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| settings.inline_subschemas = true);
    let mut schema = settings.into_generator().into_root_schema_for::<P>().to_value();
    if let Some(object) = schema.as_object_mut() {
        for costly in ["$schema", "title", "description"] {
            object.remove(costly);
        }
        if let Some(properties) = object.get_mut("properties").and_then(Value::as_object_mut) {
            properties.values_mut().for_each(plain);
        }
        object.entry("type").or_insert_with(|| "object".into());
        object.entry("properties").or_insert_with(|| json!({}));
        object.insert("additionalProperties".into(), Value::Bool(false));
    }
    schema
}

/// The schema as a model gets it: without the bounds of number types and the rule against unknown members, which a model
/// needs only when it breaks them (a refusal then names them), without defaults that are as good as absent, and with each
/// object's members once.
pub(crate) fn terse(schema: &Value) -> Value {
    let mut terse = schema.clone();
    strip(&mut terse);
    refer("", &mut terse, &mut Vec::new());
    terse
}

/// The schema with `null` among the types of each part that says `nullable: true`, as OpenAPI 3.0 writes it.
pub(crate) fn with_null_types(schema: &Value) -> Value {
    match schema {
        Value::Object(members) => {
            let mut members: Map<String, Value> =
                members.iter().map(|(key, value)| (key.clone(), with_null_types(value))).collect();
            if members.get("nullable") == Some(&Value::Bool(true)) {
                for (key, null) in [("type", json!("null")), ("enum", Value::Null)] {
                    match members.get_mut(key) {
                        Some(Value::Array(all)) if !all.contains(&null) => all.push(null),
                        Some(one @ Value::String(_)) => *one = Value::Array(vec![one.take(), null]),
                        _ => {}
                    }
                }
            }
            Value::Object(members)
        }
        Value::Array(items) => items.iter().map(with_null_types).collect(),
        other => other.clone(),
    }
}

/// Keywords that a schema needs to say what fits. The others only narrow or describe it.
const NEEDED: [&str; 19] = [
    "type",
    "properties",
    "patternProperties",
    "items",
    "prefixItems",
    "$ref",
    "$dynamicRef",
    "$defs",
    "definitions",
    "allOf",
    "anyOf",
    "oneOf",
    "not",
    "if",
    "then",
    "else",
    "const",
    "dependentSchemas",
    "additionalItems",
];
/// Faults that are taken out of a schema.
const FAULTS_MAX: usize = 64;

/// The schema of somebody else without harmless faults, such as `required: null` or a pattern that is no regular
/// expression. A part that is null says nothing, and a keyword that only narrows is left out if it cannot be read.
///
/// # Errors
/// What is wrong with it and at which key, if more than that is wrong.
pub(crate) fn lenient(schema: &Value) -> Result<Value, String> {
    let mut schema = schema.clone();
    for _ in 0..FAULTS_MAX {
        let Err(error) = jsonschema::validator_for(&schema) else { return Ok(schema) };
        let at = error.instance_path().to_string();
        let what = clip(&error.to_string(), 200);
        if !left_out(&mut schema, &at) {
            return Err(format!("the schema of its parameters is not valid at `{}`: {what}", clip(&at, 200)));
        }
    }
    Err(format!("the schema of its parameters has more than {FAULTS_MAX} faults"))
}

/// Takes out the keyword or the item at `at`, a JSON pointer, if that is harmless.
fn left_out(schema: &mut Value, at: &str) -> bool {
    let Some((before, key)) = at.rsplit_once('/') else { return false };
    let key = key.replace("~1", "/").replace("~0", "~");
    match schema.pointer_mut(before) {
        Some(Value::Object(members)) => {
            let harmless = members.get(&key).is_some_and(|value| value.is_null() || !NEEDED.contains(&&*key));
            // A member of `properties` is no keyword.
            let is_keyword =
                !["/properties", "/patternProperties", "/$defs", "/definitions"].iter().any(|of| before.ends_with(of));
            let goes = harmless && (is_keyword || members.get(&key).is_some_and(Value::is_null));
            goes && members.remove(&key).is_some()
        }
        // An item of `required`, or of another list.
        Some(Value::Array(_)) => left_out(schema, before),
        _ => false,
    }
}

/// The smallest schema of members that is not repeated, in bytes.
const REPEATED_MIN: usize = 200;

/// Replaces the members of an object that occurred before in the same schema by a word that says where.
fn refer(path: &str, schema: &mut Value, seen: &mut Vec<(Value, String)>) {
    let Some(Value::Object(members)) = schema.get_mut("properties") else { return };
    if let Some((_, first)) = seen.iter().find(|(before, _)| before.as_object() == Some(members)) {
        let words = schema.get("description").and_then(Value::as_str).unwrap_or_default();
        *schema = json!({ "type": "object", "description": format!("{words} Members as in `{first}`.").trim_start() });
        return;
    }
    for (name, member) in members.iter_mut() {
        let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        let whole = member.get("properties").filter(|own| own.to_string().len() >= REPEATED_MIN).cloned();
        refer(&path, member, seen);
        seen.extend(whole.map(|whole| (whole, path)));
    }
}

fn strip(schema: &mut Value) {
    let Some(object) = schema.as_object_mut() else { return };
    if object.get("additionalProperties") == Some(&Value::Bool(false)) {
        object.remove("additionalProperties");
    }
    let of_type = |value: &Value| {
        let types = ["uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64"];
        types.iter().filter_map(|name| range(name)).any(|(min, max)| *value == min || (max > 255 && *value == max))
    };
    for bound in ["minimum", "maximum"] {
        if object.get(bound).is_some_and(of_type) {
            object.remove(bound);
        }
    }
    let absent = [Value::Bool(false), json!([]), json!("")];
    for (key, says_nothing) in [("required", &absent[1..2]), ("default", &absent[..])] {
        if object.get(key).is_some_and(|value| says_nothing.contains(value)) {
            object.remove(key);
        }
    }
    for inner in ["items", "anyOf", "oneOf"] {
        match object.get_mut(inner) {
            Some(Value::Array(choices)) => choices.iter_mut().for_each(strip),
            Some(items) => strip(items),
            None => {}
        }
    }
    if let Some(Value::Object(members)) = object.get_mut("properties") {
        members.values_mut().for_each(strip);
    }
}

/// The largest integer that every JSON reader represents exactly.
const EXACT_MAX: i64 = (1 << 53) - 1;

/// The smallest and the largest number of a Rust type, by its schema format. 64-bit types are
/// limited to the range of exact integers.
fn range(format: &str) -> Option<(i64, i64)> {
    Some(match format {
        "uint8" => (0, u8::MAX.into()),
        "uint16" => (0, u16::MAX.into()),
        "uint32" => (0, u32::MAX.into()),
        "uint64" | "uint" => (0, EXACT_MAX),
        "int8" => (i8::MIN.into(), i8::MAX.into()),
        "int16" => (i16::MIN.into(), i16::MAX.into()),
        "int32" => (i32::MIN.into(), i32::MAX.into()),
        "int64" | "int" => (-EXACT_MAX, EXACT_MAX),
        _ => return None,
    })
}

/// Whether the schema accepts integers only.
fn is_integer(schema: &Value) -> bool {
    match schema.get("type") {
        Some(Value::String(name)) => name == "integer",
        Some(Value::Array(names)) => {
            names.iter().any(|name| name == "integer") && !names.iter().any(|name| name == "number")
        }
        _ => false,
    }
}

/// Converts numbers with a zero fraction, for example 2.0, to integers: JSON schema accepts them as
/// integers, Rust types do not.
pub(crate) fn integers(schema: &Value, value: &mut Value) {
    match value {
        Value::Number(number) if is_integer(schema) => {
            let whole = number.as_f64().filter(|n| number.is_f64() && n.fract() == 0.0 && n.abs() <= EXACT_MAX as f64);
            if let Some(whole) = whole {
                // Exact within this range.
                *value = Value::from(whole as i64);
            }
        }
        Value::Array(items) => {
            if let Some(schema) = schema.get("items") {
                items.iter_mut().for_each(|item| integers(schema, item));
            }
        }
        Value::Object(members) => {
            let Some(schemas) = schema.get("properties").and_then(Value::as_object) else { return };
            for (name, member) in members {
                if let Some(schema) = schemas.get(name) {
                    integers(schema, member);
                }
            }
        }
        _ => {}
    }
}

/// Simplifies a schema. An optional parameter may be absent; the schema does not mention that it
/// may also be null (see [`crate::tool::Tool::normalise`]).
fn plain(schema: &mut Value) {
    let Some(object) = schema.as_object_mut() else { return };
    if object.get("default").is_some_and(Value::is_null) {
        object.remove("default");
    }
    if let Some(Value::Array(values)) = object.get_mut("enum") {
        values.retain(|value| !value.is_null());
    }
    if let Some(Value::Array(types)) = object.get_mut("type") {
        types.retain(|name| name != "null");
        if let [only] = types.as_slice() {
            let only = only.clone();
            object.insert("type".into(), only);
        }
    }
    if let Some(Value::Array(choices)) = object.get("anyOf") {
        let mut real = choices.iter().filter(|choice| choice.get("type").is_none_or(|name| name != "null"));
        if let (Some(Value::Object(only)), None) = (real.next(), real.next()) {
            let only: Map<String, Value> = only.clone();
            object.remove("anyOf");
            for (key, value) in only {
                object.entry(key).or_insert(value);
            }
        }
    }
    // A number outside its type's range is refused with the field's name, before it is parsed.
    if let Some((min, max)) = object.remove("format").as_ref().and_then(Value::as_str).and_then(range) {
        object.entry("minimum").or_insert(min.into());
        object.entry("maximum").or_insert(max.into());
    }
    if let Some(items) = object.get_mut("items") {
        plain(items);
    }
    if let Some(Value::Object(members)) = object.get_mut("properties") {
        members.values_mut().for_each(plain);
    }
}
