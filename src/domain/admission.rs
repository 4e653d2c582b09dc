//! Whether a model call may begin: what its budgets leave for it, or why not.
//!
//! What is held is mostly given back. So only what is spent refuses a call or shortens its answer; what others merely hold
//! makes it wait.

use crate::budget::Budget;
use crate::money::{Money, Price};
use crate::refusal::{Code, Refusal};
use crate::scope::Scope;
use crate::transcript::TokenUsage;

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

/// What a call is told that has room in all its scopes, or will have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Admission {
    /// It may begin.
    Granted(Allowance),
    /// What is spent leaves room for it, and what other calls hold in this scope does not: it waits until one of them ends.
    Held(Scope),
}

/// Whether what calls under way hold counts as taken.
#[derive(Clone, Copy)]
enum Held {
    Counts,
    IsFree,
}

/// What is left of an account; `None` is no limit.
struct Left {
    tokens: Option<u64>,
    money: Option<Money>,
}

/// Why an account has no room for a call.
enum Lack {
    Tokens,
    Money,
    Price,
}

impl Left {
    fn of(budget: &Budget, held: Held) -> Self {
        let (tokens, money) = match held {
            Held::Counts => (budget.reserved_tokens, budget.reserved_money),
            Held::IsFree => (0, Money(0)),
        };
        let limits = budget.limits;
        Self {
            tokens: limits.tokens.map(|limit| limit.saturating_sub(budget.spent_tokens.saturating_add(tokens))),
            money: limits.money.map(|limit| limit.minus(budget.spent_money.plus(money))),
        }
    }

    /// The most tokens that a call which reads `input` may write; `None` if there is no limit.
    fn writes(&self, input: u64, floor: u64, price: Option<&Price>) -> Result<Option<u64>, Lack> {
        let tokens = match self.tokens {
            None => None,
            Some(left) => Some(left.checked_sub(input).filter(|most| *most >= floor).ok_or(Lack::Tokens)?),
        };
        let Some(left) = self.money else { return Ok(tokens) };
        let price = price.ok_or(Lack::Price)?;
        // Any input token may turn out to be the dearest sort.
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
        Ok(Some(tokens.map_or(affordable, |most| most.min(affordable))))
    }
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
/// written. What is spent shrinks `max_tokens`; when not even `floor` tokens can be written, or a money limit meets an
/// unknown price, the call is refused. A call that is not refused waits while others hold what it may use. `model` is what
/// the price is of, as `llm.prices` names it.
///
/// # Errors
/// `BudgetExhausted`, whatever is held: waiting would not help.
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
        match Left::of(budget, Held::IsFree).writes(input, floor, price) {
            Ok(most) => output = output.min(most.unwrap_or(output)),
            Err(Lack::Price) => return Err(unpriced(budget, model)),
            Err(Lack::Tokens) => {
                let need = input.saturating_add(floor);
                let (limit, held) = (budget.limits.tokens.unwrap_or(0), budget.reserved_tokens);
                return Err(spent(
                    budget,
                    "tokens",
                    (limit, budget.spent_tokens, held),
                    &format!("the next call needs {need}"),
                ));
            }
            Err(Lack::Money) => {
                let (limit, held) = (budget.limits.money.unwrap_or(Money(0)), budget.reserved_money);
                return Err(spent(budget, "", (limit, budget.spent_money, held), "the next call could pass the limit"));
            }
        }
    }
    // As much as what is spent leaves, and no less because others hold some of it for the moment.
    let fits = |budget: &&Budget| Left::of(budget, Held::Counts).writes(input, output, price).is_ok();
    if let Some(full) = budgets.iter().find(|budget| !fits(budget)) {
        return Ok(Admission::Held(full.scope.clone()));
    }
    let money = price.map_or(Money(0), |price| {
        let dearest = Price { input: price.dearest_read(), ..*price };
        dearest.of(TokenUsage { input, output, ..TokenUsage::default() })
    });
    Ok(Admission::Granted(Allowance { max_tokens: output, tokens: input.saturating_add(output), money }))
}

fn unpriced(budget: &Budget, model: &str) -> Refusal {
    let what = format!("budget {} counts money, and the price of {model} is unknown", budget.scope);
    Refusal::new(Code::BudgetExhausted, what)
        .hint(format!("add a price for {model} under llm.prices in world-config.yaml, or limit the scope by tokens"))
        .details(serde_json::json!({ UNPRICED: model }))
}

