//! The journal: the steps of a turn. A turn resumes from its journal alone. So each step contains
//! what is needed to continue, and no more; whole prompts are never in it.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use crate::ids::{ApprovalId, AskId, CallId, GrantId, MessageId, ReservationId, TurnId};
use crate::image::ImageFile;
use crate::macros::text_enum;
use crate::money::Money;
use crate::refusal::{Code, Refusal};
use crate::session::LogRange;
use crate::time::Timestamp;
use crate::tool_catalogue::{CALL, DESCRIBE};
use crate::transcript::{Block, TokenUsage};

text_enum! {
    /// The kind of a tool. It decides what the journal records and what happens after a crash (promise
    /// 2 in `docs/design.md`).
    Effect, "effect" {
        /// It changes nothing and may run again.
        Read = "read",
        /// Its effect is in the store and commits together with its record.
        World = "world",
        /// Its effect is outside. It is recorded as started before it runs and is never repeated.
        Outside = "outside",
        /// It writes files. The hashes before and after show which of the writes happened.
        File = "file",
        /// It waits for another agent. After a crash it waits on for the same ask.
        Wait = "wait",
    }
}

/// The plan of a file write, recorded before it runs. Hashes are SHA-256 in lower-case hexadecimal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilePlan {
    /// Path relative to the workspace root.
    pub path: String,
    /// Hash of the present file; `None` if there is no file.
    pub before: Option<String>,
    /// Hash of the file after the write; `None` if it is removed.
    pub after: Option<String>,
    /// The grant without which the agent could not write it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grant_id: Option<GrantId>,
}

/// Reads the plans of a call. Earlier versions wrote one plan without a list.
fn plans<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<FilePlan>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Written {
        One(FilePlan),
        Many(Vec<FilePlan>),
    }
    Ok(match Option::<Written>::deserialize(deserializer)? {
        None => Vec::new(),
        Some(Written::One(plan)) => vec![plan],
        Some(Written::Many(plans)) => plans,
    })
}

/// The outcome of a call: a result or a refusal.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CallOutcome {
    /// The result for the model, before it is truncated for the prompt; the JSON of a refusal.
    pub content: Value,
    /// The refusal, if the call was refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refusal: Option<Refusal>,
    /// Whether the tool itself truncated the content.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub truncated: bool,
    /// Why the ledger counts the call as failed although it has a result, as for a command that ended with an
    /// error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<Code>,
    /// What the tool charged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<Money>,
    /// Images that belong to the content.
    #[serde(default, skip_serializing_if = "<[ImageFile]>::is_empty")]
    pub images: Box<[ImageFile]>,
    /// Path of the file that has the whole content, if the model sees only its beginning and its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub saved: Option<Box<str>>,
    /// The largest part of the content that a model sees, in bytes; `None` means the world's limit. Only the
    /// estimate of tokens in the ledger needs it, so the journal does not have it.
    #[serde(skip)]
    pub view_bytes: Option<u32>,
}

/// One step of a turn.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "step", rename_all = "snake_case")]
pub enum Step {
    /// The prompt was assembled. The texts of the system part and of the briefing are in the prompt table.
    Briefed {
        /// Hash of the system prompt.
        system: String,
        /// Hash of the stable briefing (goal, agent, tools, skills).
        briefing: String,
        /// The part of the session's log that the prompt holds; `None` for an empty log.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        log: Option<LogRange>,
        /// The mail as the model reads it.
        mail: String,
        /// The tools, in a world whose tools come and go.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        tools: Option<Box<SeenTools>>,
    },
    /// Mail joined the turn after it was opened (`syscall.inbox.read`). The mail's text is in the
    /// result of that call.
    MailJoined {
        /// Ids of the mail.
        messages: Vec<MessageId>,
    },
    /// A model call is about to start. Its budget is reserved.
    ModelStarted {
        /// Model that is asked.
        model: String,
        /// Id of the reservation.
        reservation_id: ReservationId,
    },
    /// The model answered.
    ModelAnswered {
        /// The model that answered.
        model: String,
        /// The answer.
        blocks: Vec<Block>,
        /// Tokens of the call.
        usage: TokenUsage,
        /// Why the answer ended, if it did not end normally: `max_tokens`, `refused`, or the
        /// provider's own word.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        stop: Option<String>,
    },
    /// A model call failed. The turn tries again, tries another model, or ends.
    ModelFailed {
        /// Model that was asked.
        model: String,
        /// Error message.
        error: String,
    },
    /// A fall-back model was not asked, because a budget counts money and the model has no known
    /// price. This is not a failure of the model.
    PassedOver {
        /// Name of the model.
        model: String,
        /// Reason.
        why: String,
    },
    /// The last call failed because the conversation was too long for the model. The conversation
    /// was shortened, so that failure no longer counts.
    Shortened {
        /// Name of the model.
        model: String,
        /// Maximum bytes of the conversation from now on.
        context: u64,
    },
    /// The last call failed because the provider refused opaque state of its own earlier answers.
    /// The turn omits that state from now on, so that failure no longer counts.
    StateDropped {
        /// Name of the model.
        model: String,
    },
    /// The last call failed because the provider refused a request that showed images. The turn shows none of the images
    /// so far from now on, so that failure no longer counts.
    ImagesDropped {
        /// Name of the model.
        model: String,
    },
    /// The turn was parked: a model is down, a budget is spent, or it failed and its dead letter was
    /// retried. Earlier failures no longer count.
    Parked {
        /// The cause of the wait, as text.
        reason: String,
    },
    /// A call is about to run that waits, or whose effect is not in the store.
    CallStarted {
        /// Ghost's id of the call.
        call_id: CallId,
        /// The provider's id of the call.
        id: String,
        /// Canonical name of the tool.
        tool: String,
        /// Kind of the tool.
        effect: Effect,
        /// Plans of the file writes, if it writes files.
        #[serde(default, rename = "file", deserialize_with = "plans", skip_serializing_if = "Vec::is_empty")]
        files: Vec<FilePlan>,
        /// Id of the ask, if it is one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        ask_id: Option<AskId>,
    },
    /// A call waits for an operator. It has not run.
    ApprovalRequested {
        /// Id of the approval.
        approval_id: ApprovalId,
        /// The provider's id of the call.
        id: String,
    },
    /// A running call works in a session of a program outside, which can be continued after a crash.
    CallSession {
        /// Ghost's id of the call.
        call_id: CallId,
        /// The provider's id of the call.
        id: String,
        /// The program's id of the session.
        session: String,
    },
    /// A part of a call's effect in the store was applied, which is too large for one transaction. A resumed turn applies
    /// the rest.
    CallSliced {
        /// Ghost's id of the call.
        call_id: CallId,
        /// The provider's id of the call.
        id: String,
        /// What was done so far, as the tool needs it.
        progress: Value,
    },
    /// A call ended, with a result or a refusal.
    CallFinished {
        /// Ghost's id of the call.
        call_id: CallId,
        /// The provider's id of the call.
        id: String,
        /// Canonical name of the tool.
        tool: String,
        /// Outcome of the call.
        outcome: CallOutcome,
    },
    /// Tools have joined or left since the model saw them.
    ToolsChanged {
        /// What has changed.
        changes: Box<ToolChanges>,
        /// The note for the model.
        text: String,
    },
    /// A note from the daemon to the model, for example about a malformed call, a loop or an
    /// earlier crash.
    Note {
        /// Text of the note.
        text: String,
    },
}

