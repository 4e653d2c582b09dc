//! Templates of rules: text with `{{ }}` in it, whole values, and conditions, rendered within bounds.
//!
//! Must never: reach anything but its context, or run without a limit of steps and of size.

use std::collections::BTreeSet;
use std::io;

use minijinja::syntax::SyntaxConfig;
use minijinja::{Environment, ErrorKind, UndefinedBehavior, Value as Jinja};
use serde_json::Value;

use super::lets::Let;
use super::{TEXT_MAX, filters};

/// Steps that one template may take.
const FUEL: u64 = 2_000_000;
/// Names that every template knows; `item` and `index` besides under `for_each`.
const NAMES: &[&str] = &[
    "agent_id",
    "mail",
    "text",
    "last_text",
    "results",
    "fresh",
    "last",
    "round",
    "called",
    "vars",
    "match",
    "item",
    "index",
];

/// An expression, checked.
#[derive(Clone, Debug)]
pub(super) struct Expr(String);

impl Expr {
    /// The name in it that has a meaning only under `for_each`, if there is one.
    fn of_an_item(&self, templates: &Templates) -> Option<&'static str> {
        let names = templates.environment.compile_expression(&self.0).ok()?.undeclared_variables(false);
        ["item", "index"].into_iter().find(|name| names.contains(*name))
    }
}

/// Text of a rule.
#[derive(Clone, Debug)]
pub(super) enum Text {
    /// Without a template in it.
    Plain(String),
    /// Key of a template in the environment.
    Template(String),
}

/// Arguments of a call.
#[derive(Clone, Debug)]
pub(super) enum Tree {
    /// Taken as it is.
    Plain(Value),
    /// Text with templates in it.
    Text(Text),
    /// One expression that fills the whole string: keeps its type.
    Value(Expr),
    /// A list.
    List(Vec<Tree>),
    /// An object.
    Map(Vec<(String, Tree)>),
}

/// The templates of one rule file.
pub(super) struct Templates {
    environment: Environment<'static>,
    count: usize,
    /// Filters that are known to exist.
    filters: BTreeSet<String>,
    /// The names that `let` has defined so far.
    lets: Vec<String>,
    /// Those that it defines below what is being checked.
    below: BTreeSet<String>,
    /// Those of `lets` that what was checked since the last look uses.
    used: BTreeSet<String>,
}

impl Templates {
    pub(super) fn new() -> Self {
        let mut environment = Environment::new();
        environment.set_undefined_behavior(UndefinedBehavior::Strict);
        environment.set_fuel(Some(FUEL));
        let mut syntax = SyntaxConfig::builder();
        syntax.trim_blocks(true).lstrip_blocks(true);
        // The default delimiters are kept, and those do not contradict each other.
        if let Ok(syntax) = syntax.build() {
            environment.set_syntax(syntax);
        }
        filters::install(&mut environment);
        Self {
            environment,
            count: 0,
            filters: filters::NAMES.iter().map(|name| (*name).to_owned()).collect(),
            lets: Vec::new(),
            below: BTreeSet::new(),
            used: BTreeSet::new(),
        }
    }

    /// Checks and keeps an expression.
    pub(super) fn expression(&mut self, source: &str) -> Result<Expr, String> {
        let compiled = self.environment.compile_expression(source).map_err(|error| words(&error))?;
        let mut names = compiled.undeclared_variables(false);
        names.extend(self.defined_in(source));
        self.known_names(names)?;
        self.known_filters(source)?;
        Ok(Expr(source.to_owned()))
    }

    /// Checks and keeps a text.
    pub(super) fn add(&mut self, source: &str) -> Result<Text, String> {
        if !source.contains("{{") && !source.contains("{%") && !source.contains("{#") {
            return Ok(Text::Plain(source.to_owned()));
        }
        let name = format!("t{}", self.count);
        self.environment.add_template_owned(name.clone(), source.to_owned()).map_err(|error| words(&error))?;
        self.count += 1;
        let template = self.environment.get_template(&name).map_err(|error| words(&error))?;
        let mut names = template.undeclared_variables(false);
        for code in code_parts(source) {
            names.extend(self.defined_in(code));
        }
        self.known_names(names)?;
        for code in code_parts(source) {
            self.known_filters(code)?;
        }
        Ok(Text::Template(name))
    }

