//! What a model call took: the record that budgets are checked against and bills are read from.

use serde::{Deserialize, Serialize};

use crate::budget::Money;
use crate::ids::{AgentId, RootId, TurnId};
use crate::time::Timestamp;
use crate::transcript::TokenUsage;

/// One settled model call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct UsageRow {
    /// Whose call.
    pub agent_id: AgentId,
    /// In which turn.
    pub turn_id: TurnId,
    /// Charged to which root.
    pub root_id: RootId,
    /// The provider.
    pub provider: String,
    /// The model.
    pub model: String,
    /// The tokens.
    pub tokens: TokenUsage,
    /// The price of them.
    pub cost: Money,
    /// Whether the figures are the reservation's, because a crash or a broken stream hid the real ones.
    pub estimated: bool,
    /// How long the provider took, in milliseconds.
    pub duration_ms: u64,
    /// When it was settled.
    pub at: Timestamp,
}

/// Sums over usage rows, by agent and model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct UsageSum {
    /// Whose calls.
    pub agent_id: AgentId,
    /// The model.
    pub model: String,
    /// How many calls.
    pub calls: u64,
    /// Their tokens.
    pub tokens: TokenUsage,
    /// Their price.
    pub cost: Money,
}
