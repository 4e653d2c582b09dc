//! Parsed rules: conditions, actions, and the choice of the first rule whose conditions hold. All conditions of a rule must hold,
//! in whatever order they are written. No file is read here.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use minijinja::Value as Jinja;
use regex::Captures;

use super::conversation::{Conversation, Lets, Names};
use super::filters::Pattern;
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

/// A condition on a count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Count {
    Exactly(usize),
    AtLeast(usize),
    AtMost(usize),
}

impl Count {
    /// Reads `3`, `=3`, `>=3`, `>3`, `<=3` or `<3`.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let signed = [">=", "<=", ">", "<", "="].iter().find_map(|sign| Some((*sign, text.strip_prefix(sign)?)));
        let (sign, number) = signed.unwrap_or(("=", text));
        let number = number.trim().parse::<usize>().ok()?;
        match sign {
            ">=" => Some(Self::AtLeast(number)),
            "<=" => Some(Self::AtMost(number)),
            ">" => number.checked_add(1).map(Self::AtLeast),
            "<" => number.checked_sub(1).map(Self::AtMost),
            _ => Some(Self::Exactly(number)),
        }
    }

    pub(super) fn holds(self, count: usize) -> bool {
        match self {
            Self::Exactly(n) => count == n,
            Self::AtLeast(n) => count >= n,
            Self::AtMost(n) => count <= n,
        }
    }
}

/// The conditions of one rule.
#[derive(Default)]
pub(super) struct When {
    pub(super) agents: Vec<String>,
    pub(super) mail: Option<Arc<Pattern>>,
    pub(super) last: Option<Arc<Pattern>>,
    pub(super) text: Option<Arc<Pattern>>,
    pub(super) tool: Option<String>,
    pub(super) result: Option<Arc<Pattern>>,
    pub(super) failed: Option<bool>,
    pub(super) tools_called: BTreeMap<String, Count>,
    pub(super) tools_ok: BTreeMap<String, Count>,
    pub(super) called_all: Vec<String>,
    pub(super) not_called: Vec<String>,
    pub(super) round: Option<Count>,
    pub(super) only_if: Option<Expr>,
}

impl When {
    /// The captures of the regular expressions if every condition holds, or `None`. `lets` are the definitions of the rule.
    pub(super) fn captures(
        &self,
        conversation: &Conversation<'_>,
        templates: &Arc<Templates>,
        vars: &Jinja,
        lets: &Arc<Lets>,
    ) -> Result<Option<Jinja>, String> {
        if !self.plain_conditions(conversation) {
            return Ok(None);
        }
        let mut caught = Caught::default();
        // The first of these conditions that a rule has gives the numbered captures. Named captures
        // come from all of them.
        if self.tool.is_some() || self.result.is_some() || self.failed.is_some() {
            let Some(captures) = self.fresh_result(conversation)? else { return Ok(None) };
            if let (Some(pattern), Some(captures)) = (&self.result, captures) {
                caught.add(pattern, &captures)?;
            }
        }
        for (pattern, text) in [
            (&self.mail, conversation.mail.as_str()),
            (&self.last, conversation.last_text.as_str()),
            (&self.text, if self.text.is_some() { conversation.whole() } else { "" }),
        ] {
            if let Some(pattern) = pattern {
                let Some(captures) = pattern.captures(text)? else { return Ok(None) };
                caught.add(pattern, &captures)?;
            }
        }
        let caught = caught.into_value();
        if let Some(condition) = &self.only_if {
            let names = Names::new(conversation.facts(vars), &caught, lets, templates);
            if !templates.truth(condition, &Jinja::from_dyn_object(names))? {
                return Ok(None);
            }
        }
        Ok(Some(caught))
    }

    fn plain_conditions(&self, conversation: &Conversation<'_>) -> bool {
        let count = |counts: &BTreeMap<&str, usize>, tool: &String| counts.get(tool.as_str()).copied().unwrap_or(0);
        let agent = conversation.request.agent_id.as_str();
        (self.agents.is_empty() || self.agents.iter().any(|glob| ghost_domain::tool_catalogue::glob(glob, agent)))
            && self.round.is_none_or(|round| round.holds(conversation.round))
            && self.tools_called.iter().all(|(tool, n)| n.holds(count(&conversation.called, tool)))
            && self.tools_ok.iter().all(|(tool, n)| n.holds(count(&conversation.succeeded, tool)))
            && self.called_all.iter().all(|tool| count(&conversation.called, tool) > 0)
            && self.not_called.iter().all(|tool| count(&conversation.called, tool) == 0)
    }

    /// Finds a result since the model's last answer that has the requested tool, text and outcome.
    /// For `failed: false`, no result of that tool may have failed.
    fn fresh_result<'c>(&self, conversation: &'c Conversation<'_>) -> Result<Option<Option<Captures<'c>>>, String> {
        let of_tool = |tool: &str| self.tool.as_ref().is_none_or(|wanted| wanted == tool);
        let mut fitting = conversation.fresh().iter().filter(|outcome| of_tool(outcome.tool)).peekable();
        if fitting.peek().is_none() {
            return Ok(None);
        }
        if self.failed == Some(false) && conversation.fresh().iter().any(|outcome| of_tool(outcome.tool) && !outcome.ok)
        {
            return Ok(None);
        }
        for outcome in fitting.filter(|outcome| self.failed != Some(true) || !outcome.ok) {
            let Some(pattern) = &self.result else { return Ok(Some(None)) };
            if let Some(captures) = pattern.captures(outcome.text)? {
                return Ok(Some(Some(captures)));
            }
        }
        Ok(None)
    }
}

#[derive(Default)]
struct Caught {
    numbered: Vec<(Jinja, Jinja)>,
    named: BTreeMap<String, String>,
}

impl Caught {
    fn add(&mut self, pattern: &Pattern, captures: &Captures<'_>) -> Result<(), String> {
        let text = |at: usize| captures.get(at).map_or("", |found| found.as_str());
        if self.numbered.is_empty() {
            self.numbered = (0..captures.len()).map(|at| (Jinja::from(at), Jinja::from(text(at)))).collect();
        }
        for (at, name) in pattern.compile()?.capture_names().enumerate() {
            if let Some(name) = name {
                self.named.entry(name.to_owned()).or_insert_with(|| text(at).to_owned());
            }
        }
        Ok(())
    }

    fn into_value(self) -> Jinja {
        let named = self.named.into_iter().map(|(name, text)| (Jinja::from(name), Jinja::from(text)));
        Jinja::from_object(self.numbered.into_iter().chain(named).collect::<BTreeMap<Jinja, Jinja>>())
    }
}
