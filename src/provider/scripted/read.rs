//! Reads one rule file: from YAML, in which every node knows its line, to checked rules. It reports all problems, also each key
//! that it does not know, and guesses no value.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ghost_config::problem::Problem;
use ghost_config::reader::{Field, Map};
use ghost_config::report::{FileReport, Report};
use ghost_config::yaml;
use ghost_config::yaml::{Bounds, Value as Yaml};
use ghost_domain::text::clip;
use minijinja::Value as Jinja;
use minijinja::value::Serde;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::conversation::{LETS_MAX, Lets};
use super::filters::Pattern;
use super::rules::{Action, Call, Count, Do, Fail, Rule, RuleSet, ScriptDigest, When};
use super::template::{Expr, Fault, REGEX_HINT, TEXT_MAX, Templates, Text, Tree, not_a_regex, whole_expression};
use crate::error::ErrorKind;

/// Longest rule file, in bytes.
pub(super) const FILE_MAX: usize = 1 << 20;
/// Limits of the YAML parser. Rule files share long texts and lists among their rules.
const BOUNDS: Bounds = Bounds { file: FILE_MAX, nodes: 100_000, scalar: TEXT_MAX, aliases: true };
/// Maximum rules in one file.
const RULES_MAX: usize = 1_000;
/// Keys that users may write by mistake in an action, with a hint for each.
const ACTION_HINTS: &[(&str, &str)] = &[
    ("tool", "write `call`"),
    ("args", "write `with`"),
    ("arguments", "write `with`"),
    ("when", "write `if`"),
    ("text", "write `say`"),
];

/// The result of reading one file.
pub(super) struct ReadFile {
    /// The rules, if the file has no problem.
    pub(super) rules: Option<RuleSet>,
    /// The tools that the file names, except names with templates.
    pub(super) tools: Vec<ToolName>,
    pub(super) problems: Vec<Problem>,
}

/// A tool's name in a rule file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolName {
    /// The name as it is written.
    pub name: String,
    /// The line, from 1.
    pub line: usize,
    /// The field, dotted.
    pub field: String,
    /// Whether the rule calls the tool; otherwise a condition names the tool.
    pub called: bool,
    /// The agents that the rule is for, as patterns of their ids. Empty means all agents.
    pub agents: Vec<String>,
}

/// Reads the rules of `model` from the text of the file at `path`. With `compile`, every template and every regular
/// expression of a condition is compiled too. A start does not do that: both are compiled when a rule is reached.
pub(super) fn read(text: &str, path: &Path, model: &str, compile: bool) -> ReadFile {
    let report = Report::default();
    let file = report.file(path);
    let (mut rules, mut tools) = (None, Vec::new());
    if let Some(node) = yaml::parse_within(text, &file, None, BOUNDS) {
        let root = Field::root(&node, &file);
        let mut reader = Reader {
            text,
            file: &file,
            compile,
            templates: Templates::new(compile),
            tools: Vec::new(),
            patterns: BTreeMap::new(),
            shared: Lets::new(),
            agents: Vec::new(),
        };
        let content = reader.file(&root);
        tools = reader.tools;
        rules = content.map(|content| content.rules(path, model, digest_of(text), reader.templates));
    }
    let problems = report.finish().0;
    ReadFile { rules: rules.filter(|_| problems.is_empty()), tools, problems }
}

/// The content of a rule file.
struct Content {
    rules: Vec<Rule>,
    otherwise: Vec<Do>,
    otherwise_line: usize,
    lets: Lets,
    vars: Jinja,
}

impl Content {
    fn rules(self, path: &Path, model: &str, digest: ScriptDigest, templates: Templates) -> RuleSet {
        let Self { rules, otherwise, otherwise_line, lets, vars } = self;
        let (model, file) = (model.to_owned(), path.to_owned());
        let (lets, templates) = (Arc::new(lets), Arc::new(templates));
        RuleSet { model, file, digest, rules, otherwise, otherwise_line, lets, vars, templates }
    }
}

/// The SHA-256 of a rule file's text.
fn digest_of(text: &str) -> ScriptDigest {
    Sha256::digest(text.as_bytes()).into()
}

/// Reads the rules of one file and adds its problems to the report.
struct Reader<'r> {
    text: &'r str,
    file: &'r FileReport<'r>,
    compile: bool,
    templates: Templates,
    tools: Vec<ToolName>,
    /// The regular expressions of conditions. Rules share them.
    patterns: BTreeMap<&'r str, Arc<Pattern>>,
    /// The definitions for all rules.
    shared: Lets,
    /// The agents that the current rule is for, as patterns of their ids. Empty means all agents.
    agents: Vec<String>,
}

