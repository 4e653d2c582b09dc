//! A model that follows rules from a file: `<dir>/<model>.yaml`. For demos, tests and simulation. The format is in
//! `README.md` beside this file.
//!
//! Must never: hold anything of a conversation between two calls. What it answers follows from the conversation that it
//! is shown, so that a resumed turn gets the same answer; only `fail … times` counts, and waiting is on the Clock.

mod bounds;
mod budget;
mod check;
mod code;
mod conversation;
mod filters;
mod guarded;
mod guards;
mod lets;
mod matching;
mod pattern;
mod read;
mod render;
mod rules;
mod script;
mod template;
mod values;
mod vetted;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use ghost_config::problem::Problems;
use ghost_domain::transcript::{Block, TokenUsage};
use ghost_domain::{Clock, Code, Refusal};
use minijinja::Value as Jinja;
use serde_json::Value;

use crate::error::{ErrorKind, ProviderError};
use crate::estimate::{estimate_tokens, json_len, tokens_of_bytes};
use crate::model::{Deltas, ModelAnswer, ModelRequest, Provider, Stop};
use conversation::Conversation;
use rules::{Action, Call, Do, RuleSet};
use script::Script;

pub use bounds::{FILES_MAX, TEXT_MAX};
pub use check::{Survey, misnamed_for, path_of, survey};
pub use read::ToolName;
pub use vetted::{ScriptDigest, Vetted};

/// Most calls in one answer.
pub const CALLS_MAX: usize = 64;

/// The scripted provider: the rule files of one directory.
pub struct Scripted {
    dir: PathBuf,
    models: BTreeMap<String, Script>,
    clock: Arc<dyn Clock>,
    /// How often a `fail` has failed: by model, rule and action.
    failures: Mutex<BTreeMap<(String, usize, usize), u32>>,
}

impl Scripted {
    /// Loads every `<model>.yaml` in `dir`; all of them must lie in it. Files that `vetted` vouches for are held as text until
    /// a model is asked.
    ///
    /// # Errors
    /// Every problem of every other file, each with its line, in one refusal.
    pub fn load(dir: &Path, clock: Arc<dyn Clock>, vetted: &Vetted) -> Result<Self, Refusal> {
        // One that is not there is told as such.
        let root = dir.canonicalize().unwrap_or_else(|_| dir.to_owned());
        Self::load_within(dir, &root, clock, vetted)
    }

    /// As [`load`](Self::load), for files that may lie anywhere in `root`, a canonical path: symbolic links lead no further.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn load_within(dir: &Path, root: &Path, clock: Arc<dyn Clock>, vetted: &Vetted) -> Result<Self, Refusal> {
        let models = check::load_all(dir, root, vetted).map_err(|problems| refusal(&problems))?;
        Ok(Self { dir: dir.to_owned(), models, clock, failures: Mutex::default() })
    }

    /// The rule files with what they say: all of them are good.
    pub fn files(&self) -> impl Iterator<Item = (&Path, ScriptDigest)> {
        self.models.values().map(|script| (script.file.as_path(), script.digest))
    }

    /// Whether this failure is still due, counting it if so.
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

/// What an answer is gathered in.
struct Draft {
    blocks: Vec<Block>,
    said: String,
    calls: usize,
    output: u64,
}

