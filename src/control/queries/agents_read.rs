//! Caches agents that were read recently. Every change to an agent writes an event in the same
//! transaction. So while the feed has no new event the cache is valid, and reads of a quiet world do
//! not reach the store.
//!
//! The cache must never return data from before a change that the caller has seen committed.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ghost_domain::{Agent, AgentId, Refusal};
use ghost_world::{AgentCard, World};

use super::agents::{self, AtWork};

/// Largest number of cached agents.
const AGENTS_MAX: usize = 4_096;

/// An agent with its current work, model and tools.
pub(crate) struct AgentDetails {
    pub(crate) work: AtWork,
    /// The model of its next turn.
    pub(crate) model: Option<String>,
    /// Number of its tools.
    pub(crate) tools: u32,
    /// The access mode that decides its tools.
    pub(crate) access: Option<&'static str>,
    /// Why the agent cannot run, and how to correct it.
    pub(crate) cannot_run: Option<String>,
}

#[derive(Default)]
struct Cache {
    /// Sequence number of the newest event when the data was read.
    seq: i64,
    records: BTreeMap<AgentId, Arc<Agent>>,
    details: BTreeMap<AgentId, Arc<AgentDetails>>,
}

/// Agents that were read recently; see the module.
#[derive(Default)]
pub(crate) struct AgentsRead {
    cache: Mutex<Cache>,
}

impl AgentsRead {
    /// The cache, emptied if the feed has moved past the cached position.
    fn at(&self, seq: i64) -> MutexGuard<'_, Cache> {
        // A change under the lock is never left half-done, so a poisoned lock is safe to use.
        let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        // A slow caller may come with an older position; newer data stays.
        if cache.seq < seq {
            *cache = Cache { seq, ..Cache::default() };
        }
        cache
    }

    /// The rows of these agents, in the order of the cards. `None` for a deleted agent.
    pub(crate) async fn records(&self, world: &World, cards: &[AgentCard]) -> Result<Vec<Option<Arc<Agent>>>, Refusal> {
        let seq = world.store().last_seq();
        let mut found: Vec<Option<Arc<Agent>>> = {
            let cache = self.at(seq);
            cards.iter().map(|card| cache.records.get(&card.agent_id).cloned()).collect()
        };
        let missing: Vec<AgentId> = cards
            .iter()
            .zip(&found)
            .filter(|(_, record)| record.is_none())
            .map(|(card, _)| card.agent_id.clone())
            .collect();
        if missing.is_empty() {
            return Ok(found);
        }
        let records: BTreeMap<AgentId, Arc<Agent>> = agents::agents(world, missing)
            .await?
            .into_iter()
            .filter(|agent| !agent.is_deleted())
            .map(|agent| (agent.agent_id.clone(), Arc::new(agent)))
            .collect();
        for (card, record) in cards.iter().zip(&mut found) {
            if record.is_none() {
                *record = records.get(&card.agent_id).cloned();
            }
        }
        let mut cache = self.at(seq);
        if cache.seq == seq && cache.records.len() + records.len() <= AGENTS_MAX {
            cache.records.extend(records);
        }
        Ok(found)
    }

    /// One agent with its current work.
    pub(crate) async fn at_work(&self, world: &World, agent_id: &AgentId) -> Result<Arc<AgentDetails>, Refusal> {
        let seq = world.store().last_seq();
        if let Some(details) = self.at(seq).details.get(agent_id) {
            return Ok(Arc::clone(details));
        }
        let work = agents::at_work(world, agent_id).await?;
        // An agent whose archetype is gone has no profile, but can still be shown.
        let details = match world.engine().spec_and_tools(&work.agent).await {
            Ok((spec, registry)) => AgentDetails {
                work,
                model: spec.model.model,
                tools: u32::try_from(registry.specs().len()).unwrap_or(u32::MAX),
                access: Some(spec.access.mode().as_str()),
                cannot_run: None,
            },
            Err(problem) => {
                AgentDetails { work, model: None, tools: 0, access: None, cannot_run: Some(problem.in_words()) }
            }
        };
        let details = Arc::new(details);
        let mut cache = self.at(seq);
        if cache.seq == seq && cache.details.len() < AGENTS_MAX {
            cache.details.insert(agent_id.clone(), Arc::clone(&details));
        }
        Ok(details)
    }
}
