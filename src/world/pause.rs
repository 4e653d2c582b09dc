//! What a pause leaves: the fact that the world is paused, and the agents that have something to do when it is over.

use std::collections::BTreeMap;

use ghost_domain::{AgentId, Refusal};
pub(crate) use ghost_rules::PAUSED;
use ghost_store::Store;

/// Agents with an open turn or mail that wakes.
pub(crate) async fn waiting(store: &Store) -> Result<Vec<AgentId>, Refusal> {
    store
        .read(|r| {
            Box::pin(async move {
                let mut agents = BTreeMap::new();
                for turn in r.turns_open().await? {
                    agents.insert(turn.agent_id, ());
                }
                for agent_id in r.inbox_waiting().await? {
                    agents.insert(agent_id, ());
                }
                Ok::<_, ghost_store::StoreError>(agents.into_keys().collect())
            })
        })
        .await
        .map_err(Refusal::from)
}
