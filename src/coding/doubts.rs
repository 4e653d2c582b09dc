//! What speaks against a run being done, although its agent reports a success: a hook that stopped it, a tool that was
//! denied, a limit that it reached. And its warnings.

use std::collections::VecDeque;

use crate::collector::CALLS_MAX;
use crate::text::one_line;

/// How many texts are kept of each kind, and how long they are, in characters.
const MAX_KEPT: usize = 8;
const CHARS: usize = 100;

/// What speaks against a run being done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Doubts {
    reasons: Vec<String>,
    denied: Vec<String>,
    warnings: Vec<String>,
    /// The names of the last calls, by id. The result of a call does not repeat them.
    calls: VecDeque<(String, String)>,
}

impl Doubts {
    /// The run ended for `word`, the agent's own word for it. Words for a usual end are no reason.
    pub(crate) fn ended(&mut self, word: &str) {
        let plain = word.to_ascii_lowercase().replace(['_', '-'], " ");
        let usual =
            ["", "success", "successful", "succeeded", "completed", "complete", "done", "ok", "finished", "normal"];
        let turn = ["end turn", "stop", "stop sequence", "tool use", "tool calls"];
        if !usual.contains(&&*plain) && !turn.contains(&&*plain) {
            keep(&mut self.reasons, &plain);
        }
    }

    /// Something stopped the run or a part of it.
    pub(crate) fn stopped(&mut self, why: &str) {
        keep(&mut self.reasons, why);
    }

    /// A tool, or what it was to do, was not allowed.
    pub fn denied(&mut self, tool: &str) {
        keep(&mut self.denied, if tool.trim().is_empty() { "a tool" } else { tool });
    }

    /// The agent warns. A warning that says that something was stopped, blocked or denied is a reason.
    pub(crate) fn warned(&mut self, text: &str) {
        match says_stopped(text) {
            true => keep(&mut self.reasons, text),
            false => keep(&mut self.warnings, text),
        }
    }

    /// The agent reports an error, which it may overcome, unless it says that the run was stopped.
    pub(crate) fn failed_as(&mut self, message: &str) {
        if says_stopped(message) {
            keep(&mut self.reasons, message);
        }
    }

    /// Notes the name of a call, for its result.
    pub(crate) fn called(&mut self, id: &str, name: &str) {
        if self.calls.len() == CALLS_MAX {
            self.calls.pop_front();
        }
        self.calls.push_back((one_line(id, CHARS), one_line(name, CHARS)));
    }

    /// The call `id` was not allowed.
    pub(crate) fn call_denied(&mut self, id: &str) {
        let id = one_line(id, CHARS);
        let name = self.calls.iter().rev().find(|(call, _)| *call == id).map(|(_, name)| name.clone());
        self.denied(&name.unwrap_or_default());
    }

    /// Why the run is not done, in a few words; `None` if nothing speaks against it.
    #[must_use]
    pub fn reason(&self) -> Option<String> {
        let denied = (!self.denied.is_empty()).then(|| format!("denied: {}", self.denied.join(", ")));
        let all: Vec<String> = self.reasons.iter().cloned().chain(denied).collect();
        (!all.is_empty()).then(|| one_line(&all.join("; "), 4 * CHARS))
    }

    /// Whether something else than a denial speaks against it.
    #[must_use]
    pub fn was_stopped(&self) -> bool {
        !self.reasons.is_empty()
    }

    /// The warnings.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        self.warnings.clone()
    }

    /// An upper bound of the bytes that are held.
    #[cfg(test)]
    pub(crate) fn held(&self) -> usize {
        let texts = [&self.reasons, &self.denied, &self.warnings].into_iter().flatten().map(String::len);
        texts.chain(self.calls.iter().map(|(id, name)| id.len() + name.len())).sum()
    }
}

fn keep(list: &mut Vec<String>, text: &str) {
    let text = one_line(text, CHARS);
    if list.len() < MAX_KEPT && !text.is_empty() && !list.contains(&text) {
        list.push(text);
    }
}

/// Whether the status or the outcome of a call says that it was not allowed.
pub(crate) fn is_denial(word: &str) -> bool {
    let word = word.to_ascii_lowercase();
    ["denied", "declin", "reject", "block", "forbid", "disallow", "prohibit", "not_allowed", "not allowed", "policy"]
        .iter()
        .any(|part| word.contains(part))
}

/// Whether a message says that a run, or a part of it, was stopped.
fn says_stopped(text: &str) -> bool {
    let text = text.to_ascii_lowercase();
    let has = |parts: &[&str]| parts.iter().any(|part| text.contains(part));
    is_denial(&text)
        || has(&["stopped", "stopping", "aborted", "interrupted", "cancelled", "canceled", "refused", "refusal"])
        || has(&["max", "limit", "budget", "quota"]) && has(&["exceed", "reached", "exhausted", "spent", "used up"])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_kept_once_and_within_bounds_and_usual_ends_are_none() {
        let mut doubts = Doubts::default();
        for word in ["", "success", "end_turn", "COMPLETED", "stop"] {
            doubts.ended(word);
        }
        doubts.warned("The context is nearly full");
        assert_eq!(doubts.reason(), None);
        doubts.ended("max_turns");
        doubts.called("1", "Bash");
        for _ in 0..1_000 {
            doubts.call_denied("1");
            doubts.call_denied("9");
            doubts.denied(&"x".repeat(5_000));
            doubts.called("2", &"y".repeat(5_000));
        }
        let reason = doubts.reason().unwrap();
        assert!(reason.starts_with("max turns; denied: Bash, a tool, xxx"), "{reason}");
        assert_eq!(doubts.warnings(), ["The context is nearly full"]);
        assert!(doubts.held() < 40_000, "{}", doubts.held());
    }

    #[test]
    fn a_warning_that_something_was_stopped_is_a_reason() {
        for text in [
            "Loop detected, stopping execution",
            "Maximum session turns exceeded",
            "Blocked by a hook",
            "Budget is used up",
        ] {
            assert!(says_stopped(text), "{text}");
        }
        for text in ["Loop", "The limit is near", "deprecated flag", "Try again"] {
            assert!(!says_stopped(text), "{text}");
        }
    }
}
