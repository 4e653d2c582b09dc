//! The supervision tree: the root, and below it supervisors, one actor for the agents without a team and one for each team. A
//! supervisor creates actors and is notified when they end; the root restarts a supervisor that died, and gives it its agents.
//! A supervisor's reads and commits are [`LifecycleStep`]s, which run in tasks beside its mailbox: no handler awaits the store,
//! so a slow store delays no activation.

mod ends;
mod lifecycle;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use ghost_agent::{AgentActor, AgentMsg, Arguments};
use ghost_config::plan::TeamPlan;
use ghost_domain::{Activity, AgentId, AgentStatus};
use ghost_store::StoreError;
use ractor::{Actor, ActorId, ActorProcessingErr, ActorRef, SupervisionEvent};
use tokio::sync::oneshot;

use self::ends::Ends;
use self::lifecycle::{LifecycleQueue, LifecycleRunner};
use crate::signal_router::{LifecycleStep, TeamMsg};
use crate::slots::Activation;
use crate::tree::Tree;

/// The supervisor actor.
pub(crate) struct Supervisor;

/// The arguments of a supervisor's start.
pub(crate) struct Start {
    pub(crate) tree: Arc<Tree>,
    /// `None` for the world's own supervisor.
    pub(crate) team: Option<TeamPlan>,
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
            let activity = self.tree.directory.card(agent_id).map(|card| card.activity);
            // A turn that waits has no work to finish. It continues after the next boot.
            let waits = matches!(activity, Some(Activity::Queued | Activity::Asking));
            let grace = if waits { Duration::ZERO } else { grace };
            self.tree.directory.tell(agent_id, AgentMsg::Stop { grace });
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
        let runner = Arc::new(LifecycleRunner::new(Arc::clone(&start.tree), myself, start.team));
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
            TeamMsg::Run(agent_id, step) => state.lifecycle_queue.send(&state.runner, agent_id, step),
            TeamMsg::StepDone(agent_id) => state.lifecycle_queue.done(&state.runner, &agent_id),
            TeamMsg::EndsRead => state.ends.read_done(&state.runner),
            TeamMsg::Replan(team) => state.runner.memory().team = Some(team),
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
        match (crash, state.tree.directory.status(&agent_id)) {
            _ if state.closing.is_some() => {}
            (Some(reason), _) => state.crashed(agent_id, reason),
            // The step checks the record. An order to start it, given meanwhile, brings a step of its own.
            (None, Some(AgentStatus::Stopping)) => {
                state.lifecycle_queue.send(&state.runner, agent_id, LifecycleStep::Stopped);
            }
            // A stopped agent takes no mail. An order to start it brings a step of its own.
            (None, Some(AgentStatus::Stopped)) => {}
            // The agent sleeps, or restarts with its team. In each case its inbox is read again.
            (None, _) => state.ends.ended(&state.runner, agent_id),
        }
        state.close_if_empty();
        Ok(())
    }
}

/// The root actor.
pub(crate) struct Root;

/// Starts a supervisor for a team; `None` is the world's own. The channel is answered when it runs.
#[derive(Debug)]
pub(crate) struct Adopt(Option<TeamPlan>, oneshot::Sender<()>);

/// Has the root start a supervisor. Returns whether it runs.
pub(crate) async fn adopt(root: &ActorRef<Adopt>, team: Option<TeamPlan>) -> bool {
    let (done, there) = oneshot::channel();
    root.cast(Adopt(team, done)).is_ok() && there.await.is_ok()
}

/// The root's state.
pub(crate) struct RootState {
    tree: Arc<Tree>,
    teams: BTreeMap<ActorId, Option<TeamPlan>>,
}

fn name_of(team: Option<&TeamPlan>) -> Option<Arc<str>> {
    team.map(|team| Arc::from(team.name.as_str()))
}

