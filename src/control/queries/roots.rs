//! Checks whether the world knows a root. No table lists all roots, so a root is known by the records
//! that carry it.
//!
//! The check must never run on a frequent path. It reads many rows, though a limited number.

use ghost_domain::{Refusal, RootId, Scope};
use ghost_store::Reads;
use ghost_store::tables::{TaskFilter, TurnFilter, UsageFilter};
use ghost_world::World;

use super::outcome::Result;
use super::pages::WINDOW;

/// Refuses a root that no record carries: no account, tally, usage, job or open turn, none of the
/// newest 1000 turns or the first 1000 tasks, and no pending message.
pub async fn root_named(world: &World, root_id: RootId) -> Result<()> {
    let inbox_max = world.ctx().limits().inbox_max;
    world.store().read(move |r| Box::pin(async move { check(r, root_id, inbox_max).await })).await
}

async fn check(r: &mut dyn Reads, root_id: RootId, inbox_max: u32) -> Result<()> {
    if r.budget_get(&Scope::Root(root_id)).await?.is_some() || r.root_get(root_id).await?.is_some() {
        return Ok(());
    }
    let usage = UsageFilter { root_id: Some(root_id), ..UsageFilter::default() };
    if !r.usage_sum(&usage).await?.is_empty() {
        return Ok(());
    }
    let newest = TurnFilter { limit: WINDOW, ..TurnFilter::default() };
    let mut turns = r.turns_open().await?;
    turns.extend(r.turn_list(&newest).await?);
    let first = TaskFilter { limit: WINDOW, ..TaskFilter::default() };
    if r.job_list().await?.iter().any(|job| job.root_id == root_id)
        || turns.iter().any(|turn| turn.root_id == root_id || turn.other_roots.contains(&root_id))
        || r.task_list(&first).await?.iter().any(|task| task.root_id == root_id)
    {
        return Ok(());
    }
    for agent in r.agent_list(false).await? {
        if r.inbox_depth(&agent.agent_id).await? > 0
            && r.inbox_pending(&agent.agent_id, inbox_max).await?.iter().any(|mail| mail.root_id == root_id)
        {
            return Ok(());
        }
    }
    Err(Refusal::not_found("root", &root_id.to_string(), None)
        .hint("`ghostctl --json turn list` and `ghostctl --json send` show the root of each piece of work"))
}