impl<'r> Reader<'r> {
    fn file(&mut self, root: &Field<'r>) -> Option<Content> {
        let map = root.map()?;
        // `about` is only for human readers.
        map.get("about");
        let constants = map.get("vars").map(|field| field.entries()).unwrap_or_default();
        let vars: BTreeMap<&str, Value> =
            constants.iter().map(|(key, field)| (key.text.as_str(), field.json())).collect();
        let (shared, _) = self.lets(map.get("let"));
        self.shared = shared;
        let list = map.get("rules").map(|field| field.list()).unwrap_or_default();
        if list.len() > RULES_MAX {
            let hint = "spread them over several files: each is a model of its own";
            root.error(format!("there are more than {RULES_MAX} rules"), hint);
        }
        let rules = list.iter().take(RULES_MAX).enumerate().filter_map(|(at, field)| self.rule(at, field)).collect();
        let (otherwise, otherwise_line) = match map.get("otherwise") {
            Some(field) => (self.actions(&field), field.line()),
            None => {
                let hint =
                    "add actions for when no rule applies, for example `otherwise: [{ say: \"Nothing to do.\" }]`";
                self.file.error(1, "otherwise", "there is no `otherwise`", hint);
                (Vec::new(), 0)
            }
        };
        map.finish(&[]);
        let lets = std::mem::take(&mut self.shared);
        Some(Content { rules, otherwise, otherwise_line, lets, vars: Jinja::from(Serde(&vars)) })
    }

    fn rule(&mut self, at: usize, field: &Field<'r>) -> Option<Rule> {
        let map = field.map()?;
        let name = map.get("name").and_then(|field| field.text(200));
        let name = name.map_or_else(|| format!("#{}", at + 1), str::to_owned);
        let (own, names) = self.lets(map.get("let"));
        let when = map.get("when").map(|field| self.when(&field)).unwrap_or_default();
        self.agents.clone_from(&when.agents);
        let actions = map.need("do", "[{ say: Done. }]").map(|field| self.actions(&field)).unwrap_or_default();
        self.agents.clear();
        map.finish(&[("if", "it belongs under `when`"), ("otherwise", "put it beside `rules`; it is for all rules")]);
        self.templates.forget(&names);
        let lets = Arc::new(self.shared.iter().map(|(name, it)| (name.clone(), it.clone())).chain(own).collect());
        Some(Rule { name, line: field.line(), when, actions, lets })
    }

    /// Reads definitions. Returns them with the names that they define.
    fn lets(&mut self, field: Option<Field<'r>>) -> (Lets, Vec<String>) {
        let Some(field) = field else { return Default::default() };
        let entries = field.entries();
        if entries.len() > LETS_MAX {
            field.error(format!("`let` has more than {LETS_MAX} names"), "put constants under `vars`");
        }
        let entries = &entries[..entries.len().min(LETS_MAX)];
        // Definitions may use one another in any order.
        let names = self.templates.define(entries.iter().map(|(key, _)| key.text.as_str()));
        let mut lets = Lets::new();
        for (key, field) in entries {
            let name = key.text.as_str();
            let shown = clip(name, 60);
            let is_name = name.starts_with(|c: char| c.is_ascii_lowercase())
                && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
            let refuse = |message: String, hint: &str| field.error(message, hint);
            if !is_name {
                refuse(format!("`{shown}` cannot be a name of `let`"), "small letters, digits and `_`, a letter first");
            } else if self.templates.is_taken(name) {
                refuse(format!("`{shown}` means something already"), "choose another name");
            } else if self.shared.contains_key(name) {
                refuse(
                    format!("`{shown}` is defined twice"),
                    "choose another name: a name has one meaning in a whole rule",
                );
            } else if let Yaml::Scalar { text, .. } = &field.node().value
                && field.json().is_string()
            {
                match self.templates.definition(text) {
                    Ok(expression) => drop(lets.insert(name.to_owned(), expression)),
                    Err(faults) => self.report(field, faults),
                }
            } else {
                let hint = "write an expression in quotes, as in `if`; constants belong under `vars`";
                refuse(format!("`{shown}` is no expression"), hint);
            }
        }
        (lets, names)
    }

    fn when(&mut self, field: &Field<'r>) -> When {
        let Some(map) = field.map() else { return When::default() };
        let when = When {
            agents: map.get("agent").map_or_else(Vec::new, |field| match field.is_single() {
                true => field.text(200).into_iter().map(str::to_owned).collect(),
                false => field.texts(200).into_iter().map(|(_, text)| text.to_owned()).collect(),
            }),
            mail: self.regex(map.get("mail")),
            last: self.regex(map.get("last")),
            text: self.regex(map.get("text")),
            tool: map.get("tool").and_then(|field| self.tool(&field)),
            result: self.regex(map.get("result")),
            failed: map.get("failed").and_then(|field| field.flag()),
            tools_called: self.counts(map.get("tools_called")),
            tools_ok: self.counts(map.get("tools_ok")),
            called_all: self.tool_list(map.get("called_all")),
            not_called: self.tool_list(map.get("not_called")),
            round: map.get("round").and_then(|field| count(&field)),
            only_if: self.expression(map.get("if")),
        };
        map.finish(&[("do", "put it beside `when`")]);
        when
    }

