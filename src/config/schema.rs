//! JSON Schemas of the files that people write, for editors and for programs that write them. They come from the same
//! structs that read the files. `ghostd check` knows more: a schema holds for one file alone.

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema};
use serde_json::{Map, Value, json};

use crate::archetype_config::{ChannelsSection, PromptSection};
use crate::heartbeat::HeartbeatBlock;
use crate::mistakes::Hints;
use crate::toolbox::sections::{self, ManifestSection};
use crate::world_file::agents::Overrides;
use crate::world_file::{WorldConfig, hints};

/// The files that have a schema.
pub const FILES: [&str; 3] = ["world-config.yaml", "config.md", "toolbox.yaml"];

/// The schema of one of [`FILES`], as indented JSON. `None` for another name.
#[must_use]
pub fn of(file: &str) -> Option<String> {
    let schema = match file {
        "world-config.yaml" => of_struct::<WorldConfig>("A world of Ghost", &hints::HINTS),
        "toolbox.yaml" => of_struct::<ManifestSection>("A toolbox of Ghost", &sections::HINTS),
        "config.md" => config_md(),
        _ => return None,
    };
    Some(format!("{schema:#}\n"))
}

fn of_struct<T: JsonSchema>(title: &str, hints: &[Hints]) -> Value {
    // A section stands within another schema, where a reference to its definitions would lead nowhere.
    let settings = SchemaSettings::draft07().with(|settings| settings.inline_subschemas = title.is_empty());
    let mut schema = settings.into_generator().into_root_schema_for::<T>();
    let name = T::schema_name();
    schema.insert("title".to_owned(), title.into());
    let mut schema = Schema::to_value(schema);
    require(&mut schema, &name, hints);
    if name == "WorldConfig" {
        schema["required"] = json!(["agents"]);
    }
    if let Some(definitions) = schema.get_mut("definitions").and_then(Value::as_object_mut) {
        definitions.iter_mut().for_each(|(name, definition)| require(definition, name, hints));
    }
    as_written(&mut schema);
    schema
}

/// Names the keys that the struct `name` needs.
fn require(schema: &mut Value, name: &str, hints: &[Hints]) {
    let needed = hints.iter().find(|hints| hints.of == name).map_or(&[][..], |hints| hints.need);
    if !needed.is_empty() {
        schema["required"] = needed.iter().map(|(key, _)| *key).collect();
    }
}

/// Allows what the reader of the files allows: keys that begin with `x-`, empty sections, `${NAME}` in place of any single
/// value, and underscores in numbers. An empty single value is none.
fn as_written(schema: &mut Value) {
    match schema {
        Value::Array(schemas) => schemas.iter_mut().for_each(as_written),
        Value::Object(object) => {
            for (key, inner) in object.iter_mut() {
                match key.as_str() {
                    "properties" | "definitions" => {
                        inner.as_object_mut().into_iter().flatten().for_each(|(_, schema)| as_written(schema));
                    }
                    // One of the words of a list: see `of_kind`.
                    "default" | "enum" | "const" | "required" | "oneOf" => {}
                    _ => as_written(inner),
                }
            }
            of_kind(object);
        }
        _ => {}
    }
}

/// A text with `${NAME}` in it.
const VARIABLE: &str = r"\$\{";

