//! Filters that let a rule take its words from what tools returned.
//!
//! Must never: panic on any input, or use an expression of unbounded size.

use std::sync::LazyLock;

use super::budget::{Budget, bad};
use super::guards::{self, Makes};
use minijinja::value::Serde;
use minijinja::{Environment, Error, State, Value};
use regex::{Captures, Regex};
use serde_json::json;

// The patterns are constants that the tests compile; one that did not compile would find nothing.
static FIGURE: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(r"(?:[$€£]\s?)?[+-]?\d+(?:[.,]\d+){0,6}(?:\s?(?:%|‰|[°]C|(?:percent|per cent|million|billion|thousand|trillion|bn|MW|GW|kW|kWh|MWh|GWh|TWh|km|kg|tonnes|tons|ms|seconds|minutes|hours|days|weeks|months|years|euros|dollars|pounds)\b))?").ok()
});
static SENTENCE_END: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r#"[.!?]["')\]]?(?:\s+|$)"#).ok());

/// Longest text that `regex_replace` gives, in bytes.
const REPLACED_MAX: usize = 8 << 20;

/// The filters that [`install`] adds.
pub(super) const NAMES: &[&str] = &[
    "regex_find",
    "regex_findall",
    "regex_replace",
    "lines",
    "json",
    "from_json",
    "headings",
    "section",
    "figures",
    "sentences",
    "first_sentence",
    "slug",
    "clip",
    "basename",
    "stem",
    "of",
];

/// Those of the template language that are known without a probe, and that a slip is compared with.
pub(super) const BUILT_IN: &[&str] = &[
    "abs",
    "attr",
    "batch",
    "bool",
    "capitalize",
    "chain",
    "count",
    "default",
    "dictsort",
    "first",
    "float",
    "groupby",
    "indent",
    "int",
    "items",
    "join",
    "last",
    "length",
    "list",
    "lower",
    "map",
    "max",
    "min",
    "reject",
    "rejectattr",
    "replace",
    "reverse",
    "round",
    "select",
    "selectattr",
    "slice",
    "sort",
    "split",
    "string",
    "sum",
    "title",
    "trim",
    "unique",
    "upper",
    "zip",
];

/// Adds the filters to an environment.
pub(super) fn install(environment: &mut Environment<'static>) {
    guards::install(environment);
    guards::add(environment, "regex_find", Makes::Anew, regex_find);
    guards::add(environment, "regex_findall", Makes::Anew, regex_findall);
    guards::add(environment, "regex_replace", Makes::Anew, regex_replace);
    guards::add(environment, "lines", Makes::Anew, |text: String| -> Value {
        list(text.lines().map(str::trim_end).filter(|l| !l.is_empty()))
    });
    guards::add(environment, "json", Makes::Anew, |value: Value| {
        serde_json::to_string(&value).map_err(|error| bad(error.to_string()))
    });
    guards::add(environment, "from_json", Makes::Anew, |text: String| -> Result<Value, Error> {
        serde_json::from_str::<serde_json::Value>(&text)
            .map(|value| Value::from(Serde(value)))
            .map_err(|error| bad(format!("not JSON: {error}")))
    });
    guards::add(environment, "headings", Makes::Anew, headings);
    guards::add(environment, "section", Makes::Anew, |text: String, title: String| section(&text, &title));
    guards::add(environment, "figures", Makes::Anew, figures);
    guards::add(environment, "sentences", Makes::Anew, |text: String| -> Value {
        list(prose(&text).iter().flat_map(|p| sentences(p)))
    });
    guards::add(environment, "first_sentence", Makes::Anew, |text: String| {
        prose(&text).iter().flat_map(|paragraph| sentences(paragraph)).next().unwrap_or_default().to_owned()
    });
    guards::add(environment, "slug", Makes::Anew, |text: String| slug(&text));
    guards::add(environment, "clip", Makes::Anew, |text: String, max: usize| ghost_domain::text::clip(&text, max));
    guards::add(environment, "basename", Makes::Anew, |path: String| {
        path.rsplit('/').next().unwrap_or_default().to_owned()
    });
    guards::add(environment, "stem", Makes::Anew, |path: String| {
        let name = path.rsplit('/').next().unwrap_or_default();
        name.rsplit_once('.').map_or(name, |(stem, _)| stem).to_owned()
    });
    guards::add(environment, "of", Makes::Lists, |results: Value, tool: String| -> Result<Value, Error> {
        let mut found = Vec::new();
        for result in results.try_iter()? {
            if result.get_attr("tool")?.as_str() == Some(tool.as_str()) {
                found.push(result);
            }
        }
        Ok(Value::from(found))
    });
}

fn list<'a>(items: impl Iterator<Item = &'a str>) -> Value {
    Value::from(items.map(Value::from).collect::<Vec<_>>())
}

/// A match: its only group, or all its groups as a list, or the whole if it has none.
fn caught(captures: &Captures<'_>) -> Value {
    let group = |at: usize| Value::from(captures.get(at).map_or("", |found| found.as_str()));
    match captures.len() {
        1 => group(0),
        2 => group(1),
        groups => Value::from((1..groups).map(group).collect::<Vec<_>>()),
    }
}

