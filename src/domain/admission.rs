//! Decides whether a model call may start under its budgets, and how many tokens it may use.
//!
//! The larger part of a reservation is usually released when its call ends. So only spending
//! refuses a call or shortens its answer. If only reservations of other calls are in the way, the
//! call waits.

use crate::budget::Budget;
use crate::budget::Scope;
use crate::money::{Money, Price};
use crate::refusal::{Code, Refusal, refusal};
use crate::transcript::TokenUsage;

/// The tokens and money that one model call may use, after a check of all its scopes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allowance {
    /// Maximum output tokens; never more than the requested number.
    pub max_tokens: u64,
    /// Tokens to reserve in every scope.
    pub tokens: u64,
    /// Money to reserve in every scope.
    pub money: Money,
}

/// The result of a check that did not refuse the call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Admission {
    /// The call may start.
    Granted(Allowance),
    /// The spending leaves enough budget, but the reservations of other calls in this scope do not.
    /// The call waits until one of them ends.
    Held(Scope),
}

/// Whether the reservations of running calls are subtracted.
#[derive(Clone, Copy)]
enum Reservations {
    Count,
    Ignore,
}

/// The free budget of an account; `None` is no limit.
struct Left {
    tokens: Option<u64>,
    money: Option<Money>,
}

/// Why an account has too little budget for a call.
enum Lack {
    Tokens,
    Money,
    Price,
}

impl Left {
    fn of(budget: &Budget, reservations: Reservations) -> Self {
        let (tokens, money) = match reservations {
            Reservations::Count => (budget.reserved_tokens, budget.reserved_money),
            Reservations::Ignore => (0, Money(0)),
        };
        let limits = budget.limits;
        Self {
            tokens: limits.tokens.map(|limit| limit.saturating_sub(budget.spent_tokens.saturating_add(tokens))),
            money: limits.money.map(|limit| limit.minus(budget.spent_money.plus(money))),
        }
    }

    /// Maximum output tokens of a call with `input` tokens; `None` if there is no limit. An error
    /// if it is below `floor`.
    fn max_output(&self, input: u64, floor: u64, price: Option<&Price>) -> Result<Option<u64>, Lack> {
        let tokens = match self.tokens {
            None => None,
            Some(left) => Some(left.checked_sub(input).filter(|output| *output >= floor).ok_or(Lack::Tokens)?),
        };
        let Some(left) = self.money else { return Ok(tokens) };
        let price = price.ok_or(Lack::Price)?;
        // The worst case: every input token has the highest price.
        let dearest = Price { input: price.dearest_read(), ..Price::default() };
        let read = dearest.of(TokenUsage { input, ..TokenUsage::default() });
        if left < read {
            return Err(Lack::Money);
        }
        if price.output.0 == 0 {
            return Ok(tokens);
        }
        let affordable = u128::from(left.minus(read).0) * 1_000_000 / u128::from(price.output.0);
        let affordable = u64::try_from(affordable).unwrap_or(u64::MAX);
        if affordable < floor {
            return Err(Lack::Money);
        }
        Ok(Some(tokens.map_or(affordable, |output| output.min(affordable))))
    }
}

/// Key in a refusal's details for a model without a known price.
const UNPRICED: &str = "unpriced";

/// Whether a call was refused because the price of its model is unknown, and not because a budget
/// is spent.
pub fn is_unpriced(refusal: &Refusal) -> bool {
    refusal.code == Code::BudgetExhausted
        && refusal.details.as_ref().is_some_and(|details| details.get(UNPRICED).is_some())
}