    /// Checks and keeps the arguments of a call.
    pub(super) fn add_tree(&mut self, source: &Value) -> Result<Tree, String> {
        match source {
            Value::String(text) => match whole_expression(text) {
                Some(expression) => self.expression(expression).map(Tree::Value),
                None => self.add(text).map(Tree::Text),
            },
            Value::Array(items) => {
                items.iter().map(|item| self.add_tree(item)).collect::<Result<_, _>>().map(Tree::List)
            }
            Value::Object(map) => map
                .iter()
                .map(|(key, item)| Ok((key.clone(), self.add_tree(item)?)))
                .collect::<Result<_, String>>()
                .map(Tree::Map),
            other => Ok(Tree::Plain(other.clone())),
        }
    }

    /// Whether a name means something without any `let`.
    pub(super) fn is_taken(&self, name: &str) -> bool {
        NAMES.contains(&name) || self.environment.globals().any(|(global, _)| global == name)
    }

    /// Checks and keeps what `let` defines as `name`, before the definitions of `below`; gives it with what it uses.
    pub(super) fn define(&mut self, name: &str, source: &str, below: BTreeSet<String>) -> Result<Let, String> {
        self.below = below;
        self.below.insert(name.to_owned());
        self.used.clear();
        let checked = self.expression(source).and_then(|expression| match expression.of_an_item(self) {
            Some(item) => Err(format!("`{item}` is known only under `for_each`")),
            None => Ok(expression),
        });
        self.below.clear();
        let uses = std::mem::take(&mut self.used);
        // Known even if it is wrong: one mistake is told once.
        self.lets.push(name.to_owned());
        Ok(Let { name: name.to_owned(), expression: checked?, uses })
    }

    /// Names of definitions in code. The library leaves out what it is that a slice is cut from.
    fn defined_in(&self, code: &str) -> Vec<String> {
        let is_defined = |name: &&str| self.below.contains(*name) || self.lets.iter().any(|known| known == name);
        variables(&without_strings(code)).into_iter().filter(is_defined).map(str::to_owned).collect()
    }

    /// How many names are defined.
    pub(super) fn count_lets(&self) -> usize {
        self.lets.len()
    }

    /// Forgets all definitions but the first `count`.
    pub(super) fn keep_lets(&mut self, count: usize) {
        self.lets.truncate(count);
    }

    /// The definitions that were used since this was last asked.
    pub(super) fn used(&mut self) -> BTreeSet<String> {
        std::mem::take(&mut self.used)
    }

    /// A misspelt name is found when the file is read, not when the rule is reached.
    fn known_names(&mut self, names: impl IntoIterator<Item = String>) -> Result<(), String> {
        let mut unknown: Vec<String> = Vec::new();
        for name in names {
            if self.lets.contains(&name) {
                self.used.insert(name);
            } else if !self.is_taken(&name) {
                unknown.push(name);
            }
        }
        unknown.sort();
        let Some(name) = unknown.first() else { return Ok(()) };
        if self.below.contains(name) {
            return Err(format!(
                "`{name}` is not defined yet: a definition uses those above it, not itself and none below"
            ));
        }
        let known: Vec<&str> = NAMES.iter().copied().chain(self.lets.iter().map(String::as_str)).collect();
        Err(match ghost_domain::text::nearest(name, known.iter().copied()) {
            Some(near) => format!("`{name}` is not defined; did you mean `{near}`?"),
            None => format!("`{name}` is not defined; there are: {}", known.join(", ")),
        })
    }

    /// Likewise a misspelt filter.
    fn known_filters(&mut self, code: &str) -> Result<(), String> {
        let mut rest = without_strings(code);
        while let Some(at) = rest.find('|') {
            rest = rest.split_off(at + 1);
            let name: String =
                rest.trim_start().chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect();
            if name.is_empty() {
                continue;
            }
            // A probe runs the filter, and a file uses few filters many times.
            if self.filters.contains(&name) {
                continue;
            }
            let unknown = |error: minijinja::Error| error.kind() == ErrorKind::UnknownFilter;
            let probe = format!("none|{name}");
            if self.environment.compile_expression(&probe).and_then(|probe| probe.eval(())).is_err_and(unknown) {
                return Err(format!("there is no filter `{name}`"));
            }
            self.filters.insert(name);
        }
        Ok(())
    }

    pub(super) fn value(&self, expression: &Expr, context: &Jinja) -> Result<Jinja, String> {
        let compiled = self.environment.compile_expression(&expression.0).map_err(|error| words(&error))?;
        let value = compiled.eval(context.clone()).map_err(|error| words(&error))?;
        if value.is_undefined() {
            return Err(format!("`{}` is undefined here", expression.0));
        }
        Ok(value)
    }

