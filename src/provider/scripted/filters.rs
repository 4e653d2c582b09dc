//! Filters with which a rule takes text from the results of tools, and regular expressions. An expression has a bounded size and
//! is compiled when it is first used, because a start reaches few of a file's rules. The `regex` crate searches in linear time.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use minijinja::value::Serde;
use minijinja::{Environment, Error, ErrorKind, Value};
use regex::{Captures, Regex, RegexBuilder};
use serde_json::json;

use super::profile::profile;
use super::prose::{figures, heading, numbers, prose, sentences, unmarked};
use super::shapes::cell_numbers;

/// Longest text that `regex_replace` gives, in bytes.
const REPLACED_MAX: usize = 8 << 20;

/// Adds the filters to an environment.
pub(super) fn install(environment: &mut Environment<'static>) {
    let patterns: Arc<Patterns> = Arc::default();
    let of_find = Arc::clone(&patterns);
    environment.add_filter("regex_find", move |text: String, pattern: String| regex_find(&of_find, &text, &pattern));
    let of_all = Arc::clone(&patterns);
    environment
        .add_filter("regex_findall", move |text: String, pattern: String| regex_findall(&of_all, &text, &pattern));
    environment.add_filter("regex_replace", move |text: String, pattern: String, with: String| {
        regex_replace(&patterns, &text, &pattern, &with)
    });
    environment.add_filter("lines", |text: String| -> Value {
        list(text.lines().map(str::trim_end).filter(|l| !l.is_empty()))
    });
    environment
        .add_filter("json", |value: Value| serde_json::to_string(&value).map_err(|error| bad(error.to_string())));
    environment.add_filter("from_json", |text: String| -> Result<Value, Error> {
        serde_json::from_str::<serde_json::Value>(&text)
            .map(|value| Value::from(Serde(value)))
            .map_err(|error| bad(format!("not JSON: {error}")))
    });
    environment.add_filter("headings", headings);
    environment.add_filter("section", |text: String, title: String| section(&text, &title));
    environment.add_filter("figures", |text: String| Value::from(Serde(figures(&text))));
    environment.add_filter("numbers", |text: String| list(numbers(&text).into_iter()));
    environment.add_filter("missing_in", |wanted: Vec<String>, text: String| {
        let (written, cells) = (numbers(&text), cell_numbers(&text));
        list(wanted.iter().map(String::as_str).filter(|number| !written.contains(number) && !cells.contains(number)))
    });
    environment.add_filter("profile", |text: String, before: Option<String>, line: Option<usize>| {
        Value::from(Serde(profile(&text, before.as_deref().unwrap_or_default(), line.unwrap_or(1))))
    });
    environment.add_filter("sentences", |text: String| -> Value {
        list(prose(&text).iter().flat_map(|p| sentences(&p.text)))
    });
    environment.add_filter("first_sentence", |text: String| {
        prose(&text).iter().flat_map(|paragraph| sentences(&paragraph.text)).next().unwrap_or_default().to_owned()
    });
    environment.add_filter("slug", |text: String| slug(&text));
    environment.add_filter("clip", |text: String, max: usize| ghost_domain::text::clip(&text, max));
    environment.add_filter("basename", |path: String| path.rsplit('/').next().unwrap_or_default().to_owned());
    environment.add_filter("stem", |path: String| {
        let name = path.rsplit('/').next().unwrap_or_default();
        name.rsplit_once('.').map_or(name, |(stem, _)| stem).to_owned()
    });
    environment.add_filter("of", |results: Value, tool: String| -> Result<Value, Error> {
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

/// A match: its only group, all its groups as a list, or the whole match if it has no group.
fn caught(captures: &Captures<'_>) -> Value {
    let group = |at: usize| Value::from(captures.get(at).map_or("", |found| found.as_str()));
    match captures.len() {
        1 => group(0),
        2 => group(1),
        groups => Value::from((1..groups).map(group).collect::<Vec<_>>()),
    }
}

fn regex_find(patterns: &Patterns, text: &str, pattern: &str) -> Result<Value, Error> {
    let pattern = patterns.get(pattern);
    let found = pattern.compile().map_err(bad)?.captures(text);
    Ok(found.map_or(Value::from(()), |captures| caught(&captures)))
}

fn regex_findall(patterns: &Patterns, text: &str, pattern: &str) -> Result<Value, Error> {
    let pattern = patterns.get(pattern);
    let found = pattern.compile().map_err(bad)?.captures_iter(text);
    Ok(Value::from(found.map(|captures| caught(&captures)).collect::<Vec<_>>()))
}

fn regex_replace(patterns: &Patterns, text: &str, pattern: &str, with: &str) -> Result<String, Error> {
    let too_long = || bad(format!("`regex_replace` gives more than {REPLACED_MAX} bytes"));
    let pattern = patterns.get(pattern);
    let (mut replaced, mut done) = (String::new(), 0);
    for captures in pattern.compile().map_err(bad)?.captures_iter(text) {
        let Some(found) = captures.get(0) else { continue };
        replaced.push_str(&text[done..found.start()]);
        captures.expand(with, &mut replaced);
        done = found.end();
        if replaced.len() > REPLACED_MAX {
            return Err(too_long());
        }
    }
    replaced.push_str(&text[done..]);
    Ok(replaced)
}

fn bad(message: String) -> Error {
    Error::new(ErrorKind::InvalidOperation, message)
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

/// The text under the heading `title`, up to the next heading of the same or a higher level; empty
/// if the heading is missing.
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

/// Largest compiled expression, in bytes.
const SIZE_MAX: usize = 1 << 20;
/// Maximum expressions that [`Patterns`] keeps.
const CACHED_MAX: usize = 256;

/// A regular expression.
#[derive(Debug)]
pub(super) struct Pattern {
    source: String,
    compiled: OnceLock<Result<Regex, String>>,
}

impl Pattern {
    pub(super) fn new(source: &str) -> Self {
        Self { source: source.to_owned(), compiled: OnceLock::new() }
    }

    /// The compiled expression.
    ///
    /// # Errors
    /// The syntax error, or that the expression is larger than one MiB when compiled, as text.
    pub(super) fn compile(&self) -> Result<&Regex, String> {
        let compile = || {
            let built = RegexBuilder::new(&self.source).size_limit(SIZE_MAX).build();
            built.map_err(|error| ghost_domain::text::one_line(&error.to_string()))
        };
        self.compiled.get_or_init(compile).as_ref().map_err(Clone::clone)
    }

    /// The captures in `text`, if the expression matches.
    pub(super) fn captures<'t>(&self, text: &'t str) -> Result<Option<Captures<'t>>, String> {
        Ok(self.compile()?.captures(text))
    }
}

/// The expressions that templates passed to filters, so that a loop compiles each once.
#[derive(Default)]
pub(super) struct Patterns(Mutex<BTreeMap<String, Arc<Pattern>>>);

impl Patterns {
    /// The pattern for `source`, from the cache if it is there.
    pub(super) fn get(&self, source: &str) -> Arc<Pattern> {
        // The map is complete between any two calls, so a panic elsewhere does not damage it.
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(pattern) = known.get(source) {
            return Arc::clone(pattern);
        }
        let pattern = Arc::new(Pattern::new(source));
        if known.len() >= CACHED_MAX {
            known.clear();
        }
        known.insert(source.to_owned(), Arc::clone(&pattern));
        pattern
    }
}

#[cfg(test)]
mod tests {
    use minijinja::context;
    use proptest::prelude::*;

    use super::*;

    const TEXT: &str = "# Harbour report\n\nThe port moved 1,204 containers in May. That is 12 % more than in April.\nDr. Ito was pleased.\n\n## Costs\n\n- Fuel cost $3.5 million.\n- Staff: unchanged\n\n| month | tonnes |\n|---|---|\n| May | 88 |\n";

    fn eval(expression: &str) -> serde_json::Value {
        let mut environment = Environment::new();
        install(&mut environment);
        let value = environment.compile_expression(expression).unwrap().eval(context! { text => TEXT }).unwrap();
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

    proptest! {
        #[test]
        fn any_text_is_taken(text in any::<String>()) {
            headings(text.clone());
            section(&text, "x");
            prop_assert!(slug(&text).len() <= 84);
        }
    }

    #[test]
    fn a_wrong_or_large_expression_is_refused() {
        for bad in ["(", "a{2,1}", "[z-a]", r"\p{Nope}", "(?P<a>x)(?P<a>y)"] {
            assert!(Pattern::new(bad).compile().is_err(), "{bad} was taken");
        }
        assert!(Pattern::new(r"(\w{1000}){1000}").compile().is_err());
        assert!(Pattern::new(r"(?m)^## (\S+) \((\d{1,3})\)$").compile().is_ok());
    }
}
