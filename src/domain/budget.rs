//! Budgets: limit, reserved and spent, in tokens and money, one record per scope (DESIGN.md section 2, "Budgets").
//!
//! A model call holds its worst case before it starts and pays what it took when it ends, so that the sum of what is
//! spent and held never passes a limit, whatever runs at the same time.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::ids::{AgentId, ReservationId, RootId};
use crate::refusal::{Code, Refusal};
use crate::time::Timestamp;

/// Money in millionths of a US dollar. Never negative in a record; arithmetic saturates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Money(pub u64);

impl Money {
    /// From US dollars; refuses what is not a finite number of 0 or more, too large to count, or so small that it would
    /// become nothing.
    pub fn from_usd(usd: f64) -> Result<Self, Refusal> {
        let micros = usd * 1e6;
        if usd > 0.0 && micros.round() < 1.0 {
            return Err(Refusal::new(Code::InvalidArguments, format!("{usd} is less than a millionth of a dollar"))
                .hint("amounts are kept in millionths of a dollar"));
        }
        if micros.is_finite() && (0.0..=1e15).contains(&micros) {
            // In range by the check above, so the conversion is exact to a millionth.
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
            Ok(Self(micros.round() as u64))
        } else {
            Err(Refusal::new(Code::InvalidArguments, format!("{usd} is not an amount of dollars"))
                .hint("give a number from 0 to 1000000000"))
        }
    }

    /// In US dollars, for output that people read.
    #[must_use]
    #[allow(clippy::cast_precision_loss)] // amounts stay far below 2^53 millionths
    pub fn usd(self) -> f64 {
        self.0 as f64 / 1e6
    }

    /// The sum, saturating.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// The difference, at least 0.
    #[must_use]
    pub fn minus(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl fmt::Display for Money {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "${}.{:06}", self.0 / 1_000_000, self.0 % 1_000_000)
    }
}

/// What a budget covers. Its text form is what `ghostctl budget` takes: `world`, `team:news`, `agent:chora`,
/// `root:<uuid>`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Scope {
    /// Everything.
    World,
    /// The agents of one team.
    Team(String),
    /// One agent.
    Agent(AgentId),
    /// Everything that follows from one root.
    Root(RootId),
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::World => f.write_str("world"),
            Self::Team(name) => write!(f, "team:{name}"),
            Self::Agent(id) => write!(f, "agent:{id}"),
            Self::Root(id) => write!(f, "root:{id}"),
        }
    }
}

impl FromStr for Scope {
    type Err = Refusal;

    fn from_str(text: &str) -> Result<Self, Refusal> {
        match text.split_once(':') {
            None if text == "world" => Ok(Self::World),
            Some(("team", name)) if !name.is_empty() && name.len() <= 64 => Ok(Self::Team(name.to_owned())),
            Some(("agent", id)) => Ok(Self::Agent(id.parse()?)),
            Some(("root", id)) => Ok(Self::Root(id.parse()?)),
            _ => Err(Refusal::new(
                Code::InvalidArguments,
                format!("`{}` is not a budget scope", crate::text::shown(text, 80)),
            )
            .hint("a scope is world, team:<name>, agent:<id> or root:<id>")),
        }
    }
}

impl TryFrom<String> for Scope {
    type Error = Refusal;

    fn try_from(text: String) -> Result<Self, Refusal> {
        text.parse()
    }
}

impl From<Scope> for String {
    fn from(scope: Scope) -> Self {
        scope.to_string()
    }
}

/// Limits of one scope; `None` is no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BudgetLimits {
    /// Tokens, input and output together.
    pub tokens: Option<u64>,
    /// Money.
    pub money: Option<Money>,
}

/// The account of one scope.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Budget {
    /// What it covers.
    pub scope: Scope,
    /// Its limits.
    pub limits: BudgetLimits,
    /// Tokens held for calls under way.
    pub reserved_tokens: u64,
    /// Money held for calls under way.
    pub reserved_money: Money,
    /// Tokens spent.
    pub spent_tokens: u64,
    /// Money spent.
    pub spent_money: Money,
    /// When it last changed.
    pub updated_at: Timestamp,
}