fn of_kind(object: &mut Map<String, Value>) {
    // A default of none is no default.
    object.retain(|key, value| key != "default" || !value.is_null());
    if let Some(Value::Array(kinds)) = object.get("type") {
        let single: Vec<Value> = kinds.iter().filter(|kind| **kind != "null").cloned().collect();
        if let [kind] = single.as_slice() {
            object.insert("type".to_owned(), kind.clone());
        }
    }
    let variable = json!({ "type": "string", "pattern": VARIABLE });
    if let Some(Value::Array(words)) = object.get_mut("oneOf") {
        words.push(variable);
        return;
    }
    let kind = object.get("type").and_then(Value::as_str).unwrap_or_default().to_owned();
    let is_word = ["enum", "const"].iter().any(|key| object.contains_key(*key));
    if kind == "string" && !is_word {
        // Without quotes, an editor reads `8080` and `true` as another kind; the reader takes the text.
        object.insert("type".to_owned(), json!(["string", "number", "boolean"]));
    }
    let text = match kind.as_str() {
        "object" | "array" => {
            object.insert("type".to_owned(), json!([kind, "null"]));
            if object.contains_key("properties") {
                object.insert("patternProperties".to_owned(), json!({ "^x-": true }));
            }
            return;
        }
        "integer" => r"^[0-9][0-9_]*$|\$\{",
        "number" | "boolean" => VARIABLE,
        // The name of a variable is written, never taken from one.
        _ if object.get("title").is_some_and(|title| title == "variable") => return,
        _ if is_word || object.contains_key("pattern") => VARIABLE,
        _ => return,
    };
    let about = ["description", "default", "deprecated"].map(|key| (key.to_owned(), object.remove(key)));
    let value = Value::Object(std::mem::take(object));
    object.insert("anyOf".to_owned(), json!([value, { "type": "string", "pattern": text }]));
    object.extend(about.into_iter().filter_map(|(key, said)| Some((key, said?))));
}