impl RootState {
    async fn adopt(&mut self, myself: &ActorRef<Adopt>, team: Option<TeamPlan>) {
        let start = Start { tree: Arc::clone(&self.tree), team: team.clone() };
        match Actor::spawn_linked(None, Supervisor, start, myself.get_cell()).await {
            Ok((supervisor, _)) => {
                let name = name_of(team.as_ref());
                self.teams.insert(supervisor.get_id(), team);
                self.tree.signal_router.connect(name, supervisor);
            }
            Err(error) => tracing::error!(%error, "a supervisor could not start"),
        }
    }

    /// The agents of the supervisor of `own`: the agents in the directory, and the agents that so
    /// far only have a record.
    async fn members_of(&self, own: Option<&Arc<str>>) -> BTreeSet<AgentId> {
        let (directory, signal_router) = (&self.tree.directory, &self.tree.signal_router);
        let cards = directory.cards().into_iter();
        let known = cards.filter(|card| signal_router.has_agents_of(own, card.team.as_ref())).map(|card| card.agent_id);
        let mut members: BTreeSet<AgentId> = known.collect();
        match self.tree.engine.services.store.read(|r| r.agent_list(false)).await {
            Ok(records) => members.extend(records.into_iter().filter_map(|agent| {
                let team = agent.team.as_deref().map(Arc::from);
                (directory.card(&agent.agent_id).is_none() && signal_router.has_agents_of(own, team.as_ref()))
                    .then_some(agent.agent_id)
            })),
            Err(error) => {
                let error: StoreError = error;
                tracing::warn!(%error, "the agents' records cannot be read; a new agent may start late");
            }
        }
        members
    }
}

impl Actor for Root {
    type Msg = Adopt;
    type State = RootState;
    type Arguments = Arc<Tree>;

    async fn pre_start(&self, _: ActorRef<Adopt>, tree: Arc<Tree>) -> Result<RootState, ActorProcessingErr> {
        Ok(RootState { tree, teams: BTreeMap::new() })
    }

    async fn handle(
        &self,
        myself: ActorRef<Adopt>,
        message: Adopt,
        state: &mut RootState,
    ) -> Result<(), ActorProcessingErr> {
        let Adopt(team, done) = message;
        state.adopt(&myself, team).await;
        // The receiver may have stopped waiting.
        let _ = done.send(());
        Ok(())
    }

    async fn handle_supervisor_evt(
        &self,
        myself: ActorRef<Adopt>,
        event: SupervisionEvent,
        state: &mut RootState,
    ) -> Result<(), ActorProcessingErr> {
        let (cell, reason) = match event {
            SupervisionEvent::ActorFailed(cell, error) => (cell, error.to_string()),
            SupervisionEvent::ActorTerminated(cell, _, reason) => (cell, reason.unwrap_or_default()),
            _ => return Ok(()),
        };
        let Some(team) = state.teams.remove(&cell.get_id()) else { return Ok(()) };
        let name = name_of(team.as_ref());
        tracing::error!(team = name.as_deref(), reason, "a supervisor died; starting another");
        // The plan may have changed the team since the supervisor started.
        let plan = state.tree.engine.services.plan();
        let team = team.map(|old| plan.teams.iter().find(|new| new.name == old.name).cloned().unwrap_or(old));
        state.adopt(&myself, team).await;
        let Some(supervisor) = state.tree.signal_router.supervisor(name.as_ref()) else { return Ok(()) };
        // Its agents' actors died with it. Their journals and inboxes are in the store.
        for agent_id in state.members_of(name.as_ref()).await {
            state.tree.directory.remove_actor(&agent_id);
            let restarting = state.tree.directory.status(&agent_id) == Some(AgentStatus::Restarting);
            // The dead supervisor's restart timers and unfinished orders are lost. So each agent is restarted or
            // reconciled with its record. Both also wake it.
            let order = if restarting { LifecycleStep::Restart } else { LifecycleStep::Reconcile };
            // If this supervisor dies too, the next one gets the same orders.
            drop(supervisor.cast(TeamMsg::Run(agent_id, order)));
        }
        Ok(())
    }
}
