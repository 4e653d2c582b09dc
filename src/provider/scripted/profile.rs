//! What a text is besides prose, and what can be counted in it, part by part: a table, a log, a JSON text, a page of HTML.
//!
//! This module must never keep anything between two calls: the state of a text goes out with the profile of one part and
//! comes back with the next.

use std::sync::LazyLock;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use url::Url;

use super::json_text::Json;
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

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
}