/// Refuses under a limit, of which some is spent and some is held.
fn spent<T>(budget: &Budget, unit: &str, (limit, spent, held): (T, T, T), next: &str) -> Refusal
where
    T: std::fmt::Display + PartialEq + Default,
{
    let flag = if unit.is_empty() { "--usd X" } else { "--tokens N" };
    let unit = if unit.is_empty() { String::new() } else { format!(" {unit}") };
    let held = if held == T::default() { String::new() } else { format!(" ({held} more held by calls under way)") };
    let what = format!("{spent} of {limit}{unit} spent{held}, and {next}");
    let wait = if matches!(budget.scope, Scope::Day(_)) { ", or wait: it begins anew at 00:00 UTC" } else { "" };
    Refusal::new(Code::BudgetExhausted, format!("budget {} is spent: {what}", budget.scope))
        .hint(format!("raise it with `ghostctl budget set {} {flag}`{wait}", budget.scope))
        .details(serde_json::json!({ "scope": budget.scope.to_string() }))
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
    fn without_money_models_that_cost_nothing_can_be_asked_and_others_cannot() {
        let none = budget(None, Some(0));
        let ask = |price: &Price| allow(std::slice::from_ref(&none), "p/m", 1_000, 100, 16, Some(price));
        assert_eq!(granted(ask(&Price::default())).max_tokens, 100);
        assert_eq!(ask(&PRICE).unwrap_err().code, Code::BudgetExhausted);
    }

    #[test]
    fn whatever_sort_of_reading_is_dearest_is_held() {
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
    fn what_is_left_shrinks_the_answer() {
        let allowance = granted(allow(&[budget(Some(100), None)], "p/m", 40, 4_096, 16, None));
        assert_eq!(allowance, Allowance { max_tokens: 60, tokens: 100, money: Money(0) });
        assert!(allow(&[budget(Some(50), None)], "p/m", 40, 4_096, 16, None).is_err());
    }

    #[test]
    fn what_is_only_held_makes_a_call_wait_and_what_is_spent_refuses_it() {
        let account =
            |spent_tokens, reserved_tokens| Budget { spent_tokens, reserved_tokens, ..budget(Some(60_000), None) };
        let ask = |spent, held| allow(&[account(spent, held)], "p/m", 12_211, 4_096, 16, None);
        assert_eq!(granted(ask(1_560, 0)).max_tokens, 4_096);
        assert_eq!(ask(1_560, 48_921), Ok(Admission::Held(Scope::World)), "most of that is given back");
        assert_eq!(ask(0, 44_000), Ok(Admission::Held(Scope::World)), "an answer is not cut for what is given back");
        assert_eq!(granted(ask(47_000, 0)).max_tokens, 789, "and it is for what is not");
        let refusal = ask(47_774, 12_000).unwrap_err();
        assert_eq!(
            refusal.message,
            "budget world is spent: 47774 of 60000 tokens spent (12000 more held by calls under way), and the next call needs \
             12227"
        );
        let poor = Budget { spent_money: Money(900_000), ..budget(None, Some(1_000_000)) };
        let refusal = allow(&[poor], "p/m", 90_000, 4_096, 16, Some(&PRICE)).unwrap_err();
        assert_eq!(
            refusal.message,
            format!(
                "budget world is spent: {} of {} spent, and the next call could pass the limit",
                Money(900_000),
                Money(1_000_000)
            )
        );
    }

    /// Limit, spent and held, each of them perhaps far more than another.
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
        fn a_hold_never_passes_any_limit(
            budgets in accounts(), input in 0u64..3_000, max in 1u64..3_000, floor in 1u64..64,
        ) {
            if let Ok(Admission::Granted(allowance)) = allow(&budgets, "p/m", input, max, floor, Some(&PRICE)) {
                prop_assert!(allowance.max_tokens <= max);
                for budget in &budgets {
                    let left = Left::of(budget, Held::Counts);
                    prop_assert!(left.tokens.is_none_or(|left| allowance.tokens <= left));
                    // One millionth of rounding on each of the two parts.
                    prop_assert!(left.money.is_none_or(|left| allowance.money.0 <= left.0 + 2));
                }
            }
        }

        #[test]
        fn a_call_waits_exactly_while_only_what_is_held_is_in_its_way(
            budgets in accounts(), input in 0u64..3_000, max in 1u64..3_000, floor in 1u64..64,
        ) {
            let ask = |budgets: &[Budget]| allow(budgets, "p/m", input, max, floor, Some(&PRICE));
            let free = |budget: &Budget| Budget { reserved_tokens: 0, reserved_money: Money(0), ..budget.clone() };
            let alone = ask(&budgets.iter().map(free).collect::<Vec<_>>());
            match (ask(&budgets), alone) {
                // Nobody waits for nobody.
                (_, Ok(Admission::Held(scope))) => prop_assert!(false, "{scope} is held by nobody"),
                (Err(_), alone) => prop_assert!(alone.is_err(), "refused for what is only held"),
                (Ok(Admission::Granted(now)), alone) => prop_assert_eq!(Ok(Admission::Granted(now)), alone),
                (Ok(Admission::Held(scope)), alone) => {
                    prop_assert!(alone.is_ok());
                    let of = |budget: &&Budget| {
                        budget.scope == scope && (budget.reserved_tokens > 0 || budget.reserved_money > Money(0))
                    };
                    prop_assert!(budgets.iter().any(|budget| of(&budget)), "somebody holds something there");
                }
            }
        }
    }
}
