//! What follows when an actor ends. After a crash it is decided, for the agent, the other members of its team and the team;
//! the world rules have recorded the crash in the turn and its mail before. After any other end the inboxes are read again,
//! many agents in one read: so when many agents fall asleep at once, this takes only a few queries and delays no wake-up.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use ghost_agent::AgentMsg;
use ghost_domain::event::{EventKind, NewEvent};
use ghost_domain::restart::{Intensity, RestartType, Strategy};
use ghost_domain::{Agent, AgentId, AgentStatus, Desired, Limits, Refusal, Timestamp};
use ghost_operations::agents;
use ghost_store::StoreError;
use serde_json::json;
use tokio::task::JoinSet;

use super::lifecycle::{LifecycleRunner, STORE_PAUSE, should_retry};
use crate::signal_router::{LifecycleStep, TeamMsg};

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
        runner.run_after(STORE_PAUSE, agent_id, LifecycleStep::Reconcile);
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

impl LifecycleRunner {
    /// Handles a crash: records the crash in the agent's turn, then decides about the agent's
    /// restart.
    pub(super) async fn crashed(&self, agent_id: &AgentId, reason: &str) {
        // A panic's text may contain the arguments of the tool.
        let reason = &self.tree.engine.services.ctx.redactor.redact(reason);
        tracing::warn!(%agent_id, reason, "an agent crashed");
        let (id, words) = (agent_id.clone(), reason.to_owned());
        let recorded = self.tree.engine.services.write(move |w| agents::crashed(w, &id, &words)).await;
        self.forget_crash(agent_id);
        match recorded {
            // The mail that caused the crash is now a dead letter, so earlier crashes no longer
            // count (promise 3).
            Ok(true) => drop(self.memory().windows.remove(agent_id)),
            Ok(false) => {}
            Err(refusal) => {
                tracing::warn!(%agent_id, %refusal, "a crash could not be recorded");
                if should_retry(&refusal) {
                    self.run_after(STORE_PAUSE, agent_id.clone(), LifecycleStep::Restart);
                }
                return;
            }
        }
        let record = match self.refresh(agent_id).await {
            Ok(Some(agent)) if !agent.is_deleted() => agent,
            Ok(_) => return,
            Err(refusal) => return self.retry_later(agent_id, LifecycleStep::Restart, &refusal),
        };
        if record.desired == Desired::Stopped {
            return self.stopped(agent_id).await;
        }
        let rules = self.tree.engine.services.plan().spec_for(&record).map(|spec| spec.restart).unwrap_or_default();
        if rules.restart == RestartType::Temporary {
            return self.failed(agent_id, format!("it crashed and is temporary: {reason}")).await;
        }
        let now = self.tree.engine.services.ctx.ports.clock.steady();
        let attempt = self.memory().windows.entry(agent_id.clone()).or_default().record(now, rules.intensity);
        let Some(attempt) = attempt else {
            let Intensity { max, window } = rules.intensity;
            let why =
                format!("it crashed more than {max} times within {} s; the last time: {reason}", window.as_secs());
            return self.failed(agent_id, why).await;
        };
        if self.passes_intensity(now) {
            return self.team_failed(agent_id, reason).await;
        }
        self.restart_siblings(agent_id);
        let jitter = self.tree.engine.services.ctx.ports.rng.below(1_000);
        self.run_after(rules.backoff.delay(attempt, jitter), agent_id.clone(), LifecycleStep::Restart);
    }

    /// Counts a crash for the team. Returns whether the team has now had too many.
    fn passes_intensity(&self, now: Timestamp) -> bool {
        let mut memory = self.memory();
        let Some(intensity) = memory.team.as_ref().map(|team| team.intensity) else { return false };
        memory.team_window.record(now, intensity).is_none()
    }

    /// Restarts the members that the team's strategy restarts together with a crashed one. They resume from their
    /// journals.
    fn restart_siblings(&self, crashed: &AgentId) {
        let Some(team) = self.memory().team.clone() else { return };
        // A model answer that is already requested costs money. The grace period allows the answer
        // to be journaled.
        let grace = Limits::seconds(self.tree.engine.services.ctx.limits().stop_grace_seconds);
        let after = team.agents.iter().position(|member| member == crashed);
        for (index, member) in team.agents.iter().enumerate() {
            let with = match team.strategy {
                Strategy::OneForOne => false,
                Strategy::OneForAll => member != crashed,
                Strategy::RestForOne => after.is_some_and(|at| index > at),
            };
            if with {
                self.tree.directory.tell(member, AgentMsg::Yield { grace });
            }
        }
    }

    async fn failed(&self, agent_id: &AgentId, why: String) {
        let id = agent_id.clone();
        let recorded = self.tree.engine.services.write(move |w| agents::failed(w, &id, &why)).await;
        if let Err(refusal) = recorded {
            tracing::error!(%agent_id, %refusal, "an agent failed and that could not be recorded");
            self.tree.directory.set_status(agent_id, AgentStatus::Failed);
            return;
        }
        if let Err(refusal) = self.refresh(agent_id).await {
            tracing::warn!(%agent_id, %refusal, "cannot read the record of a failed agent");
            self.tree.directory.set_status(agent_id, AgentStatus::Failed);
        }
    }

    /// The team had too many crashes: records it, and fails all members.
    async fn team_failed(&self, crashed: &AgentId, reason: &str) {
        let team = {
            let mut memory = self.memory();
            memory.team_window.clear();
            memory.team.clone()
        };
        let Some(team) = team else { return };
        let Intensity { max, window } = team.intensity;
        let why = format!(
            "team {} had more than {max} crashes within {} s; the last one: {reason}",
            team.name,
            window.as_secs(),
        );
        let event = NewEvent::new(EventKind::TeamFailed, json!({ "team": team.name, "reason": why }));
        let recorded = self.tree.engine.services.write(move |w| w.emit(event)).await;
        if let Err(refusal) = recorded {
            tracing::error!(team = team.name, %refusal, "a team failed and that could not be recorded");
        }
        for member in &team.agents {
            let status = self.tree.directory.status(member);
            let runs = matches!(status, Some(AgentStatus::Running | AgentStatus::Restarting));
            if runs && member != crashed {
                // Queued behind the member's other steps. If this supervisor has ended, the next
                // one reads the records.
                drop(self.myself.cast(TeamMsg::Run(member.clone(), LifecycleStep::Failed(why.clone()))));
            }
        }
        self.failed(crashed, why).await;
    }

    /// Fails a member because its team failed, even in the middle of a turn.
    pub(super) async fn failed_with_its_team(&self, agent_id: &AgentId, why: String) {
        let actor = self.tree.directory.actor(agent_id);
        self.failed(agent_id, why).await;
        if let Some(actor) = actor {
            drop(actor.cast(AgentMsg::Stop { grace: Duration::ZERO }));
        }
    }
}
