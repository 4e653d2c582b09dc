//! Agents whose actors have ended. Their inboxes are read again, many agents in one read. So when
//! many agents fall asleep at once, this takes only a few queries and delays no wake-up.
//!
//! This module must never read the agents one by one.

use std::collections::BTreeSet;
use std::sync::Arc;

use ghost_domain::{Agent, AgentId, AgentStatus, Desired, Refusal};
use ghost_store::StoreError;
use tokio::task::JoinSet;

use super::lifecycle_runner::{LifecycleRunner, STORE_PAUSE};
use crate::team_msg::{LifecycleStep, TeamMsg};

/// Maximum number of agents in one read.
const AT_ONCE: usize = 256;

/// Agents that have ended since the last read began, and that read.
#[derive(Default)]
pub(super) struct Ends {
    ended: BTreeSet<AgentId>,
    /// At most one task. It is dropped with its supervisor; the next supervisor reads every record.
    reading: JoinSet<()>,
}

impl Ends {
    /// Adds an agent whose actor has ended.
    pub(super) fn ended(&mut self, runner: &Arc<LifecycleRunner>, agent_id: AgentId) {
        self.ended.insert(agent_id);
        if self.reading.is_empty() {
            self.begin_read(runner);
        }
    }

    /// Begins the next read after one has ended.
    pub(super) fn read_done(&mut self, runner: &Arc<LifecycleRunner>) {
        self.reading = JoinSet::new();
        if !self.ended.is_empty() {
            self.begin_read(runner);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.ended.is_empty() && self.reading.is_empty()
    }

    fn begin_read(&mut self, runner: &Arc<LifecycleRunner>) {
        let mut batch = BTreeSet::new();
        while batch.len() < AT_ONCE
            && let Some(agent_id) = self.ended.pop_first()
        {
            batch.insert(agent_id);
        }
        let runner = Arc::clone(runner);
        self.reading.spawn(async move {
            let batch: Vec<AgentId> = batch.into_iter().collect();
            // In a task of its own, so that the next read begins even if this one panics.
            let work = tokio::spawn(check(Arc::clone(&runner), batch.clone()));
            if let Err(error) = work.await {
                tracing::error!(%error, "checking agents that ended failed; trying again");
                reconcile_later(&runner, batch);
            }
            drop(runner.myself.cast(TeamMsg::EndsRead));
        });
    }
}

fn reconcile_later(runner: &LifecycleRunner, batch: Vec<AgentId>) {
    for agent_id in batch {
        runner.send_after(STORE_PAUSE, TeamMsg::Reconcile(agent_id));
    }
}

/// Reads the records, inboxes and open turns of agents whose actors have ended, and starts the next
/// step for each agent.
async fn check(runner: Arc<LifecycleRunner>, batch: Vec<AgentId>) {
    let ids = batch.clone();
    let read = runner.tree.engine.services.store.read(move |r| {
        // Only mail that wakes its agent is read here.
        let waiting = r.inbox_waiting_among(&ids)?;
        let mut found: Vec<(Agent, bool)> = Vec::with_capacity(ids.len());
        for agent_id in ids {
            let Some(agent) = r.agent_get(&agent_id)? else { continue };
            // The open turn of an agent that is to stop waits until it is started again.
            let waits = agent.desired == Desired::Running
                && (waiting.binary_search(&agent_id).is_ok() || r.turn_open_of(&agent_id)?.is_some());
            found.push((agent, waits));
        }
        Ok::<_, StoreError>(found)
    });
    match read.await {
        Ok(found) => {
            for (agent, waits) in found {
                next(&runner, agent, waits);
            }
        }
        Err(error) => {
            let refusal = Refusal::from(error);
            tracing::warn!(%refusal, count = batch.len(), "agents that ended cannot be read; trying again");
            reconcile_later(&runner, batch);
        }
    }
}

/// Starts the next step for an agent whose actor has ended. `waits` says that the agent has an open
/// turn or mail that wakes it.
fn next(runner: &LifecycleRunner, agent: Agent, waits: bool) {
    if agent.is_deleted() {
        return;
    }
    let step = if agent.desired == Desired::Stopped && agent.status == AgentStatus::Stopping {
        Some(LifecycleStep::Stopped)
    } else if agent.desired == Desired::Running {
        runner.cannot_run(&agent).map(LifecycleStep::CannotRun)
    } else {
        None
    };
    match step {
        // If this supervisor has ended, the next one reads the records.
        Some(step) => drop(runner.myself.cast(TeamMsg::Run(agent.agent_id, step))),
        None if waits && !runner.tree.directory.is_paused() => runner.tree.signal_router.wake(&agent.agent_id),
        None => {}
    }
}
