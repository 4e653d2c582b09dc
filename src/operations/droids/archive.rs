//! Droids that ended some time ago (DROID-16).

use crate::agents::delete_because;
use crate::prelude::*;

/// Deletes the agents of droids that ended some time ago (DROID-16). Their records and files stay. Returns how many.
/// The next round tries again what the store refused.
pub async fn archive(store: &Store, ctx: &Context, stopped: Vec<AgentId>) -> usize {
    let before = ctx.now().minus(Limits::seconds(ctx.limits().droid_archive_seconds));
    let mut archived = 0;
    for droid_id in stopped {
        let ctx = ctx.clone();
        let gone = store.write(move |w| {
            let droid = w.droid_get(&droid_id)?;
            // A record that is gone was old enough to be deleted.
            if droid.is_some_and(|droid| droid.ended_at.is_none_or(|at| at > before)) {
                return Ok(false);
            }
            let agent = w.agent_get(&droid_id)?;
            let is_done = agent.is_some_and(|agent| {
                agent.kind == AgentKind::Droid && agent.status == AgentStatus::Stopped && !agent.is_deleted()
            });
            if is_done {
                delete_because(w, &ctx, &Party::System, &droid_id, Some("it ended some time ago"))?;
            }
            Ok::<_, Refusal>(is_done)
        });
        match gone.await {
            Ok(is_gone) => archived += usize::from(is_gone),
            Err(refusal) => tracing::warn!(%refusal, "the agent of an ended droid could not be deleted"),
        }
    }
    archived
}
