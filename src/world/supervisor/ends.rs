//! Agents whose actors have ended: their inboxes are looked at again, many in one look, so that a wave of agents that fall
//! asleep costs a few queries and holds up nobody who wakes.
//!
//! Must never: look at one agent at a time, or let one wait for more than the look before.

use std::collections::BTreeSet;
use std::sync::Arc;

use ghost_domain::{Agent, AgentId, AgentStatus, Desired, Refusal};
use ghost_store::StoreError;
use tokio::task::JoinSet;

use super::hands::{Hands, STORE_PAUSE};
use crate::team_msg::{Errand, TeamMsg};

/// Agents in one look.
const AT_ONCE: usize = 256;

/// Agents that have ended since the last look began, and the look.
#[derive(Default)]
pub(super) struct Ends {
    ended: BTreeSet<AgentId>,
    /// At most one. Dropped with its supervisor, whose successor looks at every record.
    looking: JoinSet<()>,
}

impl Ends {
    /// An agent's actor has ended.
    pub(super) fn ended(&mut self, hands: &Arc<Hands>, agent_id: AgentId) {
        self.ended.insert(agent_id);
        if self.looking.is_empty() {
            self.look(hands);
        }
    }

    /// A look is over.
    pub(super) fn looked(&mut self, hands: &Arc<Hands>) {
        self.looking = JoinSet::new();
        if !self.ended.is_empty() {
            self.look(hands);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.ended.is_empty() && self.looking.is_empty()
    }

    fn look(&mut self, hands: &Arc<Hands>) {
        let mut batch = BTreeSet::new();
        while batch.len() < AT_ONCE
            && let Some(agent_id) = self.ended.pop_first()
        {
            batch.insert(agent_id);
        }
        let hands = Arc::clone(hands);
        self.looking.spawn(async move {
            let batch: Vec<AgentId> = batch.into_iter().collect();
            // In a task of its own: whatever becomes of it, the next look begins.
            let work = tokio::spawn(look_at(Arc::clone(&hands), batch.clone()));
            if let Err(error) = work.await {
                tracing::error!(%error, "a look at agents that ended failed; they are looked at again");
                again(&hands, batch);
            }
            drop(hands.myself.cast(TeamMsg::Looked));
        });
    }
}

fn again(hands: &Hands, batch: Vec<AgentId>) {
    for agent_id in batch {
        hands.later(STORE_PAUSE, TeamMsg::Reconcile(agent_id));
    }
}

/// Looks at the records, inboxes and open turns of agents that have ended, and does for each what they ask for.
async fn look_at(hands: Arc<Hands>, batch: Vec<AgentId>) {
    let ids = batch.clone();
    let looked = hands.tree.engine.services.store.read(move |r| {
        Box::pin(async move {
            // Mail that does not wake lets them sleep.
            let waiting = r.inbox_waiting_among(&ids).await?;
            let mut found: Vec<(Agent, bool)> = Vec::with_capacity(ids.len());
            for agent_id in ids {
                let Some(agent) = r.agent_get(&agent_id).await? else { continue };
                let waits = waiting.binary_search(&agent_id).is_ok() || r.turn_open_of(&agent_id).await?.is_some();
                found.push((agent, waits));
            }
            Ok::<_, StoreError>(found)
        })
    });
    match looked.await {
        Ok(found) => {
            for (agent, waits) in found {
                next(&hands, agent, waits);
            }
        }
        Err(error) => {
            let refusal = Refusal::from(error);
            tracing::warn!(%refusal, count = batch.len(), "agents that ended cannot be looked at; trying again");
            again(&hands, batch);
        }
    }
}

/// What an agent whose actor has ended, and that has something to do or not, needs.
fn next(hands: &Hands, agent: Agent, waits: bool) {
    if agent.is_deleted() {
        return;
    }
    let errand = if agent.desired == Desired::Stopped && agent.status == AgentStatus::Stopping {
        Some(Errand::Stopped)
    } else if agent.desired == Desired::Running {
        hands.unfit(&agent).map(Errand::OutOfPlace)
    } else {
        None
    };
    match errand {
        // A supervisor that is gone has a successor, which looks for itself.
        Some(errand) => drop(hands.myself.cast(TeamMsg::Run(agent.agent_id, errand))),
        None if waits && !hands.tree.directory.is_paused() => hands.tree.signal_router.wake(&agent.agent_id),
        None => {}
    }
}
