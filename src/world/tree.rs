//! The shared state of a world's supervisors and loops, and the repair after a signal that the signal router could not
//! deliver. The signal's content is lost, so all records that a signal could have changed are read from the store.

use std::collections::BTreeSet;
use std::sync::Arc;

use ghost_agent::Engine;
use ghost_domain::ports::Signal;
use ghost_domain::{AgentId, AgentStatus, Desired, Refusal};
pub(crate) use ghost_operations::PAUSED;
use ghost_store::Store;

use crate::directory::Directory;
use crate::loops::{Loops, SIGNAL_ROUTER};
use crate::signal_router::{LifecycleStep, SignalRouter};

/// Shared by all supervisors and loops of a world. It has no behaviour.
pub(crate) struct Tree {
    pub(crate) engine: Arc<Engine>,
    pub(crate) directory: Arc<Directory>,
    pub(crate) signal_router: Arc<SignalRouter>,
    pub(crate) loops: Arc<Loops>,
}

/// Agents with an open turn or with mail that wakes them.
pub(crate) async fn agents_with_work(store: &Store) -> Result<Vec<AgentId>, Refusal> {
    store
        .read(|r| {
            let mut agents: BTreeSet<AgentId> = r.turns_open()?.into_iter().map(|turn| turn.agent_id).collect();
            agents.extend(r.inbox_waiting()?);
            Ok::<_, ghost_store::StoreError>(agents.into_iter().collect())
        })
        .await
        .map_err(Refusal::from)
}

/// Wakes agents that wait for a place. Returns the next failure of the signal router. If this is a restart (`again`),
/// repairs first.
pub(crate) async fn route_signals(tree: Arc<Tree>, again: bool) -> Result<(), String> {
    if again {
        repair(&tree).await.map_err(|refusal| refusal.to_string())?;
        tree.loops.round(SIGNAL_ROUTER);
    }
    loop {
        tokio::select! {
            biased;
            why = tree.signal_router.failure() => return Err(why),
            () = tree.directory.places_changed.notified() => tree.signal_router.wake_waiting(),
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
            tree.signal_router.order(team.as_ref(), agent.agent_id, LifecycleStep::Reconcile);
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
