//! Checks whether the world knows a root. No table lists all roots, so a root is known by the records
//! that carry it.
//!
//! The check must never run on a frequent path. It reads the pending messages of all agents.

use ghost_domain::{Refusal, RootId, Scope};
use ghost_store::Tx;
use ghost_store::tables::{TaskFilter, TurnFilter, UsageFilter};
use ghost_world::World;

use super::outcome::Result;

/// Refuses a root that no record carries: no account, tally, usage, job, turn, task or pending
/// message.
pub async fn root_named(world: &World, root_id: RootId) -> Result<()> {
    if world.ctx().jobs().contains(&root_id) {
        return Ok(());
    }
    let inbox_max = world.ctx().limits().inbox_max;
    world.store().read(move |r| check(r, root_id, inbox_max)).await
}

fn check(r: &mut Tx, root_id: RootId, inbox_max: u32) -> Result<()> {
    let usage = UsageFilter { root_id: Some(root_id), ..UsageFilter::default() };
    let turns = TurnFilter { root_id: Some(root_id), limit: 1, ..TurnFilter::default() };
    let tasks = TaskFilter { root_id: Some(root_id), limit: 1, ..TaskFilter::default() };
    if r.budget_get(&Scope::Root(root_id))?.is_some()
        || r.root_get(root_id)?.is_some()
        || !r.usage_sum(&usage)?.is_empty()
        || !r.turn_list(&turns)?.is_empty()
        || !r.task_list(&tasks)?.is_empty()
    {
        return Ok(());
    }
    for agent in r.agent_list(false)? {
        if r.inbox_depth(&agent.agent_id)? > 0
            && r.inbox_pending(&agent.agent_id, inbox_max)?.iter().any(|mail| mail.root_id == root_id)
        {
            return Ok(());
        }
    }
    Err(Refusal::not_found("root", &root_id.to_string(), None)
        .hint("`ghostctl --json turn list` and `ghostctl --json send` show the root of each piece of work"))
}
