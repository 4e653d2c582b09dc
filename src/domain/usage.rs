//! What agents have used: the tokens and cost of model calls, which budgets and reports sum, and the ledger, the record
//! of all tool calls.

use serde::{Deserialize, Serialize};

use crate::ids::{AgentId, CallId, RootId, TurnId};
use crate::macros::{record, text_enum};
use crate::money::Money;
use crate::refusal::Code;
use crate::time::Timestamp;
use crate::transcript::TokenUsage;

/// One completed model call, as it was charged.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct UsageRow {
    /// Agent that made the call.
    pub agent_id: AgentId,
    /// Turn of the call.
    pub turn_id: TurnId,
    /// Root that the call is charged to.
    pub root_id: RootId,
    /// Name of the provider.
    pub provider: String,
    /// Name of the model.
    pub model: String,
    /// Tokens that the call used.
    pub tokens: TokenUsage,
    /// Cost of the tokens; `None` if the model's price is not known.
    pub cost: Option<Money>,
    /// Whether the figures are estimates. After a crash or a broken stream they are the figures of
    /// the reservation. If the provider omits a figure, that figure is estimated.
    pub estimated: bool,
    /// Whether the call is charged to no budget: the model is a script or a recording without a
    /// price. Another model with a price of 0 is not free.
    pub free: bool,
    /// Duration of the call in milliseconds.
    pub duration_ms: u64,
    /// When the call was charged.
    pub at: Timestamp,
}

record! {
    /// Sums over usage rows, by agent and model.
    pub struct UsageSum {
        /// Agent that made the calls.
        pub agent_id: AgentId = agent_id.clone(),
        /// Name of the model.
        pub model: String = model.to_owned(),
        /// Number of calls.
        pub calls: u64 = 0,
        /// Tokens of all calls.
        pub tokens: TokenUsage = TokenUsage::default(),
        /// Cost of the calls whose price is known.
        pub cost: Money = Money(0),
        /// Number of calls whose figures are estimates.
        pub estimated_calls: u64 = 0,
        /// Cost of the estimated calls; part of `cost`.
        pub estimated_cost: Money = Money(0),
        /// Tokens without a known price; part of `tokens`.
        pub unpriced_tokens: u64 = 0,
        /// Tokens that are charged to no budget; part of `tokens`.
        pub free_tokens: u64 = 0,
    }

    /// The sum of no calls.
    pub fn new(agent_id: &AgentId, model: &str)
}

/// Total tokens and cost of some calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spending {
    /// Input and output tokens.
    pub tokens: u64,
    /// Cost of the calls whose price is known.
    pub cost: Money,
    /// Tokens without a known price; part of `tokens`.
    pub unpriced_tokens: u64,
}

impl Spending {
    /// The total of `sums`, saturating.
    pub fn of(sums: &[UsageSum]) -> Self {
        sums.iter().fold(Self::default(), |all, sum| Self {
            tokens: all.tokens.saturating_add(sum.tokens.total()),
            cost: all.cost.plus(sum.cost),
            unpriced_tokens: all.unpriced_tokens.saturating_add(sum.unpriced_tokens),
        })
    }
}

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

record! {
    /// One tool call. `arguments` and `result` are redacted and truncated before they are stored.
    pub struct LedgerRow {
        /// Ghost's id of the call (the provider has an id of its own).
        pub call_id: CallId,
        /// Id of the agent that made the call.
        pub agent_id: AgentId,
        /// Turn of the call.
        pub turn_id: TurnId,
        /// Canonical name of the tool.
        pub tool: String = tool.to_owned(),
        /// The alias that the model used, if it used one.
        pub alias: Option<String> = None,
        /// The arguments as JSON text. Long strings in it may be truncated (see
        /// [`crate::text::cut_json`]).
        pub arguments: String = "{}".to_owned(),
        /// The result, or the reason why there is none.
        pub result: Option<String> = None,
        /// State of the call.
        pub status: CallStatus = CallStatus::Started,
        /// Code of the refusal or of the failure; `None` if there was neither.
        pub error_code: Option<Code> = None,
        /// When the call started.
        pub started_at: Timestamp,
        /// Duration in milliseconds.
        pub duration_ms: Option<u64> = None,
        /// Bytes of the arguments, before any truncation. `None` in rows of earlier versions, and for a
        /// call that never ran.
        pub bytes_in: Option<u64> = None,
        /// Bytes of the result, before any truncation. `None` while the call runs.
        pub bytes_out: Option<u64> = None,
        /// Estimated tokens of the arguments and of the part of the result that a model sees, at
        /// [`BYTES_PER_TOKEN`]. `None` while the call runs.
        pub tokens: Option<u64> = None,
        /// What the tool charged. `None` if it charges nothing.
        pub cost: Option<Money> = None,
        /// Whether a size limit truncated the arguments or the result. The truncated text contains a
        /// mark.
        pub truncated: bool = false,
    }

    /// A call that starts now, without arguments.
    pub fn new(call_id: CallId, agent_id: AgentId, turn_id: TurnId, tool: &str, started_at: Timestamp)
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
