//! Decides whether a rule applies: all of its conditions must hold.
//!
//! The result must never depend on the order in which the conditions are written.

use std::collections::BTreeMap;
use std::sync::Arc;

use minijinja::Value as Jinja;
use regex::Captures;

use super::conversation::Conversation;
use super::names::{Lets, Names};
use super::pattern::Pattern;
use super::template::{Expr, Templates};

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
        let number = |rest: &str| rest.trim().parse::<usize>().ok();
        if let Some(rest) = text.strip_prefix(">=") {
            number(rest).map(Self::AtLeast)
        } else if let Some(rest) = text.strip_prefix("<=") {
            number(rest).map(Self::AtMost)
        } else if let Some(rest) = text.strip_prefix('>') {
            number(rest)?.checked_add(1).map(Self::AtLeast)
        } else if let Some(rest) = text.strip_prefix('<') {
            number(rest)?.checked_sub(1).map(Self::AtMost)
        } else {
            number(text.strip_prefix('=').unwrap_or(text)).map(Self::Exactly)
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
                let Some(captures) = conversation.captures(pattern, text)? else { return Ok(None) };
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
            if let Some(captures) = conversation.captures(pattern, outcome.text)? {
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
