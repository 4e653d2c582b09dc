//! Templates of rules: text with `{{ }}` in it, whole values, and conditions, taken in and checked when a file is read.
//!
//! Must never: take in what cannot be rendered, or let a template run without a limit of steps.

use std::collections::{BTreeMap, BTreeSet};

use minijinja::syntax::SyntaxConfig;
use minijinja::{Environment, ErrorKind, UndefinedBehavior};
use serde_json::Value;

use super::code::{Mentions, Regex, line_at};
use super::filters;
use super::guarded::{self, Rejected};
use super::pattern::Pattern;

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

/// What to do about a template that cannot be read.
const SYNTAX_HINT: &str = "see that every `{{`, `{%`, quote and bracket is closed, and every `if` and `for` ended";
/// What to do about a regular expression that cannot be read.
pub(super) const REGEX_HINT: &str =
    "write `\\` before a character that stands for itself; there is no look-around, and there are no back-references";

/// An expression, checked.
#[derive(Clone, Debug)]
pub(super) struct Expr {
    /// As it was written.
    pub(super) source: String,
    /// As it is run.
    pub(super) code: String,
}

/// What is wrong with a template.
#[derive(Debug)]
pub(super) struct Fault {
    pub(super) message: String,
    pub(super) hint: String,
    /// The line within the text, from 1.
    pub(super) line: usize,
    /// The word that it is about; empty if it is about none.
    pub(super) word: String,
}

impl Fault {
    fn syntax(error: minijinja::Error) -> Vec<Self> {
        Self::rejected(error.into())
    }

    fn rejected(Rejected { line, message, hint }: Rejected) -> Vec<Self> {
        let hint = hint.unwrap_or(SYNTAX_HINT).to_owned();
        vec![Self { message: clipped(&message), hint, line, word: String::new() }]
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
    pub(super) environment: Environment<'static>,
    syntax: SyntaxConfig,
    /// The language's own names.
    globals: Vec<String>,
    /// Expressions that compile, each as it is run.
    compiled: BTreeMap<String, String>,
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
        let syntax = syntax.build().unwrap_or_default();
        environment.set_syntax(syntax.clone());
        filters::install(&mut environment);
        Self {
            globals: environment.globals().map(|(name, _)| name.to_owned()).collect(),
            environment,
            syntax,
            compiled: BTreeMap::new(),
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
        let code = match self.compiled.get(source) {
            Some(code) => code.clone(),
            None => {
                let code = guarded::expression(source).map_err(Fault::rejected)?;
                self.environment.compile_expression(&code).map_err(Fault::syntax)?;
                self.compiled.insert(source.to_owned(), code.clone());
                code
            }
        };
        let names = if self.knows_all(&mentions) {
            mentions.names.iter().map(|(_, name)| (*name).to_owned()).collect()
        } else {
            let compiled = self.environment.compile_expression(&code).map_err(Fault::syntax)?;
            compiled.undeclared_variables(false)
        };
        self.check(source, &mentions, names)?;
        Ok(Expr { source: source.to_owned(), code })
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
                let code = guarded::text(source, &self.syntax).map_err(Fault::rejected)?;
                self.environment.add_template_owned(key.clone(), code).map_err(Fault::syntax)?;
                self.texts.insert(source.to_owned(), key.clone());
                key
            }
        };
        let names = if !mentions.binds && self.knows_all(&mentions) {
            mentions.names.iter().map(|(_, name)| (*name).to_owned()).collect()
        } else {
            let template = self.environment.get_template(&key).map_err(Fault::syntax)?;
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

    /// Checks and keeps what `let` defines as `name`, before the definitions of `below`; gives it with the definitions that it uses.
    pub(super) fn define(
        &mut self,
        name: &str,
        source: &str,
        below: BTreeSet<String>,
    ) -> Result<(Expr, BTreeSet<String>), Vec<Fault>> {
        self.below = below;
        self.below.insert(name.to_owned());
        self.used.clear();
        let checked = self.expression(source).and_then(|expression| {
            let item = Mentions::of_expression(source).names.into_iter().find(|(_, n)| matches!(*n, "item" | "index"));
            let Some((place, item)) = item else { return Ok(expression) };
            let message = format!("`{item}` is known only under `for_each`");
            let hint = "use it in the `call` that has `for_each`".to_owned();
            Err(vec![Fault { message, hint, line: line_at(source, place), word: item.to_owned() }])
        });
        self.below.clear();
        let uses = std::mem::take(&mut self.used);
        // Known even if it is wrong: one mistake is told once.
        self.lets.push(name.to_owned());
        checked.map(|expression| (expression, uses))
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
            faults.push(Fault { message, hint, line: at(&mentions.names, &word), word });
        }
        let filters: BTreeSet<&str> = mentions.filters.iter().map(|(_, name)| *name).collect();
        for name in filters {
            if !self.is_filter(name) {
                let known = filters::NAMES.iter().chain(filters::BUILT_IN).copied();
                let near = ghost_domain::text::nearest(name, known);
                let hint = match near {
                    Some(near) => format!("did you mean `{near}`?"),
                    None => format!("besides the usual ones of minijinja there are: {}", filters::NAMES.join(", ")),
                };
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
                    Regex::Literal(text) => faults.extend(
                        Pattern::new(&text).and_then(|pattern| pattern.compile().map(drop)).err().map(|error| Fault {
                            message: not_a_regex(&text, &error),
                            hint: REGEX_HINT.to_owned(),
                            line: line_at(source, place),
                            word: text,
                        }),
                    ),
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
}

/// The expression of a text that is nothing but one `{{ … }}`.
pub(super) fn whole_expression(text: &str) -> Option<&str> {
    let inner = text.trim().strip_prefix("{{")?.strip_suffix("}}")?;
    let inner = inner.strip_prefix('-').unwrap_or(inner);
    let inner = inner.strip_suffix('-').unwrap_or(inner);
    (!inner.contains("{{") && !inner.contains("}}") && !inner.contains("{%")).then(|| inner.trim())
}

pub(super) fn clipped(text: &str) -> String {
    ghost_domain::text::clip(&ghost_domain::text::one_line(text), 500)
}

/// Why a text is no regular expression.
pub(super) fn not_a_regex(text: &str, error: &dyn std::fmt::Display) -> String {
    let error = error.to_string();
    // The library draws the place below the pattern, which is of no use on one line.
    let why = error.rsplit_once("error: ").map_or(error.as_str(), |(_, why)| why);
    clipped(&format!("`{}` is not a regular expression: {why}", ghost_domain::text::clip(text, 200)))
}
