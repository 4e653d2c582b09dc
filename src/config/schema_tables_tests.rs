//! The tables of keys in `docs/configuration.md` say what the schemas say: `<!-- keys: PARTS -->` begins one, `<!-- end -->`
//! ends it. A part is `STRUCT`, `STRUCT as PATH` (the path stands before each key) or `STRUCT: KEY KEY` (only these keys);
//! commas stand between parts. The sections of a `config.md` have the names of their headings.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde_json::Value;

use super::{FILES, of};

const PAGE: &str = "docs/configuration.md";
const BEGIN: &str = "<!-- keys: ";
const END: &str = "<!-- end -->";

/// Keys that the page shows under another name: those of `## LLM`, `## Limits` and of the world's `heartbeat`, and list items.
const ELSEWHERE: [&str; 3] = ["Overrides", "Heartbeat", "Tool Access: overrides"];

/// The structs of all files, by name.
struct Structs(BTreeMap<String, Value>);

impl Structs {
    fn of_all_files() -> Self {
        let mut all = BTreeMap::new();
        for file in FILES {
            let schema: Value = serde_json::from_str(&of(file).unwrap()).unwrap();
            let name = match file {
                "world-config.yaml" => "WorldConfig",
                "toolbox.yaml" => "ManifestSection",
                _ => "",
            };
            let parts = if name.is_empty() { &schema["properties"] } else { &schema["definitions"] };
            all.extend(parts.as_object().unwrap().clone());
            all.insert(name.to_owned(), schema);
        }
        all.insert("limits".to_owned(), all["WorldConfig"]["properties"]["limits"].clone());
        all.remove("");
        Self(all)
    }

