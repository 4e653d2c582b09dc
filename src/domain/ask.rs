//! Asks: questions to an agent whose asker waits for the answer.

use serde::{Deserialize, Serialize};

use crate::ids::{AgentId, AskId, CallId, MessageId, TurnId};
use crate::macros::{record, text_enum};
use crate::party::Party;
use crate::refusal::Code;
use crate::time::Timestamp;

text_enum! {
    /// Status of an ask.
    AskStatus, "ask status" {
        /// The asker waits.
        Open = "open",
        /// The target answered before the deadline.
        Answered = "answered",
        /// The target could not answer.
        Failed = "failed",
        /// The deadline passed before an answer.
        TimedOut = "timed_out",
    }
}

/// The party that waits for the answer, and the call that gets it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Asker {
    /// The party that asked.
    pub party: Party,
    /// If the asker is an agent: the turn that waits.
    pub turn_id: Option<TurnId>,
    /// If the asker is an agent: the tool call that waits.
    pub call_id: Option<CallId>,
    /// If the asker is an agent: the provider's id of that call.
    pub provider_call_id: Option<String>,
}

record! {
    /// The durable record of an ask. A late answer is stored in `reply`; the status stays as it was.
    pub struct Ask {
        /// Correlation id of the ask.
        pub ask_id: AskId,
        /// The party that waits.
        pub asker: Asker,
        /// The agent that is asked.
        pub target: AgentId,
        /// The mail that carries the question.
        pub message_id: MessageId,
        /// When the asker stops waiting.
        pub deadline_at: Timestamp,
        /// Status of the ask.
        pub status: AskStatus = AskStatus::Open,
        /// The answer.
        pub reply: Option<String> = None,
        /// Whether the answer was truncated. Its text then ends with a mark.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        pub truncated: bool = false,
        /// Why there is no answer.
        pub error: Option<String> = None,
        /// The code of `error`, if it has one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub code: Option<Code> = None,
        /// What the asker can do about `error`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub hint: Option<String> = None,
        /// When the ask was sent.
        pub created_at: Timestamp,
        /// When the ask ended.
        pub closed_at: Option<Timestamp> = None,
    }

    /// An open ask whose question is the mail `message_id` to `target`.
    pub fn new(
        ask_id: AskId,
        asker: Asker,
        (target, message_id): (AgentId, MessageId),
        created_at: Timestamp,
        deadline_at: Timestamp,
    )
}

/// The cycle of waiting agents that an ask from `asker` to `target` would close, or `None`.
/// `waits` contains the present pairs (waiting agent, asked agent). An agent runs one
/// turn at a time, so an ask in a cycle would never be answered.
pub fn cycle(asker: &AgentId, target: &AgentId, waits: &[(AgentId, AgentId)]) -> Option<Vec<AgentId>> {
    let mut paths = vec![vec![asker.clone(), target.clone()]];
    let mut seen = std::collections::BTreeSet::new();
    while let Some(path) = paths.pop() {
        let Some(last) = path.last() else { continue };
        if last == asker {
            return Some(path);
        }
        if !seen.insert(last.clone()) {
            continue;
        }
        for (_, next) in waits.iter().filter(|(from, _)| from == last) {
            let mut longer = path.clone();
            longer.push(next.clone());
            paths.push(longer);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(text: &str) -> AgentId {
        text.parse().unwrap()
    }

    // covers: MSG-03
    #[test]
    fn cycles_of_any_length_are_found() {
        let waits = [(id("b"), id("c")), (id("c"), id("d")), (id("x"), id("y"))];
        assert_eq!(cycle(&id("a"), &id("b"), &waits), None);
        let named: Vec<String> = cycle(&id("d"), &id("b"), &waits).unwrap().iter().map(ToString::to_string).collect();
        assert_eq!(named, ["d", "b", "c", "d"]);
        assert!(cycle(&id("a"), &id("a"), &[]).is_some());
    }
}
