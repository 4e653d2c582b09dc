//! Executes an answer of a scripted model. First a rule is chosen and all its actions are rendered.
//! Then the rendered steps run one by one.
//!
//! Choosing and rendering must never have an effect, because they may be cancelled and repeated
//! elsewhere.

use std::sync::Arc;
use std::time::Duration;

use ghost_domain::transcript::{Block, TokenUsage};
use minijinja::Value as Jinja;
use serde_json::Value;

use super::bounds::CALLS_MAX;
use super::conversation::Conversation;
use super::names::{ItemNames, Names};
use super::rules::{Action, Call, Chosen, Do, Fail, RuleSet};
use crate::answer::WORDS_MAX;
use crate::error::ProviderError;
use crate::estimate::{estimate_tokens, json_len, tokens_of_bytes};
use crate::model::{Deltas, ModelAnswer, ModelRequest, Stop};

/// The steps of an answer, in order.
pub(super) enum Step {
    Wait(Duration),
    /// A failure, with its position among the actions of its rule.
    Fail(usize, Fail),
    Think(String),
    Say(String),
    Call(Block),
}

/// The rendered answer of a rule: the steps to run, and the failure after them if there is one.
pub(super) struct Course {
    /// The position of the chosen rule in the file; the number of rules for `otherwise`.
    pub(super) rule: usize,
    pub(super) steps: Vec<Step>,
    /// The error with which the call ends after its last step, instead of an answer.
    pub(super) failed: Option<ProviderError>,
}

/// Chooses a rule and renders its actions.
pub(super) fn work_out(rules: &RuleSet, request: &ModelRequest) -> Course {
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
pub(super) struct AnswerBuilder {
    blocks: Vec<Block>,
    text: String,
    output: u64,
}

impl AnswerBuilder {
    pub(super) fn think(&mut self, text: String, deltas: &mut dyn Deltas) {
        deltas.thinking(&text);
        self.output += tokens_of_bytes(text.len());
        self.blocks.push(Block::Thinking { text });
    }

    pub(super) fn say(&mut self, text: &str, deltas: &mut dyn Deltas) {
        if !self.text.is_empty() {
            self.text.push('\n');
            deltas.text("\n");
        }
        for line in text.split_inclusive('\n') {
            deltas.text(line);
        }
        self.text.push_str(text);
    }

    pub(super) fn call(&mut self, block: Block) {
        if let Block::ToolCall { name, arguments, .. } = &block {
            self.output += tokens_of_bytes(name.len() + json_len(arguments));
        }
        self.blocks.push(block);
    }

    pub(super) fn answer(mut self, request: &ModelRequest) -> ModelAnswer {
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
