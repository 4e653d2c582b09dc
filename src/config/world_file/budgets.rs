//! Reads `budgets` and an agent's own `budget`: limits of each scope, in total and per day. Also
//! reads amounts of dollars.
//!
//! A limit must never apply to a scope or period other than its own.

use ghost_domain::{BudgetLimits, Money, Scope};

use crate::reader::{Field, Map};

/// The largest limit in tokens.
const TOKENS_MAX: u64 = 1_000_000_000_000_000;
/// The hint for an empty limit.
const UNLIMITED: &str = "omit the key for no limit";
/// An example of a budget, for hints.
const SUCH_AS: &str = "{ tokens: 5000 } or { usd_per_day: 2.50 }";

/// Keys that people write into a budget by mistake, with the hint for each.
const LIMITS_ELSEWHERE: [(&str, &str); 13] = [
    ("daily_cost_usd", "write `usd_per_day`; `daily_cost_usd` belongs under `## Limits` of an archetype's config.md"),
    ("daily_usd", "write `usd_per_day`"),
    ("usd_daily", "write `usd_per_day`"),
    ("daily_tokens", "write `tokens_per_day`"),
    ("tokens_daily", "write `tokens_per_day`"),
    ("day", "write `tokens_per_day` and `usd_per_day`: daily limits are written beside the others"),
    ("per_day", "write `tokens_per_day` and `usd_per_day`: daily limits are written beside the others"),
    ("daily", "write `tokens_per_day` and `usd_per_day`: daily limits are written beside the others"),
    ("cost_usd", "write `usd`"),
    ("cost", "write `usd`"),
    ("money", "write `usd`"),
    ("dollars", "write `usd`"),
    ("max_tokens", "write `tokens`; how long one answer may be is `max_tokens` under `overrides` or `## LLM`"),
];

/// Keys that people write beside the scopes by mistake, with the hint for each.
const SCOPES_ELSEWHERE: [(&str, &str); 11] = [
    ("world/day", "write `world: { usd_per_day: … }` or `world: { tokens_per_day: … }`"),
    ("team/day", "write `team: { <team>: { usd_per_day: … } }` or `tokens_per_day`"),
    ("agent/day", "write `agent: { <id>: { usd_per_day: … } }` or `tokens_per_day`"),
    ("day", "write `usd_per_day` or `tokens_per_day` into a scope, as in `world: { usd_per_day: 2.50 }`"),
    ("tokens", "say whose: `world: { tokens: … }`, `team: { <team>: … }` or `agent: { <id>: … }`"),
    ("usd", "say whose: `world: { usd: … }`, `team: { <team>: … }` or `agent: { <id>: … }`"),
    ("tokens_per_day", "say whose: `world: { tokens_per_day: … }`, `team: { <team>: … }` or `agent: { <id>: … }`"),
    ("usd_per_day", "say whose: `world: { usd_per_day: … }`, `team: { <team>: … }` or `agent: { <id>: … }`"),
    ("daily_cost_usd", "say whose and write `usd_per_day`: `world: { usd_per_day: … }`, `agent: { <id>: … }`"),
    ("daily_tokens", "say whose and write `tokens_per_day`: `world: { tokens_per_day: … }`, `agent: { <id>: … }`"),
    ("root", "`ghostctl budget set root:ID` limits one; the file cannot know its id"),
];

/// Budget keys that people write at the top of the file, with the hint for each.
pub const AT_THE_TOP: [(&str, &str); 5] = [
    ("budget", "write `budgets: { world: { … } }`; an agent's own `budget` is written in its entry of `agents`"),
    ("daily_cost_usd", "write `budgets: { world: { usd_per_day: … } }`"),
    ("usd_per_day", "write `budgets: { world: { usd_per_day: … } }`"),
    ("tokens_per_day", "write `budgets: { world: { tokens_per_day: … } }`"),
    ("daily_tokens", "write `budgets: { world: { tokens_per_day: … } }`"),
];

