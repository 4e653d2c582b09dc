//! The `Budgets` service.

use ghost_domain::text::nearest;
use ghost_domain::usage::UsageSum;
use ghost_domain::{Budget, Money, Scope};
use ghost_operations::budgets::{self as rules, NewLimits};
use ghost_proto::v1;
use ghost_store::Tx;
use ghost_store::tables::{BudgetFilter, UsageFilter};

use crate::control::Control;
use crate::convert::{self, input};
use crate::dispatch::{Mutation, Query, Result};
use crate::queries::{self, Page};

/// Largest limit. Sums of larger values would not be exact.
const LIMIT_MAX: u64 = 1_000_000_000_000_000;

/// Between agent and model in a cursor. It sorts before every character of both, so the text has the order of the list.
const SEPARATOR: char = '\u{1}';

/// One limit of a request: `Some(Some(_))` sets it, `Some(None)` removes it, `None` leaves it.
fn limit(field: &str, value: Option<u64>, clear: bool) -> Result<Option<Option<u64>>> {
    match (value, clear) {
        (Some(_), true) => Err(input::bad(field, "is both set and cleared").hint("give one of the two")),
        (Some(value), false) if value > LIMIT_MAX => {
            Err(input::bad(field, format!("is {value}; the maximum is {LIMIT_MAX}"))
                .hint("give a smaller limit, or none"))
        }
        (Some(value), false) => Ok(Some(Some(value))),
        (None, true) => Ok(Some(None)),
        (None, false) => Ok(None),
    }
}

fn limits(request: &v1::SetBudgetRequest) -> Result<NewLimits> {
    let money = limit("limit_micros", request.limit_micros, request.clear_micros)?;
    Ok(NewLimits {
        tokens: limit("limit_tokens", request.limit_tokens, request.clear_tokens)?,
        money: money.map(|money| money.map(Money)),
    })
}

pub(crate) async fn list(cx: Query, request: v1::ListBudgetsRequest) -> Result<v1::ListBudgetsResponse> {
    let sort = input::parsed_if("sort", request.sort.as_deref())?;
    let after: Option<Scope> = input::after("budgets", &request.cursor)?;
    // Roots are listed only if they are asked for.
    let filter = BudgetFilter { sort, no_roots: sort.is_none(), after, ..BudgetFilter::default() };
    let read = move |r: &mut Tx, most| r.budget_list(&BudgetFilter { limit: most, ..filter });
    let page = queries::page(&cx.world, request.limit, read, |budget: &Budget| budget.scope.to_string()).await?;
    let (now, root_tokens) = (cx.world.ctx().now(), cx.world.ctx().limits().root_tokens_max);
    let (budgets, next_cursor) =
        page.sealed("budgets", |budget| convert::budget(&budget.clone().at(now).with_default(root_tokens)));
    Ok(v1::ListBudgetsResponse { budgets, next_cursor })
}

/// Parses a scope. The refusal suggests the nearest existing scope.
fn scope(cx: &Control, text: &str) -> Result<Scope> {
    input::parsed("scope", text).map_err(|refusal| match near(cx, text) {
        Some(near) => refusal.hint(format!("did you mean `{near}`?")),
        None => refusal,
    })
}

fn near(cx: &Control, text: &str) -> Option<String> {
    let world = &cx.world;
    let teams = world.plan();
    let teams = teams.teams.iter().map(|team| Scope::Team(team.name.clone()));
    let agents = world.directory().cards();
    let agents = agents.into_iter().map(|card| Scope::Agent(card.agent_id));
    let scopes = std::iter::once(Scope::World).chain(teams).chain(agents);
    let all: Vec<String> =
        scopes.flat_map(|scope| [scope.daily(), Some(scope)]).flatten().map(|scope| scope.to_string()).collect();
    nearest(text, all.iter().map(String::as_str)).map(str::to_owned)
}

/// Refuses an unknown root. The rule that sets limits checks agents and teams itself; looking for a
/// root reads many rows, so it happens here, before the transaction. A repeated request gets its
/// stored answer even if the root is gone.
async fn check_root(cx: &Mutation, scope: &Scope) -> Result<()> {
    match scope {
        Scope::Root(root_id) if !cx.is_answered().await? => queries::root_named(&cx.world, *root_id).await,
        _ => Ok(()),
    }
}

/// Usage sums of ended model calls, ordered by agent and model.
pub(super) async fn usage_sums(cx: &Control, filter: UsageFilter) -> Result<Vec<UsageSum>> {
    cx.world.store().read(move |r| rules::usage(r, &filter)).await
}

pub(crate) async fn usage(cx: Query, request: v1::UsageRequest) -> Result<v1::UsageResponse> {
    let agent_id = queries::agent_in_filter(&cx.world, "agent_id", request.agent_id.as_deref()).await?;
    let since = input::instant("since_at_ms", request.since_at_ms)?;
    let filter = UsageFilter { agent_id, since, ..UsageFilter::default() };
    let cursor = input::unseal("usage", &request.cursor)?;
    let from = cursor.split_once(SEPARATOR).and_then(|(agent_id, _)| agent_id.parse().ok());
    let limit = request.limit;
    // Each agent of the page has a sum, but that of the cursor may be on the page before, and one shows that more follow.
    let filter = UsageFilter { from, agents_max: if limit == 0 { 0 } else { limit.saturating_add(2) }, ..filter };
    let limit = if limit == 0 { usize::MAX } else { limit as usize };
    let position = |sum: &UsageSum| format!("{}{SEPARATOR}{}", sum.agent_id, sum.model);
    let page = Page::after(usage_sums(&cx, filter).await?, cursor, limit, position);
    let (sums, next_cursor) = page.sealed("usage", convert::usage_sum);
    Ok(v1::UsageResponse { sums, next_cursor })
}

pub(crate) async fn set(cx: Mutation, request: v1::SetBudgetRequest) -> Result<v1::Budget> {
    let scope = scope(&cx, &request.scope)?;
    let limits = limits(&request)?;
    check_root(&cx, &scope).await?;
    let budget = cx.once(move |w, by| rules::set(w, by, &scope, limits)).await?;
    let root_tokens = cx.world.ctx().limits().root_tokens_max;
    Ok(convert::budget(&budget.with_default(root_tokens)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TestControl;

    #[tokio::test]
    async fn a_misspelled_scope_gets_the_nearest_one_as_a_hint() {
        let test = TestControl::with("teams: [{ name: desk, agents: [ben] }]\n").await;
        for (typo, near) in [
            ("wrold", "world"),
            ("wrold/day", "world/day"),
            ("world/dya", "world/day"),
            ("agent:adda/dya", "agent:ada/day"),
            ("agnet:ada", "agent:ada"),
            ("taem:desk", "team:desk"),
        ] {
            let refusal = scope(&test.control, typo).unwrap_err();
            let wrong = typo.strip_suffix("/day").unwrap_or(typo);
            assert!(refusal.message.starts_with("scope: ") && refusal.message.contains(&format!("`{wrong}`")));
            assert!(refusal.hint.unwrap().contains(&format!("`{near}`")));
        }
        // No scope is near: the hint explains what a scope is.
        let hint = scope(&test.control, "everything").unwrap_err().hint.unwrap();
        assert!(hint.contains("world, team:<name>"), "{hint}");
    }
}
