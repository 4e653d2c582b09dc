//! Agents, their current work and their tools.
//!
//! A cache holds agents that were read recently. Every change to an agent writes an event in the same transaction. So while
//! the feed has no new event the cache is valid, and reads of a quiet world do not reach the store. The cache must never
//! return data from before a change that the caller has seen committed.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ghost_domain::{Agent, AgentId, Approval, Refusal, TurnId};
use ghost_operations::mail;
use ghost_operations::mail::agent_for_operator;
use ghost_tools::Registry;
use ghost_world::{AgentCard, World};

/// The rows of these agents. Unknown ids are omitted.
pub async fn agents(world: &World, ids: Vec<AgentId>) -> Result<Vec<Agent>, Refusal> {
    world
        .store()
        .read(move |r| {
            let mut found = Vec::with_capacity(ids.len());
            for id in &ids {
                found.extend(r.agent_get(id)?);
            }
            Ok(found)
        })
        .await
}

/// The rows of all agents, including deleted ones, ordered by id.
pub async fn all_agents(world: &World) -> Result<Vec<Agent>, Refusal> {
    world.store().read(|r| r.agent_list(true)).await.map_err(Refusal::from)
}

/// The stored state of an agent's current work.
#[derive(Clone, Debug)]
pub struct AtWork {
    /// Row of the agent.
    pub agent: Agent,
    /// Number of pending messages in the inbox.
    pub inbox_pending: u64,
    /// Id of the open turn.
    pub turn_id: Option<TurnId>,
    /// Why the open turn is parked, if it is.
    pub parked: Option<String>,
    /// The oldest pending approval of the open turn's calls.
    pub approval: Option<Approval>,
}

/// The current work of an agent that is not deleted.
///
/// # Errors
/// If there is no such agent; the refusal suggests the nearest name.
pub async fn at_work(world: &World, agent_id: &AgentId) -> Result<AtWork, Refusal> {
    let id = agent_id.clone();
    world
        .read(move |r| {
            let agent = mail::agent_for_operator(r, &id)?;
            let inbox_pending = r.inbox_depth(&id)?.into();
            let turn = r.turn_open_of(&id)?;
            let turn_id = turn.as_ref().map(|turn| turn.turn_id);
            let parked = turn.and_then(|turn| turn.parked).map(|parked| parked.reason);
            let approval = match turn_id {
                Some(turn_id) => r.approvals_pending_of_turn(turn_id)?.into_iter().next(),
                None => None,
            };
            Ok(AtWork { agent, inbox_pending, turn_id, parked, approval })
        })
        .await
}

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
        let records: BTreeMap<AgentId, Arc<Agent>> = agents(world, missing)
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
        let work = at_work(world, agent_id).await?;
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

/// The tools that an agent has now.
pub(crate) async fn registry(world: &World, agent_id: &AgentId) -> Result<Registry, Refusal> {
    let agent_id = agent_id.clone();
    let agent = world.read(move |r| agent_for_operator(r, &agent_id)).await?;
    Ok(world.engine().spec_and_tools(&agent).await?.1)
}
