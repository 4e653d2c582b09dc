//! A model that follows rules from a file: `<dir>/<model>.yaml`. For demos, tests and simulation.
//! `README.md` beside this file describes the format. The operator writes the rules, so they are
//! trusted. A limit of steps for each template stops an accidental endless loop.
//!
//! This provider keeps no state of a conversation between two calls. The answer follows from
//! the request alone, so that a resumed turn gets the same answer. Two exceptions: `fail … times`
//! is counted, and a `wait` uses the clock.

mod check;
mod columns;
mod conversation;
mod filters;
mod logs;
mod profile;
mod prose;
mod read;
mod rules;
mod shapes;
mod template;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use ghost_config::problem::Problems;
use ghost_domain::transcript::{Block, TokenUsage};
use ghost_domain::{Clock, Code, Refusal};
use minijinja::Value as Jinja;
use serde_json::Value;

pub use self::check::{FILES_MAX, Survey, misnamed_for, path_of, survey};
use self::conversation::{Conversation, ItemNames, Names};
pub use self::read::ToolName;
pub use self::rules::ScriptDigest;
use self::rules::{Action, Call, Chosen, Do, Fail, RuleSet};
pub use self::template::TEXT_MAX;
use crate::answer::WORDS_MAX;
use crate::error::{Charge, ErrorKind, ProviderError};
use crate::estimate::{estimate_tokens, json_len, tokens_of_bytes};
use crate::model::{Deltas, ModelAnswer, ModelRequest, Provider, Stop};

/// The scripted provider: the rule files of one directory.
pub struct Scripted {
    dir: PathBuf,
    models: BTreeMap<String, Arc<RuleSet>>,
    clock: Arc<dyn Clock>,
    /// How often each `fail` has failed: by model, rule and action.
    failures: Mutex<BTreeMap<(String, usize, usize), u32>>,
}

impl Scripted {
    /// Loads every `<model>.yaml` in `dir`. Symbolic links must not lead out of `dir`.
    ///
    /// # Errors
    /// All problems of all files, each with its line, in one refusal.
    pub fn load(dir: &Path, clock: Arc<dyn Clock>) -> Result<Self, Refusal> {
        // A directory that does not exist is reported by the next function.
        let root = dir.canonicalize().unwrap_or_else(|_| dir.to_owned());
        Self::load_within(dir, &root, clock)
    }

    /// Like [`load`](Self::load), for files that may lie anywhere in `root`, a canonical path.
    /// Symbolic links must not lead out of `root`.
    ///
    /// # Errors
    /// The errors of [`load`](Self::load).
    pub fn load_within(dir: &Path, root: &Path, clock: Arc<dyn Clock>) -> Result<Self, Refusal> {
        let models = check::load_all(dir, root).map_err(|problems| refusal(&problems))?;
        Ok(Self { dir: dir.to_owned(), models, clock, failures: Mutex::default() })
    }

    /// The rule files with the digests of their texts.
    pub fn files(&self) -> impl Iterator<Item = (&Path, ScriptDigest)> {
        self.models.values().map(|rules| (rules.file.as_path(), rules.digest))
    }

    /// Whether this `fail` must still fail; if so, the failure is counted.
    fn fails(&self, model: &str, rule: usize, action: usize, times: Option<u32>) -> bool {
        let Some(times) = times else { return true };
        let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        let so_far = failures.entry((model.to_owned(), rule, action)).or_default();
        let due = *so_far < times;
        if due {
            *so_far += 1;
        }
        due
    }
}

fn refusal(problems: &Problems) -> Refusal {
    let shown: Vec<String> = problems.0.iter().take(20).map(ToString::to_string).collect();
    let more = problems.0.len().saturating_sub(shown.len());
    let more = if more > 0 { format!("\nand {more} more") } else { String::new() };
    Refusal::new(Code::InvalidArguments, format!("rule files have problems:\n{}{more}", shown.join("\n")))
}

#[async_trait]
impl Provider for Scripted {
    async fn complete(&self, request: &ModelRequest, deltas: &mut dyn Deltas) -> Result<ModelAnswer, ProviderError> {
        let rules = self.models.get(&request.model).ok_or_else(|| {
            let known: Vec<&str> = self.models.keys().map(String::as_str).collect();
            ProviderError::new(
                ErrorKind::UnknownModel,
                format!("no rules `{}.yaml` in {}; there are: {}", request.model, self.dir.display(), known.join(", ")),
            )
        })?;
        let (own, asked) = (Arc::clone(rules), request.clone());
        // Rules may work on megabytes of text, so they run on a thread that may block.
        let course = tokio::task::spawn_blocking(move || work_out(&own, &asked)).await.map_err(|error| {
            let message = format!("a rule of {} panicked: {error}", rules.file.display());
            ProviderError::new(ErrorKind::BadRequest, message).charge(Charge::Nothing)
        })?;
        let mut said = AnswerBuilder::default();
        for step in course.steps {
            match step {
                Step::Wait(duration) => self.clock.sleep(duration).await,
                Step::Fail(at, fail) => {
                    if self.fails(&rules.model, course.rule, at, fail.times) {
                        return Err(ProviderError::new(fail.kind, &fail.message).retry_after(fail.retry_after));
                    }
                }
                Step::Think(text) => said.think(text, deltas),
                Step::Say(text) => said.say(&text, deltas),
                Step::Call(block) => said.call(block),
            }
        }
        match course.failed {
            Some(error) => Err(error),
            None => Ok(said.answer(request)),
        }
    }
}

/// Maximum calls in one answer.
pub const CALLS_MAX: usize = 64;

/// The steps of an answer, in order.
enum Step {
    Wait(Duration),
    /// A failure, with its position among the actions of its rule.
    Fail(usize, Fail),
    Think(String),
    Say(String),
    Call(Block),
}

