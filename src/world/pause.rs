//! The pause of a world: its flag in the store, and the agents that have work when the pause ends.

use std::collections::BTreeMap;

use ghost_domain::{AgentId, Refusal};
pub(crate) use ghost_operations::PAUSED;
use ghost_store::Store;

/// Agents with an open turn or with mail that wakes them.
pub(crate) async fn agents_with_work(store: &Store) -> Result<Vec<AgentId>, Refusal> {
    store
        .read(|r| {
            let mut agents = BTreeMap::new();
            for turn in r.turns_open()? {
                agents.insert(turn.agent_id, ());
            }
            for agent_id in r.inbox_waiting()? {
                agents.insert(agent_id, ());
            }
            Ok::<_, ghost_store::StoreError>(agents.into_keys().collect())
        })
        .await
        .map_err(Refusal::from)
}
