//! A question that someone waits on.

use serde::{Deserialize, Serialize};

use crate::envelope::text_enum;
use crate::ids::{AgentId, AskId, CallId, MessageId, TurnId};
use crate::party::Party;
use crate::time::Timestamp;

text_enum! {
    /// How an ask stands.
    AskStatus, "ask status" {
        /// Someone waits.
        Open = "open",
        /// Answered in time.
        Answered = "answered",
        /// The target could not or will not answer.
        Failed = "failed",
        /// The deadline passed first.
        TimedOut = "timed_out",
    }
}

/// Who waits for the answer, and where it must be put.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Asker {
    /// Who asked.
    pub party: Party,
    /// For an agent: the turn whose step waits.
    pub turn_id: Option<TurnId>,
    /// For an agent: the waiting call.
    pub call_id: Option<CallId>,
    /// For an agent: the provider's id of that call.
    pub provider_call_id: Option<String>,
}

/// The durable record of an ask. A late reply is kept in `reply` with the status left as it is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ask {
    /// The correlation id.
    pub ask_id: AskId,
    /// Who waits.
    pub asker: Asker,
    /// Who is asked.
    pub target: AgentId,
    /// The mail that carries the question.
    pub message_id: MessageId,
    /// When waiting ends.
    pub deadline_at: Timestamp,
    /// How it stands.
    pub status: AskStatus,
    /// The answer.
    pub reply: Option<String>,
    /// Whether the answer was cut, which its end says too.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub truncated: bool,
    /// Why there is none.
    pub error: Option<String>,
    /// When it was asked.
    pub created_at: Timestamp,
    /// When it stopped being open.
    pub closed_at: Option<Timestamp>,
}

/// The agents on a cycle of waiting that asking `target` would close, or nothing (MSG-03). `waits` lists who waits for
/// whom now. An agent serves one turn at a time, so a chain that leads back to the asker can never be answered.
#[must_use]
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