/// The rendered answer of a rule: the steps to run, and the failure after them if there is one.
struct Course {
    /// The position of the chosen rule in the file; the number of rules for `otherwise`.
    rule: usize,
    steps: Vec<Step>,
    /// The error with which the call ends after its last step, instead of an answer.
    failed: Option<ProviderError>,
}

/// Chooses a rule and renders its actions.
fn work_out(rules: &RuleSet, request: &ModelRequest) -> Course {
    let mut course = Course { rule: rules.rules.len(), steps: Vec::new(), failed: None };
    course.failed = course.follow(rules, request).err();
    course
}

impl Course {
    fn follow(&mut self, rules: &RuleSet, request: &ModelRequest) -> Result<(), ProviderError> {
        let conversation = Conversation::of(request);
        let chosen = rules.choose(&conversation)?;
        self.rule = chosen.number;
        self.actions(rules, &conversation, &chosen).map_err(|error| chosen.failed(rules, &error))
    }

    fn actions(&mut self, rules: &RuleSet, of: &Conversation<'_>, chosen: &Chosen<'_>) -> Result<(), String> {
        let names = rules.names(of, &chosen.captures, chosen.lets);
        let context = Jinja::from_dyn_object(Arc::clone(&names));
        let mut calls = Calls { rules, before: of.calls_so_far(), made: 0 };
        for (at, Do { action, only_if }) in chosen.actions.iter().enumerate() {
            if let Some(condition) = only_if
                && !rules.templates.truth(condition, &context)?
            {
                continue;
            }
            match action {
                Action::Wait(duration) => self.steps.push(Step::Wait(*duration)),
                Action::Fail(fail) => self.steps.push(Step::Fail(at, fail.clone())),
                Action::Think(text) => self.steps.push(Step::Think(rules.templates.render(text, &context)?)),
                Action::Say(text) => self.steps.push(Step::Say(rules.templates.render(text, &context)?)),
                Action::Call(call) => calls.all(call, &names, &context, &mut self.steps)?,
            }
        }
        let words = self.steps.iter().map(|step| match step {
            Step::Think(text) | Step::Say(text) => text.len(),
            Step::Wait(_) | Step::Fail(..) | Step::Call(_) => 0,
        });
        if words.sum::<usize>() > WORDS_MAX {
            return Err(format!("the answer's words are longer than {WORDS_MAX} bytes together"));
        }
        Ok(())
    }
}

/// The calls of an answer.
struct Calls<'r> {
    rules: &'r RuleSet,
    before: usize,
    made: usize,
}

impl Calls<'_> {
    fn all(&mut self, call: &Call, names: &Arc<Names>, context: &Jinja, steps: &mut Vec<Step>) -> Result<(), String> {
        let Some(list) = &call.for_each else {
            steps.push(self.one(call, context)?);
            return Ok(());
        };
        let items = self.rules.templates.value(list, context)?;
        let items = items.try_iter().map_err(|_| format!("`for_each` gives {}, not a list", items.kind()))?;
        for (index, item) in items.enumerate() {
            let names = ItemNames { names: Arc::clone(names), item, index };
            steps.push(self.one(call, &Jinja::from_object(names))?);
        }
        Ok(())
    }

    fn one(&mut self, call: &Call, context: &Jinja) -> Result<Step, String> {
        if self.made >= CALLS_MAX {
            return Err(format!("more than {CALLS_MAX} calls in one answer"));
        }
        let name = self.rules.templates.render(&call.tool, context)?;
        let arguments = self.rules.templates.tree(&call.with, context)?;
        let arguments = if arguments.is_null() { Value::Object(serde_json::Map::new()) } else { arguments };
        self.made += 1;
        Ok(Step::Call(Block::ToolCall { id: format!("call-{}", self.before + self.made), name, arguments }))
    }
}

/// The answer assembled so far.
#[derive(Default)]
struct AnswerBuilder {
    blocks: Vec<Block>,
    text: String,
    output: u64,
}

impl AnswerBuilder {
    fn think(&mut self, text: String, deltas: &mut dyn Deltas) {
        deltas.thinking(&text);
        self.output += tokens_of_bytes(text.len());
        self.blocks.push(Block::Thinking { text });
    }

    fn say(&mut self, text: &str, deltas: &mut dyn Deltas) {
        if !self.text.is_empty() {
            self.text.push('\n');
            deltas.text("\n");
        }
        for line in text.split_inclusive('\n') {
            deltas.text(line);
        }
        self.text.push_str(text);
    }

    fn call(&mut self, block: Block) {
        if let Block::ToolCall { name, arguments, .. } = &block {
            self.output += tokens_of_bytes(name.len() + json_len(arguments));
        }
        self.blocks.push(block);
    }

    fn answer(mut self, request: &ModelRequest) -> ModelAnswer {
        let first_call = self.blocks.iter().position(|block| matches!(block, Block::ToolCall { .. }));
        let stop = if first_call.is_some() { Stop::ToolUse } else { Stop::EndTurn };
        self.output += tokens_of_bytes(self.text.len());
        if !self.text.is_empty() || first_call.is_none() {
            // The text comes before the calls, as in the answers of real models.
            self.blocks.insert(first_call.unwrap_or(self.blocks.len()), Block::Text { text: self.text });
        }
        let usage = TokenUsage { input: estimate_tokens(request), output: self.output, ..TokenUsage::default() };
        ModelAnswer { model: request.model.clone(), blocks: self.blocks, usage: Some(usage), estimated: false, stop }
    }
}

#[cfg(test)]
mod problem_tests;
#[cfg(test)]
mod reviewer_tests;
#[cfg(test)]
mod tests;
