//! Runs a supervisor's steps, and holds its memory of crashes. A [`LifecycleStep`] is a read or commit
//! for one agent that runs in a task beside the supervisor's mailbox.
//!
//! Two steps of one agent must never run at once ([`LifecycleQueue`](super::lifecycle_queue::LifecycleQueue) ensures
//! this).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ghost_agent::AgentMsg;
use ghost_config::plan::TeamPlan;
use ghost_domain::restart::{Intensity, RestartWindow};
use ghost_domain::{Agent, AgentId, AgentStatus, Code, Desired, Limits, Refusal};
use ghost_operations::Tx;
use ghost_operations::agents;
use ractor::ActorRef;

use crate::team_msg::{LifecycleStep, TeamMsg};
use crate::tree::Tree;

/// The pause before a supervisor tries again after the store refused a write.
pub(super) const STORE_PAUSE: Duration = Duration::from_secs(1);

/// A supervisor's memory of crashes. It may be lost: the next supervisor starts with an empty one.
pub(super) struct Memory {
    pub(super) team: Option<TeamPlan>,
    /// The limit of crashes of the whole team. Not used if there is no team.
    pub(super) intensity: Intensity,
    pub(super) windows: BTreeMap<AgentId, RestartWindow>,
    pub(super) team_window: RestartWindow,
    /// Agents that have crashed and whose crash is not in the store yet.
    crashing: BTreeSet<AgentId>,
}

/// The data that a supervisor's steps need.
pub(super) struct LifecycleRunner {
    pub(super) tree: Arc<Tree>,
    pub(super) myself: ActorRef<TeamMsg>,
    memory: Mutex<Memory>,
}

impl LifecycleRunner {
    pub(super) fn new(
        tree: Arc<Tree>,
        myself: ActorRef<TeamMsg>,
        team: Option<TeamPlan>,
        intensity: Intensity,
    ) -> Self {
        let memory = Memory {
            team,
            intensity,
            windows: BTreeMap::new(),
            team_window: RestartWindow::default(),
            crashing: BTreeSet::new(),
        };
        Self { tree, myself, memory: Mutex::new(memory) }
    }

    /// The memory of crashes. The lock must not be held across an await.
    pub(super) fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn replan(&self, team: Option<TeamPlan>, intensity: Intensity) {
        let mut memory = self.memory();
        memory.team = team;
        memory.intensity = intensity;
    }

    /// Records a crash in memory. The agent is then treated as restarting, even if its record does
    /// not say so yet.
    pub(super) fn note_crash(&self, agent_id: &AgentId) {
        let mut memory = self.memory();
        memory.crashing.insert(agent_id.clone());
        self.tree.directory.set_status(agent_id, AgentStatus::Restarting);
    }

    /// Ends [`note_crash`](Self::note_crash), because the crash is in the record or cannot be
    /// recorded.
    pub(super) fn forget_crash(&self, agent_id: &AgentId) {
        self.memory().crashing.remove(agent_id);
    }

    /// Runs a step.
    pub(super) async fn run(&self, agent_id: &AgentId, step: LifecycleStep) {
        match step {
            LifecycleStep::Reconcile => self.reconcile(agent_id).await,
            LifecycleStep::DroidCreated(record) | LifecycleStep::DroidEnded(record) => {
                self.show(agent_id, Some(&record));
                self.follow(&record).await;
            }
            LifecycleStep::Restart => self.restart(agent_id).await,
            LifecycleStep::Crashed(reason) => self.crashed(agent_id, &reason).await,
            LifecycleStep::Failed(why) => self.failed_with_its_team(agent_id, why).await,
            LifecycleStep::Stopped => self.stopped(agent_id).await,
            LifecycleStep::CannotRun(why) => self.record_cannot_run(agent_id, why).await,
        }
    }

    pub(super) async fn write<T, F>(&self, work: F) -> Result<T, Refusal>
    where
        T: Send + 'static,
        F: FnOnce(&mut Tx) -> Result<T, Refusal> + Send + 'static,
    {
        self.tree.engine.services.write(work).await
    }

    /// Reads an agent's record into the directory.
    pub(super) async fn refresh(&self, agent_id: &AgentId) -> Result<Option<Agent>, Refusal> {
        let id = agent_id.clone();
        let record: Option<Agent> =
            self.tree.engine.services.store.read_latest(move |r| r.agent_get(&id)).await.map_err(Refusal::from)?;
        self.show(agent_id, record.as_ref());
        Ok(record)
    }

    /// Puts an agent's record into the directory; `None` if it has none.
    fn show(&self, agent_id: &AgentId, record: Option<&Agent>) {
        let processes = &self.tree.engine.services.processes;
        let runs = |agent: &&Agent| {
            !agent.is_deleted() && agent.desired != Desired::Stopped && agent.status != AgentStatus::Failed
        };
        match record.filter(runs) {
            Some(agent) => processes.end_before(agent_id, agent.created_at),
            None => self.end_outside(agent_id),
        }
        if let Some(agent) = record
            && let Some(actor) = self.take_over(agent)
        {
            // The agent was deleted while it was awake.
            drop(actor.cast(AgentMsg::Stop { grace: Duration::ZERO }));
        }
    }

    /// Ends what an agent that works no more has running outside of its turns.
    fn end_outside(&self, agent_id: &AgentId) {
        let services = &self.tree.engine.services;
        services.processes.end_all_of(agent_id);
        if let Some(mcp) = services.mcp() {
            mcp.end_all_of(agent_id);
        }
    }

