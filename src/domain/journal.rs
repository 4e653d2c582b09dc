//! The steps of a turn. A turn resumes from these and from nothing else, so each holds what is needed to go on and no
//! more: deltas, never whole prompts (DESIGN.md section 2, "Journal").

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::ids::{AskId, CallId, MessageId, ReservationId, TurnId};
use crate::refusal::Refusal;
use crate::time::Timestamp;
use crate::transcript::{Block, TokenUsage};

/// What a tool call does to the world, which decides how it is recorded and what a crash in it means (promise 2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    /// Changes nothing; may be run again.
    Read,
    /// Its effect lives in the store and commits with its record.
    World,
    /// Its effect is outside: recorded before and after, never run twice.
    Outside,
    /// Writes one file: verified by the hashes before and after.
    File,
    /// Waits for someone; goes on waiting for the same correlation id.
    Wait,
}

/// A file write as planned before it runs. Hashes are lower-case hexadecimal SHA-256; `None` means "no file".
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilePlan {
    /// Path relative to the workspace root.
    pub path: String,
    /// What was there.
    pub before: Option<String>,
    /// What will be there.
    pub after: String,
}

/// What a call left behind: the content a model sees, or a refusal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CallOutcome {
    /// The result as a model reads it, before the model-view cut; for a refusal its JSON.
    pub content: Value,
    /// The refusal, if it was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refusal: Option<Refusal>,
    /// Whether a producer cap cut the content.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub truncated: bool,
}

/// One fact of a turn.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "step", rename_all = "snake_case")]
pub enum Step {
    /// The prompt as it was assembled once, by the hashes of its parts, which lie in the prompt table.
    Briefed {
        /// Hash of the system part.
        system: String,
        /// Hash of the stable briefing (goal, agent, tools, skills).
        briefing: String,
        /// What the turn recalls of earlier ones; may be empty.
        #[serde(default)]
        recent: String,
        /// The mail itself.
        mail: String,
    },
    /// Mail that joined the turn after it was opened (`syscall.inbox.read`). Its text is in that call's result.
    MailJoined {
        /// Which.
        messages: Vec<MessageId>,
    },
    /// A model call is about to be made, with budget held for it.
    ModelStarted {
        /// The model asked.
        model: String,
        /// The budget held.
        reservation_id: ReservationId,
    },
    /// The model answered.
    ModelAnswered {
        /// The model that answered.
        model: String,
        /// What it said.
        blocks: Vec<Block>,
        /// What it took.
        usage: TokenUsage,
        /// Why it stopped, if it did not simply come to its end: `max_tokens`, `refused`, or the provider's own word.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        stop: Option<String>,
    },
    /// A model call failed; the turn tries again, or another model, or ends.
    ModelFailed {
        /// The model asked.
        model: String,
        /// What went wrong.
        error: String,
    },
    /// A fall-back model was not asked, because it has no price where money is counted. It did not fail: a turn that resumes
    /// owes it nothing.
    PassedOver {
        /// The model.
        model: String,
        /// Why.
        why: String,
    },
    /// The failure before was that the conversation is too long for the model; it was cut down and is asked again, so
    /// that failure is overcome.
    Shortened {
        /// The model that takes no more.
        model: String,
        /// Bytes that the conversation may have from here on.
        context: u64,
    },
    /// The failure before was that the provider does not take what it attached to its earlier answers; that is left out from
    /// here on and the model is asked again, so that failure is overcome.
    StateDropped {
        /// The model.
        model: String,
    },
    /// The turn waits for what is not its own fault to pass: a model that is down, a spent budget. The failures before it are
    /// done with; it begins its attempts anew.
    Parked {
        /// What it waits for, in words.
        reason: String,
    },
    /// A call is about to run whose effect is not in the store, or that waits.
    CallStarted {
        /// Our id of the call.
        call_id: CallId,
        /// The provider's id.
        id: String,
        /// Canonical tool name.
        tool: String,
        /// What it does.
        effect: Effect,
        /// For a file write: what it will leave.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        file: Option<FilePlan>,
        /// For an ask: which.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        ask_id: Option<AskId>,
    },
    /// A call has ended, well or not.
    CallFinished {
        /// Our id of the call.
        call_id: CallId,
        /// The provider's id.
        id: String,
        /// Canonical tool name.
        tool: String,
        /// What it left.
        outcome: CallOutcome,
    },
    /// Words of ours to the model: a malformed call, a loop, what an earlier crash means.
    Note {
        /// The words.
        text: String,
    },
}

impl Step {
    /// Whether this step is progress: something that need not be done again after a restart.
    #[must_use]
    pub fn is_progress(&self) -> bool {
        matches!(self, Self::ModelAnswered { .. } | Self::CallFinished { .. } | Self::MailJoined { .. })
    }

    /// The step's name as it is stored.
    #[must_use]
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
            Self::CallStarted { .. } => "call_started",
            Self::CallFinished { .. } => "call_finished",
            Self::Parked { .. } => "parked",
            Self::Note { .. } => "note",
        }
    }
}

/// A step in its place.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JournalRow {
    /// The turn.
    pub turn_id: TurnId,
    /// Order over the whole world; within a turn it only rises. 0 until the store has given one.
    pub seq: i64,
    /// The fact.
    pub step: Step,
    /// When.
    pub at: Timestamp,
}
