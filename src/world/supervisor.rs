//! Supervisors: one actor for the agents without a team and one for each team. A supervisor creates
//! actors and is notified when they end. Its reads and commits are [`LifecycleStep`]s, which run in tasks
//! beside its mailbox, so a slow store delays no activation. `crashes` decides how to continue
//! after a crash, with pure rules: [`RestartWindow`], the strategy, the back-off.
//!
//! A handler of a supervisor must never await the store.

mod crashes;
mod ends;
mod lifecycle_queue;
mod lifecycle_runner;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ghost_agent::{AgentActor, AgentMsg, Arguments};
use ghost_config::plan::TeamPlan;
use ghost_domain::restart::Intensity;
use ghost_domain::{Activity, AgentId};
use ractor::{Actor, ActorId, ActorProcessingErr, ActorRef, SupervisionEvent};
use tokio::sync::oneshot;

use self::ends::Ends;
use self::lifecycle_queue::LifecycleQueue;
use self::lifecycle_runner::LifecycleRunner;
use crate::team_msg::{LifecycleStep, TeamMsg};
use crate::tree::Tree;
use crate::wake_slot::Activation;

/// The supervisor actor.
pub(crate) struct Supervisor;

/// The arguments of a supervisor's start.
pub(crate) struct Start {
    pub(crate) tree: Arc<Tree>,
    /// `None` for the world's own supervisor.
    pub(crate) team: Option<TeamPlan>,
    pub(crate) intensity: Intensity,
}

/// A supervisor's state.
pub(crate) struct State {
    tree: Arc<Tree>,
    runner: Arc<LifecycleRunner>,
    lifecycle_queue: LifecycleQueue,
    ends: Ends,
    children: BTreeMap<ActorId, AgentId>,
    closing: Option<oneshot::Sender<()>>,
}

impl State {
    async fn activate(&mut self, myself: &ActorRef<TeamMsg>, agent_id: AgentId) {
        if self.closing.is_some() {
            return;
        }
        match self.tree.directory.activation(&agent_id) {
            Activation::Nothing => return,
            // If this actor is just ending, its inbox is read again after its end.
            Activation::Wake(actor) => return drop(actor.cast(AgentMsg::Wake)),
            Activation::Make => {}
        }
        let arguments = Arguments { agent_id: agent_id.clone(), engine: Arc::clone(&self.tree.engine) };
        match Actor::spawn_linked(None, AgentActor, arguments, myself.get_cell()).await {
            Ok((actor, _)) => {
                self.children.insert(actor.get_id(), agent_id.clone());
                let lives = self.tree.directory.activated(&agent_id, actor.clone());
                // The actor's first wake-up is sent now. Every later wake-up already finds the
                // actor.
                drop(actor.cast(if lives { AgentMsg::Wake } else { AgentMsg::Stop { grace: Duration::ZERO } }));
            }
            Err(error) => {
                self.tree.directory.remove_actor(&agent_id);
                self.crashed(agent_id, format!("its actor could not start: {error}"));
            }
        }
    }

    /// Handles the crash of an agent. The agent gets no wake-up until its restart is decided.
    fn crashed(&mut self, agent_id: AgentId, reason: String) {
        self.runner.note_crash(&agent_id);
        self.lifecycle_queue.send(&self.runner, agent_id, LifecycleStep::Crashed(reason));
    }

    fn shut_down(&mut self, grace: Duration, done: oneshot::Sender<()>) {
        self.closing = Some(done);
        for agent_id in self.children.values() {
            if let Some(actor) = self.tree.directory.actor(agent_id) {
                let activity = self.tree.directory.card(agent_id).map(|card| card.activity);
                // A turn that waits has no work to finish. It continues after the next boot.
                let waits = matches!(activity, Some(Activity::Queued | Activity::Asking));
                let grace = if waits { Duration::ZERO } else { grace };
                drop(actor.cast(AgentMsg::Stop { grace }));
            }
        }
    }

    fn close_if_empty(&mut self) {
        let empty = self.children.is_empty() && self.lifecycle_queue.is_empty() && self.ends.is_empty();
        if empty && let Some(done) = self.closing.take() {
            // The receiver may have stopped waiting.
            let _ = done.send(());
        }
    }
}

impl Actor for Supervisor {
    type Msg = TeamMsg;
    type State = State;
    type Arguments = Start;

    async fn pre_start(&self, myself: ActorRef<TeamMsg>, start: Start) -> Result<State, ActorProcessingErr> {
        let runner = Arc::new(LifecycleRunner::new(Arc::clone(&start.tree), myself, start.team, start.intensity));
        Ok(State {
            tree: start.tree,
            lifecycle_queue: LifecycleQueue::default(),
            ends: Ends::default(),
            runner,
            children: BTreeMap::new(),
            closing: None,
        })
    }

    async fn handle(
        &self,
        myself: ActorRef<TeamMsg>,
        message: TeamMsg,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            TeamMsg::Activate(agent_id) => state.activate(&myself, agent_id).await,
            TeamMsg::Reconcile(agent_id) => {
                state.lifecycle_queue.send(&state.runner, agent_id, LifecycleStep::Reconcile)
            }
            TeamMsg::Restart(agent_id) => state.lifecycle_queue.send(&state.runner, agent_id, LifecycleStep::Restart),
            TeamMsg::Run(agent_id, step) => state.lifecycle_queue.send(&state.runner, agent_id, step),
            TeamMsg::StepDone(agent_id) => state.lifecycle_queue.done(&state.runner, &agent_id),
            TeamMsg::EndsRead => state.ends.read_done(&state.runner),
            TeamMsg::Replan(team, intensity) => state.runner.replan(team, intensity),
            TeamMsg::Shutdown { grace, done } => state.shut_down(grace, done),
        }
        state.close_if_empty();
        Ok(())
    }

    async fn handle_supervisor_evt(
        &self,
        _: ActorRef<TeamMsg>,
        event: SupervisionEvent,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        let (cell, crash) = match event {
            SupervisionEvent::ActorFailed(cell, error) => (cell, Some(error.to_string())),
            SupervisionEvent::ActorTerminated(cell, _, _) => (cell, None),
            _ => return Ok(()),
        };
        let Some(agent_id) = state.children.remove(&cell.get_id()) else { return Ok(()) };
        state.tree.directory.released(&agent_id, cell.get_id());
        match crash {
            Some(reason) if state.closing.is_none() => state.crashed(agent_id, reason),
            // The step checks the record. An order to start it, given meanwhile, brings a step of its own.
            _ if state.closing.is_none() && state.tree.directory.is_stopping(&agent_id) => {
                state.lifecycle_queue.send(&state.runner, agent_id, LifecycleStep::Stopped);
            }
            // A stopped agent takes no mail. An order to start it brings a step of its own.
            _ if state.tree.directory.has_stopped(&agent_id) => {}
            // The agent sleeps, or restarts with its team. In each case its inbox is read again.
            _ if state.closing.is_none() => state.ends.ended(&state.runner, agent_id),
            _ => {}
        }
        state.close_if_empty();
        Ok(())
    }
}
