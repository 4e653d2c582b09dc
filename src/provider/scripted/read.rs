//! One rule file: from YAML, in which everything knows its line, to checked rules.
//!
//! Must never: stop at the first problem, or let a key through that it does not know.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use ghost_config::problem::Problem;
use ghost_config::reader::Field;
use ghost_config::repeats;
use ghost_config::report::{FileReport, Report};
use ghost_config::yaml::{self, Bounds, Value as Yaml};
use ghost_domain::text::clip;
use minijinja::Value as Jinja;
use minijinja::value::Serde;
use serde_json::Value;

use super::bounds::TEXT_MAX;
use super::lets::{LETS_MAX, Let, needed};
use super::matching::{Count, When};
use super::pattern::Pattern;
use super::rules::{Action, Call, Do, Rule, RuleSet};
use super::template::{Expr, Fault, REGEX_HINT, Templates, Text, Tree, not_a_regex, whole_expression};
use super::values::{count, duration, fail_of};

/// Longest rule file, in bytes.
pub(super) const FILE_MAX: usize = 1 << 20;
/// Rule files share long texts and lists among their rules.
const BOUNDS: Bounds = Bounds { file: FILE_MAX, nodes: 100_000, scalar: TEXT_MAX, aliases: true };
/// Most rules in one file.
const RULES_MAX: usize = 1_000;
/// Keys that an action is expected to have and that are written otherwise.
const ACTION_HINTS: &[(&str, &str)] = &[
    ("tool", "write `call`"),
    ("args", "write `with`"),
    ("arguments", "write `with`"),
    ("when", "write `if`"),
    ("text", "write `say`"),
];

/// What came of one file.
pub(super) struct ReadFile {
    /// Its rules, if nothing is wrong with them.
    pub(super) rules: Option<RuleSet>,
    /// The tools that it names as they stand; only of a thorough look.
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
    /// Whether the tool is called there; else its calls or results are looked for.
    pub called: bool,
    /// The agents that the rule is for, as patterns of their ids; empty is all.
    pub agents: Vec<String>,
}

/// Reads the rules of `model` from the text of the file at `path`. A thorough look compiles every regular expression and
/// gathers the names of tools; one for a start leaves that until a rule is reached.
pub(super) fn read(text: &str, path: &Path, model: &str, thorough: bool) -> ReadFile {
    let report = Report::default();
    let file = report.file(path);
    let (mut rules, mut tools) = (None, Vec::new());
    if let Some(tree) = yaml::parse_all(text, &file, None, BOUNDS) {
        let read = repeats::each(&tree, &file, |node, file| {
            let root = Field::root(node, file);
            let (templates, shared, known) = (Templates::new(thorough), Vec::new(), 0);
            let (patterns, tools, agents) = (BTreeMap::new(), Vec::new(), Vec::new());
            let mut reader = Reader { text, file, templates, tools, patterns, shared, known, agents };
            (reader.file(&root, path, model), reader.tools)
        });
        (rules, tools) = read.first;
        for (lines, (_, others)) in read.others {
            tools.extend(others.into_iter().filter(|tool| lines.contains(&tool.line)));
        }
    }
    let problems = report.finish().0;
    ReadFile { rules: rules.filter(|_| problems.is_empty()), tools, problems }
}

/// Reads one file's rules; what is wrong with them goes into the report.
struct Reader<'r> {
    text: &'r str,
    file: &'r FileReport<'r>,
    templates: Templates,
    tools: Vec<ToolName>,
    /// The regular expressions of conditions: rules have them in common.
    patterns: BTreeMap<&'r str, Arc<Pattern>>,
    /// The definitions for all rules.
    shared: Vec<Let>,
    /// How many names those define.
    known: usize,
    /// Whom the rule that is read is for, as patterns; empty is all.
    agents: Vec<String>,
}

