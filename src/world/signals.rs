//! Brings the switchboard back after a signal that it could not pass on: what that signal said is lost, so everything that
//! it could have said is looked up in the store.
//!
//! Must never: run beside a switchboard that is well; it costs a look at every record.

use std::sync::Arc;

use ghost_domain::ports::Signal;
use ghost_domain::{AgentStatus, Desired, Refusal};

use crate::loops::SIGNAL_ROUTER;
use crate::pause::{PAUSED, waiting};
use crate::team_msg::TeamMsg;
use crate::tree::Tree;

/// Waits for the switchboard's next trouble, which is its end; it begins `again` after one.
pub(crate) async fn rounds(tree: Arc<Tree>, again: bool) -> Result<(), String> {
    if again {
        make_good(&tree).await.map_err(|refusal| refusal.to_string())?;
        tree.loops.round(SIGNAL_ROUTER);
    }
    Err(tree.signal_router.trouble().await)
}

/// Does what any lost signal would have done.
async fn make_good(tree: &Tree) -> Result<(), Refusal> {
    let store = &tree.engine.services.store;
    let records = store.read(|r| Box::pin(async move { r.agent_list(false).await })).await.map_err(Refusal::from)?;
    for agent in records {
        let known = tree.directory.card(&agent.agent_id);
        let under_way = agent.status == AgentStatus::Stopping && agent.desired == Desired::Stopped;
        if under_way || known.is_none_or(|card| card.status != agent.status) {
            let team = agent.team.as_deref().map(Arc::from);
            if let Some(supervisor) = tree.signal_router.supervisor(team.as_ref()) {
                // One that is dead has a successor, which looks at every record.
                drop(supervisor.cast(TeamMsg::Reconcile(agent.agent_id)));
            }
        }
    }
    // Said again by a commit, so that it is in order with any other.
    let said = store.write(|w| {
        Box::pin(async move {
            let paused = w.meta_get(PAUSED).await?.as_deref() == Some("1");
            w.signal(Signal::Paused(paused));
            Ok::<_, Refusal>(())
        })
    });
    said.await?;
    for agent_id in waiting(store).await? {
        tree.signal_router.wake_surely(&agent_id);
    }
    tree.signal_router.ring_all();
    Ok(())
}
