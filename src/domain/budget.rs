//! Budgets: limit, reserved and spent, in tokens and money, one record per scope (DESIGN.md section 2, "Budgets").
//!
//! A model call holds its worst case, as it is estimated, before it starts, and pays what it took when it ends. So what is
//! spent and held together never passes a limit by what is held, whatever runs at the same time. A call that takes more
//! than was estimated is paid all the same: spending can pass a limit by what one call for each agent at work takes beyond
//! its estimate, and the next call is refused.

use serde::{Deserialize, Serialize};

use crate::ids::ReservationId;
use crate::money::{Money, Price};
use crate::refusal::{Code, Refusal};
use crate::scope::Scope;
use crate::time::Timestamp;
use crate::transcript::TokenUsage;

/// Limits of one scope; `None` is no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BudgetLimits {
    /// Tokens, input and output together.
    pub tokens: Option<u64>,
    /// Money.
    pub money: Option<Money>,
}

impl BudgetLimits {
    /// Whether nothing is limited.
    #[must_use]
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }
}

/// The account of one scope.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Budget {
    /// What it covers.
    pub scope: Scope,
    /// Its limits.
    pub limits: BudgetLimits,
    /// Those of them that the world file has set, and nobody has changed since.
    #[serde(default, skip_serializing_if = "BudgetLimits::is_none")]
    pub of_file: BudgetLimits,
    /// The limit of money, if the archetype of its agent has set it and nobody has changed it since. It ends with that
    /// agent; a limit that someone set by hand, or the world file, is its id's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of_archetype: Option<Money>,
    /// Whether someone has lifted the limit of money by hand: what an archetype says does not come back for this agent.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub money_lifted: bool,
    /// Tokens held for calls under way.
    pub reserved_tokens: u64,
    /// Money held for calls under way.
    pub reserved_money: Money,
    /// Tokens spent.
    pub spent_tokens: u64,
    /// Money spent.
    pub spent_money: Money,
    /// Of the tokens spent: those of models without a known price, for which no money was counted.
    #[serde(default, skip_serializing_if = "no_tokens")]
    pub unpriced_tokens: u64,
    /// When it last changed.
    pub updated_at: Timestamp,
    /// The day that what is spent belongs to, in days since 1970-01-01 UTC; 0 where the scope is not bounded to a day.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub day: i64,
}

// What serde asks for.
#[allow(clippy::trivially_copy_pass_by_ref)]
fn is_zero(day: &i64) -> bool {
    *day == 0
}

/// Milliseconds of a day.
const DAY_MS: i64 = 86_400_000;

/// The first instant of the day after `now`, when budgets for a day begin anew.
#[must_use]
pub fn next_day(now: Timestamp) -> Timestamp {
    Timestamp((now.0.div_euclid(DAY_MS) + 1).saturating_mul(DAY_MS))
}

/// The first instant of the day of `now`.
#[must_use]
pub fn this_day(now: Timestamp) -> Timestamp {
    Timestamp(now.0.div_euclid(DAY_MS).saturating_mul(DAY_MS))
}

impl Budget {
    /// An account without limits or spending.
    #[must_use]
    pub fn open(scope: Scope, at: Timestamp) -> Self {
        Self {
            scope,
            limits: BudgetLimits::default(),
            of_file: BudgetLimits::default(),
            of_archetype: None,
            money_lifted: false,
            reserved_tokens: 0,
            reserved_money: Money(0),
            spent_tokens: 0,
            spent_money: Money(0),
            unpriced_tokens: 0,
            updated_at: at,
            day: 0,
        }
        .at(at)
    }

    /// The account as it is at `now`: one for a day forgets what was spent on another. A clock that goes back over
    /// midnight, or years, opens no new day, and neither does its way back.
    #[must_use]
    pub fn at(mut self, now: Timestamp) -> Self {
        let today = now.0.div_euclid(DAY_MS);
        if matches!(self.scope, Scope::Day(_)) && today > self.day {
            (self.day, self.spent_tokens, self.spent_money, self.unpriced_tokens) = (today, 0, Money(0), 0);
        }
        self
    }