/// The sections of a `config.md`, each with its keys or its list.
fn config_md() -> Value {
    fn section<T: JsonSchema>(keys: &[&str]) -> Value {
        let mut schema = of_struct::<T>("", &[]);
        schema.as_object_mut().into_iter().for_each(|schema| {
            schema.remove("title");
            schema.remove("$schema");
        });
        if let Some(properties) = schema.get_mut("properties").and_then(Value::as_object_mut) {
            properties.retain(|key, _| keys.contains(&key.as_str()));
        }
        schema
    }
    let names = |what: &str| json!({ "description": what, "type": "array", "items": { "type": "string" } });
    json!({
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "The sections of an archetype's config.md of Ghost",
        "type": "object",
        "additionalProperties": false,
        "properties": {
            "LLM": section::<Overrides>(&Overrides::MODEL),
            "Limits": section::<Overrides>(&Overrides::LIMITS),
            "Heartbeat": section::<HeartbeatBlock>(&HeartbeatBlock::KEYS),
            "Channels": section::<ChannelsSection>(&["reactions"]),
            "Prompt": section::<PromptSection>(&["mode", "timezone"]),
            "Tool Access": {
                "type": "object",
                "additionalProperties": false,
                "properties": {
                    "privilege_groups": names("Groups of the archetype's agents."),
                    "profile": {
                        "title": "`minimal`, `coding`, `messaging` or `full`",
                        "description": "Narrows their tools to those of the profile; `full` narrows nothing.",
                        "type": "string"
                    },
                    "deny": names("Tools that they never have."),
                    "overrides": names("Single tools beyond the groups. In the file they are the list items of the section.")
                }
            },
            "Toolbox": names("Toolboxes of the world file that the agents use, each perhaps with some of its tools."),
            "Skills": names("Skills that the agents see."),
            "Tools": names("An older form of Tool Access."),
        }
    })
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use super::*;
    use crate::yaml::parse;

    fn validator(file: &str) -> jsonschema::Validator {
        jsonschema::validator_for(&serde_json::from_str(&of(file).unwrap()).unwrap()).unwrap()
    }

    /// The files of the repository with this name, below `dir`.
    fn files(dir: &Path, name: &str, found: &mut Vec<PathBuf>) {
        for entry in std::fs::read_dir(dir).unwrap().flatten() {
            let path = entry.path();
            match path.is_dir() {
                true => files(&path, name, found),
                false if path.ends_with(name) => found.push(path),
                false => {}
            }
        }
    }

    /// The content of a file as an editor reads it, with variables as they are written.
    fn written(text: &str) -> Value {
        let report = crate::report::Report::default();
        let file = report.file("w.yaml");
        let node = parse(text, &file, &|name| Some(format!("${{{name}}}"))).unwrap();
        node.json()
    }

    #[test]
    fn the_files_that_ghost_brings_fit_their_schemas() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        for (name, dirs) in
            [("world-config.yaml", &["worlds", "src/config/template"][..]), ("toolbox.yaml", &["toolbox"])]
        {
            let mut found = Vec::new();
            dirs.iter().for_each(|dir| files(&root.join(dir), name, &mut found));
            assert!(!found.is_empty(), "{name}");
            for path in found {
                let content = written(&std::fs::read_to_string(&path).unwrap());
                let wrong: Vec<String> =
                    validator(name).iter_errors(&content).map(|e| format!("{} {e}", e.instance_path())).collect();
                assert!(wrong.is_empty(), "{}: {wrong:#?}", path.display());
            }
        }
    }

    #[test]
    fn a_schema_finds_what_the_reader_refuses() {
        let validator = validator("world-config.yaml");
        let agents = "agents: [{ id: lead, archetype: lead }]\n";
        for (fits, text) in [
            (true, ""),
            (true, "x-mine: 1\nlimits:\nbudgets: { world: { tokens: 5_000_000, usd: 2.50 } }\n"),
            (true, "limits: { inbox_max: '${N}' }\nheartbeat: { every: 30m, x-why: 1 }\n"),
            (true, "sandbox: { kind: local, env: { PORT: 8080, YES: true } }\nworld: { id: 42, name: 2027 }\n"),
            (true, "sandbox: { kind: docker, network: bridge }\n"),
            (true, "sandbox: { kind: '${K}' }\nstorage: { backend: '${B:-sqlite}' }\nweb: { robots: '${R}' }\n"),
            (false, "sandbox: { kind: lokal }\n"),
            (false, "secrets_env: ['${X}']\n"),
            (true, "listen: { grpc: ['127.0.0.1:7070', 'unix:/tmp/a'] }\n"),
            (false, "nonsense: 1\n"),
            (false, "limits: { inbox_max: 0 }\n"),
            (false, "limits: { inbox: 5 }\n"),
            (false, "access: { default: open }\n"),
            (false, "world: { id: 'a b' }\n"),
            (false, "teams: [{ agents: [lead] }]\n"),
            (false, "heartbeat: { every: soon }\n"),
            (false, "budgets: { world: { tokens: } }\n"),
        ] {
            assert_eq!(validator.is_valid(&written(&format!("{agents}{text}"))), fits, "{text}");
            // The reader needs the values of variables.
            if !text.contains('$') {
                assert_eq!(crate::world_file::tests::problems_of(text).is_empty(), fits, "{text}");
            }
        }
        assert!(!validator.is_valid(&json!({ "agents": [{ "id": "lead" }] })));
        assert!(!validator.is_valid(&json!({ "world": { "name": "w" } })));
    }

    /// The defaults below a schema that its value may not have.
    fn wrong_defaults(schema: &Value, whole: &Value, wrong: &mut Vec<String>) {
        if let Some(object) = schema.as_object() {
            if let Some(default) = object.get("default") {
                let mut one = schema.clone();
                one["definitions"] = whole["definitions"].clone();
                if !jsonschema::validator_for(&one).unwrap().is_valid(default) {
                    wrong.push(schema.to_string());
                }
            }
            object.values().for_each(|inner| wrong_defaults(inner, whole, wrong));
        }
    }

    #[test]
    fn each_default_is_a_value_that_its_key_may_have() {
        for file in FILES {
            let (schema, mut wrong) = (serde_json::from_str(&of(file).unwrap()).unwrap(), Vec::new());
            wrong_defaults(&schema, &schema, &mut wrong);
            assert!(wrong.is_empty(), "{file}: {wrong:#?}");
        }
    }

    #[test]
    fn sections_of_a_config_have_their_own_keys() {
        let schema: Value = serde_json::from_str(&of("config.md").unwrap()).unwrap();
        let keys = |section: &str| schema["properties"][section]["properties"].as_object().unwrap().len();
        assert_eq!(keys("LLM"), Overrides::MODEL.len());
        assert_eq!(keys("Limits"), Overrides::LIMITS.len());
        assert_eq!(keys("Heartbeat"), HeartbeatBlock::KEYS.len());
        validator("config.md");
        assert_eq!(of("laws.md"), None);
    }
}

#[cfg(test)]
#[path = "schema_tables_tests.rs"]
mod tables_tests;
