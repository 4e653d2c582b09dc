//! What a text is besides prose, and what can be counted in it, part by part: a table, a log, a JSON text, a page of HTML. Nothing
//! is kept between two calls: the state of a text goes out with the profile of one part and comes back with the next. It
//! does not grow with the number of values.

use std::sync::LazyLock;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use url::Url;

use super::columns::Column;
use super::logs::Log;
use super::prose::unmarked;
use super::shapes::{Table, markdown_tables};

/// Most counted facts of a text.
const FACTS_MAX: usize = 14;
/// A page of HTML has its first tag of this kind within so many bytes.
const TAG_WITHIN: usize = 2_000;
const TAGS: [&str; 8] = ["<!doctype html", "<html", "<body", "<head", "<div", "<p>", "<h1", "<table"];
// Relative links keep their path.
static BASE: LazyLock<Option<Url>> = LazyLock::new(|| Url::parse("file:///").ok());

/// A text so far.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Kind {
    Table(Table),
    Log(Log),
    Json(Json),
    Html,
    Prose,
}

/// The profile of a text: `{ kind, state, gist, tally, facts, tables, title, text }`. `before` is the `state` of the part
/// before, empty for the first; `line` is the number of the part's first line.
pub(super) fn profile(text: &str, before: &str, line: usize) -> Value {
    let text = unmarked(text);
    let mut tables = Vec::new();
    let kind = match serde_json::from_str(before) {
        Ok(Kind::Table(mut table)) => {
            table.add(text);
            Kind::Table(table)
        }
        Ok(Kind::Log(mut log)) => {
            log.add(text, line);
            Kind::Log(log)
        }
        // What comes after a fault is not counted.
        Ok(Kind::Json(mut json)) => {
            let _ = json.add(text);
            Kind::Json(json)
        }
        Ok(same) => same,
        Err(_) => {
            let (kind, first) = begun(text, line);
            tables.extend(first);
            kind
        }
    };
    let (name, tally, gist, mut facts) = match &kind {
        Kind::Table(table) => ("table", table.tally(), table.gist(), table.facts()),
        Kind::Log(log) => ("log", log.tally(), log.gist(), log.facts()),
        Kind::Json(json) => ("json", String::new(), json.gist(), json.facts()),
        Kind::Html => ("html", String::new(), String::new(), Vec::new()),
        Kind::Prose => ("prose", String::new(), String::new(), Vec::new()),
    };
    facts.truncate(FACTS_MAX);
    let (title, prose) = match (&kind, BASE.as_ref()) {
        (Kind::Html, Some(base)) => {
            let page = ghost_web::html::markdown(text, base);
            (page.title, page.text)
        }
        (Kind::Html | Kind::Prose, _) => (String::new(), text.to_owned()),
        _ => (String::new(), String::new()),
    };
    tables.extend(markdown_tables(&prose));
    // Writing a value of these types cannot fail.
    let state = serde_json::to_string(&kind).unwrap_or_default();
    json!({
        "kind": name, "state": state, "gist": gist, "tally": tally, "facts": facts, "tables": tables, "title": title,
        "text": prose,
    })
}

/// What a text is by its first part, and the first rows of a table.
fn begun(text: &str, line: usize) -> (Kind, Option<Value>) {
    if let Some(log) = Log::begin(text, line) {
        return (Kind::Log(log), None);
    }
    let head = text.trim_start();
    if head.starts_with(['{', '[']) {
        let mut json = Json::default();
        if json.add(text).is_ok() {
            return (Kind::Json(json), None);
        }
    }
    let within = ghost_domain::text::prefix_bytes(head, TAG_WITHIN).to_ascii_lowercase();
    if head.starts_with('<') && TAGS.iter().any(|tag| within.contains(tag)) {
        return (Kind::Html, None);
    }
    match Table::begin(text) {
        Some((table, first)) => (Kind::Table(table), Some(first)),
        None => (Kind::Prose, None),
    }
}

/// Most places that are counted.
const PLACES_MAX: usize = 30;
/// Most characters of a key or value that are kept.
const TOKEN_MAX: usize = 60;
/// Deepest nesting that is read.
const DEPTH_MAX: usize = 32;

/// The text so far.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Json {
    open: Vec<Level>,
    /// The token that the last part ended in, whether it is a string, and the escape in it that is not complete.
    token: String,
    quoted: bool,
    escape: String,
    /// The name of each place, such as `stations[].level`, and its values.
    places: Vec<(String, Place)>,
    roots: u64,
}

/// An object or array that is open.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Level {
    array: bool,
    /// The key of the value that comes next; `None` if a key comes next.
    key: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Place {
    objects: u64,
    arrays: u64,
    values: Column,
}

/// The text is not JSON.
#[derive(Debug)]
pub(super) struct NotJson;

