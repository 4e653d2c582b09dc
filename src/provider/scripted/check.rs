//! From files to checked rules: every problem of every file at once, each with its line.
//!
//! Must never: stop at the first problem, or read a file of unbounded size.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use ghost_config::problem::{Problem, Problems, Severity};
use minijinja::Value as Jinja;
use minijinja::value::Serde;

use super::FILES_MAX;
use super::file::{Lines, NumberOrText, OneOrMany, RawDo, RawFail, RawFile, RawWhen};
use super::lets::{LETS_MAX, Let, RawLets, needed};
use super::matching::{Count, When};
use super::pattern::Pattern;
use super::rules::{Action, Call, Do, Fail, Rule, RuleSet};
use super::template::{Templates, Tree};
use crate::error::ErrorKind;

/// Longest rule file, in bytes.
const FILE_MAX: u64 = 1 << 20;
/// Most rules in one file.
const RULES_MAX: usize = 1_000;
/// Files that are read at the same time.
const THREADS_MAX: usize = 4;
/// Longest wait.
const WAIT_MAX: Duration = Duration::from_secs(600);

/// Checks the rules of one model, for `ghostd check`.
///
/// # Errors
/// Every problem, with file and line; a missing file among them.
pub fn check(dir: &Path, model: &str) -> Result<(), Problems> {
    let mut problems = Vec::new();
    match path_of(dir, model) {
        Some(path) => drop(load_one(&path, model, &mut problems)),
        None => problems.push(problem(dir, 0, "", format!("`{model}` cannot be the name of a rule file"), None)),
    }
    sorted(problems)
}

/// Checks every rule file of a directory.
///
/// # Errors
/// Every problem of every file, with file and line.
pub fn check_all(dir: &Path) -> Result<(), Problems> {
    load_all(dir).map(drop)
}

/// A model's name is a file's: anything that could leave the directory is none.
fn path_of(dir: &Path, model: &str) -> Option<PathBuf> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let fits = !model.is_empty() && model.len() <= 100 && !model.starts_with('.') && model.chars().all(plain);
    fits.then(|| dir.join(format!("{model}.yaml")))
}

/// Loads every `<model>.yaml` of a directory.
pub(super) fn load_all(dir: &Path) -> Result<BTreeMap<String, RuleSet>, Problems> {
    let mut problems = Vec::new();
    let mut sets = BTreeMap::new();
    match names(dir) {
        Err(error) => problems.push(problem(dir, 0, "", format!("cannot be read: {error}"), None)),
        Ok(names) if names.is_empty() => {
            let hint = "a scripted provider needs a `<model>.yaml` for each of its models";
            problems.push(problem(dir, 0, "", "holds no rule files".to_owned(), Some(hint)));
        }
        Ok(names) if names.len() > FILES_MAX => {
            problems.push(problem(dir, 0, "", format!("holds more than {FILES_MAX} rule files"), None));
        }
        Ok(names) => {
            for (model, set, found) in load_each(dir, &names) {
                problems.extend(found);
                sets.extend(set.map(|set| (model, set)));
            }
        }
    }
    sorted(problems).map(|()| sets)
}

/// Loads the rule files of these models, several at a time: a world starts when the last is compiled.
fn load_each(dir: &Path, names: &[String]) -> Vec<(String, Option<RuleSet>, Vec<Problem>)> {
    let (next, loaded) = (AtomicUsize::new(0), Mutex::new(Vec::with_capacity(names.len())));
    let work = || {
        while let Some(model) = names.get(next.fetch_add(1, Ordering::Relaxed)) {
            let mut problems = Vec::new();
            let set = path_of(dir, model).and_then(|path| load_one(&path, model, &mut problems));
            // The list is whole between any two calls, whoever panicked.
            loaded.lock().unwrap_or_else(PoisonError::into_inner).push((model.clone(), set, problems));
        }
    };
    thread::scope(|scope| {
        // Asking how many cores there are takes as long as a file.
        let others = THREADS_MAX.min(names.len());
        for _ in 1..others {
            scope.spawn(work);
        }
        work();
    });
    let mut loaded = loaded.into_inner().unwrap_or_else(PoisonError::into_inner);
    loaded.sort_by(|(a, ..), (b, ..)| a.cmp(b));
    loaded
}

