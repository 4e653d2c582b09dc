//! A queue of a supervisor's [`LifecycleStep`]s: reads and commits that run in tasks beside its mailbox.
//! LifecycleQueue of one agent run one after another, in order. LifecycleQueue of different agents run at the
//! same time.
//!
//! A panic of one step must never lose the agent's later steps. No step may outlive the
//! supervisor.

use std::collections::{BTreeMap, VecDeque};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::FutureExt;
use ghost_domain::AgentId;
use ghost_domain::text::panic_text;
use tokio::task::JoinSet;

use super::lifecycle_runner::{LifecycleRunner, STORE_PAUSE};
use crate::team_msg::{LifecycleStep, TeamMsg};

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
                runner.send_after(STORE_PAUSE, TeamMsg::Restart(agent_id.clone()));
            }
            // An error means that the supervisor has ended, and its steps with it.
            drop(runner.myself.cast(TeamMsg::StepDone(agent_id)));
        });
    }
}

/// Whether an equal step, which has not begun, makes this one needless. One that waits before other steps does not: those may
/// carry a record that is older than what this step would read.
fn is_covered(waiting: &VecDeque<LifecycleStep>, step: &LifecycleStep) -> bool {
    step.repeats() && waiting.back() == Some(step)
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
