//! `budgets` and an agent's own `budget`: the limits of each scope, in all and for one day; and amounts of dollars.
//!
//! Must never: take a limit for another scope, or for another time, than it was written for.

use ghost_domain::{BudgetLimits, Money, Scope};

use crate::reader::{Field, Map};

/// Most tokens that a limit may name.
const TOKENS_MAX: u64 = 1_000_000_000_000_000;
/// What to do with a limit that is left empty.
const UNLIMITED: &str = "leave the key out for no limit";
/// A budget that would do, for hints.
const SUCH_AS: &str = "{ tokens: 5000 } or { usd_per_day: 2.50 }";

/// Keys that people write into a budget, and how they are called there.
const LIMITS_ELSEWHERE: [(&str, &str); 13] = [
    ("daily_cost_usd", "write `usd_per_day`; `daily_cost_usd` belongs under `## Limits` of an archetype's config.md"),
    ("daily_usd", "write `usd_per_day`"),
    ("usd_daily", "write `usd_per_day`"),
    ("daily_tokens", "write `tokens_per_day`"),
    ("tokens_daily", "write `tokens_per_day`"),
    ("day", "write `tokens_per_day` and `usd_per_day`: limits of a day stand beside the others"),
    ("per_day", "write `tokens_per_day` and `usd_per_day`: limits of a day stand beside the others"),
    ("daily", "write `tokens_per_day` and `usd_per_day`: limits of a day stand beside the others"),
    ("cost_usd", "write `usd`"),
    ("cost", "write `usd`"),
    ("money", "write `usd`"),
    ("dollars", "write `usd`"),
    ("max_tokens", "write `tokens`; how long one answer may be is `max_tokens` under `overrides` or `## LLM`"),
];

/// Keys that people write beside the scopes, and where their limits stand.
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

/// Keys of budgets that people write at the top of the file.
pub const AT_THE_TOP: [(&str, &str); 5] = [
    ("budget", "write `budgets: { world: { … } }`; an agent's own `budget` stands in its entry of `agents`"),
    ("daily_cost_usd", "write `budgets: { world: { usd_per_day: … } }`"),
    ("usd_per_day", "write `budgets: { world: { usd_per_day: … } }`"),
    ("tokens_per_day", "write `budgets: { world: { tokens_per_day: … } }`"),
    ("daily_tokens", "write `budgets: { world: { tokens_per_day: … } }`"),
];

/// The limits of one scope: in all, and for one day.
#[derive(Clone, Copy, Debug, Default)]
pub struct BudgetEntry {
    /// `tokens` and `usd`; `None` if it names neither, and a day's are named.
    pub whole: Option<BudgetLimits>,
    /// `tokens_per_day` and `usd_per_day`; `None` if it names neither.
    pub day: Option<BudgetLimits>,
}

/// An amount of dollars; `left_out` is what to do to write none.
pub fn money(field: &Field<'_>, left_out: &str) -> Option<Money> {
    let usd = field.number_of(0.0..=1e9, "US dollars such as 2.50", left_out)?;
    Money::from_usd(usd).map_err(|refusal| field.refused(refusal, "write US dollars such as 2.50")).ok()
}

/// A limit of dollars.
pub fn money_limit(field: &Field<'_>) -> Option<Money> {
    money(field, UNLIMITED)
}

/// Reads one budget: `tokens` and `usd`, and the same per day.
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

/// Says where the limits of a day stand, if `key` was meant to be a scope with them.
fn for_a_day(key: &str, field: &Field<'_>) -> bool {
    let Some(scope) = key.strip_suffix("/day") else { return false };
    let shown = ghost_domain::text::clip(scope, 60);
    let hint =
        format!("write `usd_per_day` or `tokens_per_day` under `{shown}`: limits of a day stand beside the others");
    field.error("a budget of a day is no scope of its own here", hint);
    true
}

