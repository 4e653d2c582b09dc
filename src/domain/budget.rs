//! Budgets: their scopes, and the limits, reservations and spending of one scope, in tokens and money
//! (`docs/design.md`, "Outages, breakers and budgets").
//!
//! A model call reserves its estimated worst case before it starts, and pays its real use when it
//! ends. A reservation is granted only if spending and all reservations stay within the limit. A
//! call that uses more than its estimate is paid in full, so spending can exceed a limit by the
//! excess of the calls that ran at that time. Then the next call is refused.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::ids::{AgentId, CallId, ReservationId, RootId};
use crate::macros::{serde_as_text, text_enum};
use crate::money::Money;
use crate::refusal::{Refusal, refusal};
use crate::time::Timestamp;
use crate::transcript::TokenUsage;
use crate::wall_clock::Jump;

/// The limits of one scope; `None` is no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BudgetLimits {
    /// Maximum tokens, input and output together.
    pub tokens: Option<u64>,
    /// Maximum money.
    pub money: Option<Money>,
}

impl BudgetLimits {
    /// Whether there is no limit.
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }
}

/// The account of one scope.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Budget {
    /// Scope of the account.
    pub scope: Scope,
    /// The current limits.
    pub limits: BudgetLimits,
    /// The limits that `world-config.yaml` set and no one changed since.
    #[serde(default, skip_serializing_if = "BudgetLimits::is_none")]
    pub of_file: BudgetLimits,
    /// The money limit that the agent's archetype set, if no one changed it since. It ends when the
    /// agent is deleted. A limit from an operator or `world-config.yaml` belongs to the id and
    /// stays.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of_archetype: Option<Money>,
    /// Whether an operator removed the money limit. The archetype's limit then does not return.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub money_lifted: bool,
    /// Whether an operator removed the token limit of a root. The default limit of roots then does
    /// not return.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub tokens_lifted: bool,
    /// Tokens reserved for running calls.
    pub reserved_tokens: u64,
    /// Money reserved for running calls.
    pub reserved_money: Money,
    /// Tokens spent.
    pub spent_tokens: u64,
    /// Money spent.
    pub spent_money: Money,
    /// Spent tokens of models without a known price; part of `spent_tokens`. `spent_money` does not
    /// include them.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unpriced_tokens: u64,
    /// When the account last changed.
    pub updated_at: Timestamp,
    /// The day of the spending, in days since 1970-01-01 UTC; 0 if the scope is not daily.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub day: i64,
}

/// Whether a count is 0. Records omit such a count.
pub(crate) fn is_zero<T: Default + PartialEq>(count: &T) -> bool {
    *count == T::default()
}

/// Milliseconds in a day.
const DAY_MS: i64 = 86_400_000;

/// The first instant of the day after `now` (UTC), when daily budgets start again.
pub fn next_day(now: Timestamp) -> Timestamp {
    Timestamp((now.0.div_euclid(DAY_MS) + 1).saturating_mul(DAY_MS))
}

/// The first instant of the day of `now` (UTC).
pub fn this_day(now: Timestamp) -> Timestamp {
    Timestamp(now.0.div_euclid(DAY_MS).saturating_mul(DAY_MS))
}

impl Budget {
    /// An account without limits or spending.
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

    /// The account as of `now`. A daily account drops the spending of an earlier day. If the clock
    /// goes back, it keeps its day and its spending.
    #[must_use]
    pub fn at(mut self, now: Timestamp) -> Self {
        let today = now.0.div_euclid(DAY_MS);
        if matches!(self.scope, Scope::Day(_)) && today > self.day {
            (self.day, self.spent_tokens, self.spent_money, self.unpriced_tokens) = (today, 0, Money(0), 0);
        }
        self
    }

    /// The account of a root with the default token limit (`limits.root_tokens_max`; 0 is none),
    /// unless it has its own limit or an operator removed the limit. The default is not stored, so
    /// a reload changes it for all roots.
    #[must_use]
    pub fn with_default(mut self, root_tokens: u64) -> Self {
        let bounded = matches!(self.scope, Scope::Root(_)) && root_tokens > 0 && !self.tokens_lifted;
        if bounded && self.limits.tokens.is_none() {
            self.limits.tokens = Some(root_tokens);
        }
        self
    }

    /// Moves a daily account from a future day, which a wrong clock caused, to the day of `now`.
    /// The spending stays. Without this call, the account would keep its spending until the future
    /// day. Only an operator's change calls it.
    #[must_use]
    pub fn set_right(mut self, now: Timestamp) -> Self {
        self.day = self.day.min(now.0.div_euclid(DAY_MS));
        self
    }

    /// The account after a jump of the clock. The spending of a day moves with it: a jump begins no new
    /// day, in either direction.
    #[must_use]
    pub fn moved(mut self, jump: Jump) -> Self {
        if matches!(self.scope, Scope::Day(_)) && self.day >= jump.from.0.div_euclid(DAY_MS) {
            self.day = jump.to.0.div_euclid(DAY_MS);
        }
        self
    }