fn regex_find(state: &State<'_, '_>, text: String, pattern: String) -> Result<Value, Error> {
    let mut found = None;
    each_match(state, &text, &pattern, |captures| {
        found = Some(caught(captures));
        Ok(false)
    })?;
    Ok(found.unwrap_or(Value::from(())))
}

fn regex_findall(state: &State<'_, '_>, text: String, pattern: String) -> Result<Value, Error> {
    let mut found = Vec::new();
    each_match(state, &text, &pattern, |captures| {
        found.push(caught(captures));
        Ok(true)
    })?;
    Ok(Value::from(found))
}

fn regex_replace(state: &State<'_, '_>, text: String, pattern: String, with: String) -> Result<String, Error> {
    let too_long = || bad(format!("`regex_replace` gives more than {REPLACED_MAX} bytes"));
    // Each `$` may stand for all of the text.
    let most = text.len().saturating_mul(with.matches('$').count()).saturating_add(with.len());
    if most > REPLACED_MAX {
        return Err(too_long());
    }
    let (mut replaced, mut done) = (String::new(), 0);
    each_match(state, &text, &pattern, |captures| {
        let Some(found) = captures.get(0) else { return Ok(true) };
        replaced.push_str(&text[done..found.start()]);
        captures.expand(&with, &mut replaced);
        done = found.end();
        if replaced.len() > REPLACED_MAX { Err(too_long()) } else { Ok(true) }
    })?;
    replaced.push_str(&text[done..]);
    Ok(replaced)
}

/// What every match of `pattern` in `text` is told to, until that says that it is enough.
fn each_match<'t>(
    state: &State<'_, '_>,
    text: &'t str,
    pattern: &str,
    mut told: impl FnMut(&Captures<'t>) -> Result<bool, Error>,
) -> Result<(), Error> {
    let budget = Budget::of(state)?;
    let pattern = budget.pattern(pattern)?;
    budget.search(&pattern, text.len())?;
    for captures in pattern.compile().map_err(bad)?.captures_iter(text) {
        budget.found(&pattern, text.len() - captures.get(0).map_or(0, |found| found.end()))?;
        if !told(&captures)? {
            break;
        }
    }
    Ok(())
}

/// Level and title of a markdown heading.
fn heading(line: &str) -> Option<(usize, &str)> {
    let level = line.bytes().take_while(|b| *b == b'#').count();
    let title = line.get(level..)?;
    (matches!(level, 1..=6) && title.starts_with(' ')).then(|| (level, title.trim().trim_end_matches('#').trim_end()))
}

/// A text without the mark that some editors put before its first character.
fn unmarked(text: &str) -> &str {
    text.strip_prefix('\u{feff}').unwrap_or(text)
}

fn headings(text: String) -> Value {
    let found: Vec<serde_json::Value> = unmarked(&text)
        .lines()
        .enumerate()
        .filter_map(|(at, line)| {
            heading(line).map(|(level, title)| json!({ "level": level, "text": title, "line": at + 1 }))
        })
        .collect();
    Value::from(Serde(found))
}

/// What stands under the heading `title`, up to the next heading of its level or above; empty if there is none.
fn section(text: &str, title: &str) -> String {
    let mut lines = unmarked(text).lines();
    let Some(level) = lines.by_ref().find_map(|line| {
        heading(line).filter(|(_, found)| found.eq_ignore_ascii_case(title.trim())).map(|(level, _)| level)
    }) else {
        return String::new();
    };
    let body: Vec<&str> = lines.take_while(|line| heading(line).is_none_or(|(next, _)| next > level)).collect();
    body.join("\n").trim().to_owned()
}

/// Paragraphs and list items as single lines, without headings, fences, rules and table borders.
fn prose(text: &str) -> Vec<String> {
    let mut paragraphs: Vec<String> = Vec::new();
    let mut open = false;
    let mut fenced = false;
    for line in unmarked(text).lines() {
        let line = line.trim();
        if line.starts_with("```") {
            fenced = !fenced;
            open = false;
            continue;
        }
        let ruled = !line.is_empty() && line.chars().all(|c| matches!(c, '-' | '=' | '|' | ':' | '*' | '_' | ' '));
        if fenced || line.is_empty() || heading(line).is_some() || ruled {
            open = false;
            continue;
        }
        let (item, words) = match line.strip_prefix("- ").or_else(|| line.strip_prefix("* ")) {
            Some(words) => (true, words),
            None => (line.starts_with('|'), line),
        };
        match paragraphs.last_mut() {
            Some(paragraph) if open && !item => {
                paragraph.push(' ');
                paragraph.push_str(words);
            }
            _ => paragraphs.push(words.to_owned()),
        }
        open = !line.starts_with('|');
    }
    paragraphs
}

