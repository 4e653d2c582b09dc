//! `budgets` and an agent's own `budget`: limits of each scope, in total and per day. A limit never applies to a scope or
//! period other than its own.

use std::collections::BTreeMap;
use std::fmt;

use ghost_domain::{AgentId, BudgetLimits};
use schemars::{JsonSchema, json_schema};
use serde::Deserialize;
use serde::de::{self, Deserializer, IntoDeserializer as _, Visitor};

use crate::kinds::{Parsed, Range, Usd, schema};
use crate::typed::{Spanned, problem};

/// `budgets`: the limits of each scope.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct BudgetsSection {
    /// What all agents together may spend.
    pub world: Option<Spanned<Budget>>,
    /// What the agents of a team may spend, by its name.
    pub team: BTreeMap<ScopeName<String>, Spanned<Budget>>,
    /// What an agent may spend, by its id.
    pub agent: BTreeMap<ScopeName<Parsed<AgentId>>, Spanned<Budget>>,
}

/// The limits of one scope, in total and per day.
#[derive(Clone, Copy, Default, Deserialize)]
#[serde(from = "BudgetSection")]
pub struct Budget {
    /// `tokens` and `usd`. `None` if only daily limits are set.
    pub whole: Option<BudgetLimits>,
    /// `tokens_per_day` and `usd_per_day`. `None` if neither is set.
    pub day: Option<BudgetLimits>,
}

schema!(Budget, generator => generator.subschema_for::<BudgetSection>());

/// One budget, as it is written.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct BudgetSection {
    /// Tokens for the world's whole life.
    tokens: Option<Tokens>,
    /// US dollars for the world's whole life.
    usd: Option<Usd>,
    /// Tokens for one day, from midnight to midnight UTC.
    tokens_per_day: Option<Tokens>,
    /// US dollars for one day, from midnight to midnight UTC.
    usd_per_day: Option<Usd>,
}

impl From<BudgetSection> for Budget {
    fn from(BudgetSection { tokens, usd, tokens_per_day, usd_per_day }: BudgetSection) -> Self {
        let limits = |tokens: Option<Tokens>, usd: Option<Usd>| BudgetLimits {
            tokens: tokens.map(|tokens| tokens.0),
            money: usd.map(|usd| usd.0),
        };
        let (whole, day) = (limits(tokens, usd), limits(tokens_per_day, usd_per_day));
        let named = |limits: &BudgetLimits| *limits != BudgetLimits::default();
        Self { whole: (named(&whole) || !named(&day)).then_some(whole), day: Some(day).filter(named) }
    }
}

/// A limit in tokens.
struct Tokens(u64);

schema!(Tokens, _ => json_schema!({ "type": "integer", "minimum": 0, "maximum": TOKENS_MAX }));

/// The largest limit in tokens.
const TOKENS_MAX: u64 = 1_000_000_000_000_000;

impl<'de> Deserialize<'de> for Tokens {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_u64(TokenCount).map(Self)
    }
}

struct TokenCount;

impl Visitor<'_> for TokenCount {
    type Value = u64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("write a whole number of tokens such as 5000")
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<u64, E> {
        Range(0, TOKENS_MAX).visit_u64(number)
    }
}

/// The name of a scope. One such as `desk/day` is meant as a scope with daily limits.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
pub struct ScopeName<T>(pub T);

schema!(@[T: JsonSchema] ScopeName<T>, generator => T::json_schema(generator));

impl<'de, T: Deserialize<'de>> Deserialize<'de> for ScopeName<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        if let Some(scope) = name.strip_suffix("/day") {
            let shown = ghost_domain::text::clip(scope, 60);
            let limits = "write `usd_per_day` or `tokens_per_day`";
            let hint = format!("{limits} under `{shown}`: daily limits are written beside the others");
            return Err(problem("a daily budget is not a scope of its own", hint));
        }
        T::deserialize(name.into_deserializer()).map(Self)
    }
}

#[cfg(test)]
mod tests {
    use crate::world_file::tests::problems_of;

    /// The problems of a file with these budgets.
    fn budget_problems(budgets: &str) -> String {
        problems_of(&format!("budgets: {budgets}\n"))
    }

    #[test]
    fn a_limit_that_cannot_be_read_says_what_to_write() {
        for (budgets, path, expected) in [
            ("{ world: { usd: '$5' } }", "world.usd", "2.50"),
            ("{ world: { usd: '5' } }", "world.usd", "`5`"),
            ("{ world: { usd: }}", "world.usd", "2.50"),
            ("{ world: { usd: -1 } }", "world.usd", "0 to 1000000000"),
            ("{ world: { tokens: '5000' } }", "world.tokens", "`5000`"),
            ("{ world: { tokens: ~ } }", "world.tokens", "5000"),
            ("{ world: { tokens: 5k } }", "world.tokens", "5000"),
            ("{ world: '5000' }", "world", "{ tokens: 5000 }"),
            ("5000", "", "{ world: { tokens"),
            ("{ agent: { ada: [1] } }", "agent.ada", "{ tokens: 5000 }"),
        ] {
            let path = if path.is_empty() { "budgets".to_owned() } else { format!("budgets.{path}") };
            let found = budget_problems(budgets);
            assert!(found.starts_with(&format!("error: w.yaml:1: {path}: ")), "{budgets}: {found}");
            assert!(found.contains(expected), "{budgets}: {found}");
            assert_eq!(found.matches("error:").count(), 1, "{budgets}: {found}");
        }
    }

    #[test]
    fn misplaced_daily_limits_get_a_hint() {
        for (budgets, hint) in [
            ("{ world/day: { usd: 5 } }", "`world: { usd_per_day: … }`"),
            ("{ tokens_per_day: 5 }", "`world: { tokens_per_day: … }`"),
            ("{ daily_cost_usd: 5 }", "`usd_per_day`"),
            ("{ world: { daily_cost_usd: 5 } }", "`usd_per_day`"),
            ("{ world: { day: { usd: 5 } } }", "`usd_per_day`"),
            ("{ world: { usd_per_dya: 5 } }", "`usd_per_day`"),
            ("{ team: { desk/day: { usd: 5 } } }", "`desk`"),
            ("{ agent: { ada/day: { usd: 5 } } }", "`ada`"),
            ("{ agents: { ada: { usd: 5 } } }", "`agent`"),
        ] {
            let found = budget_problems(budgets);
            assert!(
                found.split_once("\n  hint: ").is_some_and(|(_, found)| found.contains(hint)),
                "{budgets}: {found}"
            );
            assert_eq!(found.matches("error:").count(), 1, "{budgets}: {found}");
        }
    }
}