impl Json {
    /// Adds the next part of the text.
    pub(super) fn add(&mut self, text: &str) -> Result<(), NotJson> {
        for c in text.chars() {
            if self.quoted {
                match c {
                    _ if !self.escape.is_empty() => self.escaped(c),
                    '\\' => self.escape.push(c),
                    '"' => {
                        self.quoted = false;
                        self.string()?;
                    }
                    c => self.push(c),
                }
                continue;
            }
            match c {
                '"' if self.token.is_empty() => self.quoted = true,
                '{' | '[' => {
                    self.bare()?;
                    let array = c == '[';
                    if let Some(place) = self.value()? {
                        place.arrays += u64::from(array);
                        place.objects += u64::from(!array);
                    }
                    self.open.push(Level { array, key: array.then(String::new) });
                    if self.open.len() > DEPTH_MAX {
                        return Err(NotJson);
                    }
                }
                '}' | ']' => {
                    self.bare()?;
                    if self.open.pop().is_none_or(|level| level.array != (c == ']')) {
                        return Err(NotJson);
                    }
                }
                ',' => {
                    self.bare()?;
                    let level = self.open.last_mut().ok_or(NotJson)?;
                    level.key = level.array.then(String::new);
                }
                ':' if self.token.is_empty() => {}
                c if c.is_whitespace() || c == '\u{feff}' => self.bare()?,
                // No number and no word is that long.
                _ if self.token.len() >= TOKEN_MAX => return Err(NotJson),
                c => self.push(c),
            }
        }
        Ok(())
    }

    /// The next character of an escape.
    fn escaped(&mut self, c: char) {
        let begun = self.escape.len();
        match c {
            _ if begun > 1 || c == 'u' => self.escape.push(c),
            'n' | 't' | 'r' | 'b' | 'f' => self.push(' '),
            c => self.push(c),
        }
        if begun == 1 && c != 'u' {
            self.escape.clear();
        } else if self.escape.len() >= 6 {
            let code = self.escape.get(2..).and_then(|digits| u32::from_str_radix(digits, 16).ok());
            self.escape.clear();
            self.push(code.and_then(char::from_u32).unwrap_or(char::REPLACEMENT_CHARACTER));
        }
    }

    fn push(&mut self, c: char) {
        if self.token.len() + c.len_utf8() <= TOKEN_MAX {
            self.token.push(c);
        }
    }

    /// A string has ended: a key or a value.
    fn string(&mut self) -> Result<(), NotJson> {
        let token = std::mem::take(&mut self.token);
        if let Some(level) = self.open.last_mut()
            && level.key.is_none()
        {
            level.key = Some(token);
            return Ok(());
        }
        if let Some(place) = self.value()? {
            place.values.add(&token);
        }
        Ok(())
    }

    /// A number or word may have ended.
    fn bare(&mut self) -> Result<(), NotJson> {
        if self.token.is_empty() {
            return Ok(());
        }
        let token = std::mem::take(&mut self.token);
        if token.parse::<f64>().is_err() && !matches!(token.as_str(), "true" | "false" | "null") {
            return Err(NotJson);
        }
        if let Some(place) = self.value()?
            && token != "null"
        {
            place.values.add(&token);
        }
        Ok(())
    }

    /// The place of a value that begins; `None` if there are too many places.
    fn value(&mut self) -> Result<Option<&mut Place>, NotJson> {
        if self.open.is_empty() {
            self.roots += 1;
        }
        let mut name = String::new();
        for level in &self.open {
            match &level.key {
                _ if level.array => name.push_str("[]"),
                Some(key) if name.is_empty() => name.push_str(key),
                Some(key) => {
                    name.push('.');
                    name.push_str(key);
                }
                None => return Err(NotJson),
            }
        }
        if let Some(at) = self.places.iter().position(|(known, _)| *known == name) {
            return Ok(self.places.get_mut(at).map(|(_, place)| place));
        }
        if self.places.len() == PLACES_MAX {
            return Ok(None);
        }
        self.places.push((name, Place::default()));
        Ok(self.places.last_mut().map(|(_, place)| place))
    }

    fn place(&self, name: &str) -> Option<&Place> {
        self.places.iter().find(|(known, _)| known == name).map(|(_, place)| place)
    }

    /// The number of values in the arrays of a place.
    fn entries(&self, name: &str) -> u64 {
        self.place(&format!("{name}[]")).map_or(0, |place| place.objects + place.arrays + place.values.count())
    }