fn sentences(paragraph: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut start = 0;
    if let Some(end) = SENTENCE_END.as_ref() {
        for stop in end.find_iter(paragraph) {
            // An initial or a short title before the stop is no end: "Mr. Smith", "J. Doe".
            let word = paragraph[start..stop.start()].rsplit(char::is_whitespace).next().unwrap_or_default();
            let short = matches!(word, "Mr" | "Mrs" | "Ms" | "Dr" | "St" | "No" | "approx" | "ca" | "e.g" | "i.e")
                || (word.chars().count() == 1 && word.chars().all(char::is_uppercase));
            if short && stop.as_str().starts_with('.') && stop.end() < paragraph.len() {
                continue;
            }
            found.push(paragraph[start..stop.end()].trim());
            start = stop.end();
        }
    }
    found.push(paragraph[start..].trim());
    found.retain(|sentence| !sentence.is_empty());
    found
}

/// The sentences, list items and table rows that hold a number, each with the numbers in it.
fn figures(text: String) -> Value {
    let Some(figure) = FIGURE.as_ref() else { return Value::from(Vec::<Value>::new()) };
    let mut found = Vec::new();
    for paragraph in prose(&text) {
        for sentence in sentences(&paragraph) {
            let numbers: Vec<&str> = figure.find_iter(sentence).map(|number| number.as_str().trim()).collect();
            if let Some(first) = numbers.first() {
                found.push(json!({ "figure": first, "figures": numbers, "sentence": sentence }));
            }
        }
    }
    Value::from(Serde(found))
}

fn slug(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars().flat_map(char::to_lowercase) {
        if c.is_alphanumeric() {
            out.push(c);
        } else if !out.is_empty() && !out.ends_with('-') {
            out.push('-');
        }
        if out.len() >= 80 {
            break;
        }
    }
    out.trim_end_matches('-').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    use minijinja::{ErrorKind, context};
    use proptest::prelude::*;

    const TEXT: &str = "# Harbour report\n\nThe port moved 1,204 containers in May. That is 12 % more than in April.\nDr. Ito was pleased.\n\n## Costs\n\n- Fuel cost $3.5 million.\n- Staff: unchanged\n\n| month | tonnes |\n|---|---|\n| May | 88 |\n";

    fn eval(expression: &str) -> serde_json::Value {
        let mut environment = Environment::new();
        install(&mut environment);
        let value = environment
            .compile_expression(expression)
            .unwrap()
            .eval(context! { text => TEXT, BUDGET => Value::from_dyn_object(Budget::whole(&Arc::default())) })
            .unwrap();
        serde_json::to_value(&value).unwrap()
    }

    #[test]
    fn texts_are_taken_apart() {
        assert_eq!(eval("text|headings|map(attribute='text')|list"), json!(["Harbour report", "Costs"]));
        assert_eq!(eval("text|first_sentence"), json!("The port moved 1,204 containers in May."));
        assert_eq!(eval("(text|sentences)[2]"), json!("Dr. Ito was pleased."));
        assert_eq!(eval("text|figures|map(attribute='figure')|list"), json!(["1,204", "12 %", "$3.5 million", "88"]));
        assert_eq!(eval("text|section('costs')|lines|first"), json!("- Fuel cost $3.5 million."));
        assert_eq!(eval("text|regex_findall('(\\\\w+): (\\\\w+)')"), json!([["Staff", "unchanged"]]));
        assert_eq!(eval("text|regex_find('nothing')"), json!(null));
        assert_eq!(eval("'Harbour Report, May!'|slug"), json!("harbour-report-may"));
        assert_eq!(eval("'a/b/c.tar.md'|stem"), json!("c.tar"));
        assert_eq!(eval("('{\"a\": [1]}'|from_json).a|json"), json!("[1]"));
    }

    #[test]
    fn a_long_row_of_numbers_is_not_one_number() {
        assert_eq!(eval("('1,204.50 euros' | figures)[0].figures"), json!(["1,204.50 euros"]));
        assert_eq!(eval("('1,2,3,4,5,6,7,8,9' | figures)[0].figures"), json!(["1,2,3,4,5,6,7", "8,9"]));
    }

    #[test]
    fn a_byte_order_mark_hides_nothing() {
        assert_eq!(eval("('\u{feff}# Report\n\nIt is 7.' | headings)[0].text"), json!("Report"));
        assert_eq!(eval("'\u{feff}## Costs\nIt is 7.' | section('costs')"), json!("It is 7."));
        assert_eq!(eval("'\u{feff}## Costs of 9\nIt is 7.' | first_sentence"), json!("It is 7."));
    }

    #[test]
    fn every_name_is_a_filter() {
        let mut environment = Environment::new();
        install(&mut environment);
        for name in NAMES.iter().chain(BUILT_IN) {
            let probe = environment.compile_expression(&format!("none|{name}")).unwrap().eval(());
            assert!(probe.is_ok() || probe.is_err_and(|error| error.kind() != ErrorKind::UnknownFilter), "{name}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_taken(text in any::<String>()) {
            headings(text.clone());
            section(&text, "x");
            figures(text.clone());
            for paragraph in prose(&text) {
                sentences(&paragraph);
            }
            prop_assert!(slug(&text).len() <= 84);
        }
    }
}
