//! What was last read of agents. Whatever changes it states an event in the same transaction, so while the feed stands
//! still nothing has changed, and reads of a quiet world never reach the store.
//!
//! Must never: answer from before a change that the asker has seen committed.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ghost_domain::{Agent, AgentId, Refusal};
use ghost_world::{AgentCard, World};

use crate::queries::{self, AtWork};

/// Agents that are remembered.
const AGENTS_MAX: usize = 4_096;

/// An agent at work, and what it works with.
pub(super) struct Shown {
    pub(super) work: AtWork,
    /// The model that its next turn would ask.
    pub(super) model: Option<String>,
    /// How many tools it has.
    pub(super) tools: u32,
    /// Which rule decides what tools it has.
    pub(super) access: Option<&'static str>,
    /// Why no start helps it, and what does.
    pub(super) cannot_run: Option<String>,
}

#[derive(Default)]
struct Read {
    /// Where the feed stood.
    seq: i64,
    records: BTreeMap<AgentId, Arc<Agent>>,
    shown: BTreeMap<AgentId, Arc<Shown>>,
}

/// The memory of one service.
#[derive(Default)]
pub(super) struct Recent {
    read: Mutex<Read>,
}

impl Recent {
    /// What was read while the feed stood at `seq`; nothing if it has moved on since.
    fn at(&self, seq: i64) -> MutexGuard<'_, Read> {
        // Every change under the lock is whole, so a poisoned one still guards whole values.
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        // A reader that was slow may come with an older position; what is newer stays.
        if read.seq < seq {
            *read = Read { seq, ..Read::default() };
        }
        read
    }

    /// The records of these agents, in the order of the cards; nothing for one that is gone.
    pub(super) async fn records(&self, world: &World, cards: &[AgentCard]) -> Result<Vec<Option<Arc<Agent>>>, Refusal> {
        let seq = world.store().last_seq();
        let mut found: Vec<Option<Arc<Agent>>> = {
            let read = self.at(seq);
            cards.iter().map(|card| read.records.get(&card.agent_id).cloned()).collect()
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
        let records: BTreeMap<AgentId, Arc<Agent>> = queries::agents(world, missing)
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
        let mut read = self.at(seq);
        if read.seq == seq && read.records.len() + records.len() <= AGENTS_MAX {
            read.records.extend(records);
        }
        Ok(found)
    }

    /// One agent at work.
    pub(super) async fn at_work(&self, world: &World, agent_id: &AgentId) -> Result<Arc<Shown>, Refusal> {
        let seq = world.store().last_seq();
        if let Some(shown) = self.at(seq).shown.get(agent_id) {
            return Ok(Arc::clone(shown));
        }
        let work = queries::at_work(world, agent_id).await?;
        // An agent whose archetype is gone has no outfit, but is there to be looked at.
        let shown = match world.engine().outfit(&work.agent) {
            Ok((spec, registry)) => Shown {
                work,
                model: spec.model.model,
                tools: u32::try_from(registry.specs().len()).unwrap_or(u32::MAX),
                access: Some(spec.access.mode().as_str()),
                cannot_run: None,
            },
            Err(why) => Shown { work, model: None, tools: 0, access: None, cannot_run: Some(why.in_words()) },
        };
        let shown = Arc::new(shown);
        let mut read = self.at(seq);
        if read.seq == seq && read.shown.len() < AGENTS_MAX {
            read.shown.insert(agent_id.clone(), Arc::clone(&shown));
        }
        Ok(shown)
    }
}