    /// The account of a day that has not come yet, because the clock was ahead, becomes that of `now`, with what was spent.
    /// Otherwise it would stand until the clock is there again; that it may not, a person has to say.
    #[must_use]
    pub fn set_right(mut self, now: Timestamp) -> Self {
        self.day = self.day.min(now.0.div_euclid(DAY_MS));
        self
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

    /// The limits that what was spent has reached, in the words of the command line: `tokens`, `usd`. While there are any,
    /// every call is refused.
    #[must_use]
    pub fn passed(&self) -> Vec<&'static str> {
        let tokens = self.limits.tokens.is_some_and(|limit| self.spent_tokens >= limit);
        let money = self.limits.money.is_some_and(|limit| self.spent_money >= limit);
        [("tokens", tokens), ("usd", money)].into_iter().filter_map(|(limit, passed)| passed.then_some(limit)).collect()
    }
}

// What serde asks for: whether a count of tokens need not be written.
#[allow(clippy::trivially_copy_pass_by_ref)]
pub(crate) fn no_tokens(count: &u64) -> bool {
    *count == 0
}

/// Budget held for one model call, in every scope that it is charged to. A turn makes one model call at a time, so its
/// record has room for one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reservation {
    /// Its id.
    pub reservation_id: ReservationId,
    /// The provider asked.
    #[serde(default)]
    pub provider: String,
    /// The model asked.
    pub model: String,
    /// The scopes that it is held in.
    pub scopes: Vec<Scope>,
    /// Tokens held in each.
    pub tokens: u64,
    /// Of these tokens: the most that the model may write.
    #[serde(default)]
    pub output: u64,
    /// Money held in each; `None` for a model without a known price.
    pub money: Option<Money>,
}

impl Reservation {
    /// The tokens that are held, as what the call takes at most.
    #[must_use]
    pub fn at_most(&self) -> TokenUsage {
        let output = self.output.min(self.tokens);
        TokenUsage { input: self.tokens - output, output, ..TokenUsage::default() }
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

/// What the details of a refusal name the model under whose price is unknown.
const UNPRICED: &str = "unpriced";

/// Whether a call was refused because its model has no price, and not because anything is spent.
#[must_use]
pub fn is_unpriced(refusal: &Refusal) -> bool {
    refusal.code == Code::BudgetExhausted
        && refusal.details.as_ref().is_some_and(|details| details.get(UNPRICED).is_some())
}

/// Checks a call against `budgets`: `input` tokens to be read (an estimate from above), at most `max_tokens` to be
/// written. What is left shrinks `max_tokens`; when not even `floor` tokens can be written, or a money limit meets an
/// unknown price, the call is refused. `model` is what the price is of, as `llm.prices` names it.
pub fn allow(
    budgets: &[Budget],
    model: &str,
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
                    format!("budget {} counts money, and the price of {model} is unknown", budget.scope),
                )
                .hint(format!(
                    "add a price for {model} under llm.prices in world-config.yaml, or limit the scope by tokens"
                ))
                .details(serde_json::json!({ UNPRICED: model })));
            };
            // Any input token may turn out to be the dearest sort.
            let dearest = price.dearest_read();
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
        let dearest = Price { input: price.dearest_read(), ..*price };
        dearest.of(crate::transcript::TokenUsage { input, output, ..Default::default() })
    });
    Ok(Allowance { max_tokens: output, tokens: input.saturating_add(output), money })
}

