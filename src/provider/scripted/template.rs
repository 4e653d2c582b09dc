//! The templates of one rule file: checked and run, within a limit of steps and of bytes. `ghostd check` and a reload check them
//! when they read the file; a start does not, because that takes longer than all else in a start.

use std::collections::{BTreeSet, HashSet};
use std::io;

use minijinja::syntax::SyntaxConfig;
use minijinja::{Environment, Error, ErrorKind, UndefinedBehavior, Value as Jinja};
use serde_json::Value;

use super::filters;

/// Longest text of one answer, in bytes.
pub const TEXT_MAX: usize = 256 * 1_024;
/// Maximum steps of one run of a template or an expression.
const FUEL: u64 = 2_000_000;
/// Names that every template knows. Under `for_each`, `item` and `index` are known too.
#[rustfmt::skip]
const NAMES: &[&str] = &[
    "agent_id", "mail", "text", "last_text", "results", "fresh", "last", "round", "called", "vars", "match", "item", "index",
];

/// Hint for a template that cannot be parsed.
const SYNTAX_HINT: &str = "close every `{{`, `{%`, quote and bracket, and end every `if` and `for`";
/// Hint for a regular expression that cannot be parsed.
pub(super) const REGEX_HINT: &str =
    "write `\\` before a special character to match it literally; look-around and back-references are not supported";

/// The source of an expression.
#[derive(Clone, Debug)]
pub(super) struct Expr(pub(super) String);

/// A problem of a template.
#[derive(Debug)]
pub(super) struct Fault {
    pub(super) message: String,
    pub(super) hint: String,
    /// The line within the text, from 1.
    pub(super) line: usize,
    /// The unknown name; empty for any other fault.
    pub(super) word: String,
}

impl Fault {
    fn syntax(error: minijinja::Error) -> Vec<Self> {
        let mut message = error.kind().to_string();
        if let Some(detail) = error.detail() {
            message = format!("{message}: {detail}");
        }
        let line = error.line().unwrap_or(1);
        vec![Self { message: clipped(&message), hint: SYNTAX_HINT.to_owned(), line, word: String::new() }]
    }
}

/// Text of a rule.
#[derive(Clone, Debug)]
pub(super) enum Text {
    /// Without a template in it.
    Plain(String),
    /// The source of a template.
    Template(String),
}

/// Arguments of a call.
#[derive(Clone, Debug)]
pub(super) enum Tree {
    /// Used unchanged.
    Plain(Value),
    /// Text with templates in it.
    Text(Text),
    /// One expression that fills the whole string. Its value keeps its type.
    Value(Expr),
    /// A list.
    List(Vec<Tree>),
    /// An object.
    Map(Vec<(String, Tree)>),
}

/// The templates of one rule file.
#[derive(Debug)]
pub(super) struct Templates {
    environment: Environment<'static>,
    /// The names of the template language itself.
    globals: BTreeSet<String>,
    /// Whether to check each template when it is read.
    checks: bool,
    /// The names that the current `let` defines.
    lets: BTreeSet<String>,
}

impl Templates {
    pub(super) fn new(checks: bool) -> Self {
        let mut environment = Environment::new();
        environment.set_undefined_behavior(UndefinedBehavior::Strict);
        environment.set_fuel(Some(FUEL));
        let mut syntax = SyntaxConfig::builder();
        syntax.trim_blocks(true).lstrip_blocks(true);
        // The default delimiters do not contradict each other.
        environment.set_syntax(syntax.build().unwrap_or_default());
        filters::install(&mut environment);
        Self {
            globals: environment.globals().map(|(name, _)| name.to_owned()).collect(),
            environment,
            checks,
            lets: BTreeSet::new(),
        }
    }

    /// Reads an expression.
    pub(super) fn expression(&self, source: &str) -> Result<Expr, Vec<Fault>> {
        if self.checks {
            let names = self.environment.compile_expression(source).map_err(Fault::syntax)?.undeclared_variables(false);
            self.check(source, names)?;
        }
        Ok(Expr(source.to_owned()))
    }

    /// Reads a text.
    pub(super) fn text(&self, source: &str) -> Result<Text, Vec<Fault>> {
        if !source.contains("{{") && !source.contains("{%") && !source.contains("{#") {
            return Ok(Text::Plain(source.to_owned()));
        }
        if self.checks {
            let template = self.environment.template_from_str(source).map_err(Fault::syntax)?;
            self.check(source, template.undeclared_variables(false))?;
        }
        Ok(Text::Template(source.to_owned()))
    }

    /// Whether a name has a meaning without any `let`.
    pub(super) fn is_taken(&self, name: &str) -> bool {
        NAMES.contains(&name) || self.globals.contains(name)
    }