impl Budget {
    /// An account without limits or spending.
    #[must_use]
    pub fn open(scope: Scope, at: Timestamp) -> Self {
        Self {
            scope,
            limits: BudgetLimits::default(),
            reserved_tokens: 0,
            reserved_money: Money(0),
            spent_tokens: 0,
            spent_money: Money(0),
            updated_at: at,
        }
    }

    /// Tokens neither spent nor held; `None` is no limit.
    #[must_use]
    pub fn tokens_left(&self) -> Option<u64> {
        self.limits.tokens.map(|limit| limit.saturating_sub(self.spent_tokens.saturating_add(self.reserved_tokens)))
    }

    /// Money neither spent nor held; `None` is no limit.
    #[must_use]
    pub fn money_left(&self) -> Option<Money> {
        self.limits.money.map(|limit| limit.minus(self.spent_money.plus(self.reserved_money)))
    }
}

/// Budget held for one model call, in every scope that it is charged to. A turn makes one model call at a time, so its
/// record has room for one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reservation {
    /// Its id.
    pub reservation_id: ReservationId,
    /// The model asked.
    pub model: String,
    /// The scopes that it is held in.
    pub scopes: Vec<Scope>,
    /// Tokens held in each.
    pub tokens: u64,
    /// Money held in each.
    pub money: Money,
}

/// The price of a model: money for a million tokens of each sort.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Price {
    /// A million tokens read.
    pub input: Money,
    /// A million tokens written.
    pub output: Money,
    /// A million tokens read from the provider's cache.
    pub cache_read: Money,
    /// A million tokens written to the provider's cache.
    pub cache_write: Money,
}

impl Price {
    /// What `usage` costs, rounded up to a millionth of a dollar.
    #[must_use]
    pub fn of(&self, usage: crate::transcript::TokenUsage) -> Money {
        let cached = usage.cache_read.saturating_add(usage.cache_write);
        let plain = usage.input.saturating_sub(cached);
        let sum = [
            (plain, self.input),
            (usage.cache_read, self.cache_read),
            (usage.cache_write, self.cache_write),
            (usage.output, self.output),
        ]
        .iter()
        .map(|(tokens, price)| u128::from(*tokens) * u128::from(price.0))
        .sum::<u128>();
        Money(u64::try_from(sum.div_ceil(1_000_000)).unwrap_or(u64::MAX))
    }
}

/// What one model call may use: the outcome of a check over all its scopes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allowance {
    /// The most tokens the model may write; at most what was asked for.
    pub max_tokens: u64,
    /// Tokens to hold in every scope.
    pub tokens: u64,
    /// Money to hold in every scope.
    pub money: Money,
}

/// Checks a call against `budgets`: `input` tokens to be read (an estimate from above), at most `max_tokens` to be
/// written. What is left shrinks `max_tokens`; when not even `floor` tokens can be written, or a money limit meets an
/// unknown price, the call is refused.
pub fn allow(
    budgets: &[Budget],
    input: u64,
    max_tokens: u64,
    floor: u64,
    price: Option<&Price>,
) -> Result<Allowance, Refusal> {
    let mut output = max_tokens;
    for budget in budgets {
        if let Some(left) = budget.tokens_left() {
            output = output.min(left.saturating_sub(input));
            if output < floor.min(max_tokens) || left < input {
                return Err(spent(budget, format!("{left} tokens are left and the next call needs {}", input + floor)));
            }
        }
        if let Some(left) = budget.money_left() {
            let Some(price) = price else {
                return Err(Refusal::new(
                    Code::BudgetExhausted,
                    format!("budget {} counts money, and the price of this model is unknown", budget.scope),
                )
                .hint("add the model's price under llm.prices in world-config.yaml, or limit the scope by tokens"));
            };
            // Any input token may turn out to be the dearest sort.
            let dearest = price.input.max(price.cache_write);
            let read = Price { input: dearest, ..Price::default() }
                .of(crate::transcript::TokenUsage { input, ..Default::default() });
            let rest = left.minus(read);
            if price.output.0 > 0 {
                let affordable = u128::from(rest.0) * 1_000_000 / u128::from(price.output.0);
                output = output.min(u64::try_from(affordable).unwrap_or(u64::MAX));
            }
            if left < read || output < floor.min(max_tokens) {
                return Err(spent(budget, format!("{left} is left, which the next call could pass")));
            }
        }
    }
    let money = price.map_or(Money(0), |price| {
        let dearest = Price { input: price.input.max(price.cache_write), ..*price };
        dearest.of(crate::transcript::TokenUsage { input, output, ..Default::default() })
    });
    Ok(Allowance { max_tokens: output, tokens: input.saturating_add(output), money })
}

