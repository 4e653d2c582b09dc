//! Handles a crash: for the agent, for the other members of its team, and for the team.
//!
//! This module must never change a turn or its mail. The world rules record the crash in both
//! before a restart is decided.

use std::time::Duration;

use ghost_agent::AgentMsg;
use ghost_domain::event::{EventKind, NewEvent};
use ghost_domain::restart::{Intensity, RestartType, Strategy};
use ghost_domain::{AgentId, AgentStatus, Desired, Limits, Timestamp};
use ghost_operations::agents;
use serde_json::json;

use super::lifecycle_runner::{LifecycleRunner, STORE_PAUSE, should_retry};
use crate::team_msg::{LifecycleStep, TeamMsg};

impl LifecycleRunner {
    /// Handles a crash: records the crash in the agent's turn, then decides about the agent's
    /// restart.
    pub(super) async fn crashed(&self, agent_id: &AgentId, reason: &str) {
        // A panic's text may contain the arguments of the tool.
        let reason = &self.tree.engine.services.ctx.redactor.redact(reason);
        tracing::warn!(%agent_id, reason, "an agent crashed");
        let (id, words) = (agent_id.clone(), reason.to_owned());
        let recorded = self.write(move |w| agents::crashed(w, &id, &words)).await;
        self.forget_crash(agent_id);
        match recorded {
            // The mail that caused the crash is now a dead letter, so earlier crashes no longer
            // count (promise 3).
            Ok(true) => drop(self.memory().windows.remove(agent_id)),
            Ok(false) => {}
            Err(refusal) => {
                tracing::warn!(%agent_id, %refusal, "a crash could not be recorded");
                if should_retry(&refusal) {
                    self.send_after(STORE_PAUSE, TeamMsg::Restart(agent_id.clone()));
                }
                return;
            }
        }
        let record = match self.refresh(agent_id).await {
            Ok(Some(agent)) if !agent.is_deleted() => agent,
            Ok(_) => return,
            Err(refusal) => return self.retry_later(TeamMsg::Restart(agent_id.clone()), &refusal),
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
        self.send_after(rules.backoff.delay(attempt, jitter), TeamMsg::Restart(agent_id.clone()));
    }

    /// Counts a crash for the team. Returns whether the team has now had too many.
    fn passes_intensity(&self, now: Timestamp) -> bool {
        let mut memory = self.memory();
        let intensity = memory.intensity;
        memory.team.is_some() && memory.team_window.record(now, intensity).is_none()
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
            if with && let Some(actor) = self.tree.directory.actor(member) {
                drop(actor.cast(AgentMsg::Yield { grace }));
            }
        }
    }

    async fn failed(&self, agent_id: &AgentId, why: String) {
        let id = agent_id.clone();
        let recorded = self.write(move |w| agents::failed(w, &id, &why)).await;
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
        let (team, Intensity { max, window }) = {
            let mut memory = self.memory();
            memory.team_window.clear();
            (memory.team.clone(), memory.intensity)
        };
        let Some(team) = team else { return };
        let why = format!(
            "team {} had more than {max} crashes within {} s; the last one: {reason}",
            team.name,
            window.as_secs(),
        );
        let event = NewEvent::new(EventKind::TeamFailed, json!({ "team": team.name, "reason": why }));
        let recorded = self.write(move |w| w.emit(event)).await;
        if let Err(refusal) = recorded {
            tracing::error!(team = team.name, %refusal, "a team failed and that could not be recorded");
        }
        for member in &team.agents {
            let runs = self
                .tree
                .directory
                .card(member)
                .is_some_and(|card| matches!(card.status, AgentStatus::Running | AgentStatus::Restarting));
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
