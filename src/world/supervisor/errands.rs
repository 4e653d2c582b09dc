//! Errands of a supervisor: what reads and commits, beside its mailbox. Those of one agent run one after another, in order;
//! those of different agents hold each other up in nothing but the store itself.
//!
//! Must never: lose an agent's errands to one that panics, or outlive their supervisor.

use std::collections::{BTreeMap, VecDeque};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::FutureExt;
use ghost_agent::panics;
use ghost_domain::AgentId;
use tokio::task::JoinSet;

use super::hands::{Hands, STORE_PAUSE};
use crate::team_msg::{Errand, TeamMsg};

/// The errands under way, and those that wait for one of the same agent.
#[derive(Default)]
pub(super) struct Errands {
    waiting: BTreeMap<AgentId, VecDeque<Errand>>,
    /// Dropped with their supervisor, whose successor looks at every record.
    running: JoinSet<()>,
}

impl Errands {
    /// Runs an errand when those of the same agent before it have.
    pub(super) fn send(&mut self, hands: &Arc<Hands>, agent_id: AgentId, errand: Errand) {
        match self.waiting.get_mut(&agent_id) {
            // One that has not begun yet does for both.
            Some(waiting) if errand.repeats() && waiting.contains(&errand) => {}
            Some(waiting) => waiting.push_back(errand),
            None => {
                self.waiting.insert(agent_id.clone(), VecDeque::new());
                self.begin(hands, agent_id, errand);
            }
        }
    }

    /// An agent's errand is over: its next one begins.
    pub(super) fn ran(&mut self, hands: &Arc<Hands>, agent_id: &AgentId) {
        while self.running.try_join_next().is_some() {}
        match self.waiting.get_mut(agent_id).and_then(VecDeque::pop_front) {
            Some(errand) => self.begin(hands, agent_id.clone(), errand),
            None => drop(self.waiting.remove(agent_id)),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    fn begin(&mut self, hands: &Arc<Hands>, agent_id: AgentId, errand: Errand) {
        let hands = Arc::clone(hands);
        self.running.spawn(async move {
            let ran = AssertUnwindSafe(hands.run(&agent_id, errand)).catch_unwind().await;
            if let Err(panic) = ran {
                // Its agent must not be left between two states: its record is looked at again.
                let words = panics::text(&*panic);
                let words = hands.tree.engine.services.ctx.redactor.redact(&words);
                tracing::error!(%agent_id, words, "an errand of a supervisor panicked; the agent is looked at again");
                hands.later(STORE_PAUSE, TeamMsg::Restart(agent_id.clone()));
            }
            // A supervisor that is gone has no errands any more.
            drop(hands.myself.cast(TeamMsg::Ran(agent_id)));
        });
    }
}