/// Checks a call against `budgets`. The call has `input` tokens (an upper estimate) and at most
/// `max_tokens` output tokens. Spending reduces `max_tokens`. The call is refused if fewer than
/// `floor` output tokens are left, or if a scope has a money limit and the price is unknown.
/// Otherwise it waits while reservations of other calls hold the budget that it needs. `model` is
/// the model's name in `llm.prices`.
///
/// # Errors
/// `BudgetExhausted` if waiting for other calls would not help.
pub fn allow(
    budgets: &[Budget],
    model: &str,
    input: u64,
    max_tokens: u64,
    floor: u64,
    price: Option<&Price>,
) -> Result<Admission, Refusal> {
    let floor = floor.min(max_tokens);
    let mut output = max_tokens;
    for budget in budgets {
        match Left::of(budget, Reservations::Ignore).max_output(input, floor, price) {
            Ok(limit) => output = output.min(limit.unwrap_or(output)),
            Err(Lack::Price) => return Err(unpriced(budget, model)),
            Err(lack @ Lack::Tokens) => {
                let need = input.saturating_add(floor);
                return Err(spent(budget, &lack, &format!("the next call needs {need}")));
            }
            Err(lack @ Lack::Money) => return Err(spent(budget, &lack, "the next call could pass the limit")),
        }
    }
    // The call gets all the budget that the spending leaves. If reservations hold a part of it, the
    // call waits and does not take less.
    let fits = |budget: &&Budget| Left::of(budget, Reservations::Count).max_output(input, output, price).is_ok();
    if let Some(full) = budgets.iter().find(|budget| !fits(budget)) {
        return Ok(Admission::Held(full.scope.clone()));
    }
    let money = price.map_or(Money(0), |price| {
        let dearest = Price { input: price.dearest_read(), ..*price };
        dearest.of(TokenUsage { input, output, ..TokenUsage::default() })
    });
    Ok(Admission::Granted(Allowance { max_tokens: output, tokens: input.saturating_add(output), money }))
}

/// Checks that each of `budgets` has something left, for a tool call that costs money. How much is known only afterwards.
///
/// # Errors
/// `BudgetExhausted` for the first that has nothing left.
pub fn any_left(budgets: &[Budget]) -> Result<(), Refusal> {
    const NEXT: &str = "the call would cost more";
    for budget in budgets {
        let left = Left::of(budget, Reservations::Ignore);
        match (left.tokens, left.money) {
            (Some(0), _) => return Err(spent(budget, &Lack::Tokens, NEXT)),
            (_, Some(Money(0))) => return Err(spent(budget, &Lack::Money, NEXT)),
            _ => {}
        }
    }
    Ok(())
}

/// Checks that a tool call that may cost `money` stays within each of `budgets`, with all that running calls have reserved.
///
/// # Errors
/// `BudgetExhausted` for the first that has not so much left.
pub fn has_left(budgets: &[Budget], money: Money) -> Result<(), Refusal> {
    any_left(budgets)?;
    let lacks = |budget: &&Budget| Left::of(budget, Reservations::Count).money.is_some_and(|left| left < money);
    let Some(budget) = budgets.iter().find(lacks) else { return Ok(()) };
    Err(spent(budget, &Lack::Money, &format!("the call may cost {money}")))
}

fn unpriced(budget: &Budget, model: &str) -> Refusal {
    let what = format!("budget {} counts money, and the price of {model} is unknown", budget.scope);
    Refusal::new(Code::BudgetExhausted, what)
        .hint(format!("add a price for {model} under llm.prices in world-config.yaml, or limit the scope by tokens"))
        .details(serde_json::json!({ UNPRICED: model }))
}

