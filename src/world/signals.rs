//! Repairs the effects of a signal that the signal router could not deliver. The signal's content
//! is lost, so all records that a signal could have changed are read from the store.
//!
//! The repair must never run while the signal router works, because it reads every agent's record.

use std::sync::Arc;

use ghost_domain::ports::Signal;
use ghost_domain::{AgentStatus, Desired, Refusal};

use crate::loops::SIGNAL_ROUTER;
use crate::pause::{PAUSED, agents_with_work};
use crate::team_msg::TeamMsg;
use crate::tree::Tree;

/// Wakes agents that wait for a place. Returns the next failure of the signal router. If this is a restart (`again`),
/// repairs first.
pub(crate) async fn rounds(tree: Arc<Tree>, again: bool) -> Result<(), String> {
    if again {
        repair(&tree).await.map_err(|refusal| refusal.to_string())?;
        tree.loops.round(SIGNAL_ROUTER);
    }
    loop {
        tokio::select! {
            biased;
            why = tree.signal_router.failure() => return Err(why),
            () = tree.directory.places_changed() => tree.signal_router.wake_waiting(),
        }
    }
}

/// Repairs the effects of every possible lost signal.
async fn repair(tree: &Tree) -> Result<(), Refusal> {
    let store = &tree.engine.services.store;
    let records = store.read(|r| r.agent_list(false)).await.map_err(Refusal::from)?;
    for agent in records {
        let known = tree.directory.card(&agent.agent_id);
        let under_way = agent.status == AgentStatus::Stopping && agent.desired == Desired::Stopped;
        if under_way || known.is_none_or(|card| card.status != agent.status) {
            let team = agent.team.as_deref().map(Arc::from);
            if let Some(supervisor) = tree.signal_router.supervisor(team.as_ref()) {
                // If this supervisor is dead, the next one reads every record.
                drop(supervisor.cast(TeamMsg::Reconcile(agent.agent_id)));
            }
        }
    }
    // Sent in a commit, so that it has a defined order among other changes of the pause.
    let resent = store.write(|w| {
        let paused = w.meta_get(PAUSED)?.as_deref() == Some("1");
        w.signal(Signal::Paused(paused));
        Ok::<_, Refusal>(())
    });
    resent.await?;
    for agent_id in agents_with_work(store).await? {
        tree.signal_router.force_wake(&agent_id);
    }
    tree.signal_router.notify_all();
    Ok(())
}