fn spent(budget: &Budget, what: String) -> Refusal {
    Refusal::new(Code::BudgetExhausted, format!("budget {} is spent: {what}", budget.scope))
        .hint(format!("raise it with `ghostctl budget set {} --tokens N` or `--usd X`", budget.scope))
        .details(serde_json::json!({ "scope": budget.scope.to_string() }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transcript::TokenUsage;
    use proptest::prelude::*;

    fn budget(tokens: Option<u64>, money: Option<u64>) -> Budget {
        Budget { limits: BudgetLimits { tokens, money: money.map(Money) }, ..Budget::open(Scope::World, Timestamp(0)) }
    }

    #[test]
    fn amounts_too_small_to_keep_are_refused() {
        assert_eq!(Money::from_usd(0.0).unwrap(), Money(0));
        assert_eq!(Money::from_usd(0.000_001).unwrap(), Money(1));
        assert!(Money::from_usd(0.000_000_1).unwrap_err().message.contains("millionth"));
        assert!(Money::from_usd(f64::NAN).is_err() && Money::from_usd(-1.0).is_err());
    }

    const PRICE: Price = Price {
        input: Money(3_000_000),
        output: Money(15_000_000),
        cache_read: Money(300_000),
        cache_write: Money(3_750_000),
    };

    #[test]
    fn prices_round_up_and_count_cached_tokens_once() {
        let usage = TokenUsage { input: 1_000, output: 100, cache_read: 600, cache_write: 200 };
        // 200 * 3 + 600 * 0.3 + 200 * 3.75 + 100 * 15 millionths
        assert_eq!(PRICE.of(usage), Money(600 + 180 + 750 + 1_500));
        assert_eq!(
            Price { input: Money(1), ..Price::default() }.of(TokenUsage { input: 1, ..TokenUsage::default() }),
            Money(1)
        );
    }

    #[test]
    fn an_unknown_price_is_refused_only_under_a_money_limit() {
        assert!(allow(&[budget(Some(10_000), None)], 10, 10, 1, None).is_ok());
        let refusal = allow(&[budget(None, Some(1_000_000))], 10, 10, 1, None).unwrap_err();
        assert_eq!(refusal.code, Code::BudgetExhausted);
    }

    #[test]
    fn what_is_left_shrinks_the_answer() {
        let allowance = allow(&[budget(Some(100), None)], 40, 4_096, 16, None).unwrap();
        assert_eq!(allowance, Allowance { max_tokens: 60, tokens: 100, money: Money(0) });
        assert!(allow(&[budget(Some(50), None)], 40, 4_096, 16, None).is_err());
    }

    proptest! {
        #[test]
        fn a_hold_never_passes_any_limit(
            limits in prop::collection::vec((prop::option::of(0u64..5_000), prop::option::of(0u64..50_000)), 1..4),
            input in 0u64..3_000, max in 1u64..3_000, floor in 1u64..64,
        ) {
            let budgets: Vec<Budget> = limits.iter().map(|(t, m)| budget(*t, *m)).collect();
            if let Ok(allowance) = allow(&budgets, input, max, floor, Some(&PRICE)) {
                prop_assert!(allowance.max_tokens <= max);
                for budget in &budgets {
                    prop_assert!(budget.tokens_left().is_none_or(|left| allowance.tokens <= left));
                    // One millionth of rounding on each of the two parts.
                    prop_assert!(budget.money_left().is_none_or(|left| allowance.money.0 <= left.0 + 2));
                }
            }
        }

        #[test]
        fn scopes_read_back(name in "[a-z][a-z0-9-]{0,20}") {
            for text in ["world".to_owned(), format!("team:{name}"), format!("agent:{name}")] {
                prop_assert_eq!(text.parse::<Scope>().unwrap().to_string(), text);
            }
        }
    }
}