fn spent(budget: &Budget, what: String) -> Refusal {
    let wait = if matches!(budget.scope, Scope::Day(_)) { ", or wait: it begins anew at 00:00 UTC" } else { "" };
    Refusal::new(Code::BudgetExhausted, format!("budget {} is spent: {what}", budget.scope))
        .hint(format!("raise it with `ghostctl budget set {} --tokens N` or `--usd X`{wait}", budget.scope))
        .details(serde_json::json!({ "scope": budget.scope.to_string() }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn budget(tokens: Option<u64>, money: Option<u64>) -> Budget {
        Budget { limits: BudgetLimits { tokens, money: money.map(Money) }, ..Budget::open(Scope::World, Timestamp(0)) }
    }

    const PRICE: Price = Price {
        input: Money(3_000_000),
        output: Money(15_000_000),
        cache_read: Money(300_000),
        cache_write: Money(3_750_000),
    };

    #[test]
    fn an_unknown_price_is_refused_only_under_a_money_limit() {
        assert!(allow(&[budget(Some(10_000), None)], "p/m", 10, 10, 1, None).is_ok());
        let refusal = allow(&[budget(None, Some(1_000_000))], "p/m", 10, 10, 1, None).unwrap_err();
        assert_eq!(refusal.code, Code::BudgetExhausted);
        assert!(is_unpriced(&refusal) && refusal.message.contains("the price of p/m is unknown"), "{refusal}");
        let spent = allow(&[budget(Some(5), None)], "p/m", 10, 10, 1, None).unwrap_err();
        assert!(!is_unpriced(&spent), "{spent}");
    }

    #[test]
    fn what_a_day_has_spent_is_forgotten_the_next_day_and_what_is_held_is_not() {
        let day = |days: i64| Timestamp(days * DAY_MS + 1);
        let scope = Scope::World.daily().unwrap();
        let mut budget = Budget::open(scope, day(5));
        (budget.spent_tokens, budget.spent_money, budget.reserved_tokens) = (10, Money(10), 3);
        for same in [day(5), day(4), Timestamp(next_day(day(5)).0 - 1)] {
            assert_eq!(budget.clone().at(same), budget);
        }
        let next = budget.clone().at(next_day(day(5)));
        assert_eq!((next.day, next.spent_tokens, next.spent_money, next.reserved_tokens), (6, 0, Money(0), 3));
        // The clock was years ahead, and a person says that it is right now.
        let ahead = Budget { day: 9_000, ..budget.clone() };
        assert_eq!(ahead.clone().at(day(7)), ahead, "by itself nothing is given back");
        let right = ahead.set_right(day(5));
        assert_eq!((right.day, right.spent_tokens, right.clone().at(day(6)).spent_tokens), (5, 10, 0));
        assert_eq!(budget.clone().set_right(day(9)), budget);
        let whole = Budget { spent_tokens: 10, ..Budget::open(Scope::World, day(5)) };
        assert_eq!(whole.clone().at(day(9)), whole);
        assert_eq!(this_day(day(5)), Timestamp(5 * DAY_MS));
    }

    #[test]
    fn a_limit_that_is_reached_is_passed() {
        let spent =
            |tokens, money| Budget { spent_tokens: 10, spent_money: Money(5), ..budget(tokens, money) }.passed();
        assert_eq!(spent(None, None), Vec::<&str>::new());
        assert_eq!(spent(Some(11), Some(6)), Vec::<&str>::new());
        assert_eq!((spent(Some(10), Some(6)), spent(Some(9), Some(0))), (vec!["tokens"], vec!["tokens", "usd"]));
        assert_eq!(budget(Some(0), None).passed(), ["tokens"], "nothing may be spent, and nothing was");
    }

    #[test]
    fn whatever_sort_of_reading_is_dearest_is_held() {
        for price in [
            Price { input: Money(0), cache_read: Money(2_000_000), ..PRICE },
            Price { input: Money(0), cache_write: Money(2_000_000), ..PRICE },
        ] {
            let held = allow(&[budget(None, Some(10_000))], "p/m", 1_000, 1, 1, Some(&price)).unwrap().money;
            for cached in [(1_000, 0), (0, 1_000), (0, 0)] {
                let used = TokenUsage { input: 1_000, output: 1, cache_read: cached.0, cache_write: cached.1 };
                assert!(price.of(used) <= held, "{price:?}: {cached:?}");
            }
            assert!(allow(&[budget(None, Some(1_000))], "p/m", 1_000, 1, 1, Some(&price)).is_err());
        }
    }

    #[test]
    fn what_is_left_shrinks_the_answer() {
        let allowance = allow(&[budget(Some(100), None)], "p/m", 40, 4_096, 16, None).unwrap();
        assert_eq!(allowance, Allowance { max_tokens: 60, tokens: 100, money: Money(0) });
        assert!(allow(&[budget(Some(50), None)], "p/m", 40, 4_096, 16, None).is_err());
    }

    proptest! {
        #[test]
        fn a_hold_never_passes_any_limit(
            limits in prop::collection::vec((prop::option::of(0u64..5_000), prop::option::of(0u64..50_000)), 1..4),
            input in 0u64..3_000, max in 1u64..3_000, floor in 1u64..64,
        ) {
            let budgets: Vec<Budget> = limits.iter().map(|(t, m)| budget(*t, *m)).collect();
            if let Ok(allowance) = allow(&budgets, "p/m", input, max, floor, Some(&PRICE)) {
                prop_assert!(allowance.max_tokens <= max);
                for budget in &budgets {
                    prop_assert!(budget.tokens_left().is_none_or(|left| allowance.tokens <= left));
                    // One millionth of rounding on each of the two parts.
                    prop_assert!(budget.money_left().is_none_or(|left| allowance.money.0 <= left.0 + 2));
                }
            }
        }
    }
}
