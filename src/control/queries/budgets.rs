//! Queries about budgets and usage.

use ghost_domain::usage::UsageSum;
use ghost_domain::{Budget, Refusal, Scope, ScopeSort};
use ghost_store::tables::{BudgetFilter, UsageFilter};
use ghost_world::World;

use super::outcome::Result;
use super::pages::Page;
use crate::convert::input::bad_cursor;

/// Budgets in the order of their scopes' text. Roots are listed only if `sort` asks for them.
pub async fn budgets(world: &World, sort: Option<ScopeSort>, cursor: &str, limit: usize) -> Result<Page<Budget>> {
    let after: Option<Scope> =
        if cursor.is_empty() { None } else { Some(cursor.parse().map_err(|_: Refusal| bad_cursor(cursor))?) };
    let mut filter = BudgetFilter { sort, no_roots: sort.is_none(), after, ..BudgetFilter::default() };
    let (now, root_tokens) = (world.ctx().now(), world.ctx().limits().root_tokens_max);
    let found: Result<Vec<Budget>> = world
        .store()
        .read(move |r| {
            Box::pin(async move {
                let mut found = Vec::new();
                // One row more than the page shows whether another page follows.
                while found.len() <= limit {
                    let part = r.budget_list(&filter).await?;
                    let Some(last) = part.last() else { break };
                    filter.after = Some(last.scope.clone());
                    found.extend(part);
                }
                Ok::<_, Refusal>(found)
            })
        })
        .await;
    let mut rows = found?;
    let more = rows.len() > limit;
    rows.truncate(limit);
    let positions: Vec<String> = rows.iter().map(|budget| budget.scope.to_string()).collect();
    let next = positions.last().filter(|_| more).cloned().unwrap_or_default();
    Ok(Page {
        rows: rows.into_iter().map(|budget| budget.at(now).with_default(root_tokens)).collect(),
        positions,
        next,
    })
}

/// Usage sums of ended model calls, ordered by agent and model.
pub async fn usage(world: &World, filter: UsageFilter) -> Result<Vec<UsageSum>> {
    world.store().read(move |r| Box::pin(async move { ghost_rules::budgets::usage(r, &filter).await })).await
}

/// The same, in pages. A `limit` of 0 means no limit.
pub async fn usage_page(world: &World, filter: UsageFilter, cursor: &str, limit: u32) -> Result<Page<UsageSum>> {
    let limit = if limit == 0 { usize::MAX } else { limit as usize };
    // The separator sorts before every character of the parts, so the text has the order of the list.
    Ok(Page::after(usage(world, filter).await?, cursor, limit, |sum| format!("{}\u{1}{}", sum.agent_id, sum.model)))
}