    /// The limits that the spending has reached, with the names of the command line: `tokens`,
    /// `usd`. With `tokens`, every call is refused. With `usd`, every call of a model that costs
    /// money is refused. A money limit of 0 is reached only when money was spent; free models can
    /// be used under it.
    pub fn passed(&self) -> Vec<&'static str> {
        let tokens = self.limits.tokens.is_some_and(|limit| self.spent_tokens >= limit);
        let spent = self.spent_money > Money(0);
        let money = spent && self.limits.money.is_some_and(|limit| self.spent_money >= limit);
        [("tokens", tokens), ("usd", money)].into_iter().filter_map(|(limit, passed)| passed.then_some(limit)).collect()
    }
}

/// The budget reserved for one model call, in every scope that the call is charged to. A turn makes
/// one model call at a time, so its record stores at most one reservation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reservation {
    /// Id of the reservation.
    pub reservation_id: ReservationId,
    /// Provider of the call.
    #[serde(default)]
    pub provider: String,
    /// Model of the call.
    pub model: String,
    /// Scopes in which the budget is reserved.
    pub scopes: Vec<Scope>,
    /// Tokens reserved in each scope.
    pub tokens: u64,
    /// Maximum output tokens; part of `tokens`.
    #[serde(default)]
    pub output: u64,
    /// Money reserved in each scope; `None` for a model without a known price.
    pub money: Option<Money>,
}

/// The money reserved for one tool call that tells its cost only when it ends. Calls of a turn can run beside one another, so
/// its record has a list of these.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallReservation {
    /// Id of the call.
    pub call_id: CallId,
    /// Name of the tool.
    pub tool: String,
    /// Scopes in which the money is reserved.
    pub scopes: Vec<Scope>,
    /// Money reserved in each scope.
    pub money: Money,
}

impl Reservation {
    /// The reserved tokens as input and output.
    pub fn at_most(&self) -> TokenUsage {
        let output = self.output.min(self.tokens);
        TokenUsage { input: self.tokens - output, output, ..TokenUsage::default() }
    }
}

/// The work that a budget covers. The text form is `world`, `team:news`, `agent:chora` or
/// `root:<uuid>`. The first three can end in `/day` for one day: `agent:chora/day`.
/// `ghostctl budget` uses this form.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scope {
    /// The whole world.
    World,
    /// The agents of one team, and the agents that they created.
    Team(String),
    /// One agent, the agents that it created, the agents that those created, and so on.
    Agent(AgentId),
    /// All work of one root.
    Root(RootId),
    /// The world, a team or an agent within one day, from midnight to midnight UTC.
    Day(Daily),
}

text_enum! {
    /// The kind of a scope, as a filter for lists.
    ScopeSort, "kind of scope" {
        /// The whole world.
        World = "world",
        /// Teams.
        Team = "team",
        /// Agents.
        Agent = "agent",
        /// Roots.
        Root = "root",
        /// Daily scopes.
        Day = "day",
    }
}

/// The work that a daily budget covers.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Daily {
    /// The whole world.
    World,
    /// One team, as [`Scope::Team`].
    Team(String),
    /// One agent, as [`Scope::Agent`].
    Agent(AgentId),
}

impl Daily {
    /// The same scope without the limit to one day.
    pub fn whole(&self) -> Scope {
        match self {
            Self::World => Scope::World,
            Self::Team(name) => Scope::Team(name.clone()),
            Self::Agent(id) => Scope::Agent(id.clone()),
        }
    }
}

/// The end of a daily scope's text.
const DAY: &str = "/day";

serde_as_text!(Scope);

impl Scope {
    /// The same scope for one day. `None` for a scope that is daily already, and for a root.
    pub fn daily(&self) -> Option<Self> {
        match self {
            Self::World => Some(Self::Day(Daily::World)),
            Self::Team(name) => Some(Self::Day(Daily::Team(name.clone()))),
            Self::Agent(id) => Some(Self::Day(Daily::Agent(id.clone()))),
            Self::Root(_) | Self::Day(_) => None,
        }
    }

    /// The kind of the scope.
    pub fn sort(&self) -> ScopeSort {
        match self {
            Self::World => ScopeSort::World,
            Self::Team(_) => ScopeSort::Team,
            Self::Agent(_) => ScopeSort::Agent,
            Self::Root(_) => ScopeSort::Root,
            Self::Day(_) => ScopeSort::Day,
        }
    }

    /// The agent of the scope, if it is the scope of an agent, daily or not.
    pub fn agent(&self) -> Option<&AgentId> {
        match self {
            Self::Agent(agent_id) | Self::Day(Daily::Agent(agent_id)) => Some(agent_id),
            Self::World | Self::Team(_) | Self::Root(_) | Self::Day(Daily::World | Daily::Team(_)) => None,
        }
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::World => f.write_str("world"),
            Self::Team(name) => write!(f, "team:{name}"),
            Self::Agent(id) => write!(f, "agent:{id}"),
            Self::Root(id) => write!(f, "root:{id}"),
            Self::Day(daily) => write!(f, "{}{DAY}", daily.whole()),
        }
    }
}

impl FromStr for Scope {
    type Err = Refusal;