    fn regex(&mut self, field: Option<Field<'r>>) -> Option<Arc<Pattern>> {
        let field = field?;
        let source = field.text(TEXT_MAX)?;
        if let Some(known) = self.patterns.get(source) {
            return Some(Arc::clone(known));
        }
        let pattern = Pattern::new(source);
        if self.compile {
            pattern.compile().map_err(|error| field.error(not_a_regex(source, &error), REGEX_HINT)).ok()?;
        }
        Some(Arc::clone(self.patterns.entry(source).or_insert(Arc::new(pattern))))
    }

    /// Reads the name of a tool in a condition.
    fn tool(&mut self, field: &Field<'r>) -> Option<String> {
        let name = field.text(200)?;
        self.named(name, field.line(), field, false);
        Some(name.to_owned())
    }

    fn tool_list(&mut self, field: Option<Field<'r>>) -> Vec<String> {
        let list = field.map(|field| field.list()).unwrap_or_default();
        list.iter().filter_map(|field| self.tool(field)).collect()
    }

    fn counts(&mut self, field: Option<Field<'r>>) -> BTreeMap<String, Count> {
        let entries = field.map(|field| field.entries()).unwrap_or_default();
        let mut counts = BTreeMap::new();
        for (key, field) in &entries {
            self.named(&key.text, key.line, field, false);
            counts.extend(count(field).map(|count| (key.text.clone(), count)));
        }
        counts
    }

    fn named(&mut self, name: &str, line: usize, field: &Field<'r>, called: bool) {
        let (name, field, agents) = (name.to_owned(), field.path().to_owned(), self.agents.clone());
        self.tools.push(ToolName { name, line, field, called, agents });
    }

    fn actions(&mut self, field: &Field<'r>) -> Vec<Do> {
        let list = field.list();
        if list.is_empty() && (field.is_null() || matches!(field.node().value, Yaml::List(_))) {
            field.error("does nothing", "give it at least one `call`, `say` or `fail`");
        }
        list.iter().filter_map(|field| self.action(field)).collect()
    }

    fn action(&mut self, field: &Field<'r>) -> Option<Do> {
        let map = field.map()?;
        let only_if = self.expression(map.get("if"));
        let [call, say, think, wait, fail] = ["call", "say", "think", "wait", "fail"].map(|key| map.get(key));
        let (with, for_each) = (map.get("with"), map.get("for_each"));
        let kinds = [&call, &say, &think, &wait, &fail].iter().filter(|kind| kind.is_some()).count();
        if kinds != 1 {
            let hint = "an action is exactly one of `call`, `say`, `think`, `wait` and `fail`";
            field.error("has no action or several", hint);
        } else if call.is_none()
            && let Some(stray) = for_each.as_ref().or(with.as_ref())
        {
            stray.error("`for_each` and `with` belong to a `call`", "remove it, or use it with a `call`");
        }
        // All fields are read even after an error, so that every problem is reported.
        let for_each = self.expression(for_each);
        let with = with.map(|field| self.with(&field));
        let actions = [
            call.map(|field| {
                let tool = self.text_of(&field);
                if let Text::Plain(name) = &tool {
                    self.named(name, field.line(), &field, true);
                }
                Action::Call(Call { tool, with: with.unwrap_or(Tree::Plain(Value::Null)), for_each })
            }),
            say.map(|field| Action::Say(self.text_of(&field))),
            think.map(|field| Action::Think(self.text_of(&field))),
            wait.map(|field| Action::Wait(duration(&field).unwrap_or_default())),
            fail.and_then(|field| fail_of(&field)).map(Action::Fail),
        ];
        map.finish(ACTION_HINTS);
        actions.into_iter().flatten().next().map(|action| Do { action, only_if })
    }

    /// The arguments of a call: an object, or an expression that gives one.
    fn with(&mut self, field: &Field<'r>) -> Tree {
        let tree = self.tree(field);
        if !matches!(tree, Tree::Map(_) | Tree::Plain(Value::Null) | Tree::Value(_)) {
            field.error("`with` is not an object", "write the arguments by name: `with: { path: x }`");
        }
        tree
    }

