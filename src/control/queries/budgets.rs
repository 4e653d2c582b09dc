//! Queries about budgets and usage.

use ghost_domain::usage::UsageSum;
use ghost_domain::{Budget, Refusal, Scope, ScopeSort};
use ghost_store::tables::{BudgetFilter, UsageFilter};
use ghost_world::World;

use super::outcome::{Result, refused};
use super::pages::{Page, one_more};
use crate::convert::input::bad_cursor;

/// Between agent and model in a cursor. It sorts before every character of both, so the text has the order of the list.
const SEPARATOR: char = '\u{1}';

/// Budgets in the order of their scopes' text. Roots are listed only if `sort` asks for them.
pub async fn budgets(world: &World, sort: Option<ScopeSort>, cursor: &str, limit: usize) -> Result<Page<Budget>> {
    let after: Option<Scope> =
        if cursor.is_empty() { None } else { Some(cursor.parse().map_err(|_: Refusal| bad_cursor(cursor))?) };
    let filter =
        BudgetFilter { sort, no_roots: sort.is_none(), after, limit: one_more(limit), ..BudgetFilter::default() };
    let (now, root_tokens) = (world.ctx().now(), world.ctx().limits().root_tokens_max);
    let read = world.store().read(move |r| r.budget_list(&filter));
    let rows: Vec<Budget> = read.await.map_err(refused)?;
    let page = Page::cut(rows, limit, |budget| budget.scope.to_string());
    let rows = page.rows.into_iter().map(|budget| budget.at(now).with_default(root_tokens)).collect();
    Ok(Page { rows, ..page })
}

/// Usage sums of ended model calls, ordered by agent and model.
pub async fn usage(world: &World, filter: UsageFilter) -> Result<Vec<UsageSum>> {
    world.store().read(move |r| ghost_operations::budgets::usage(r, &filter)).await
}

/// The same, in pages. A `limit` of 0 means no limit.
pub async fn usage_page(world: &World, filter: UsageFilter, cursor: &str, limit: u32) -> Result<Page<UsageSum>> {
    let from = cursor.split_once(SEPARATOR).and_then(|(agent_id, _)| agent_id.parse().ok());
    // Each agent of the page has a sum, but that of the cursor may be on the page before, and one shows that more
    // follow.
    let filter = UsageFilter { from, agents_max: if limit == 0 { 0 } else { limit.saturating_add(2) }, ..filter };
    let limit = if limit == 0 { usize::MAX } else { limit as usize };
    let position = |sum: &UsageSum| format!("{}{SEPARATOR}{}", sum.agent_id, sum.model);
    Ok(Page::after(usage(world, filter).await?, cursor, limit, position))
}
