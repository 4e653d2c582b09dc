//! Usage of model calls: tokens and cost. Budgets and reports sum these records.

use serde::{Deserialize, Serialize};

use crate::ids::{AgentId, RootId, TurnId};
use crate::money::Money;
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

/// Sums over usage rows, by agent and model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct UsageSum {
    /// Agent that made the calls.
    pub agent_id: AgentId,
    /// Name of the model.
    pub model: String,
    /// Number of calls.
    pub calls: u64,
    /// Tokens of all calls.
    pub tokens: TokenUsage,
    /// Cost of the calls whose price is known.
    pub cost: Money,
    /// Number of calls whose figures are estimates.
    pub estimated_calls: u64,
    /// Cost of the estimated calls; part of `cost`.
    pub estimated_cost: Money,
    /// Tokens without a known price; part of `tokens`.
    pub unpriced_tokens: u64,
    /// Tokens that are charged to no budget; part of `tokens`.
    pub free_tokens: u64,
}

impl UsageSum {
    /// The sum of no calls.
    #[must_use]
    pub fn new(agent_id: &AgentId, model: &str) -> Self {
        Self {
            agent_id: agent_id.clone(),
            model: model.to_owned(),
            calls: 0,
            tokens: TokenUsage::default(),
            cost: Money(0),
            estimated_calls: 0,
            estimated_cost: Money(0),
            unpriced_tokens: 0,
            free_tokens: 0,
        }
    }
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
    #[must_use]
    pub fn of(sums: &[UsageSum]) -> Self {
        sums.iter().fold(Self::default(), |all, sum| Self {
            tokens: all.tokens.saturating_add(sum.tokens.total()),
            cost: all.cost.plus(sum.cost),
            unpriced_tokens: all.unpriced_tokens.saturating_add(sum.unpriced_tokens),
        })
    }
}