    fn tree(&mut self, field: &Field<'r>) -> Tree {
        match &field.node().value {
            Yaml::List(_) => Tree::List(field.list().iter().map(|item| self.tree(item)).collect()),
            Yaml::Map(_) => {
                let entries = field.entries();
                Tree::Map(entries.iter().map(|(key, item)| (key.text.clone(), self.tree(item))).collect())
            }
            Yaml::Scalar { .. } => match field.json() {
                Value::String(text) => match whole_expression(&text) {
                    Some(expression) => match self.checked_expression(expression, field) {
                        Some(expression) => Tree::Value(expression),
                        None => Tree::Plain(Value::Null),
                    },
                    None => Tree::Text(self.checked_text(&text, field)),
                },
                plain => Tree::Plain(plain),
            },
        }
    }

    fn expression(&mut self, field: Option<Field<'r>>) -> Option<Expr> {
        let field = field?;
        self.checked_expression(field.text(TEXT_MAX)?, &field)
    }

    fn text_of(&mut self, field: &Field<'r>) -> Text {
        self.checked_text(field.string(TEXT_MAX).unwrap_or_default(), field)
    }

    fn checked_expression(&mut self, source: &str, field: &Field<'r>) -> Option<Expr> {
        self.templates.expression(source).map_err(|faults| self.report(field, faults)).ok()
    }

    fn checked_text(&mut self, source: &str, field: &Field<'r>) -> Text {
        let checked = self.templates.text(source).map_err(|faults| self.report(field, faults));
        checked.unwrap_or_else(|()| Text::Plain(String::new()))
    }

    fn report(&self, field: &Field<'r>, faults: Vec<Fault>) {
        for fault in faults {
            field.error_at(self.line_of(field, fault.line, &fault.word), fault.message, fault.hint);
        }
    }

    /// The line of the file for line `within` of a text. Only a literal block has the same lines as
    /// the file. For other texts of several lines, the first line that contains `word` is used.
    fn line_of(&self, field: &Field<'r>, within: usize, word: &str) -> usize {
        let start = field.node().line;
        match &field.node().value {
            Yaml::Scalar { literal: true, .. } => start + within,
            _ if word.is_empty() => start,
            _ => start + self.text.lines().skip(start - 1).position(|line| line.contains(word)).unwrap_or(0),
        }
    }
}

/// Longest wait.
const WAIT_MAX: Duration = Duration::from_secs(600);

/// A condition on a count.
pub(super) fn count(field: &Field<'_>) -> Option<Count> {
    let found = field.text(100).and_then(Count::parse);
    if found.is_none() {
        let hint = "write a number, or one after `>=`, `>`, `<=` or `<`";
        field.error(format!("`{}` is not a count", field.shown()), hint);
    }
    found
}

/// A wait.
pub(super) fn duration(field: &Field<'_>) -> Option<Duration> {
    let found = field.text(100).and_then(parse_duration).filter(|duration| *duration <= WAIT_MAX);
    if found.is_none() {
        let hint = "write milliseconds as `250ms` or seconds as `2s`, at most 600s";
        field.error(format!("`{}` is not a duration", field.shown()), hint);
    }
    found
}

/// A failure.
pub(super) fn fail_of(field: &Field<'_>) -> Option<Fail> {
    let map: Map<'_> = field.map()?;
    let kind = map.need("kind", "rate_limited").and_then(|field| {
        let text = field.text(100)?;
        let kind = ErrorKind::named(text);
        if kind.is_none() {
            let names: Vec<&str> = ErrorKind::ALL.iter().map(|kind| kind.as_str()).collect();
            let near = ghost_domain::text::nearest(text, names.iter().copied());
            let hint = near.map(|near| format!("did you mean `{near}`?"));
            let hint = hint.unwrap_or_else(|| format!("the kinds are: {}", names.join(", ")));
            field.error(format!("`{}` is not a kind of failure", field.shown()), hint);
        }
        kind
    });
    let message = map.get("message").and_then(|field| field.text(TEXT_MAX)).map(str::to_owned);
    let times = map.get("times").and_then(|field| field.count32(0..=u32::MAX));
    let retry_after = map.get("retry_after").and_then(|field| duration(&field));
    map.finish(&[]);
    let kind = kind?;
    Some(Fail { kind, message: message.unwrap_or_else(|| format!("the script says: {kind}")), times, retry_after })
}

/// `250ms`, `2s`, or a plain number of milliseconds.
fn parse_duration(text: &str) -> Option<Duration> {
    let text = text.trim();
    if let Some(ms) = text.strip_suffix("ms") {
        return ms.trim().parse().ok().map(Duration::from_millis);
    }
    if let Some(seconds) = text.strip_suffix('s') {
        let seconds: f64 = seconds.trim().parse().ok()?;
        return Duration::try_from_secs_f64(seconds).ok();
    }
    text.parse().ok().map(Duration::from_millis)
}
