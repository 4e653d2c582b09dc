//! Budgets and what was used of them, as the services show them.

use ghost_domain::usage::UsageSum;
use ghost_domain::{Budget, Refusal, Scope};
use ghost_store::tables::UsageFilter;
use ghost_world::World;

use super::{Page, Result, WINDOW};
use crate::convert::input::bad_cursor;

/// Budgets in order of scope text. `sort` is `world`, `team`, `agent`, `root` or `day`; without it roots are left out. Besides
/// them, whether the store holds more than it gives at once, so that the list ends before they do.
pub async fn budgets(
    world: &World,
    sort: Option<&'static str>,
    cursor: &str,
    limit: usize,
) -> Result<(Page<Budget>, bool)> {
    let after: Option<Scope> =
        if cursor.is_empty() { None } else { Some(cursor.parse().map_err(|_: Refusal| bad_cursor(cursor))?) };
    let teams: Vec<Scope> = world.plan().teams.iter().map(|team| Scope::Team(team.name.clone())).collect();
    let now = world.cx().now();
    let (rows, full): (Vec<Budget>, bool) = world
        .store()
        .read(move |r| {
            Box::pin(async move {
                let mut rows = ghost_commons::budgets::list(r, now, true).await?;
                let full = rows.len() >= WINDOW as usize;
                // A list that is full may have ended before the scopes that come last.
                for scope in std::iter::once(Scope::World).chain(teams) {
                    if !rows.iter().any(|budget| budget.scope == scope) {
                        rows.extend(r.budget_get(&scope).await?);
                    }
                }
                Ok::<_, Refusal>((rows, full))
            })
        })
        .await?;
    let sort_of = |scope: &Scope| match scope {
        Scope::World => "world",
        Scope::Team(_) => "team",
        Scope::Agent(_) => "agent",
        Scope::Root(_) => "root",
        Scope::Day(_) => "day",
    };
    let wanted = |scope: &Scope| sort.map_or(sort_of(scope) != "root", |sort| sort_of(scope) == sort);
    let mut keyed: Vec<(String, Budget)> = rows
        .into_iter()
        .filter(|budget| wanted(&budget.scope))
        .map(|budget| (budget.scope.to_string(), budget))
        .filter(|(key, _)| after.as_ref().is_none_or(|after| *key > after.to_string()))
        .collect();
    keyed.sort_by(|(a, _), (b, _)| a.cmp(b));
    let more = keyed.len() > limit;
    keyed.truncate(limit);
    let next = keyed.last().filter(|_| more).map(|(key, _)| key.clone()).unwrap_or_default();
    let truncated = full && !more;
    Ok((Page { rows: keyed.into_iter().map(|(_, budget)| budget).collect(), next }, truncated))
}

/// Sums of settled model calls.
pub async fn usage(world: &World, filter: UsageFilter) -> Result<Vec<UsageSum>> {
    world.store().read(move |r| Box::pin(async move { ghost_commons::budgets::usage(r, &filter).await })).await
}