    pub(super) fn truth(&self, expression: &Expr, context: &Jinja) -> Result<bool, String> {
        self.value(expression, context).map(|value| value.is_true())
    }

    pub(super) fn text(&self, text: &Text, context: &Jinja) -> Result<String, String> {
        let name = match text {
            Text::Plain(text) => return Ok(text.clone()),
            Text::Template(name) => name,
        };
        let template = self.environment.get_template(name).map_err(|error| words(&error))?;
        let mut out = Bounded(Vec::new());
        template.render_captured_to(context.clone(), &mut out).map_err(|error| words(&error))?;
        String::from_utf8(out.0).map_err(|error| error.to_string())
    }

    pub(super) fn tree(&self, tree: &Tree, context: &Jinja) -> Result<Value, String> {
        match tree {
            Tree::Plain(value) => Ok(value.clone()),
            Tree::Text(text) => self.text(text, context).map(Value::String),
            Tree::Value(expression) => {
                let value = self.value(expression, context)?;
                serde_json::to_value(&value).map_err(|error| error.to_string())
            }
            Tree::List(items) => {
                items.iter().map(|item| self.tree(item, context)).collect::<Result<_, _>>().map(Value::Array)
            }
            Tree::Map(items) => items
                .iter()
                .map(|(key, item)| Ok((key.clone(), self.tree(item, context)?)))
                .collect::<Result<_, String>>()
                .map(Value::Object),
        }
    }
}

/// The expression of a text that is nothing but one `{{ … }}`.
fn whole_expression(text: &str) -> Option<&str> {
    let inner = text.trim().strip_prefix("{{")?.strip_suffix("}}")?;
    let inner = inner.strip_prefix('-').unwrap_or(inner);
    let inner = inner.strip_suffix('-').unwrap_or(inner);
    (!inner.contains("{{") && !inner.contains("}}") && !inner.contains("{%")).then(|| inner.trim())
}

/// The insides of `{{ }}` and `{% %}`.
fn code_parts(source: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut rest = source;
    while let Some(start) = rest.find("{{").into_iter().chain(rest.find("{%")).min() {
        let close = if rest[start..].starts_with("{{") { "}}" } else { "%}" };
        let inside = &rest[start + 2..];
        let Some(end) = inside.find(close) else { break };
        parts.push(&inside[..end]);
        rest = &inside[end + 2..];
    }
    parts
}

/// `code` with the content of its string literals left out.
fn without_strings(code: &str) -> String {
    let mut out = String::with_capacity(code.len());
    let mut quote = None;
    let mut escaped = false;
    for c in code.chars() {
        match quote {
            None if matches!(c, '\'' | '"') => quote = Some(c),
            None => out.push(c),
            Some(_) if escaped => escaped = false,
            Some(_) if c == '\\' => escaped = true,
            Some(open) if c == open => quote = None,
            Some(_) => {}
        }
    }
    out
}

/// The names in code without strings that are neither attributes nor filters nor the names of arguments.
fn variables(code: &str) -> Vec<&str> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let (mut names, mut at) = (Vec::new(), 0);
    while let Some(start) = code[at..].find(is_part).map(|found| at + found) {
        let end = code[start..].find(|c| !is_part(c)).map_or(code.len(), |length| start + length);
        at = end;
        let before = code[..start].trim_end();
        let after = code[end..].trim_start();
        let argument = after.starts_with('=') && !after.starts_with("==");
        if !before.ends_with(['.', '|']) && !argument && !code[start..].starts_with(|c: char| c.is_ascii_digit()) {
            names.push(&code[start..end]);
        }
    }
    names
}

/// The error with its causes, on one line.
fn words(error: &minijinja::Error) -> String {
    let mut text = error.kind().to_string();
    if let Some(detail) = error.detail() {
        text = format!("{text}: {detail}");
    }
    if let Some(line) = error.line().filter(|line| *line > 1) {
        text = format!("{text} (line {line} of the template)");
    }
    ghost_domain::text::clip(&ghost_domain::text::one_line(&text), 500)
}

/// Text of at most [`TEXT_MAX`] bytes.
struct Bounded(Vec<u8>);

impl io::Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0.len() + bytes.len() > TEXT_MAX {
            return Err(io::Error::other(format!("the text is longer than {TEXT_MAX} bytes")));
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
