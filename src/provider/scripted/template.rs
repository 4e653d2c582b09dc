//! Templates of rules: text with `{{ }}` in it, whole values, and conditions, rendered within bounds.
//!
//! Must never: reach anything but its context, or run without a limit of steps and of size.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use minijinja::syntax::SyntaxConfig;
use minijinja::{Environment, ErrorKind, UndefinedBehavior, Value as Jinja};
use serde_json::Value;

use super::code::{Mentions, Regex, line_at};
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

/// What is wrong with a template.
#[derive(Debug)]
pub(super) struct Fault {
    pub(super) message: String,
    pub(super) hint: Option<String>,
    /// The line within the text, from 1.
    pub(super) line: usize,
    /// The word that it is about; empty if it is about none.
    pub(super) word: String,
}

impl Fault {
    fn syntax(error: &minijinja::Error) -> Vec<Self> {
        let mut message = error.kind().to_string();
        if let Some(detail) = error.detail() {
            message = format!("{message}: {detail}");
        }
        vec![Self { message: clipped(&message), hint: None, line: error.line().unwrap_or(1), word: String::new() }]
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
    /// The language's own names.
    globals: Vec<String>,
    /// Expressions that compile.
    compiled: BTreeSet<String>,
    /// Texts with the keys of their templates.
    texts: BTreeMap<String, String>,
    /// Filters besides those that were found to exist.
    filters: BTreeSet<String>,
    /// The names that `let` has defined so far.
    lets: Vec<String>,
    /// Those that it defines below what is being checked.
    below: BTreeSet<String>,
    /// Those of `lets` that what was checked since the last look uses.
    used: BTreeSet<String>,
    /// What a thorough look has gathered; `None` looks at what is needed to run only.
    gathered: Option<Gathered>,
}

/// What templates hand to filters as it stands.
#[derive(Default)]
pub(super) struct Gathered {
    /// Constants under `vars` that are used as regular expressions.
    pub(super) patterns: BTreeSet<String>,
    /// Tools whose results were asked for since the last look, each with its line in its text.
    pub(super) tools: Vec<(usize, String)>,
}

impl Templates {
    /// With `thorough`, regular expressions are compiled when they are read, not when they are used, and tools that are
    /// named are gathered.
    pub(super) fn new(thorough: bool) -> Self {
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
            globals: environment.globals().map(|(name, _)| name.to_owned()).collect(),
            environment,
            compiled: BTreeSet::new(),
            texts: BTreeMap::new(),
            filters: BTreeSet::new(),
            lets: Vec::new(),
            below: BTreeSet::new(),
            used: BTreeSet::new(),
            gathered: thorough.then(Gathered::default),
        }
    }

    /// Checks and keeps an expression.
    pub(super) fn expression(&mut self, source: &str) -> Result<Expr, Vec<Fault>> {
        let mentions = Mentions::of_expression(source);
        if !self.compiled.contains(source) {
            self.environment.compile_expression(source).map_err(|error| Fault::syntax(&error))?;
            self.compiled.insert(source.to_owned());
        }
        let names = if self.knows_all(&mentions) {
            mentions.names.iter().map(|(_, name)| (*name).to_owned()).collect()
        } else {
            let compiled = self.environment.compile_expression(source).map_err(|error| Fault::syntax(&error))?;
            compiled.undeclared_variables(false)
        };
        self.check(source, &mentions, names)?;
        Ok(Expr(source.to_owned()))
    }

    /// Checks and keeps a text.
    pub(super) fn add(&mut self, source: &str) -> Result<Text, Vec<Fault>> {
        if !source.contains("{{") && !source.contains("{%") && !source.contains("{#") {
            return Ok(Text::Plain(source.to_owned()));
        }
        let mentions = Mentions::of_text(source);
        let key = match self.texts.get(source) {
            Some(key) => key.clone(),
            None => {
                let key = format!("t{}", self.texts.len());
                let added = self.environment.add_template_owned(key.clone(), source.to_owned());
                added.map_err(|error| Fault::syntax(&error))?;
                self.texts.insert(source.to_owned(), key.clone());
                key
            }
        };
        let names = if !mentions.binds && self.knows_all(&mentions) {
            mentions.names.iter().map(|(_, name)| (*name).to_owned()).collect()
        } else {
            let template = self.environment.get_template(&key).map_err(|error| Fault::syntax(&error))?;
            template.undeclared_variables(false)
        };
        self.check(source, &mentions, names)?;
        Ok(Text::Template(key))
    }

    /// Whether every name that is mentioned is known: then the library need not be asked which of them it leaves
    /// undeclared, for which it would read the code a second time.
    fn knows_all(&self, mentions: &Mentions<'_>) -> bool {
        mentions.names.iter().all(|(_, name)| self.is_taken(name) || self.lets.iter().any(|known| known == name))
    }

    /// Whether a name means something without any `let`.
    pub(super) fn is_taken(&self, name: &str) -> bool {
        NAMES.contains(&name) || self.globals.iter().any(|global| global == name)
    }

