//! Whether the world knows a root. No table holds every root: one is known by what follows from it.
//!
//! Must never: be asked on a path that is walked often. It looks at a bounded number of rows, but at many.

use std::collections::BTreeSet;

use ghost_domain::text::nearest;
use ghost_domain::{Refusal, RootId, Scope};
use ghost_store::Reads;
use ghost_store::tables::{TaskFilter, TurnFilter, UsageFilter};
use ghost_world::World;

use super::outcome::Result;
use super::pages::WINDOW;

/// Refuses a root that nothing bears: no account, tally, usage, job or open turn, none of the newest thousand turns and of
/// the first thousand tasks, and no mail that waits in an inbox.
pub async fn root_named(world: &World, root_id: RootId) -> Result<()> {
    let inbox_max = world.ctx().limits().inbox_max;
    world.store().read(move |r| Box::pin(async move { look(r, root_id, inbox_max).await })).await
}

async fn look(r: &mut dyn Reads, root_id: RootId, inbox_max: u32) -> Result<()> {
    if r.budget_get(&Scope::Root(root_id)).await?.is_some() || r.root_get(root_id).await?.is_some() {
        return Ok(());
    }
    let usage = UsageFilter { root_id: Some(root_id), ..UsageFilter::default() };
    if !r.usage_sum(&usage).await?.is_empty() {
        return Ok(());
    }
    let mut known: BTreeSet<RootId> = r.job_list().await?.into_iter().map(|job| job.root_id).collect();
    let newest = TurnFilter { limit: WINDOW, ..TurnFilter::default() };
    for turn in r.turns_open().await?.into_iter().chain(r.turn_list(&newest).await?) {
        known.insert(turn.root_id);
        known.extend(turn.other_roots);
    }
    let first = TaskFilter { limit: WINDOW, ..TaskFilter::default() };
    known.extend(r.task_list(&first).await?.into_iter().map(|task| task.root_id));
    if known.contains(&root_id) {
        return Ok(());
    }
    for agent in r.agent_list(false).await? {
        if r.inbox_depth(&agent.agent_id).await? == 0 {
            continue;
        }
        let waiting = r.inbox_pending(&agent.agent_id, inbox_max).await?;
        if waiting.iter().any(|mail| mail.root_id == root_id) {
            return Ok(());
        }
        known.extend(waiting.into_iter().map(|mail| mail.root_id));
    }
    let names: Vec<String> = known.iter().map(ToString::to_string).collect();
    let name = root_id.to_string();
    let near = nearest(&name, names.iter().map(String::as_str));
    let refusal = Refusal::not_found("root", &name, near);
    Err(match near {
        Some(_) => refusal,
        None => refusal.hint("`ghostctl --json turn list` and `ghostctl --json send` say which root work has"),
    })
}
