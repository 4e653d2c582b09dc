//! What is remembered of write grants, so that not every write reads the store.
//!
//! It must never outlive a revoke: a signal of the commit empties it, and a read that was under way meanwhile is not
//! kept. Whether a grant has ended is judged at each use.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ghost_domain::{AgentId, Code, Grant, Refusal, Timestamp};
use ghost_operations::Result;
use ghost_store::{Store, StoreError};

/// How long the grants of an agent are remembered.
const KEPT: Duration = Duration::from_secs(30);
/// Agents whose grants are remembered.
const AGENTS_MAX: usize = 10_000;

#[derive(Default)]
struct Remembered {
    /// Changes whenever something is forgotten.
    version: u64,
    agents: BTreeMap<AgentId, (Timestamp, Arc<[Grant]>)>,
}

/// The remembered grants of all agents.
#[derive(Default)]
pub struct GrantCache(Mutex<Remembered>);

impl GrantCache {
    fn lock(&self) -> MutexGuard<'_, Remembered> {
        // A poisoned lock holds at worst fewer entries.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets the grants of an agent, because they have changed.
    pub fn forget(&self, agent_id: &AgentId) {
        let mut all = self.lock();
        all.version = all.version.wrapping_add(1);
        all.agents.remove(agent_id);
    }

    /// Forgets everything, because a change may have been missed.
    pub fn forget_all(&self) {
        let mut all = self.lock();
        all.version = all.version.wrapping_add(1);
        all.agents.clear();
    }

    /// The grants of an agent. Some may have ended since they were read.
    ///
    /// # Errors
    /// `Unavailable` if the store cannot be read: then nothing is granted.
    pub(crate) async fn of(&self, store: &Store, agent_id: &AgentId, now: Timestamp) -> Result<Arc<[Grant]>> {
        let version = {
            let all = self.lock();
            if let Some((read_at, grants)) = all.agents.get(agent_id)
                && now.since(*read_at) < KEPT
                && now >= *read_at
            {
                return Ok(Arc::clone(grants));
            }
            all.version
        };
        let of = agent_id.clone();
        let read = store.read(move |r| r.grants_live(&of, now));
        let grants: Arc<[Grant]> = read
            .await
            .map_err(|error: StoreError| {
                let what = format!("the write grants of {agent_id} cannot be read: {error}");
                let hint = "nothing was changed; what only a grant allows is refused until the store answers again";
                // The details say that it is the store.
                Refusal { code: Code::Unavailable, message: what, hint: Some(hint.to_owned()), ..error.into() }
            })?
            .into();
        let mut all = self.lock();
        if all.version == version {
            if all.agents.len() >= AGENTS_MAX {
                all.agents.clear();
            }
            all.agents.insert(agent_id.clone(), (now, Arc::clone(&grants)));
        }
        Ok(grants)
    }
}