fn names(dir: &Path) -> std::io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(dir)?.take(FILES_MAX * 8) {
        if let Some(model) = entry?.file_name().to_str().and_then(|name| name.strip_suffix(".yaml")) {
            names.push(model.to_owned());
        }
    }
    names.sort();
    Ok(names)
}

fn sorted(problems: Vec<Problem>) -> Result<(), Problems> {
    if problems.is_empty() { Ok(()) } else { Err(Problems::sorted(problems)) }
}

fn problem(file: &Path, line: usize, field: &str, message: String, hint: Option<&str>) -> Problem {
    let hint = hint.map(str::to_owned);
    Problem { severity: Severity::Error, file: file.to_owned(), line, field: field.to_owned(), message, hint }
}

fn read(path: &Path) -> Result<String, String> {
    let file = fs::File::open(path).map_err(|error| format!("cannot be read: {error}"))?;
    let mut text = String::new();
    file.take(FILE_MAX + 1).read_to_string(&mut text).map_err(|error| format!("cannot be read: {error}"))?;
    if u64::try_from(text.len()).unwrap_or(u64::MAX) > FILE_MAX {
        return Err(format!("is larger than {FILE_MAX} bytes"));
    }
    Ok(text)
}

fn load_one(path: &Path, model: &str, problems: &mut Vec<Problem>) -> Option<RuleSet> {
    let text = match read(path) {
        Ok(text) => text,
        Err(message) => {
            problems.push(problem(path, 0, "", message, None));
            return None;
        }
    };
    let raw: RawFile = match serde_yaml::from_str(&text) {
        Ok(raw) => raw,
        Err(error) => {
            let line = error.location().map_or(0, |location| location.line());
            problems.push(problem(path, line, "", error.to_string(), None));
            return None;
        }
    };
    let before = problems.len();
    let mut reader = Reader {
        file: path,
        lines: Lines::of(&text),
        templates: Templates::new(),
        problems,
        rule: None,
        field: "let".to_owned(),
    };
    let shared = reader.lets(&raw.lets, &[]);
    let known = reader.templates.count_lets();
    if raw.rules.len() > RULES_MAX {
        reader.report("", format!("there are more than {RULES_MAX} rules"), None);
    }
    let mut rules = Vec::new();
    for (number, rule) in raw.rules.iter().enumerate() {
        reader.rule = Some(number);
        reader.field = format!("rules[{number}]");
        let line = reader.lines.rule(number);
        let name = rule.name.clone().unwrap_or_else(|| format!("#{}", number + 1));
        let mut all = shared.clone();
        all.extend(reader.lets(&rule.lets, &shared));
        let when = reader.when(&rule.when);
        let when = When { lets: needed(&all, &reader.templates.used()), ..when };
        let actions = reader.actions(&rule.actions);
        let lets = needed(&all, &reader.templates.used());
        reader.templates.keep_lets(known);
        rules.push(Rule { name, line, when, actions, lets });
    }
    reader.rule = Some(usize::MAX);
    "otherwise".clone_into(&mut reader.field);
    let otherwise = match &raw.otherwise {
        Some(actions) => reader.actions(actions),
        None => {
            let hint = "say what happens when no rule fits, such as `otherwise: [{ say: \"Nothing to do.\" }]`";
            reader.report("", "there is no `otherwise`".to_owned(), Some(hint));
            Vec::new()
        }
    };
    let otherwise_lets = needed(&shared, &reader.templates.used());
    let otherwise_line = reader.lines.rule(usize::MAX);
    let templates = reader.templates;
    if problems.len() > before {
        return None;
    }
    let vars = Jinja::from(Serde(&raw.vars));
    Some(RuleSet {
        model: model.to_owned(),
        file: path.to_owned(),
        rules,
        otherwise,
        otherwise_line,
        otherwise_lets,
        vars,
        templates,
    })
}

