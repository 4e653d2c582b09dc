//! The record of tool calls (TOOL-16, TOOL-17): what was called, by whom, in which turn, and what came of it.

use serde::{Deserialize, Serialize};

use crate::envelope::text_enum;
use crate::ids::{AgentId, CallId, TurnId};
use crate::refusal::Code;
use crate::time::Timestamp;

text_enum! {
    /// How a call stands in the ledger.
    CallStatus, "call status" {
        /// Running or waiting.
        Started = "started",
        /// It gave a result.
        Ok = "ok",
        /// It gave a refusal.
        Failed = "failed",
        /// Nobody knows whether its effect outside happened.
        Unknown = "unknown",
    }
}

/// One tool call. `arguments` and `result` are redacted and cut before they get here.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LedgerRow {
    /// Our id of the call.
    pub call_id: CallId,
    /// Whose call.
    pub agent_id: AgentId,
    /// In which turn.
    pub turn_id: TurnId,
    /// Canonical tool name.
    pub tool: String,
    /// The name it was called by, if that was an alias (TOOL-22).
    pub alias: Option<String>,
    /// The arguments, as JSON text; long strings in it may be cut (see [`crate::text::cut_json`]).
    pub arguments: String,
    /// The result, or why there is none, as text.
    pub result: Option<String>,
    /// How it stands.
    pub status: CallStatus,
    /// The refusal's code; `None` also for a call that went well.
    pub error_code: Option<Code>,
    /// When it began.
    pub started_at: Timestamp,
    /// How long it took.
    pub duration_ms: Option<u64>,
    /// Whether any cap cut its arguments or its result; what is cut says so in its text.
    pub truncated: bool,
}