impl Step {
    /// The step's name as it is stored.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Briefed { .. } => "briefed",
            Self::MailJoined { .. } => "mail_joined",
            Self::ModelStarted { .. } => "model_started",
            Self::ModelAnswered { .. } => "model_answered",
            Self::ModelFailed { .. } => "model_failed",
            Self::PassedOver { .. } => "passed_over",
            Self::Shortened { .. } => "shortened",
            Self::StateDropped { .. } => "state_dropped",
            Self::ImagesDropped { .. } => "images_dropped",
            Self::CallStarted { .. } => "call_started",
            Self::ApprovalRequested { .. } => "approval_requested",
            Self::CallSession { .. } => "call_session",
            Self::CallSliced { .. } => "call_sliced",
            Self::CallFinished { .. } => "call_finished",
            Self::Parked { .. } => "parked",
            Self::ToolsChanged { .. } => "tools_changed",
            Self::Note { .. } => "note",
        }
    }
}

/// A step with its turn, order and time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JournalRow {
    /// Id of the turn.
    pub turn_id: TurnId,
    /// Sequence number over all turns of the world; 0 until the store has assigned it. It rises
    /// within a turn.
    pub seq: i64,
    /// The step.
    pub step: Step,
    /// When the step was recorded.
    pub at: Timestamp,
}

/// The tools of a turn as its model saw them: hashes of their definitions, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SeenTools {
    /// The tools that requests describe.
    pub sent: BTreeMap<String, String>,
    /// The tools that are called through [`CALL`].
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub deferred: BTreeMap<String, String>,
}

/// What has changed since a model saw its tools. A tool whose definition has changed has left and joined.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolChanges {
    /// Tools that have joined: hashes of their definitions, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub joined: BTreeMap<String, String>,
    /// Names of tools that have left, sorted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left: Vec<String>,
}

impl SeenTools {
    /// Whether the model can call a tool that joins.
    pub fn can_grow(&self) -> bool {
        [CALL, DESCRIBE].iter().all(|means| self.sent.contains_key(*means))
    }

    /// The hash of a tool as it was seen.
    pub fn hash_of(&self, name: &str) -> Option<&str> {
        self.sent.get(name).or_else(|| self.deferred.get(name)).map(String::as_str)
    }

    /// Takes changes over. What joins is deferred: what requests describe is the front of a cached prefix.
    pub fn apply(&mut self, changes: &ToolChanges) {
        for name in &changes.left {
            self.sent.remove(name);
            self.deferred.remove(name);
        }
        self.deferred.extend(changes.joined.iter().map(|(name, hash)| (name.clone(), hash.clone())));
    }
}

impl ToolChanges {
    /// Whether nothing has changed.
    pub fn is_empty(&self) -> bool {
        self.joined.is_empty() && self.left.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use uuid::Uuid;

    use super::*;

    #[test]
    fn plans_of_earlier_versions_are_read() {
        let plan = FilePlan { path: "a".into(), before: None, after: Some("00".into()), grant_id: None };
        let start = |file: Value| {
            let mut step = json!({
                "step": "call_started", "call_id": Uuid::nil(), "id": "c", "tool": "t", "effect": "file",
            });
            if !file.is_null() {
                step["file"] = file;
            }
            match serde_json::from_value(step).unwrap() {
                Step::CallStarted { files, .. } => files,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(start(Value::Null), []);
        assert_eq!(start(json!({ "path": "a", "before": null, "after": "00" })), std::slice::from_ref(&plan));
        let gone = FilePlan { after: None, grant_id: Some(GrantId(Uuid::nil())), ..plan.clone() };
        let files = vec![plan, gone];
        let step = Step::CallStarted {
            call_id: CallId(Uuid::nil()),
            id: "c".into(),
            tool: "t".into(),
            effect: Effect::File,
            files: files.clone(),
            ask_id: None,
        };
        let text = serde_json::to_string(&step).unwrap();
        assert_eq!(serde_json::from_str::<Step>(&text).unwrap(), step);
        assert_eq!(start(json!(files)), files);
    }
}