#[async_trait]
impl Provider for Scripted {
    async fn complete(&self, request: &ModelRequest, deltas: &mut dyn Deltas) -> Result<ModelAnswer, ProviderError> {
        let script = self.models.get(&request.model).ok_or_else(|| {
            let known: Vec<&str> = self.models.keys().map(String::as_str).collect();
            ProviderError::new(
                ErrorKind::UnknownModel,
                format!("no rules `{}.yaml` in {}; there are: {}", request.model, self.dir.display(), known.join(", ")),
            )
        })?;
        let rules = script.rules().await?;
        let conversation = Conversation::of(request);
        let chosen = rules.choose(&conversation)?;
        let context = conversation.context(&rules.vars, &chosen.captures);
        let context =
            lets::known(chosen.lets, &rules.templates, context).map_err(|error| chosen.failed(rules, &error))?;
        let mut draft = Draft { blocks: Vec::new(), said: String::new(), calls: 0, output: 0 };
        for (at, Do { action, only_if }) in chosen.actions.iter().enumerate() {
            if let Some(condition) = only_if
                && !rules.templates.truth(condition, &context).map_err(|error| chosen.failed(rules, &error))?
            {
                continue;
            }
            match action {
                Action::Wait(duration) => self.clock.sleep(*duration).await,
                Action::Fail(fail) => {
                    if self.fails(&rules.model, chosen.number, at, fail.times) {
                        return Err(ProviderError::new(fail.kind, &fail.message).retry_after(fail.retry_after));
                    }
                }
                Action::Think(text) => {
                    let text = rules.templates.text(text, &context).map_err(|error| chosen.failed(rules, &error))?;
                    deltas.thinking(&text);
                    draft.output += tokens_of_bytes(text.len());
                    draft.blocks.push(Block::Thinking { text, signature: None });
                }
                Action::Say(text) => {
                    let text = rules.templates.text(text, &context).map_err(|error| chosen.failed(rules, &error))?;
                    draft.say(&text, deltas);
                }
                Action::Call(call) => {
                    draft
                        .call(rules, call, &context, conversation.calls_so_far())
                        .map_err(|error| chosen.failed(rules, &error))?;
                }
            }
        }
        Ok(draft.finish(request))
    }
}

impl Draft {
    fn say(&mut self, text: &str, deltas: &mut dyn Deltas) {
        if !self.said.is_empty() {
            self.said.push('\n');
            deltas.text("\n");
        }
        for line in text.split_inclusive('\n') {
            deltas.text(line);
        }
        self.said.push_str(text);
    }

    fn call(&mut self, rules: &RuleSet, call: &Call, context: &Jinja, before: usize) -> Result<(), String> {
        let Some(list) = &call.for_each else { return self.one(rules, call, context, before) };
        let items = rules.templates.value(list, context)?;
        let items = items.try_iter().map_err(|_| format!("`for_each` gives {}, not a list", items.kind()))?;
        for (index, item) in items.enumerate() {
            let context = minijinja::context! { item => item, index => index, ..context.clone() };
            self.one(rules, call, &context, before)?;
        }
        Ok(())
    }

    fn one(&mut self, rules: &RuleSet, call: &Call, context: &Jinja, before: usize) -> Result<(), String> {
        if self.calls >= CALLS_MAX {
            return Err(format!("more than {CALLS_MAX} calls in one answer"));
        }
        let name = rules.templates.text(&call.tool, context)?;
        let arguments = rules.templates.tree(&call.with, context)?;
        let arguments = if arguments.is_null() { Value::Object(serde_json::Map::new()) } else { arguments };
        self.calls += 1;
        self.output += tokens_of_bytes(name.len() + json_len(&arguments));
        self.blocks.push(Block::ToolCall { id: format!("call-{}", before + self.calls), name, arguments });
        Ok(())
    }

    fn finish(mut self, request: &ModelRequest) -> ModelAnswer {
        let stop = if self.calls > 0 { Stop::ToolUse } else { Stop::EndTurn };
        self.output += tokens_of_bytes(self.said.len());
        if !self.said.is_empty() || self.calls == 0 {
            // Words come before calls, as models put them.
            let at = self.blocks.iter().position(|block| matches!(block, Block::ToolCall { .. }));
            self.blocks.insert(at.unwrap_or(self.blocks.len()), Block::Text { text: self.said });
        }
        let usage = TokenUsage { input: estimate_tokens(request), output: self.output, ..TokenUsage::default() };
        ModelAnswer { model: request.model.clone(), blocks: self.blocks, usage: Some(usage), stop }
    }
}

#[cfg(test)]
mod growth_tests;
#[cfg(test)]
mod problem_tests;
#[cfg(test)]
mod tests;