impl<'r> Reader<'r> {
    fn file(&mut self, root: &Field<'r>, path: &Path, model: &str) -> Option<RuleSet> {
        let map = root.map()?;
        // For readers.
        map.get("about");
        let constants = map.get("vars").map(|field| field.entries()).unwrap_or_default();
        let vars: BTreeMap<&str, Value> =
            constants.iter().map(|(key, field)| (key.text.as_str(), field.json())).collect();
        self.shared = self.lets(map.get("let"), &[]);
        self.known = self.templates.count_lets();
        let list = map.get("rules").map(|field| field.list()).unwrap_or_default();
        if list.len() > RULES_MAX {
            let hint = "spread them over several files: each is a model of its own";
            root.error(format!("there are more than {RULES_MAX} rules"), hint);
        }
        let rules = list.iter().take(RULES_MAX).enumerate().filter_map(|(at, field)| self.rule(at, field)).collect();
        let (otherwise, otherwise_line) = match map.get("otherwise") {
            Some(field) => (self.actions(&field), field.line()),
            None => {
                let hint = "say what happens when no rule fits, such as `otherwise: [{ say: \"Nothing to do.\" }]`";
                self.file.error(1, "otherwise", "there is no `otherwise`", hint);
                (Vec::new(), 0)
            }
        };
        let otherwise_lets = needed(&self.shared, &self.templates.used());
        map.finish(&[]);
        self.constant_patterns(&constants);
        Some(RuleSet {
            model: model.to_owned(),
            file: path.to_owned(),
            rules,
            otherwise,
            otherwise_line,
            otherwise_lets,
            vars: Jinja::from(Serde(&vars)),
            templates: std::mem::replace(&mut self.templates, Templates::new(false)),
        })
    }

    fn rule(&mut self, at: usize, field: &Field<'r>) -> Option<Rule> {
        let map = field.map()?;
        let name = map.get("name").and_then(|field| field.text(200));
        let name = name.map_or_else(|| format!("#{}", at + 1), str::to_owned);
        let shared = std::mem::take(&mut self.shared);
        let mut all = shared.clone();
        all.extend(self.lets(map.get("let"), &shared));
        self.shared = shared;
        let when = map.get("when").map(|field| self.when(&field)).unwrap_or_default();
        let when = When { lets: needed(&all, &self.templates.used()), ..when };
        self.agents.clone_from(&when.agents);
        let actions = map.need("do", "[{ say: Done. }]").map(|field| self.actions(&field)).unwrap_or_default();
        self.agents.clear();
        let lets = needed(&all, &self.templates.used());
        map.finish(&[("if", "it belongs under `when`"), ("otherwise", "it stands beside `rules`, for all of them")]);
        self.templates.keep_lets(self.known);
        Some(Rule { name, line: field.line(), when, actions, lets })
    }