/// The refusal for a limit of tokens or money, with the amounts spent and reserved.
fn spent(budget: &Budget, lack: &Lack, next: &str) -> Refusal {
    let (limits, scope) = (budget.limits, &budget.scope);
    let (spent, limit, held, flag) = match lack {
        Lack::Tokens => {
            let held = (budget.reserved_tokens > 0).then(|| budget.reserved_tokens.to_string());
            let limit = format!("{} tokens", limits.tokens.unwrap_or(0));
            (budget.spent_tokens.to_string(), limit, held, "--tokens N")
        }
        Lack::Money | Lack::Price => {
            let held = (budget.reserved_money > Money(0)).then(|| budget.reserved_money.to_string());
            (budget.spent_money.to_string(), limits.money.unwrap_or_default().to_string(), held, "--usd X")
        }
    };
    let held = held.map(|held| format!(" ({held} more reserved by running calls)")).unwrap_or_default();
    let wait = if matches!(scope, Scope::Day(_)) { ", or wait: it starts again at 00:00 UTC" } else { "" };
    refusal!(BudgetExhausted, "budget {scope} is spent: {spent} of {limit} spent{held}, and {next}")
        .hint(format!("raise it with `ghostctl budget set {scope} {flag}`{wait}"))
        .details(serde_json::json!({ "scope": scope.to_string() }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::BudgetLimits;
    use crate::time::Timestamp;
    use proptest::prelude::*;

    fn budget(tokens: Option<u64>, money: Option<u64>) -> Budget {
        Budget { limits: BudgetLimits { tokens, money: money.map(Money) }, ..Budget::open(Scope::World, Timestamp(0)) }
    }

    fn granted(admission: Result<Admission, Refusal>) -> Allowance {
        match admission.unwrap() {
            Admission::Granted(allowance) => allowance,
            Admission::Held(scope) => panic!("{scope} is held"),
        }
    }

    #[test]
    fn a_call_that_costs_needs_something_left_in_every_account() {
        let spent = |tokens, money| Budget { spent_tokens: 10, spent_money: Money(5), ..budget(tokens, money) };
        assert_eq!(any_left(&[spent(None, None), spent(Some(11), Some(6))]), Ok(()));
        for gone in [spent(Some(10), None), spent(None, Some(5)), spent(Some(9), Some(4))] {
            let refusal = any_left(&[spent(None, None), gone]).unwrap_err();
            assert_eq!((refusal.code, is_unpriced(&refusal)), (Code::BudgetExhausted, false));
        }
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
        assert!(is_unpriced(&refusal) && refusal.message.contains("p/m"), "{refusal}");
        let spent = allow(&[budget(Some(5), None)], "p/m", 10, 10, 1, None).unwrap_err();
        assert!(!is_unpriced(&spent), "{spent}");
    }

    #[test]
    fn a_money_limit_of_zero_allows_only_free_models() {
        let none = budget(None, Some(0));
        let ask = |price: &Price| allow(std::slice::from_ref(&none), "p/m", 1_000, 100, 16, Some(price));
        assert_eq!(granted(ask(&Price::default())).max_tokens, 100);
        assert_eq!(ask(&PRICE).unwrap_err().code, Code::BudgetExhausted);
    }

    #[test]
    fn the_highest_input_price_is_reserved() {
        for price in [
            Price { input: Money(0), cache_read: Money(2_000_000), ..PRICE },
            Price { input: Money(0), cache_write: Money(2_000_000), ..PRICE },
        ] {
            let held = granted(allow(&[budget(None, Some(10_000))], "p/m", 1_000, 1, 1, Some(&price))).money;
            for cached in [(1_000, 0), (0, 1_000), (0, 0)] {
                let used = TokenUsage { input: 1_000, output: 1, cache_read: cached.0, cache_write: cached.1 };
                assert!(price.of(used) <= held, "{price:?}: {cached:?}");
            }
            assert!(allow(&[budget(None, Some(1_000))], "p/m", 1_000, 1, 1, Some(&price)).is_err());
        }
    }

    #[test]
    fn spending_shortens_the_answer() {
        let allowance = granted(allow(&[budget(Some(100), None)], "p/m", 40, 4_096, 16, None));
        assert_eq!(allowance, Allowance { max_tokens: 60, tokens: 100, money: Money(0) });
        assert!(allow(&[budget(Some(50), None)], "p/m", 40, 4_096, 16, None).is_err());
    }

    #[test]
    fn reservations_make_a_call_wait_and_spending_refuses_it() {
        let account =
            |spent_tokens, reserved_tokens| Budget { spent_tokens, reserved_tokens, ..budget(Some(60_000), None) };
        let ask = |spent, held| allow(&[account(spent, held)], "p/m", 12_211, 4_096, 16, None);
        assert_eq!(granted(ask(1_560, 0)).max_tokens, 4_096);
        assert_eq!(ask(1_560, 48_921), Ok(Admission::Held(Scope::World)));
        assert_eq!(ask(0, 44_000), Ok(Admission::Held(Scope::World)), "a reservation does not shorten the answer");
        assert_eq!(granted(ask(47_000, 0)).max_tokens, 789, "spending does");
        let refusal = ask(47_774, 12_000).unwrap_err();
        for part in ["world", "47774 of 60000", "12000", "12227"] {
            assert!(refusal.message.contains(part), "{part}: {refusal}");
        }
        let poor = Budget { spent_money: Money(900_000), ..budget(None, Some(1_000_000)) };
        let refusal = allow(&[poor], "p/m", 90_000, 4_096, 16, Some(&PRICE)).unwrap_err();
        let spent = format!("{} of {}", Money(900_000), Money(1_000_000));
        assert!(refusal.message.contains(&spent), "{refusal}");
    }

    /// Limit, spent and reserved: independent random amounts.
    fn amounts(most: u64) -> impl Strategy<Value = (Option<u64>, u64, u64)> {
        (prop::option::of(0..most), 0..most, prop_oneof![Just(0), 0..most])
    }

    fn accounts() -> impl Strategy<Value = Vec<Budget>> {
        let account = (amounts(5_000), amounts(50_000)).prop_map(|(tokens, money)| Budget {
            spent_tokens: tokens.1,
            reserved_tokens: tokens.2,
            spent_money: Money(money.1),
            reserved_money: Money(money.2),
            ..budget(tokens.0, money.0)
        });
        prop::collection::vec(account, 1..4)
    }

    proptest! {
        #[test]
        fn a_reservation_never_exceeds_a_limit(
            budgets in accounts(), input in 0u64..3_000, max in 1u64..3_000, floor in 1u64..64,
        ) {
            if let Ok(Admission::Granted(allowance)) = allow(&budgets, "p/m", input, max, floor, Some(&PRICE)) {
                prop_assert!(allowance.max_tokens <= max);
                for budget in &budgets {
                    let left = Left::of(budget, Reservations::Count);
                    prop_assert!(left.tokens.is_none_or(|left| allowance.tokens <= left));
                    // Each of the two parts may round up by one millionth.
                    prop_assert!(left.money.is_none_or(|left| allowance.money.0 <= left.0 + 2));
                }
            }
        }

        #[test]
        fn a_call_waits_only_for_reservations_of_others(
            budgets in accounts(), input in 0u64..3_000, max in 1u64..3_000, floor in 1u64..64,
        ) {
            let ask = |budgets: &[Budget]| allow(budgets, "p/m", input, max, floor, Some(&PRICE));
            let free = |budget: &Budget| Budget { reserved_tokens: 0, reserved_money: Money(0), ..budget.clone() };
            let alone = ask(&budgets.iter().map(free).collect::<Vec<_>>());
            match (ask(&budgets), alone) {
                (_, Ok(Admission::Held(scope))) => prop_assert!(false, "{scope} has no reservation"),
                (Err(_), alone) => prop_assert!(alone.is_err(), "refused because of a reservation"),
                (Ok(Admission::Granted(now)), alone) => prop_assert_eq!(Ok(Admission::Granted(now)), alone),
                (Ok(Admission::Held(scope)), alone) => {
                    prop_assert!(alone.is_ok());
                    let reserved = |budget: &&Budget| {
                        budget.scope == scope && (budget.reserved_tokens > 0 || budget.reserved_money > Money(0))
                    };
                    prop_assert!(budgets.iter().any(|budget| reserved(&budget)), "{scope} has a reservation");
                }
            }
        }
    }
}