    /// Reads a definition of `let`, which may use all other definitions.
    pub(super) fn definition(&self, source: &str) -> Result<Expr, Vec<Fault>> {
        if self.checks {
            let names = self.environment.compile_expression(source).map_err(Fault::syntax)?.undeclared_variables(false);
            if let Some(item) = names.iter().find(|name| matches!(name.as_str(), "item" | "index")) {
                let message = format!("`{item}` is known only under `for_each`");
                let hint = "use it in the `call` that has `for_each`".to_owned();
                return Err(vec![Fault { message, hint, line: line_of(source, item), word: item.clone() }]);
            }
            self.check(source, names)?;
        }
        Ok(Expr(source.to_owned()))
    }

    /// Adds the names of definitions. Returns the names that were not known before.
    pub(super) fn define<'n>(&mut self, names: impl Iterator<Item = &'n str>) -> Vec<String> {
        names.filter(|name| self.lets.insert((*name).to_owned())).map(str::to_owned).collect()
    }

    /// Removes the names of definitions.
    pub(super) fn forget(&mut self, names: &[String]) {
        for name in names {
            self.lets.remove(name);
        }
    }

    /// Checks the undeclared names of a template.
    fn check(&self, source: &str, names: HashSet<String>) -> Result<(), Vec<Fault>> {
        let unknown: BTreeSet<String> =
            names.into_iter().filter(|name| !self.lets.contains(name) && !self.is_taken(name)).collect();
        if unknown.is_empty() {
            return Ok(());
        }
        let known: Vec<&str> = NAMES.iter().copied().chain(self.lets.iter().map(String::as_str)).collect();
        let fault = |word: String| {
            let hint = match ghost_domain::text::nearest(&word, known.iter().copied()) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("there are: {}", known.join(", ")),
            };
            Fault { message: format!("`{word}` is not defined"), hint, line: line_of(source, &word), word }
        };
        Err(unknown.into_iter().map(fault).collect())
    }
}

/// The first line of a template that contains `word`, from 1.
fn line_of(source: &str, word: &str) -> usize {
    source.lines().position(|line| line.contains(word)).map_or(1, |line| line + 1)
}

/// The expression of a text that consists of a single `{{ … }}`.
pub(super) fn whole_expression(text: &str) -> Option<&str> {
    let inner = text.trim().strip_prefix("{{")?.strip_suffix("}}")?;
    let inner = inner.strip_prefix('-').unwrap_or(inner);
    let inner = inner.strip_suffix('-').unwrap_or(inner);
    (!inner.contains("{{") && !inner.contains("}}") && !inner.contains("{%")).then(|| inner.trim())
}

pub(super) fn clipped(text: &str) -> String {
    ghost_domain::text::clip(&ghost_domain::text::one_line(text), 500)
}

/// The message for an invalid regular expression.
pub(super) fn not_a_regex(text: &str, error: &dyn std::fmt::Display) -> String {
    let error = error.to_string();
    // The library marks the position on a second line below the pattern, which is useless in a
    // message of one line.
    let why = error.rsplit_once("error: ").map_or(error.as_str(), |(_, why)| why);
    clipped(&format!("`{}` is not a regular expression: {why}", ghost_domain::text::clip(text, 200)))
}

impl Templates {
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

    pub(super) fn render(&self, text: &Text, context: &Jinja) -> Result<String, String> {
        let source = match text {
            Text::Plain(text) => return Ok(text.clone()),
            Text::Template(source) => source,
        };
        let template = self.environment.template_from_str(source).map_err(|error| words(&error))?;
        let mut out = Bounded::default();
        template.render_captured_to(context.clone(), &mut out).map_err(|error| {
            // The error of the library says only that writing failed.
            if out.full { format!("the text is longer than {TEXT_MAX} bytes") } else { words(&error) }
        })?;
        String::from_utf8(out.text).map_err(|error| error.to_string())
    }

    pub(super) fn tree(&self, tree: &Tree, context: &Jinja) -> Result<Value, String> {
        match tree {
            Tree::Plain(value) => Ok(value.clone()),
            Tree::Text(text) => self.render(text, context).map(Value::String),
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

/// An error of the template language with its cause, on one line.
fn words(error: &Error) -> String {
    let mut text = match error.kind() {
        ErrorKind::OutOfFuel => "a template takes too many steps".to_owned(),
        kind => kind.to_string(),
    };
    // If a template uses a `let` whose definition failed, the failure is the source of the
    // template's error.
    let cause = std::error::Error::source(error).and_then(|cause| cause.downcast_ref::<Error>());
    if let Some(detail) = error.detail().or_else(|| cause.and_then(Error::detail)) {
        text = format!("{text}: {detail}");
    }
    if let Some(line) = error.line().filter(|line| *line > 1) {
        text = format!("{text} (line {line} of the template)");
    }
    clipped(&text)
}

/// Text of at most [`TEXT_MAX`] bytes.
#[derive(Default)]
struct Bounded {
    text: Vec<u8>,
    full: bool,
}

impl io::Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.text.len() + bytes.len() > TEXT_MAX {
            self.full = true;
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.text.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
