//! What a model call took: the record that budgets are checked against and bills are read from.

use serde::{Deserialize, Serialize};

use crate::ids::{AgentId, RootId, TurnId};
use crate::money::Money;
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
    /// The price of them; `None` if nobody has said what the model costs.
    pub cost: Option<Money>,
    /// Whether the figures are the reservation's, because a crash or a broken stream hid the real ones, or one of them is an
    /// estimate, because the provider left it out.
    pub estimated: bool,
    /// Whether it used up no budget, because asking the model costs nobody anything. A price of nothing does not say so.
    pub free: bool,
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
    /// Their price, that of calls without a known price left out.
    pub cost: Money,
    /// How many of the calls are estimates, for what was held.
    pub estimated_calls: u64,
    /// The part of the cost that is estimated.
    pub estimated_cost: Money,
    /// Of the tokens: those without a known price.
    pub unpriced_tokens: u64,
    /// Of the tokens: those that used up no budget.
    pub free_tokens: u64,
}

impl UsageSum {
    /// Of no calls yet.
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

/// What calls took together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spending {
    /// Tokens, read and written.
    pub tokens: u64,
    /// Their price, that of calls without a known price left out.
    pub cost: Money,
    /// Of the tokens: those without a known price.
    pub unpriced_tokens: u64,
}

impl Spending {
    /// Of all these sums, saturating.
    #[must_use]
    pub fn of(sums: &[UsageSum]) -> Self {
        sums.iter().fold(Self::default(), |all, sum| Self {
            tokens: all.tokens.saturating_add(sum.tokens.total()),
            cost: all.cost.plus(sum.cost),
            unpriced_tokens: all.unpriced_tokens.saturating_add(sum.unpriced_tokens),
        })
    }
}
