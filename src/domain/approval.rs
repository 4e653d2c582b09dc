//! Approvals: calls that run only after an operator has seen exactly what they would do.
//!
//! An approval must never cover more than the plan that was shown: a plan that differs in one byte has another digest.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use crate::ids::{AgentId, ApprovalId, ConversationId, RootId, TurnId};
use crate::macros::{record, text_enum};
use crate::party::Party;
use crate::time::Timestamp;
use crate::turn::Turn;

text_enum! {
    /// State of an approval.
    ApprovalStatus, "approval status" {
        /// The call waits for an operator.
        Pending = "pending",
        /// An operator let the call run.
        Approved = "approved",
        /// An operator refused the call.
        Denied = "denied",
        /// Nobody answered in time.
        Expired = "expired",
        /// The turn of the call ended first.
        Cancelled = "cancelled",
    }
}

/// Characters of a plan's summary that notes, events and lists show.
pub const SHOWN_MAX: usize = 400;

/// A workspace file that the arguments of a command name, with its content at the time of the request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BoundFile {
    /// Path relative to the workspace root.
    pub path: String,
    /// SHA-256 of its content, in lower-case hexadecimal.
    pub sha256: String,
}

/// Exactly what a call would do. An approval holds for this and nothing else.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ApprovalPlan {
    /// Canonical name of the tool.
    pub tool: String,
    /// The arguments of the call, after aliases were resolved.
    pub arguments: Value,
    /// For a command: program and arguments.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub argv: Vec<String>,
    /// For a command: the directory that it runs in, relative to the workspace root.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dir: Option<String>,
    /// For a command: the variables of its call.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// For a command: the sandbox, with the image if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<String>,
    /// For a command: the workspace files that it names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<BoundFile>,
    /// Why an answer can hold for this call only: what it would run is not all in the plan.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub once_only: Option<String>,
    /// For a question with a form: the schema of the answer. It is a stranger's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub form: Option<Value>,
}

impl ApprovalPlan {
    /// The digest of the plan for one agent: SHA-256 in lower-case hexadecimal.
    pub fn digest(&self, agent_id: &AgentId) -> String {
        // The order of the members of an object is part of the plan: a different order is a different text.
        let text = serde_json::json!({ "agent_id": agent_id, "plan": self }).to_string();
        hex::encode(Sha256::digest(text))
    }

    /// The plan in one line: a command line that is the only argument, otherwise the tool with all its arguments as JSON,
    /// which escapes line breaks.
    pub fn summary(&self) -> String {
        let only = self.arguments.as_object().filter(|arguments| self.tool == "tool.cli" && arguments.len() == 1);
        match only.and_then(|arguments| arguments.get("command")).and_then(Value::as_str) {
            Some(line) if !line.chars().any(char::is_control) => line.to_owned(),
            _ => format!("{} {}", self.tool, self.arguments),
        }
    }

    /// Whether the beginning of the summary that notes and events show is the whole plan. A form is never in it.
    pub fn is_shown_whole(&self) -> bool {
        self.form.is_none() && self.summary().chars().count() <= SHOWN_MAX
    }
}

record! {
    /// A request to run one call, and its answer.
    pub struct Approval {
        /// Id of the approval.
        pub approval_id: ApprovalId,
        /// The agent that made the call.
        pub agent_id: AgentId = turn.agent_id.clone(),
        /// The turn that waits.
        pub turn_id: TurnId = turn.turn_id,
        /// The root of the turn.
        pub root_id: RootId = turn.root_id,
        /// The conversation whose session the turn belongs to.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub conversation_id: Option<ConversationId> = turn.conversation_id,
        /// The provider's id of the call, unique within its answer.
        pub provider_call_id: String,
        /// What the call would do.
        pub plan: ApprovalPlan,
        /// The plan's digest for the agent.
        pub digest: String = String::new(),
        /// Why the call needs an approval.
        pub reason: String = String::new(),
        /// State of the approval.
        pub status: ApprovalStatus = ApprovalStatus::Pending,
        /// Whether the same plan of the same agent runs without asking again.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        pub always: bool = false,
        /// Who answered.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub decided_by: Option<Party> = None,
        /// What the operator wrote to the agent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub note: Option<String> = None,
        /// What the operator filled into the form.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub fields: Option<Map<String, Value>> = None,
        /// When the call began to wait.
        pub requested_at: Timestamp,
        /// When the request expires.
        pub expires_at: Timestamp,
        /// When it was answered, expired or was cancelled.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub closed_at: Option<Timestamp> = None,
    }

