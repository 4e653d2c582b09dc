//! The ledger: the record of all tool calls, with the caller, the turn and the
//! result.

use serde::{Deserialize, Serialize};

use crate::envelope::text_enum;
use crate::ids::{AgentId, CallId, TurnId};
use crate::money::Money;
use crate::refusal::Code;
use crate::time::Timestamp;

/// Bytes of one token in the estimates of the ledger: English has about four, most other scripts
/// three.
pub const BYTES_PER_TOKEN: u64 = 3;

text_enum! {
    /// State of a call in the ledger.
    CallStatus, "call status" {
        /// The call runs or waits.
        Started = "started",
        /// The call returned a result.
        Ok = "ok",
        /// The call returned a refusal, or a command that it ran failed.
        Failed = "failed",
        /// The daemon crashed during the call, and it is unknown whether its outside effect
        /// happened.
        Unknown = "unknown",
    }
}

/// One tool call. `arguments` and `result` are redacted and truncated before they are stored.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LedgerRow {
    /// Ghost's id of the call (the provider has an id of its own).
    pub call_id: CallId,
    /// Id of the agent that made the call.
    pub agent_id: AgentId,
    /// Turn of the call.
    pub turn_id: TurnId,
    /// Canonical name of the tool.
    pub tool: String,
    /// The alias that the model used, if it used one.
    pub alias: Option<String>,
    /// The arguments as JSON text. Long strings in it may be truncated (see
    /// [`crate::text::cut_json`]).
    pub arguments: String,
    /// The result, or the reason why there is none.
    pub result: Option<String>,
    /// State of the call.
    pub status: CallStatus,
    /// Code of the refusal or of the failure; `None` if there was neither.
    pub error_code: Option<Code>,
    /// When the call started.
    pub started_at: Timestamp,
    /// Duration in milliseconds.
    pub duration_ms: Option<u64>,
    /// Bytes of the arguments, before any truncation. `None` in rows of earlier versions, and for a
    /// call that never ran.
    pub bytes_in: Option<u64>,
    /// Bytes of the result, before any truncation. `None` while the call runs.
    pub bytes_out: Option<u64>,
    /// Estimated tokens of the arguments and of the part of the result that a model sees, at
    /// [`BYTES_PER_TOKEN`]. `None` while the call runs.
    pub tokens: Option<u64>,
    /// What the tool charged. `None` if it charges nothing.
    pub cost: Option<Money>,
    /// Whether a size limit truncated the arguments or the result. The truncated text contains a
    /// mark.
    pub truncated: bool,
}

impl LedgerRow {
    /// A call that starts now, without arguments.
    #[must_use]
    pub fn new(call_id: CallId, agent_id: AgentId, turn_id: TurnId, tool: &str, started_at: Timestamp) -> Self {
        Self {
            call_id,
            agent_id,
            turn_id,
            tool: tool.to_owned(),
            alias: None,
            arguments: "{}".to_owned(),
            result: None,
            status: CallStatus::Started,
            error_code: None,
            started_at,
            duration_ms: None,
            bytes_in: None,
            bytes_out: None,
            tokens: None,
            cost: None,
            truncated: false,
        }
    }
}

/// Sums over the calls of one tool that have the same status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallTotals {
    /// Canonical name of the tool.
    pub tool: String,
    /// Status of the calls.
    pub status: CallStatus,
    /// Number of calls.
    pub calls: u64,
    /// Sum of their durations, in milliseconds.
    pub duration_ms: u64,
    /// Bytes of their arguments.
    pub bytes_in: u64,
    /// Bytes of their results.
    pub bytes_out: u64,
    /// Their estimated tokens.
    pub tokens: u64,
    /// What they charged.
    pub cost: Money,
}