    fn take_over(&self, agent: &Agent) -> Option<ActorRef<AgentMsg>> {
        // Done under the lock, so that an older record cannot undo a crash that is noted at the
        // same time.
        let memory = self.memory();
        if agent.status == AgentStatus::Running && memory.crashing.contains(&agent.agent_id) {
            return self.tree.directory.record(&Agent { status: AgentStatus::Restarting, ..agent.clone() });
        }
        self.tree.directory.record(agent)
    }

    async fn reconcile(&self, agent_id: &AgentId) {
        let record = match self.refresh(agent_id).await {
            Ok(Some(agent)) if !agent.is_deleted() => agent,
            Ok(_) => {
                let mut memory = self.memory();
                memory.windows.remove(agent_id);
                memory.crashing.remove(agent_id);
                return;
            }
            Err(refusal) => return self.retry_later(TeamMsg::Reconcile(agent_id.clone()), &refusal),
        };
        self.follow(&record).await;
    }

    /// Does what the agent's record, which the directory has, asks for.
    async fn follow(&self, record: &Agent) {
        let agent_id = &record.agent_id;
        match record.desired {
            Desired::Stopped => match self.tree.directory.actor(agent_id) {
                Some(actor) => drop(actor.cast(AgentMsg::Stop { grace: self.grace(record) })),
                None if record.status == AgentStatus::Stopped => {}
                None => self.stopped(agent_id).await,
            },
            Desired::Running => {
                // This is a new order, so earlier crashes no longer count.
                self.memory().windows.remove(agent_id);
                match (self.cannot_run(record), self.tree.directory.actor(agent_id)) {
                    (None, _) => self.tree.signal_router.wake(agent_id),
                    (Some(why), None) => self.record_cannot_run(agent_id, why).await,
                    // The agent may finish its turn. Then it is checked again.
                    (Some(_), Some(actor)) => drop(actor.cast(AgentMsg::Stop { grace: self.grace(record) })),
                }
            }
        }
    }

    fn grace(&self, record: &Agent) -> Duration {
        let seconds = record.stop_grace_seconds;
        Limits::seconds(seconds.unwrap_or_else(|| self.tree.engine.services.ctx.limits().stop_grace_seconds))
    }

    /// Why an agent that runs according to its record cannot run under the current plan; `None` if it can.
    pub(super) fn cannot_run(&self, record: &Agent) -> Option<Refusal> {
        let runs = matches!(record.status, AgentStatus::Running | AgentStatus::Restarting);
        if runs { self.tree.engine.services.plan().may_run(record).err() } else { None }
    }

    /// Records that an agent cannot run under the plan, before it takes more mail.
    async fn record_cannot_run(&self, agent_id: &AgentId, why: Refusal) {
        let id = agent_id.clone();
        let recorded = self.write(move |w| agents::cannot_run(w, &id, &why)).await;
        if let Err(refusal) = recorded
            && should_retry(&refusal)
        {
            self.retry_later(TeamMsg::Reconcile(agent_id.clone()), &refusal);
        }
    }

    pub(super) async fn stopped(&self, agent_id: &AgentId) {
        self.end_outside(agent_id);
        let id = agent_id.clone();
        let recorded = self.write(move |w| agents::stopped(w, &id)).await;
        match recorded {
            // A later change of the record brings a step of its own, so this one is not read again.
            Ok(agent) => self.show(agent_id, Some(&agent)),
            Err(refusal) if should_retry(&refusal) => {
                self.retry_later(TeamMsg::Reconcile(agent_id.clone()), &refusal);
            }
            Err(_) => {
                if let Err(refusal) = self.refresh(agent_id).await {
                    tracing::warn!(%agent_id, %refusal, "cannot read the record of a stopped agent");
                }
            }
        }
    }

    /// Sends a message again after a pause, because the store refused the write.
    pub(super) fn retry_later(&self, message: TeamMsg, refusal: &Refusal) {
        tracing::warn!(?message, %refusal, "the store refused this; trying again");
        self.send_after(STORE_PAUSE, message);
    }

    pub(super) fn send_after(&self, after: Duration, message: TeamMsg) {
        let sleep = self.tree.engine.services.ctx.ports.clock.sleep(after);
        let myself = self.myself.clone();
        tokio::spawn(async move {
            sleep.await;
            // If this supervisor has ended, the next one reads every record.
            drop(myself.cast(message));
        });
    }

    async fn restart(&self, agent_id: &AgentId) {
        self.forget_crash(agent_id);
        let id = agent_id.clone();
        let recorded = self.write(move |w| agents::restarted(w, &id)).await;
        match recorded {
            Ok(()) => {}
            Err(refusal) if should_retry(&refusal) => {
                return self.retry_later(TeamMsg::Restart(agent_id.clone()), &refusal);
            }
            Err(refusal) => {
                tracing::warn!(%agent_id, %refusal, "a crashed agent is not restarted");
                return;
            }
        }
        match self.refresh(agent_id).await {
            Ok(_) => self.tree.signal_router.wake(agent_id),
            Err(refusal) => self.retry_later(TeamMsg::Restart(agent_id.clone()), &refusal),
        }
    }
}

/// Whether a refused write may succeed later. The write is abandoned if the agent is deleted or
/// another daemon owns it now. Any other refusal is tried again, so that the agent does not stay
/// between two states.
pub(super) fn should_retry(refusal: &Refusal) -> bool {
    !matches!(refusal.code, Code::NotFound | Code::Conflict)
}