/// Reads `budgets`, with the fields of scopes that must exist.
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
        if !for_a_day(&key.text, &field)
            && let Some(limits) = one(&field)
        {
            found.push((field, Scope::Team(key.text.clone()), limits));
        }
    }
    for (key, field) in budgets.get("agent").map(|field| field.entries()).unwrap_or_default() {
        match key.text.parse() {
            _ if for_a_day(&key.text, &field) => {}
            Ok(id) => found.extend(one(&field).map(|limits| (field, Scope::Agent(id), limits))),
            Err(refusal) => field.refused(refusal, "write the id of an agent"),
        }
    }
    budgets.finish(&SCOPES_ELSEWHERE);
    found
}

#[cfg(test)]
mod tests {
    use crate::reader::told;

    /// What is told of a file with these budgets.
    fn said(budgets: &str) -> String {
        told(&format!("budgets: {budgets}\n"), |map| drop(super::all(map)))
    }

    #[test]
    fn a_limit_that_cannot_be_read_says_what_to_write() {
        let tokens = "write a whole number of tokens such as 5000";
        for (budgets, path, expected) in [
            (
                "{ world: { usd: '$5' } }",
                "world.usd",
                "`$5` is not a number\n  hint: write US dollars such as 2.50, without",
            ),
            ("{ world: { usd: '5' } }", "world.usd", "`5` is not a number\n  hint: write it without quotes"),
            (
                "{ world: { usd: }}",
                "world.usd",
                "nothing is not a number\n  hint: write US dollars such as 2.50, or leave the key out for no limit",
            ),
            ("{ world: { usd: -1 } }", "world.usd", "-1 is not within 0 to 1000000000\n  hint: write at least 0"),
            (
                "{ world: { tokens: '5000' } }",
                "world.tokens",
                "`5000` is not a whole number\n  hint: write it without quotes",
            ),
            (
                "{ world: { tokens: ~ } }",
                "world.tokens",
                &format!("nothing is not a whole number\n  hint: {tokens}, or leave the key out for no limit"),
            ),
            ("{ world: { tokens: 5k } }", "world.tokens", &format!("`5k` is not a whole number\n  hint: {tokens}")),
            ("{ world: '5000' }", "world", "`5000` is not a map\n  hint: write such as { tokens: 5000 }"),
            ("5000", "", "`5000` is not a map\n  hint: write such as { world: { tokens"),
            ("{ agent: { ada: [1] } }", "agent.ada", "a list is not a map\n  hint: write such as { tokens: 5000 }"),
        ] {
            let path = if path.is_empty() { "budgets".to_owned() } else { format!("budgets.{path}") };
            let found = said(budgets);
            assert!(found.starts_with(&format!("error: w.yaml:1: {path}: {expected}")), "{budgets}: {found}");
            assert_eq!(found.matches("error:").count(), 1, "{budgets}: {found}");
        }
    }

    #[test]
    fn keys_that_were_meant_for_a_day_are_told_where_they_stand() {
        for (budgets, hint) in [
            ("{ world/day: { usd: 5 } }", "write `world: { usd_per_day: … }`"),
            ("{ tokens_per_day: 5 }", "say whose: `world: { tokens_per_day: … }`"),
            ("{ daily_cost_usd: 5 }", "say whose and write `usd_per_day`"),
            ("{ world: { daily_cost_usd: 5 } }", "write `usd_per_day`;"),
            ("{ world: { day: { usd: 5 } } }", "write `tokens_per_day` and `usd_per_day`"),
            ("{ world: { usd_per_dya: 5 } }", "did you mean `usd_per_day`?"),
            ("{ team: { desk/day: { usd: 5 } } }", "write `usd_per_day` or `tokens_per_day` under `desk`"),
            ("{ agent: { ada/day: { usd: 5 } } }", "write `usd_per_day` or `tokens_per_day` under `ada`"),
            ("{ agents: { ada: { usd: 5 } } }", "did you mean `agent`?"),
        ] {
            let found = said(budgets);
            assert!(found.contains(&format!("\n  hint: {hint}")), "{budgets}: {found}");
            assert_eq!(found.matches("error:").count(), 1, "{budgets}: {found}");
        }
    }
}
