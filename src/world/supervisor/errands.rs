//! A queue of a supervisor's [`Errand`]s: reads and commits that run in tasks beside its mailbox.
//! Errands of one agent run one after another, in order. Errands of different agents run at the
//! same time.
//!
//! A panic of one errand must never lose the agent's later errands. No errand may outlive the
//! supervisor.

use std::collections::{BTreeMap, VecDeque};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::FutureExt;
use ghost_agent::panics;
use ghost_domain::AgentId;
use tokio::task::JoinSet;

use super::errand_runner::{ErrandRunner, STORE_PAUSE};
use crate::team_msg::{Errand, TeamMsg};

/// The running errands, and for each agent the errands that wait for its running one.
#[derive(Default)]
pub(super) struct Errands {
    waiting: BTreeMap<AgentId, VecDeque<Errand>>,
    /// Dropped with the supervisor; the next supervisor reads every record.
    running: JoinSet<()>,
}

impl Errands {
    /// Runs an errand after the earlier errands of the same agent.
    pub(super) fn send(&mut self, runner: &Arc<ErrandRunner>, agent_id: AgentId, errand: Errand) {
        match self.waiting.get_mut(&agent_id) {
            // An equal errand that has not begun yet covers this one.
            Some(waiting) if errand.repeats() && waiting.contains(&errand) => {}
            Some(waiting) => waiting.push_back(errand),
            None => {
                self.waiting.insert(agent_id.clone(), VecDeque::new());
                self.begin(runner, agent_id, errand);
            }
        }
    }

    /// Begins the next errand of an agent after one has ended.
    pub(super) fn done(&mut self, runner: &Arc<ErrandRunner>, agent_id: &AgentId) {
        while self.running.try_join_next().is_some() {}
        match self.waiting.get_mut(agent_id).and_then(VecDeque::pop_front) {
            Some(errand) => self.begin(runner, agent_id.clone(), errand),
            None => drop(self.waiting.remove(agent_id)),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    fn begin(&mut self, runner: &Arc<ErrandRunner>, agent_id: AgentId, errand: Errand) {
        let runner = Arc::clone(runner);
        self.running.spawn(async move {
            let ran = AssertUnwindSafe(runner.run(&agent_id, errand)).catch_unwind().await;
            if let Err(panic) = ran {
                // The agent must not stay between two states, so it is restarted.
                let panic = panics::text(&*panic);
                let panic = runner.tree.engine.services.ctx.redactor.redact(&panic);
                tracing::error!(%agent_id, panic, "a supervisor's task for this agent panicked; the agent is restarted");
                runner.later(STORE_PAUSE, TeamMsg::Restart(agent_id.clone()));
            }
            // An error means that the supervisor has ended, and its errands with it.
            drop(runner.myself.cast(TeamMsg::ErrandDone(agent_id)));
        });
    }
}