    /// Checks and keeps what `let` defines as `name`, before the definitions of `below`; gives it with what it uses.
    pub(super) fn define(&mut self, name: &str, source: &str, below: BTreeSet<String>) -> Result<Let, Vec<Fault>> {
        self.below = below;
        self.below.insert(name.to_owned());
        self.used.clear();
        let checked = self.expression(source).and_then(|expression| {
            let item = Mentions::of_expression(source).names.into_iter().find(|(_, n)| matches!(*n, "item" | "index"));
            let Some((place, item)) = item else { return Ok(expression) };
            let message = format!("`{item}` is known only under `for_each`");
            Err(vec![Fault { message, hint: None, line: line_at(source, place), word: item.to_owned() }])
        });
        self.below.clear();
        let uses = std::mem::take(&mut self.used);
        // Known even if it is wrong: one mistake is told once.
        self.lets.push(name.to_owned());
        Ok(Let { name: name.to_owned(), expression: checked?, uses })
    }

    /// A name is known to the rules below even if its definition cannot be read.
    pub(super) fn assume(&mut self, name: &str) {
        self.lets.push(name.to_owned());
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

    /// What a thorough look has gathered.
    pub(super) fn gathered(&mut self) -> Option<&mut Gathered> {
        self.gathered.as_mut()
    }

    /// Checks what code mentions: a slip is found when the file is read, not when the rule is reached. `names` are those
    /// that the code does not give a meaning by itself.
    fn check(
        &mut self,
        source: &str,
        mentions: &Mentions<'_>,
        mut names: std::collections::HashSet<String>,
    ) -> Result<(), Vec<Fault>> {
        // The library leaves out what it is that a slice is cut from.
        let defined = |name: &&str| self.below.contains(*name) || self.lets.iter().any(|known| known == name);
        names.extend(mentions.names.iter().map(|(_, name)| *name).filter(defined).map(str::to_owned));
        let mut unknown: Vec<String> = Vec::new();
        for name in names {
            if self.lets.contains(&name) {
                self.used.insert(name);
            } else if !self.is_taken(&name) {
                unknown.push(name);
            }
        }
        unknown.sort();
        let at = |list: &[(usize, &str)], word: &str| {
            let place = list.iter().find(|(_, found)| *found == word).map_or(0, |(place, _)| *place);
            line_at(source, place)
        };
        let mut faults: Vec<Fault> = Vec::new();
        for word in unknown {
            let (message, hint) = self.unknown(&word);
            faults.push(Fault { message, hint: Some(hint), line: at(&mentions.names, &word), word });
        }
        let filters: BTreeSet<&str> = mentions.filters.iter().map(|(_, name)| *name).collect();
        for name in filters {
            if !self.is_filter(name) {
                let known = filters::NAMES.iter().chain(filters::BUILT_IN).copied();
                let near = ghost_domain::text::nearest(name, known);
                let hint = near.map(|near| format!("did you mean `{near}`?"));
                let line = at(&mentions.filters, name);
                faults.push(Fault {
                    message: format!("there is no filter `{name}`"),
                    hint,
                    line,
                    word: name.to_owned(),
                });
            }
        }
        if let Some(gathered) = &mut self.gathered {
            gathered
                .tools
                .extend(mentions.tools().into_iter().map(|(at, tool)| (line_at(source, at), tool.to_owned())));
            for (place, pattern) in mentions.patterns() {
                match pattern {
                    Regex::Constant(name) => drop(gathered.patterns.insert(name)),
                    Regex::Literal(text) => faults.extend(filters::compile(&text).err().map(|error| Fault {
                        message: not_a_regex(&text, &error),
                        hint: None,
                        line: line_at(source, place),
                        word: text,
                    })),
                }
            }
        }
        if faults.is_empty() { Ok(()) } else { Err(faults) }
    }

    /// What is wrong with a name that means nothing, and what to do.
    fn unknown(&self, name: &str) -> (String, String) {
        if self.below.contains(name) {
            let hint = "a definition uses those above it, not itself and none below".to_owned();
            return (format!("`{name}` is not defined yet"), hint);
        }
        let known: Vec<&str> = NAMES.iter().copied().chain(self.lets.iter().map(String::as_str)).collect();
        let hint = match ghost_domain::text::nearest(name, known.iter().copied()) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("there are: {}", known.join(", ")),
        };
        (format!("`{name}` is not defined"), hint)
    }

    /// Whether there is such a filter. Those that no list has are probed for, which runs them.
    fn is_filter(&mut self, name: &str) -> bool {
        if filters::NAMES.contains(&name) || filters::BUILT_IN.contains(&name) || self.filters.contains(name) {
            return true;
        }
        let unknown = |error: minijinja::Error| error.kind() == ErrorKind::UnknownFilter;
        let probe = format!("none|{name}");
        if self.environment.compile_expression(&probe).and_then(|probe| probe.eval(())).is_err_and(unknown) {
            return false;
        }
        self.filters.insert(name.to_owned())
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
pub(super) fn whole_expression(text: &str) -> Option<&str> {
    let inner = text.trim().strip_prefix("{{")?.strip_suffix("}}")?;
    let inner = inner.strip_prefix('-').unwrap_or(inner);
    let inner = inner.strip_suffix('-').unwrap_or(inner);
    (!inner.contains("{{") && !inner.contains("}}") && !inner.contains("{%")).then(|| inner.trim())
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
    clipped(&text)
}

fn clipped(text: &str) -> String {
    ghost_domain::text::clip(&ghost_domain::text::one_line(text), 500)
}

/// Why a text is no regular expression.
pub(super) fn not_a_regex(text: &str, error: &dyn std::fmt::Display) -> String {
    let error = error.to_string();
    // The library draws the place below the pattern, which is of no use on one line.
    let why = error.rsplit_once("error: ").map_or(error.as_str(), |(_, why)| why);
    clipped(&format!("`{}` is not a regular expression: {why}", ghost_domain::text::clip(text, 200)))
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
