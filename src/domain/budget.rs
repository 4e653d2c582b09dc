//! Budgets: limit, reserved and spent, in tokens and money, one record per scope (DESIGN.md section 2, "Budgets").
//!
//! A model call holds its worst case, as it is estimated, before it starts, and pays what it took when it ends. So what is
//! spent and held together never passes a limit by what is held, whatever runs at the same time. A call that takes more
//! than was estimated is paid all the same: spending can pass a limit by what one call for each agent at work takes beyond
//! its estimate, and the next call is refused.

use serde::{Deserialize, Serialize};

use crate::ids::ReservationId;
use crate::money::Money;
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
    /// Whether someone has lifted the limit of a root's tokens by hand: the default of roots does not come back for it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub tokens_lifted: bool,
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
            tokens_lifted: false,
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

    /// The account with the limit of tokens that every root has (`limits.root_tokens_max`; 0 is none), unless it has one of
    /// its own or someone has lifted it. The default is not kept with the account, so a reload changes it for all.
    #[must_use]
    pub fn with_default(mut self, root_tokens: u64) -> Self {
        let bounded = matches!(self.scope, Scope::Root(_)) && root_tokens > 0 && !self.tokens_lifted;
        if bounded && self.limits.tokens.is_none() {
            self.limits.tokens = Some(root_tokens);
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

    /// The limits that what was spent has reached, in the words of the command line: `tokens`, `usd`. While `tokens` is among
    /// them every call is refused, while `usd` is, every call of a model that costs something. A limit of no money at all
    /// is reached when something was spent: models without cost can be asked under it.
    #[must_use]
    pub fn passed(&self) -> Vec<&'static str> {
        let tokens = self.limits.tokens.is_some_and(|limit| self.spent_tokens >= limit);
        let spent = self.spent_money > Money(0);
        let money = spent && self.limits.money.is_some_and(|limit| self.spent_money >= limit);
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

#[cfg(test)]
mod tests {
    use super::*;

    fn budget(tokens: Option<u64>, money: Option<u64>) -> Budget {
        Budget { limits: BudgetLimits { tokens, money: money.map(Money) }, ..Budget::open(Scope::World, Timestamp(0)) }
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
        // Without money models that cost nothing can be asked, and others cannot.
        let none = budget(None, Some(0));
        assert_eq!(none.passed(), Vec::<&str>::new());
        assert_eq!(Budget { spent_money: Money(1), ..none }.passed(), ["usd"]);
    }
}