    /// A pending approval of a call of `turn`, without a digest and a reason.
    pub fn new(
        approval_id: ApprovalId,
        turn: &Turn,
        (provider_call_id, plan): (String, ApprovalPlan),
        requested_at: Timestamp,
        expires_at: Timestamp,
    )
}

impl Approval {
    /// Whether an operator may still answer at `now`.
    pub fn is_open(&self, now: Timestamp) -> bool {
        self.status == ApprovalStatus::Pending && now < self.expires_at
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn plan() -> ApprovalPlan {
        ApprovalPlan {
            tool: "tool.cli".into(),
            arguments: json!({ "command": "git push" }),
            argv: ["bash", "-c", "git push"].map(str::to_owned).to_vec(),
            dir: Some("agents/ada".into()),
            env: BTreeMap::from([("A".to_owned(), "1".to_owned())]),
            sandbox: Some("local".into()),
            files: vec![BoundFile { path: "x.sh".into(), sha256: "00".into() }],
            once_only: None,
            form: None,
        }
    }

    #[test]
    fn a_summary_shows_all_that_is_approved_or_says_that_it_does_not() {
        let of = |tool: &str, arguments: Value| ApprovalPlan { tool: tool.into(), arguments, ..plan() };
        assert_eq!(of("tool.cli", json!({ "command": "git push" })).summary(), "git push");
        for arguments in [json!({ "command": "git push", "cwd": "x" }), json!({ "command": "a\nb" })] {
            assert_eq!(of("tool.cli", arguments.clone()).summary(), format!("tool.cli {arguments}"));
        }
        // The arguments of a script are no summary of its code.
        let python = of("tool.python", json!({ "code": "evil()", "args": ["print('hello')"] }));
        assert!(python.summary().contains("evil()") && python.is_shown_whole());
        let long = of("tool.cli", json!({ "command": format!("git status{}; git push", " ".repeat(400)) }));
        assert!(!long.is_shown_whole());
        let asks = ApprovalPlan { form: Some(json!({})), ..of("notes.form", json!({})) };
        assert!(!asks.is_shown_whole());
    }

    // covers: EXEC-10, TEST-14
    #[test]
    fn every_byte_of_a_plan_and_the_agent_change_the_digest() {
        let (ada, bob): (AgentId, AgentId) = ("ada".parse().unwrap(), "bob".parse().unwrap());
        let digest = plan().digest(&ada);
        assert_eq!(digest, plan().digest(&ada));
        assert_ne!(digest, plan().digest(&bob));
        let changes: [fn(&mut ApprovalPlan); 9] = [
            |plan| plan.form = Some(json!({})),
            |plan| plan.tool.push('x'),
            |plan| plan.arguments["command"] = json!("git push "),
            |plan| plan.argv[2].push(' '),
            |plan| plan.argv.push(String::new()),
            |plan| plan.dir = Some("agents/ada/".into()),
            |plan| plan.env = BTreeMap::from([("A".to_owned(), "2".to_owned())]),
            |plan| plan.sandbox = None,
            |plan| plan.files[0].sha256 = "01".into(),
        ];
        for change in changes {
            let mut other = plan();
            change(&mut other);
            assert_ne!(digest, other.digest(&ada), "{other:?}");
        }
    }
}
