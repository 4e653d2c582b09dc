//! Runs a supervisor's steps, and holds its memory of crashes. A [`LifecycleStep`] is a read or commit for one agent that runs
//! in a task beside the supervisor's mailbox. Steps of one agent run one after another, in order; steps of different agents
//! run at the same time. A panic of one step loses none of the agent's later steps, and no step outlives the supervisor.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::FutureExt;
use ghost_agent::AgentMsg;
use ghost_config::plan::TeamPlan;
use ghost_domain::restart::RestartWindow;
use ghost_domain::text::panic_text;
use ghost_domain::{Agent, AgentId, AgentStatus, Code, Desired, Limits, Refusal};
use ghost_operations::agents;
use ractor::ActorRef;
use tokio::task::JoinSet;

use crate::signal_router::{LifecycleStep, TeamMsg};
use crate::tree::Tree;

/// The running steps, and for each agent the steps that wait for its running one.
#[derive(Default)]
pub(super) struct LifecycleQueue {
    waiting: BTreeMap<AgentId, VecDeque<LifecycleStep>>,
    /// Dropped with the supervisor; the next supervisor reads every record.
    running: JoinSet<()>,
}

impl LifecycleQueue {
    /// Runs a step after the earlier steps of the same agent.
    pub(super) fn send(&mut self, runner: &Arc<LifecycleRunner>, agent_id: AgentId, step: LifecycleStep) {
        match self.waiting.get_mut(&agent_id) {
            Some(waiting) if is_covered(waiting, &step) => {}
            Some(waiting) => waiting.push_back(step),
            None => {
                self.waiting.insert(agent_id.clone(), VecDeque::new());
                self.begin(runner, agent_id, step);
            }
        }
    }

    /// Begins the next step of an agent after one has ended.
    pub(super) fn done(&mut self, runner: &Arc<LifecycleRunner>, agent_id: &AgentId) {
        while self.running.try_join_next().is_some() {}
        match self.waiting.get_mut(agent_id).and_then(VecDeque::pop_front) {
            Some(step) => self.begin(runner, agent_id.clone(), step),
            None => drop(self.waiting.remove(agent_id)),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    fn begin(&mut self, runner: &Arc<LifecycleRunner>, agent_id: AgentId, step: LifecycleStep) {
        let runner = Arc::clone(runner);
        self.running.spawn(async move {
            let ran = AssertUnwindSafe(runner.run(&agent_id, step)).catch_unwind().await;
            if let Err(panic) = ran {
                // The agent must not stay between two states, so it is restarted.
                let panic = panic_text(&*panic);
                let panic = runner.tree.engine.services.ctx.redactor.redact(&panic);
                tracing::error!(%agent_id, panic, "a supervisor's task for this agent panicked; the agent is restarted");
                runner.run_after(STORE_PAUSE, agent_id.clone(), LifecycleStep::Restart);
            }
            // An error means that the supervisor has ended, and its steps with it.
            drop(runner.myself.cast(TeamMsg::StepDone(agent_id)));
        });
    }
}

/// Whether an equal step, which has not begun, makes this one needless. One that waits before other steps does not: those may
/// carry a record that is older than what this step would read.
fn is_covered(waiting: &VecDeque<LifecycleStep>, step: &LifecycleStep) -> bool {
    matches!(step, LifecycleStep::Reconcile | LifecycleStep::Restart | LifecycleStep::Stopped)
        && waiting.back() == Some(step)
}

/// The pause before a supervisor tries again after the store refused a write.
pub(super) const STORE_PAUSE: Duration = Duration::from_secs(1);

/// A supervisor's memory of crashes. It may be lost: the next supervisor starts with an empty one.
pub(super) struct Memory {
    pub(super) team: Option<TeamPlan>,
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
    pub(super) fn new(tree: Arc<Tree>, myself: ActorRef<TeamMsg>, team: Option<TeamPlan>) -> Self {
        let (windows, team_window, crashing) = Default::default();
        Self { tree, myself, memory: Mutex::new(Memory { team, windows, team_window, crashing }) }
    }

    /// The memory of crashes. The lock must not be held across an await.
    pub(super) fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
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
            LifecycleStep::Droid(record) => {
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
            Err(refusal) => return self.retry_later(agent_id, LifecycleStep::Reconcile, &refusal),
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
        let recorded = self.tree.engine.services.write(move |w| agents::cannot_run(w, &id, &why)).await;
        if let Err(refusal) = recorded
            && should_retry(&refusal)
        {
            self.retry_later(agent_id, LifecycleStep::Reconcile, &refusal);
        }
    }

    pub(super) async fn stopped(&self, agent_id: &AgentId) {
        self.end_outside(agent_id);
        let id = agent_id.clone();
        let recorded = self.tree.engine.services.write(move |w| agents::stopped(w, &id)).await;
        match recorded {
            // A later change of the record brings a step of its own, so this one is not read again.
            Ok(agent) => self.show(agent_id, Some(&agent)),
            Err(refusal) if should_retry(&refusal) => {
                self.retry_later(agent_id, LifecycleStep::Reconcile, &refusal);
            }
            Err(_) => {
                if let Err(refusal) = self.refresh(agent_id).await {
                    tracing::warn!(%agent_id, %refusal, "cannot read the record of a stopped agent");
                }
            }
        }
    }

    /// Runs a step again after a pause, because the store refused it.
    pub(super) fn retry_later(&self, agent_id: &AgentId, step: LifecycleStep, refusal: &Refusal) {
        tracing::warn!(%agent_id, ?step, %refusal, "the store refused this; trying again");
        self.run_after(STORE_PAUSE, agent_id.clone(), step);
    }

    pub(super) fn run_after(&self, after: Duration, agent_id: AgentId, step: LifecycleStep) {
        let sleep = self.tree.engine.services.ctx.ports.clock.sleep(after);
        let myself = self.myself.clone();
        tokio::spawn(async move {
            sleep.await;
            // If this supervisor has ended, the next one reads every record.
            drop(myself.cast(TeamMsg::Run(agent_id, step)));
        });
    }

    async fn restart(&self, agent_id: &AgentId) {
        self.forget_crash(agent_id);
        let id = agent_id.clone();
        let recorded = self.tree.engine.services.write(move |w| agents::restarted(w, &id)).await;
        match recorded {
            Ok(()) => {}
            Err(refusal) if should_retry(&refusal) => {
                return self.retry_later(agent_id, LifecycleStep::Restart, &refusal);
            }
            Err(refusal) => {
                tracing::warn!(%agent_id, %refusal, "a crashed agent is not restarted");
                return;
            }
        }
        match self.refresh(agent_id).await {
            Ok(_) => self.tree.signal_router.wake(agent_id),
            Err(refusal) => self.retry_later(agent_id, LifecycleStep::Restart, &refusal),
        }
    }
}

/// Whether a refused write may succeed later. The write is abandoned if the agent is deleted or
/// another daemon owns it now. Any other refusal is tried again, so that the agent does not stay
/// between two states.
pub(super) fn should_retry(refusal: &Refusal) -> bool {
    !matches!(refusal.code, Code::NotFound | Code::Conflict)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_is_covered_only_by_an_equal_one_right_before_it() {
        let (read, other) = (LifecycleStep::Reconcile, LifecycleStep::Crashed("x".into()));
        assert!(is_covered(&[other.clone(), read.clone()].into(), &read));
        assert!(!is_covered(&[read.clone(), other.clone()].into(), &read));
        assert!(!is_covered(&[other.clone()].into(), &other), "each crash counts");
    }
}