/// The limits of one scope, in total and per day.
#[derive(Clone, Copy, Debug, Default)]
pub struct BudgetEntry {
    /// `tokens` and `usd`. `None` if only daily limits are set.
    pub whole: Option<BudgetLimits>,
    /// `tokens_per_day` and `usd_per_day`. `None` if neither is set.
    pub day: Option<BudgetLimits>,
}

/// Reads an amount of dollars. `left_out` is the remedy for an empty value.
pub fn money(field: &Field<'_>, left_out: &str) -> Option<Money> {
    let usd = field.number_of(0.0..=1e9, "US dollars such as 2.50", left_out)?;
    Money::from_usd(usd).map_err(|refusal| field.refused(refusal, "write US dollars such as 2.50")).ok()
}

/// Reads a limit in dollars.
pub fn money_limit(field: &Field<'_>) -> Option<Money> {
    money(field, UNLIMITED)
}

/// Reads one budget: `tokens`, `usd`, `tokens_per_day` and `usd_per_day`.
pub fn one(field: &Field<'_>) -> Option<BudgetEntry> {
    let map = field.map_of(SUCH_AS)?;
    let limits = |tokens: &'static str, usd: &'static str| {
        let count =
            |field: Field<'_>| field.count_of(0..=TOKENS_MAX, "a whole number of tokens such as 5000", UNLIMITED);
        BudgetLimits {
            tokens: map.get(tokens).and_then(count),
            money: map.get(usd).and_then(|field| money_limit(&field)),
        }
    };
    let (whole, day) = (limits("tokens", "usd"), limits("tokens_per_day", "usd_per_day"));
    map.finish(&LIMITS_ELSEWHERE);
    let named = |limits: &BudgetLimits| *limits != BudgetLimits::default();
    Some(BudgetEntry { whole: (named(&whole) || !named(&day)).then_some(whole), day: Some(day).filter(named) })
}

/// Reports a key such as `desk/day`, which is meant as a scope with daily limits. Returns whether
/// it was one.
fn is_daily_scope(key: &str, field: &Field<'_>) -> bool {
    let Some(scope) = key.strip_suffix("/day") else { return false };
    let shown = ghost_domain::text::clip(scope, 60);
    let hint =
        format!("write `usd_per_day` or `tokens_per_day` under `{shown}`: daily limits are written beside the others");
    field.error("a daily budget is not a scope of its own", hint);
    true
}

/// Reads `budgets`. The fields are kept because the scopes must still be checked.
pub fn all<'n>(map: &Map<'n>) -> Vec<(Field<'n>, Scope, BudgetEntry)> {
    let mut found = Vec::new();
    let Some(budgets) = map.get("budgets").and_then(|field| field.map_of("{ world: { tokens: 5_000_000 } }")) else {
        return found;
    };
    if let Some(field) = budgets.get("world")
        && let Some(limits) = one(&field)
    {
        found.push((field, Scope::World, limits));
    }
    for (key, field) in budgets.get("team").map(|field| field.entries()).unwrap_or_default() {
        if !is_daily_scope(&key.text, &field)
            && let Some(limits) = one(&field)
        {
            found.push((field, Scope::Team(key.text.clone()), limits));
        }
    }
    for (key, field) in budgets.get("agent").map(|field| field.entries()).unwrap_or_default() {
        match key.text.parse() {
            _ if is_daily_scope(&key.text, &field) => {}
            Ok(id) => found.extend(one(&field).map(|limits| (field, Scope::Agent(id), limits))),
            Err(refusal) => field.refused(refusal, "write the id of an agent"),
        }
    }
    budgets.finish(&SCOPES_ELSEWHERE);
    found
}

#[cfg(test)]
mod tests {
    use crate::reader::problems_of;

    /// The problems of a file with these budgets.
    fn budget_problems(budgets: &str) -> String {
        problems_of(&format!("budgets: {budgets}\n"), |map| drop(super::all(map)))
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