    /// The keys of a struct, without those that are deprecated.
    fn keys<'s>(&'s self, schema: &'s Value) -> Option<Vec<(&'s String, &'s Value)>> {
        let keys = schema["properties"].as_object()?;
        Some(keys.iter().filter(|(_, schema)| schema["deprecated"] != true).collect())
    }

    /// What a value is, without the references and alternatives that editors need.
    fn plain<'s>(&'s self, schema: &'s Value) -> Vec<&'s Value> {
        let reference = schema["$ref"].as_str().or_else(|| schema["allOf"][0]["$ref"].as_str());
        if let Some(name) = reference.and_then(|path| path.rsplit('/').next()) {
            return self.plain(&self.0[name]);
        }
        // A title says all of it.
        let Some(kinds) = schema["anyOf"].as_array().filter(|_| schema["title"].is_null()) else { return vec![schema] };
        let variable = |kind: &&Value| !kind["pattern"].as_str().is_some_and(|pattern| pattern.ends_with(r"\$\{"));
        kinds.iter().filter(|kind| kind["type"] != "null").filter(variable).flat_map(|kind| self.plain(kind)).collect()
    }

    /// The words that a value may be, each with what it means.
    fn words<'s>(&'s self, schema: &'s Value) -> Vec<(&'s str, Option<&'s str>)> {
        if let Some(words) = schema["enum"].as_array() {
            return words.iter().filter_map(|word| Some((word.as_str()?, None))).collect();
        }
        let words = schema["oneOf"].as_array().into_iter().flatten().filter(|word| word["deprecated"] != true);
        let of_one = |word: &'s Value| Some((self.plain(word)[0]["const"].as_str()?, word["description"].as_str()));
        words
            .flat_map(|word| if word["enum"].is_null() { of_one(word).into_iter().collect() } else { self.words(word) })
            .collect()
    }

    /// The kind of a value, as the page's section on values names it.
    fn kind(&self, schema: &Value) -> String {
        let mut kinds: Vec<String> = self.plain(schema).into_iter().map(|kind| self.one_kind(kind)).collect();
        kinds.dedup();
        kinds.join(" or ")
    }

    fn one_kind(&self, schema: &Value) -> String {
        if let Some(title) = schema["title"].as_str() {
            return title.to_owned();
        }
        let words: Vec<String> = self.words(schema).iter().map(|(word, _)| format!("`{word}`")).collect();
        if let Some((last, others)) = words.split_last() {
            return if others.is_empty() { last.clone() } else { format!("{} or {last}", others.join(", ")) };
        }
        let kind = schema["type"].as_str().or_else(|| schema["type"][0].as_str()).unwrap_or("value");
        match kind {
            "integer" => format!("whole number, {} to {}", number(&schema["minimum"]), number(&schema["maximum"])),
            "number" => format!("number, {} to {}", number(&schema["minimum"]), number(&schema["maximum"])),
            "boolean" => "truth value".to_owned(),
            "string" if schema["maxLength"].is_null() => "text".to_owned(),
            "string" => format!("text, {} bytes", number(&schema["maxLength"])),
            "array" if schema["maxItems"].is_null() => format!("list of {}", plural(&self.kind(&schema["items"]))),
            "array" => format!("list of at most {} {}", schema["maxItems"], plural(&self.kind(&schema["items"]))),
            "object" => match self.keys(schema) {
                Some(keys) if keys.len() <= 4 => {
                    let keys: Vec<&str> = keys.iter().map(|(key, _)| key.as_str()).collect();
                    format!("`{{ {} }}`", keys.join(", "))
                }
                Some(_) => "map".to_owned(),
                None => {
                    let by_name = schema["patternProperties"].as_object().and_then(|kinds| kinds.values().next());
                    format!(
                        "map of names to {}",
                        plural(&self.kind(by_name.unwrap_or(&schema["additionalProperties"])))
                    )
                }
            },
            other => other.to_owned(),
        }
    }

    /// The meaning of a key: its comment, its words, and its default.
    fn meaning(&self, schema: &Value, is_required: bool) -> String {
        let line = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        let mut sentences = vec![line(schema["description"].as_str().unwrap_or_default())];
        for (word, said) in self.plain(schema).into_iter().flat_map(|kind| self.words(kind)) {
            sentences.extend(said.map(|said| format!("`{word}`: {}", line(said))));
        }
        if is_required {
            sentences.push("Required.".to_owned());
        }
        sentences.extend(written(&schema["default"]).map(|default| format!("The default is {default}.")));
        sentences.join(" ").replace('|', "\\|")
    }

    /// The table of the parts of a marker. Adds what it shows to `shown`.
    fn table(&self, parts: &str, shown: &mut BTreeSet<(String, String)>) -> String {
        let mut table = "| key | value | meaning |\n|---|---|---|\n".to_owned();
        for part in parts.split(", ") {
            let (part, only) = part.split_once(": ").map_or((part, None), |(part, only)| (part, Some(only)));
            let (name, path) =
                part.split_once(" as ").map_or((part, String::new()), |(name, at)| (name, format!("{at}.")));
            let schema = self.0.get(name).unwrap_or_else(|| panic!("{PAGE}: no schema has a struct `{name}`"));
            let keys = self.keys(schema).unwrap_or_else(|| panic!("{PAGE}: `{name}` has no keys"));
            let chosen: Vec<&str> = match only {
                Some(only) => only.split(' ').collect(),
                None => keys.iter().map(|(key, _)| key.as_str()).collect(),
            };
            for key in chosen {
                let value = &schema["properties"][key];
                assert!(!value.is_null(), "{PAGE}: `{name}` has no key `{key}`");
                let needed = schema["required"].as_array().is_some_and(|keys| keys.iter().any(|needed| needed == key));
                table += &format!("| `{path}{key}` | {} | {} |\n", self.kind(value), self.meaning(value, needed));
                shown.insert((name.to_owned(), key.to_owned()));
            }
        }
        table
    }
}

/// A number with commas between its thousands.
fn number(value: &Value) -> String {
    let Some(whole) = value.as_u64().or_else(|| value.as_f64().filter(|n| n.fract() == 0.0).map(|n| n as u64)) else {
        return value.to_string();
    };
    let digits = whole.to_string();
    let groups = digits.as_bytes().rchunks(3).rev().map(|group| std::str::from_utf8(group).unwrap());
    groups.collect::<Vec<_>>().join(",")
}