/// Reads one file's rules and gathers what is wrong with them.
struct Reader<'r> {
    file: &'r Path,
    lines: Lines<'r>,
    templates: Templates,
    problems: &'r mut Vec<Problem>,
    /// The rule that is being read, past the last one `otherwise`; none above the rules.
    rule: Option<usize>,
    field: String,
}

impl Reader<'_> {
    /// A problem at the line where `text` stands in the present rule.
    fn report(&mut self, text: &str, message: String, hint: Option<&str>) {
        let line = match self.rule {
            Some(rule) => self.lines.within(rule, text),
            None => self.lines.above(text),
        };
        self.problems.push(problem(self.file, line, &self.field, message, hint));
    }

    /// Reads definitions that stand below those of `before`.
    fn lets(&mut self, raw: &RawLets, before: &[Let]) -> Vec<Let> {
        if raw.0.len() > LETS_MAX {
            self.report("let:", format!("`let` has more than {LETS_MAX} names"), None);
        }
        let mut lets: Vec<Let> = Vec::new();
        for (at, (name, source)) in raw.0.iter().enumerate().take(LETS_MAX) {
            let near = format!("{name}:");
            let is_name = name.starts_with(|c: char| c.is_ascii_lowercase())
                && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
            if !is_name {
                let hint = "small letters, digits and `_`, a letter first";
                self.report(&near, format!("`{name}` cannot be a name of `let`"), Some(hint));
                continue;
            }
            if self.templates.is_taken(name) {
                self.report(&near, format!("`{name}` means something already"), Some("choose another name"));
                continue;
            }
            if before.iter().any(|known| known.name == *name) || raw.0[..at].iter().any(|(known, _)| known == name) {
                let hint = "a name stands for one thing in all of a rule";
                self.report(&near, format!("`{name}` is defined twice"), Some(hint));
                continue;
            }
            let Some(text) = source.as_str() else {
                let hint = "write an expression in quotes, as in `if`; constants belong under `vars`";
                self.report(&near, format!("`{name}` is no expression"), Some(hint));
                continue;
            };
            let below = raw.0[at + 1..].iter().map(|(name, _)| name.clone()).collect();
            match self.templates.define(name, text, below) {
                Ok(definition) => lets.push(definition),
                Err(error) => self.report(&near, format!("in `let` of `{name}`: {error}"), None),
            }
        }
        lets
    }

    fn regex(&mut self, source: Option<&String>) -> Option<Pattern> {
        let source = source?;
        match Pattern::new(source) {
            Ok(pattern) => Some(pattern),
            Err(words) => {
                self.report(source, format!("`{source}` is not a regular expression: {words}"), None);
                None
            }
        }
    }

    fn count(&mut self, source: &NumberOrText) -> Count {
        let text = source.text();
        Count::parse(&text).unwrap_or_else(|| {
            let hint = "write a number, or one after `>=`, `>`, `<=` or `<`";
            self.report(&text, format!("`{text}` is not a count"), Some(hint));
            Count::AtLeast(0)
        })
    }

    fn counts(&mut self, source: &BTreeMap<String, NumberOrText>) -> BTreeMap<String, Count> {
        source.iter().map(|(tool, count)| (tool.clone(), self.count(count))).collect()
    }

    fn duration(&mut self, source: &NumberOrText) -> Duration {
        let text = source.text();
        let parsed = parse_duration(&text).filter(|duration| *duration <= WAIT_MAX);
        parsed.unwrap_or_else(|| {
            let hint = "write milliseconds as `250ms` or seconds as `2s`, at most 600s";
            self.report(&text, format!("`{text}` is not a duration"), Some(hint));
            Duration::ZERO
        })
    }

    fn when(&mut self, raw: &RawWhen) -> When {
        When {
            agents: match &raw.agent {
                None => Vec::new(),
                Some(OneOrMany::One(agent)) => vec![agent.clone()],
                Some(OneOrMany::Many(agents)) => agents.clone(),
            },
            mail: self.regex(raw.mail.as_ref()),
            last: self.regex(raw.last.as_ref()),
            text: self.regex(raw.text.as_ref()),
            tool: raw.tool.clone(),
            result: self.regex(raw.result.as_ref()),
            failed: raw.failed,
            tools_called: self.counts(&raw.tools_called),
            tools_ok: self.counts(&raw.tools_ok),
            called_all: raw.called_all.clone(),
            not_called: raw.not_called.clone(),
            round: raw.round.as_ref().map(|round| self.count(round)),
            only_if: self.expression(raw.only_if.as_ref()),
            lets: Vec::new(),
        }
    }

    fn expression(&mut self, source: Option<&String>) -> Option<super::template::Expr> {
        let source = source?;
        self.templates.expression(source).map_err(|error| self.report(source, error, None)).ok()
    }

    fn text(&mut self, source: &str) -> super::template::Text {
        self.templates.add(source).unwrap_or_else(|error| {
            self.report(source, error, None);
            super::template::Text::Plain(String::new())
        })
    }

    fn actions(&mut self, raw: &[RawDo]) -> Vec<Do> {
        if raw.is_empty() {
            self.report("do:", "does nothing".to_owned(), Some("give it at least one `call`, `say` or `fail`"));
        }
        let place = self.field.clone();
        let mut actions = Vec::new();
        for (at, action) in raw.iter().enumerate() {
            self.field = format!("{place}.do[{at}]");
            if let Some(action) = self.action(action) {
                actions.push(action);
            }
        }
        self.field = place;
        actions
    }

    fn action(&mut self, raw: &RawDo) -> Option<Do> {
        let only_if = self.expression(raw.only_if.as_ref());
        if raw.call.is_none() && (raw.for_each.is_some() || !raw.with.is_null()) {
            let near = raw.for_each.clone().unwrap_or_else(|| "with:".to_owned());
            self.report(&near, "`for_each` and `with` belong to a `call`".to_owned(), None);
            return None;
        }
        let action = match (&raw.call, &raw.say, &raw.think, &raw.wait, &raw.fail) {
            (Some(tool), None, None, None, None) => {
                let for_each = self.expression(raw.for_each.as_ref());
                let with = match self.templates.add_tree(&raw.with) {
                    Ok(tree) => tree,
                    Err(error) => {
                        self.report(tool, format!("in `with` of `{tool}`: {error}"), None);
                        Tree::Plain(serde_json::Value::Null)
                    }
                };
                if !matches!(with, Tree::Map(_) | Tree::Plain(serde_json::Value::Null) | Tree::Value(_)) {
                    self.report(tool, format!("`with` of `{tool}` is not an object"), None);
                }
                Action::Call(Call { tool: self.text(tool), with, for_each })
            }
            (None, Some(text), None, None, None) => Action::Say(self.text(text)),
            (None, None, Some(text), None, None) => Action::Think(self.text(text)),
            (None, None, None, Some(wait), None) => Action::Wait(self.duration(wait)),
            (None, None, None, None, Some(fail)) => Action::Fail(self.fail(fail)),
            _ => {
                let near = raw.call.clone().unwrap_or_else(|| "do:".to_owned());
                let hint = "an action is exactly one of `call`, `say`, `think`, `wait` and `fail`";
                self.report(&near, "is none or several actions".to_owned(), Some(hint));
                return None;
            }
        };
        Some(Do { action, only_if })
    }

    fn fail(&mut self, raw: &RawFail) -> Fail {
        let kind = ErrorKind::named(&raw.kind).unwrap_or_else(|| {
            let names: Vec<&str> = ErrorKind::ALL.iter().map(|kind| kind.as_str()).collect();
            let hint = format!("the kinds are: {}", names.join(", "));
            self.report(&raw.kind, format!("`{}` is not a kind of failure", raw.kind), Some(&hint));
            ErrorKind::Server
        });
        let message = raw.message.clone().unwrap_or_else(|| format!("the script says: {kind}"));
        let retry_after = raw.retry_after.as_ref().map(|wait| self.duration(wait));
        Fail { kind, message, times: raw.times, retry_after }
    }
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
