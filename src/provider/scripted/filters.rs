//! Filters that let a rule take its words from what tools returned.
//!
//! Must never: panic on any input, or use an expression of unbounded size.

use super::budget::{Budget, bad};
use super::guards::{self, Makes};
use super::prose::{figures, heading, numbers, prose, sentences, unmarked};
use super::shapes::{cell_numbers, shape, tallied};
use minijinja::value::Serde;
use minijinja::{Environment, Error, State, Value};
use regex::Captures;
use serde_json::json;

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
    "numbers",
    "missing_in",
    "shape",
    "tallied",
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
    guards::add(environment, "figures", Makes::Anew, |text: String| Value::from(Serde(figures(&text))));
    guards::add(environment, "numbers", Makes::Anew, |text: String| list(numbers(&text).into_iter()));
    guards::add(environment, "missing_in", Makes::Anew, |wanted: Vec<String>, text: String| {
        let (written, cells) = (numbers(&text), cell_numbers(&text));
        list(wanted.iter().map(String::as_str).filter(|number| !written.contains(number) && !cells.contains(number)))
    });
    guards::add(environment, "shape", Makes::Anew, |text: String, rows: usize, first: Option<bool>| {
        Value::from(Serde(shape(&text, rows, first.unwrap_or(true))))
    });
    guards::add(environment, "tallied", Makes::Anew, |tallies: Vec<String>| tallied(&tallies));
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
            prop_assert!(slug(&text).len() <= 84);
        }
    }
}