/// A default as a file has it; none for what is empty.
fn written(value: &Value) -> Option<String> {
    fn plain(value: &Value) -> String {
        value.as_str().map_or_else(|| value.to_string(), str::to_owned)
    }
    match value {
        Value::Number(_) => Some(number(value)),
        Value::Bool(_) => Some(format!("`{value}`")),
        Value::String(text) => Some(format!("`{text}`")),
        Value::Object(keys) => {
            let keys: Vec<String> = keys.iter().map(|(key, value)| format!("{key}: {}", plain(value))).collect();
            Some(format!("`{{ {} }}`", keys.join(", ")))
        }
        Value::Array(_) | Value::Null => None,
    }
}

fn plural(kind: &str) -> String {
    let (first, rest) = kind.find(", ").map_or((kind, ""), |at| kind.split_at(at));
    match first {
        _ if kind.starts_with('`') => kind.to_owned(),
        _ if first.contains(" of ") => format!("{}{rest}", first.replacen(" of ", "s of ", 1)),
        _ => format!("{first}s{rest}"),
    }
}

/// The page with the tables of now, and the keys that they show.
fn rendered(page: &str, all: &Structs) -> (String, BTreeSet<(String, String)>) {
    let (mut new, mut rest, mut shown) = (String::new(), page, BTreeSet::new());
    while let Some((before, after)) = rest.split_once(BEGIN) {
        let (parts, after) = after.split_once(" -->\n").expect("a marker ends its line");
        let (_, after) = after.split_once(END).unwrap_or_else(|| panic!("{PAGE}: no `{END}` follows `{parts}`"));
        new += &format!("{before}{BEGIN}{parts} -->\n\n{}\n{END}", all.table(parts, &mut shown));
        rest = after;
    }
    (new + rest, shown)
}

#[test]
fn the_page_has_the_keys_of_the_schemas() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(PAGE);
    let page = std::fs::read_to_string(&file).unwrap();
    let all = Structs::of_all_files();
    let (new, shown) = rendered(&page, &all);
    if std::env::var_os("GHOST_UPDATE_DOCS").is_some() {
        std::fs::write(&file, &new).unwrap();
    } else if let Some((old, new)) = page.lines().zip(new.lines()).find(|(old, new)| old != new) {
        panic!(
            "{PAGE} has\n{old}\nwhere the schemas say\n{new}\nRun: GHOST_UPDATE_DOCS=1 cargo test -p ghost-config page"
        );
    } else {
        assert!(
            page == new,
            "{PAGE} ends with another table; run: GHOST_UPDATE_DOCS=1 cargo test -p ghost-config page"
        );
    }
    // A map whose own keys are in a table needs no row.
    let has_table = |schema: &Value| {
        let below = all.plain(schema).into_iter().flat_map(|kind| {
            let by_name = kind["patternProperties"].as_object().into_iter().flat_map(|kinds| kinds.values());
            [kind, &kind["items"], &kind["additionalProperties"]]
                .into_iter()
                .chain(by_name)
                .flat_map(|kind| all.plain(kind))
        });
        below
            .into_iter()
            .any(|kind| all.0.iter().any(|(name, schema)| schema == kind && shown.iter().any(|row| row.0 == *name)))
    };
    let is_elsewhere =
        |row: &str| ELSEWHERE.iter().any(|known| row == *known || row.starts_with(&format!("{known}: ")));
    let mut missing = Vec::new();
    for (name, schema) in &all.0 {
        for (key, value) in all.keys(schema).unwrap_or_default() {
            if !shown.contains(&(name.clone(), key.clone())) && !has_table(value) {
                missing.push(format!("{name}: {key}"));
            }
        }
    }
    missing.retain(|row| !is_elsewhere(row));
    assert!(missing.is_empty(), "{PAGE} shows no row for {missing:#?}; name them in a marker `{BEGIN}… -->`");
}
