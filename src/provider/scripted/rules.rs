//! Parsed rules: conditions, actions, and the choice of the first rule whose conditions hold.
//!
//! This module must never read a file.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use minijinja::Value as Jinja;

use super::conversation::Conversation;
use super::matching::When;
use super::names::{Lets, Names};
use super::template::{Expr, Templates, Text, Tree};
use crate::error::{Charge, ErrorKind, ProviderError};

/// Identifies the content of a rule file: the SHA-256 of its text. A reload compares it.
pub type ScriptDigest = [u8; 32];

/// The rules of one model.
pub(super) struct RuleSet {
    pub(super) model: String,
    pub(super) file: PathBuf,
    pub(super) digest: ScriptDigest,
    pub(super) rules: Vec<Rule>,
    pub(super) otherwise: Vec<Do>,
    pub(super) otherwise_line: usize,
    /// The definitions for all rules.
    pub(super) lets: Arc<Lets>,
    /// The constants of the file.
    pub(super) vars: Jinja,
    pub(super) templates: Arc<Templates>,
}

/// One rule.
pub(super) struct Rule {
    pub(super) name: String,
    pub(super) line: usize,
    pub(super) when: When,
    pub(super) actions: Vec<Do>,
    /// The definitions of this rule and those for all rules.
    pub(super) lets: Arc<Lets>,
}

/// One action with its condition.
pub(super) struct Do {
    pub(super) action: Action,
    pub(super) only_if: Option<Expr>,
}

/// One action of a rule.
pub(super) enum Action {
    Call(Call),
    Say(Text),
    Think(Text),
    Wait(Duration),
    Fail(Fail),
}

/// A tool call, or one call for each item of a list.
pub(super) struct Call {
    pub(super) tool: Text,
    pub(super) with: Tree,
    pub(super) for_each: Option<Expr>,
}

/// A failure: a fixed number of times, or always.
#[derive(Clone)]
pub(super) struct Fail {
    pub(super) kind: ErrorKind,
    pub(super) message: String,
    pub(super) times: Option<u32>,
    pub(super) retry_after: Option<Duration>,
}

/// The rule that was chosen for a conversation.
pub(super) struct Chosen<'r> {
    /// The position of the rule in the file; the number of rules for `otherwise`.
    pub(super) number: usize,
    name: &'r str,
    line: usize,
    pub(super) actions: &'r [Do],
    pub(super) lets: &'r Arc<Lets>,
    pub(super) captures: Jinja,
}

impl Chosen<'_> {
    /// The error for a failure of this rule.
    pub(super) fn failed(&self, rules: &RuleSet, error: &str) -> ProviderError {
        rule_error(rules, self.name, self.line, error)
    }
}

impl RuleSet {
    /// The names that templates can use.
    pub(super) fn names(&self, conversation: &Conversation<'_>, captures: &Jinja, lets: &Arc<Lets>) -> Arc<Names> {
        Names::new(conversation.facts(&self.vars), captures, lets, &self.templates)
    }

    /// The first rule whose conditions hold, or `otherwise`.
    pub(super) fn choose(&self, conversation: &Conversation<'_>) -> Result<Chosen<'_>, ProviderError> {
        for (number, rule) in self.rules.iter().enumerate() {
            let captures = rule
                .when
                .captures(conversation, &self.templates, &self.vars, &rule.lets)
                .map_err(|error| rule_error(self, &rule.name, rule.line, &error))?;
            if let Some(captures) = captures {
                let Rule { name, line, actions, lets, .. } = rule;
                return Ok(Chosen { number, name, line: *line, actions, lets, captures });
            }
        }
        Ok(Chosen {
            number: self.rules.len(),
            name: "otherwise",
            line: self.otherwise_line,
            actions: &self.otherwise,
            lets: &self.lets,
            captures: Jinja::from_object(BTreeMap::<Jinja, Jinja>::new()),
        })
    }
}

/// The error for a failure of a rule itself. A retry would give the same error, so it is permanent,
/// and it costs nothing.
fn rule_error(rules: &RuleSet, rule: &str, line: usize, error: &str) -> ProviderError {
    let at = format!("{}:{line}", rules.file.display());
    ProviderError::new(ErrorKind::BadRequest, format!("rule `{rule}` at {at}: {error}")).charge(Charge::Nothing)
}