    fn from_str(text: &str) -> Result<Self, Refusal> {
        let unknown = || {
            refusal!(InvalidArguments, "`{}` is not a budget scope", crate::text::shown(text, 80))
                .hint("a scope is world, team:<name>, agent:<id> or root:<id>; the first three with /day for one day")
        };
        if let Some(whole) = text.strip_suffix(DAY) {
            if whole.ends_with(DAY) {
                return Err(unknown());
            }
            return whole.parse::<Self>()?.daily().ok_or_else(unknown);
        }
        match text.split_once(':') {
            None if text == "world" => Ok(Self::World),
            Some(("team", name)) if !name.is_empty() && name.len() <= 64 && !name.ends_with(DAY) => {
                Ok(Self::Team(name.to_owned()))
            }
            // The part after the slash is wrong, not the id.
            Some(("agent" | "root", id)) if id.contains('/') => Err(unknown()),
            Some(("agent", id)) => Ok(Self::Agent(id.parse()?)),
            Some(("root", id)) => Ok(Self::Root(id.parse()?)),
            _ => Err(unknown()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn budget(tokens: Option<u64>, money: Option<u64>) -> Budget {
        Budget { limits: BudgetLimits { tokens, money: money.map(Money) }, ..Budget::open(Scope::World, Timestamp(0)) }
    }

    #[test]
    fn a_new_day_clears_spending_and_keeps_reservations() {
        let day = |days: i64| Timestamp(days * DAY_MS + 1);
        let scope = Scope::World.daily().unwrap();
        let mut budget = Budget::open(scope, day(5));
        (budget.spent_tokens, budget.spent_money, budget.reserved_tokens) = (10, Money(10), 3);
        for same in [day(5), day(4), Timestamp(next_day(day(5)).0 - 1)] {
            assert_eq!(budget.clone().at(same), budget);
        }
        let next = budget.clone().at(next_day(day(5)));
        assert_eq!((next.day, next.spent_tokens, next.spent_money, next.reserved_tokens), (6, 0, Money(0), 3));
        // The clock was years ahead, and an operator corrects the account.
        let ahead = Budget { day: 9_000, ..budget.clone() };
        assert_eq!(ahead.clone().at(day(7)), ahead, "without the correction the account stays as it is");
        let right = ahead.set_right(day(5));
        assert_eq!((right.day, right.spent_tokens, right.clone().at(day(6)).spent_tokens), (5, 10, 0));
        assert_eq!(budget.clone().set_right(day(9)), budget);
        for by in [1, -1, 400, -4_000] {
            let moved = budget.clone().moved(Jump { from: day(5), to: day(5 + by) });
            assert_eq!((moved.day, moved.clone().at(day(5 + by)).spent_tokens), (5 + by, 10), "by {by} days");
            assert_eq!(moved.moved(Jump { from: day(5 + by), to: day(5) }), budget);
        }
        let over = budget.clone().moved(Jump { from: day(6), to: day(406) });
        assert_eq!(over.at(day(406)).spent_tokens, 0, "its day was over before");
        let whole = Budget { spent_tokens: 10, ..Budget::open(Scope::World, day(5)) };
        assert_eq!(whole.clone().at(day(9)), whole);
        assert_eq!(this_day(day(5)), Timestamp(5 * DAY_MS));
    }

    #[test]
    fn a_limit_counts_as_passed_when_it_is_reached() {
        let spent =
            |tokens, money| Budget { spent_tokens: 10, spent_money: Money(5), ..budget(tokens, money) }.passed();
        assert_eq!(spent(None, None), Vec::<&str>::new());
        assert_eq!(spent(Some(11), Some(6)), Vec::<&str>::new());
        assert_eq!((spent(Some(10), Some(6)), spent(Some(9), Some(0))), (vec!["tokens"], vec!["tokens", "usd"]));
        assert_eq!(budget(Some(0), None).passed(), ["tokens"], "nothing may be spent, and nothing was");
        // A money limit of 0 allows free models only.
        let none = budget(None, Some(0));
        assert_eq!(none.passed(), Vec::<&str>::new());
        assert_eq!(Budget { spent_money: Money(1), ..none }.passed(), ["usd"]);
    }
}

#[cfg(test)]
mod scope_tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn invalid_scopes_are_refused() {
        for text in
            ["root:019f9c68-0000-7000-8000-000000000000/day", "world/day/day", "/day", "team:/day", "world/days"]
        {
            assert!(text.parse::<Scope>().is_err(), "{text}");
        }
        let slip = "agent:chora/dya".parse::<Scope>().unwrap_err();
        assert!(slip.message.contains("`agent:chora/dya`"), "{slip}");
    }

    proptest! {
        #[test]
        fn a_scope_parses_from_its_own_text(name in "[a-z][a-z0-9-]{0,20}") {
            for text in ["world".to_owned(), format!("team:{name}"), format!("agent:{name}")] {
                let scope: Scope = text.parse().unwrap();
                let daily = format!("{text}/day");
                prop_assert_eq!(scope.daily(), Some(daily.parse::<Scope>().unwrap()));
                prop_assert_eq!(scope.daily().unwrap().to_string(), daily);
                prop_assert_eq!(scope.to_string(), text);
            }
        }
    }
}