    /// Reads definitions that stand below those of `before`.
    fn lets(&mut self, field: Option<Field<'r>>, before: &[Let]) -> Vec<Let> {
        let Some(field) = field else { return Vec::new() };
        let entries = field.entries();
        if entries.len() > LETS_MAX {
            field.error(format!("`let` has more than {LETS_MAX} names"), "put constants under `vars`");
        }
        let mut lets: Vec<Let> = Vec::new();
        for (at, (key, field)) in entries.iter().enumerate().take(LETS_MAX) {
            let name = key.text.as_str();
            let shown = clip(name, 60);
            let is_name = name.starts_with(|c: char| c.is_ascii_lowercase())
                && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
            let refuse = |message: String, hint: &str| field.error(message, hint);
            if !is_name {
                refuse(format!("`{shown}` cannot be a name of `let`"), "small letters, digits and `_`, a letter first");
            } else if self.templates.is_taken(name) {
                refuse(format!("`{shown}` means something already"), "choose another name");
            } else if before.iter().any(|known| known.name == name) {
                refuse(format!("`{shown}` is defined twice"), "a name stands for one thing in all of a rule");
            } else if let Yaml::Scalar { text, .. } = &field.node().value
                && field.json().is_string()
            {
                let below = entries[at + 1..].iter().map(|(key, _)| key.text.clone()).collect();
                match self.templates.define(name, text, below) {
                    Ok((expression, uses)) => lets.push(Let { name: name.to_owned(), expression, uses }),
                    Err(faults) => self.tell(field, faults),
                }
                self.asked_for(field);
            } else {
                let hint = "write an expression in quotes, as in `if`; constants belong under `vars`";
                refuse(format!("`{shown}` is no expression"), hint);
                self.templates.assume(name);
            }
        }
        lets
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
            lets: Vec::new(),
        };
        map.finish(&[("do", "it stands beside `when`")]);
        when
    }

    fn regex(&mut self, field: Option<Field<'r>>) -> Option<Arc<Pattern>> {
        let field = field?;
        let source = field.text(TEXT_MAX)?;
        if let Some(known) = self.patterns.get(source) {
            return Some(Arc::clone(known));
        }
        let pattern =
            Pattern::new(source).map_err(|error| field.error(not_a_regex(source, &error), REGEX_HINT)).ok()?;
        Some(Arc::clone(self.patterns.entry(source).or_insert(Arc::new(pattern))))
    }

    /// The name of a tool that is looked for.
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
        if self.templates.gathered().is_some() {
            let (name, field, agents) = (name.to_owned(), field.path().to_owned(), self.agents.clone());
            self.tools.push(ToolName { name, line, field, called, agents });
        }
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
            field.error("is none or several actions", hint);
        } else if call.is_none()
            && let Some(stray) = for_each.as_ref().or(with.as_ref())
        {
            stray.error("`for_each` and `with` belong to a `call`", "take it out, or call a tool with it");
        }
        // Everything in it is read, so that everything in it is told.
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
        let checked = self.templates.expression(source).map_err(|faults| self.tell(field, faults));
        self.asked_for(field);
        checked.ok()
    }

    fn checked_text(&mut self, source: &str, field: &Field<'r>) -> Text {
        let checked = self.templates.add(source).map_err(|faults| self.tell(field, faults));
        self.asked_for(field);
        checked.unwrap_or_else(|()| Text::Plain(String::new()))
    }

    /// Takes up the tools whose results a template asks for.
    fn asked_for(&mut self, field: &Field<'r>) {
        let Some(gathered) = self.templates.gathered() else { return };
        for (line, name) in std::mem::take(&mut gathered.tools) {
            let line = self.line_of(field, line, &name);
            self.named(&name, line, field, false);
        }
    }

    fn tell(&self, field: &Field<'r>, faults: Vec<Fault>) {
        for fault in faults {
            field.error_at(self.line_of(field, fault.line, &fault.word), fault.message, fault.hint);
        }
    }

    /// The line of the file that line `within` of a text is on. Only a literal has the lines of the file; in any other text
    /// of several lines, that with `word` is looked for.
    fn line_of(&self, field: &Field<'r>, within: usize, word: &str) -> usize {
        let start = field.node().line;
        match &field.node().value {
            Yaml::Scalar { literal: true, .. } => start + within,
            _ if word.is_empty() => start,
            _ => start + self.text.lines().skip(start - 1).position(|line| line.contains(word)).unwrap_or(0),
        }
    }

    /// Checks the constants that templates use as regular expressions, each where it is written.
    fn constant_patterns(&mut self, constants: &[(&'r yaml::Key, Field<'r>)]) {
        let Some(gathered) = self.templates.gathered() else { return };
        for (key, field) in constants {
            if gathered.patterns.contains(&key.text)
                && let Yaml::Scalar { text, .. } = &field.node().value
                && let Err(error) = Pattern::new(text).and_then(|pattern| pattern.compile().map(drop))
            {
                field.error(not_a_regex(text, &error), REGEX_HINT);
            }
        }
    }
}