    /// What the text is, in one sentence.
    pub(super) fn gist(&self) -> String {
        let root = self.place("");
        match root {
            _ if self.roots > 1 => format!("{} JSON values, one after another.", self.roots),
            Some(root) if root.arrays > 0 => format!("A JSON array of {} entries.", self.entries("")),
            Some(root) if root.objects > 0 => {
                let keys = self.places.iter().map(|(name, _)| name.as_str());
                let keys: Vec<&str> = keys.filter(|name| !name.is_empty() && !name.contains(['.', '['])).collect();
                format!("A JSON object with the keys {}.", keys.join(", "))
            }
            _ => "A JSON value.".to_owned(),
        }
    }

    /// What is counted, in the order of the text.
    pub(super) fn facts(&self) -> Vec<String> {
        let of = |(name, place): &(String, Place)| {
            let shown = if name.is_empty() { "the text" } else { name };
            if place.arrays > 0 {
                return Some(format!("{shown}: {} entries", self.entries(name)));
            }
            place.values.fact(shown)
        };
        self.places.iter().filter_map(of).collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn texts_are_told_apart_and_counted_over_their_parts() {
        let html = "<!DOCTYPE html><html><head><title>Tides &amp; more</title><style>p{top:7px}</style></head><body>\n\
            <h1>Tides</h1><p class=\"c9\">It rose by 8 mm.</p>\n";
        for (kind, first, second, gist) in [
            ("table", "a;b\nx;1\n", "x;2\n", "A table of 2 rows with the columns a, b."),
            ("log", "ERROR: a\nINFO: b\nINFO c\n", "INFO d\n", "A log of 4 lines, 1 ERROR, 3 INFO."),
            ("json", "{\"a\": [1,", "2]}", "A JSON object with the keys a."),
            ("html", html, "<p>And 9.</p>", ""),
            ("prose", "It is 5, or 6.\n", "x;2\n", ""),
        ] {
            let before = profile(first, "", 1);
            let found = profile(second, before["state"].as_str().unwrap(), 5);
            assert_eq!((&before["kind"], &found["kind"], &found["gist"]), (&json!(kind), &json!(kind), &json!(gist)));
        }
        let page = profile(html, "", 1);
        assert_eq!((&page["title"], &page["text"]), (&json!("Tides & more"), &json!("# Tides\n\nIt rose by 8 mm.")));
    }

    proptest! {
        #[test]
        fn any_text_has_a_profile(
            parts in prop::collection::vec("([a-c0-9é]{0,3}|[,;\t|\"{}\\[\\]:<>\\\\]|\r?\n|---|2024-05-01 12:00:00 ERROR |```|<p>){0,40}", 1..4),
        ) {
            let mut state = String::new();
            for part in parts {
                let found = profile(&part, &state, 1);
                prop_assert!(found["facts"].as_array().unwrap().len() <= FACTS_MAX);
                state = found["state"].as_str().unwrap().to_owned();
            }
        }
    }

    const TEXT: &str = "{\n \"made\": \"2024-06-01\", \"stations\": [\n  {\"id\": 1, \"state\": \"op\\\"\\u00e9n\", \"mm\": 1.5, \"tags\": [\"a\"]},\n  \
        {\"id\": 2, \"state\": \"op\\\"\\u00E9n\", \"mm\": -2, \"tags\": [\"b\", \"a\"], \"off\": null}\n ]\n}\n";

    #[test]
    fn a_text_has_the_same_facts_wherever_it_is_cut() {
        let whole = [
            "made: 2024-06-01",
            "stations: 2 entries",
            "stations[].id: 2 numbers, from 1 to 2",
            "stations[].state: 2 values; op\"én 2",
            "stations[].mm: 2 numbers, sum -0.5, from -2 to 1.5",
            "stations[].tags: 3 entries",
            "stations[].tags[]: 3 values; a 2; b 1",
        ];
        for cut in 0..TEXT.len() {
            let mut json = Json::default();
            json.add(&TEXT[..cut]).unwrap();
            let mut json: Json = serde_json::from_str(&serde_json::to_string(&json).unwrap()).unwrap();
            json.add(&TEXT[cut..]).unwrap();
            assert_eq!(
                (json.facts(), json.gist().as_str()),
                (whole.map(str::to_owned).to_vec(), "A JSON object with the keys made, stations.")
            );
        }
    }

    #[test]
    fn arrays_lines_of_values_and_texts_that_are_not_json_are_told_apart() {
        let gist = |text: &str| {
            let mut json = Json::default();
            json.add(text).map(|()| json.gist())
        };
        assert_eq!(gist("[1, 2, {}]").unwrap(), "A JSON array of 3 entries.");
        assert_eq!(gist("{\"a\": 1}\n{\"a\": 2}\n").unwrap(), "2 JSON values, one after another.");
        for other in ["[see here](x)", "{% if x %}", "[1;2]", "}", "{1: 2}"] {
            assert!(gist(other).is_err(), "{other}");
        }
        assert!(gist(&"[".repeat(100)).is_err());
    }
}
