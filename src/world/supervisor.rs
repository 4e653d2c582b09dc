//! Supervisors: one actor for the world's own agents and one for each team. What a crash means is decided in `crashes`, by
//! pure rules: [`RestartWindow`], the strategy, the back-off.

mod crashes;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ghost_agent::{AgentActor, AgentMsg, Arguments, Engine};
use ghost_commons::agents;
use ghost_config::plan::TeamPlan;
use ghost_domain::restart::{Intensity, RestartWindow};
use ghost_domain::time::BoxFuture;
use ghost_domain::{Activity, Agent, AgentId, AgentStatus, Code, Desired, Limits, Refusal};
use ghost_store::Writes;
use ractor::{Actor, ActorId, ActorProcessingErr, ActorRef, SupervisionEvent};
use tokio::sync::oneshot;

use crate::directory::Directory;
use crate::loops::Loops;
use crate::switchboard::Switchboard;
use crate::team_msg::TeamMsg;
use crate::wake_slot::Activation;

/// How long a supervisor waits when the store cannot take its word.
const STORE_PAUSE: Duration = Duration::from_secs(1);

/// Pending mail that is looked through when an actor has ended.
const LOOK: u32 = 128;

/// What all supervisors of a world share.
pub(crate) struct Tree {
    pub(crate) engine: Arc<Engine>,
    pub(crate) directory: Arc<Directory>,
    pub(crate) switchboard: Arc<Switchboard>,
    pub(crate) loops: Arc<Loops>,
}

/// A supervisor.
pub(crate) struct Supervisor;

/// What one is started with.
pub(crate) struct Start {
    pub(crate) tree: Arc<Tree>,
    /// `None` is the world's own.
    pub(crate) team: Option<TeamPlan>,
    pub(crate) intensity: Intensity,
}

/// A supervisor's state.
pub(crate) struct State {
    tree: Arc<Tree>,
    team: Option<TeamPlan>,
    /// Of the team as a whole; for the world's own team this is its intensity over all members.
    intensity: Intensity,
    children: BTreeMap<ActorId, AgentId>,
    windows: BTreeMap<AgentId, RestartWindow>,
    team_window: RestartWindow,
    closing: Option<oneshot::Sender<()>>,
}

impl State {
    async fn write<T, F>(&self, work: F) -> Result<T, Refusal>
    where
        T: Send + 'static,
        F: for<'t> FnOnce(&'t mut dyn Writes, ghost_commons::Cx) -> BoxFuture<'t, Result<T, Refusal>> + Send + 'static,
    {
        let cx = self.tree.engine.office.cx.clone();
        self.tree.engine.office.store.write(move |w| work(w, cx)).await
    }

    /// Reads an agent's record and takes it over into the directory.
    async fn refresh(&self, agent_id: &AgentId) -> Result<Option<Agent>, Refusal> {
        let id = agent_id.clone();
        let record: Option<Agent> = self
            .tree
            .engine
            .office
            .store
            .read(move |r| Box::pin(async move { r.agent_get(&id).await }))
            .await
            .map_err(Refusal::from)?;
        if let Some(agent) = &record
            && let Some(actor) = self.tree.directory.record(agent)
        {
            // Deleted while awake.
            drop(actor.cast(AgentMsg::Stop { grace: Duration::ZERO }));
        }
        Ok(record)
    }

    async fn activate(&mut self, myself: &ActorRef<TeamMsg>, agent_id: AgentId) {
        if self.closing.is_some() {
            return;
        }
        match self.tree.directory.activation(&agent_id) {
            Activation::Nothing => return,
            // One that ends now has its inbox looked at by whoever hears of its end.
            Activation::Tell(actor) => return drop(actor.cast(AgentMsg::Wake)),
            Activation::Make => {}
        }
        let arguments = Arguments { agent_id: agent_id.clone(), engine: Arc::clone(&self.tree.engine) };
        match Actor::spawn_linked(None, AgentActor, arguments, myself.get_cell()).await {
            Ok((actor, _)) => {
                self.children.insert(actor.get_id(), agent_id.clone());
                let lives = self.tree.directory.activated(&agent_id, actor.clone());
                // Its first look, now that every other wake-up finds it.
                drop(actor.cast(if lives { AgentMsg::Wake } else { AgentMsg::Stop { grace: Duration::ZERO } }));
            }
            Err(error) => {
                self.tree.directory.given_up(&agent_id);
                self.crashed(myself, &agent_id, &format!("its actor could not start: {error}")).await;
            }
        }
    }

    async fn reconcile(&mut self, myself: &ActorRef<TeamMsg>, agent_id: AgentId) {
        let record = match self.refresh(&agent_id).await {
            Ok(Some(agent)) if !agent.is_deleted() => agent,
            Ok(_) => {
                self.windows.remove(&agent_id);
                return;
            }
            Err(refusal) => return self.again(myself, TeamMsg::Reconcile(agent_id), &refusal),
        };
        match record.desired {
            Desired::Stopped => match self.tree.directory.actor(&agent_id) {
                Some(actor) => drop(actor.cast(AgentMsg::Stop { grace: self.grace() })),
                None => self.stopped(myself, &agent_id).await,
            },
            Desired::Running => {
                // Someone asked for it, so what was before no longer counts.
                self.windows.remove(&agent_id);
                match (self.unfit(&record), self.tree.directory.actor(&agent_id)) {
                    (None, _) => self.tree.switchboard.wake(&agent_id),
                    (Some(why), None) => self.out_of_place(myself, &agent_id, why).await,
                    // It may finish its turn; then it is looked at again.
                    (Some(_), Some(actor)) => drop(actor.cast(AgentMsg::Stop { grace: self.grace() })),
                }
            }
        }
    }

    fn grace(&self) -> Duration {
        Limits::seconds(self.tree.engine.office.cx.limits().stop_grace_seconds)
    }

    /// Why an agent that runs by its record cannot by the plan in force, if that is so.
    fn unfit(&self, record: &Agent) -> Option<Refusal> {
        let runs = matches!(record.status, AgentStatus::Running | AgentStatus::Restarting);
        if runs { self.tree.engine.office.plan().may_run(record).err() } else { None }
    }

    /// Records that the plan has no place for an agent, before it takes any more mail.
    async fn out_of_place(&self, myself: &ActorRef<TeamMsg>, agent_id: &AgentId, why: Refusal) {
        let id = agent_id.clone();
        let recorded = self.write(move |w, cx| Box::pin(async move { agents::unfit(w, &cx, &id, &why).await })).await;
        if let Err(refusal) = recorded
            && passing(&refusal)
        {
            self.again(myself, TeamMsg::Reconcile(agent_id.clone()), &refusal);
        }
    }

    async fn stopped(&self, myself: &ActorRef<TeamMsg>, agent_id: &AgentId) {
        let id = agent_id.clone();
        let recorded = self.write(move |w, cx| Box::pin(async move { agents::stopped(w, &cx, &id).await })).await;
        if let Err(refusal) = recorded
            && passing(&refusal)
        {
            return self.again(myself, TeamMsg::Reconcile(agent_id.clone()), &refusal);
        }
        if let Err(refusal) = self.refresh(agent_id).await {
            tracing::warn!(%agent_id, %refusal, "cannot read the record of a stopped agent");
        }
    }

    /// The store could not take the supervisor's word: the same again later.
    fn again(&self, myself: &ActorRef<TeamMsg>, message: TeamMsg, refusal: &Refusal) {
        tracing::warn!(?message, %refusal, "the store cannot take this; trying again");
        self.later(myself, STORE_PAUSE, message);
    }

    fn later(&self, myself: &ActorRef<TeamMsg>, after: Duration, message: TeamMsg) {
        let sleep = self.tree.engine.office.cx.ports.clock.sleep(after);
        let myself = myself.clone();
        tokio::spawn(async move {
            sleep.await;
            // A supervisor that is gone has no use for it: its successor looks at everything anew.
            drop(myself.cast(message));
        });
    }

    async fn restart(&mut self, myself: &ActorRef<TeamMsg>, agent_id: AgentId) {
        let id = agent_id.clone();
        let recorded = self.write(move |w, cx| Box::pin(async move { agents::restarted(w, &cx, &id).await })).await;
        match recorded {
            Ok(()) => {}
            Err(refusal) if passing(&refusal) => {
                return self.again(myself, TeamMsg::Restart(agent_id), &refusal);
            }
            Err(refusal) => {
                tracing::warn!(%agent_id, %refusal, "a restart was given up");
                return;
            }
        }
        match self.refresh(&agent_id).await {
            Ok(_) => self.tree.switchboard.wake(&agent_id),
            Err(refusal) => self.again(myself, TeamMsg::Restart(agent_id), &refusal),
        }
    }

    /// A child ended without a crash: it sleeps, was stopped, or is restarted with its team. Whatever the reason, its
    /// inbox is looked at again.
    async fn ended(&mut self, myself: &ActorRef<TeamMsg>, agent_id: &AgentId) {
        if self.closing.is_some() {
            return;
        }
        let id = agent_id.clone();
        let looked = self
            .tree
            .engine
            .office
            .store
            .read(move |r| {
                Box::pin(async move {
                    let agent = r.agent_get(&id).await?;
                    // Mail that does not wake lets it sleep; past this many pieces one look more does no harm.
                    let pending = r.inbox_pending(&id, LOOK).await?;
                    let wakes = pending.len() >= LOOK as usize || pending.iter().any(|mail| mail.wake);
                    let waits = wakes || r.turn_open_of(&id).await?.is_some();
                    Ok::<_, ghost_store::StoreError>((agent, waits))
                })
            })
            .await;
        match looked {
            Ok((Some(agent), waits)) if !agent.is_deleted() => {
                if agent.desired == Desired::Stopped && agent.status == AgentStatus::Stopping {
                    self.stopped(myself, agent_id).await;
                } else if let Some(why) = self.unfit(&agent)
                    && agent.desired == Desired::Running
                {
                    self.out_of_place(myself, agent_id, why).await;
                } else if waits && !self.tree.directory.is_paused() {
                    self.tree.switchboard.wake(agent_id);
                }
            }
            Ok(_) => {}
            Err(error) => self.again(myself, TeamMsg::Reconcile(agent_id.clone()), &error.into()),
        }
    }

    fn close_if_empty(&mut self) {
        if self.children.is_empty()
            && let Some(done) = self.closing.take()
        {
            // Whoever waited may have given up waiting.
            let _ = done.send(());
        }
    }
}

/// Whether a refusal of the supervisor's own word may pass by itself. An agent that is gone, or that another daemon owns
/// now, is let go; anything else must not leave it between two states.
fn passing(refusal: &Refusal) -> bool {
    !matches!(refusal.code, Code::NotFound | Code::Conflict)
}

impl Actor for Supervisor {
    type Msg = TeamMsg;
    type State = State;
    type Arguments = Start;

    async fn pre_start(&self, _: ActorRef<TeamMsg>, start: Start) -> Result<State, ActorProcessingErr> {
        Ok(State {
            tree: start.tree,
            team: start.team,
            intensity: start.intensity,
            children: BTreeMap::new(),
            windows: BTreeMap::new(),
            team_window: RestartWindow::default(),
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
            TeamMsg::Reconcile(agent_id) => state.reconcile(&myself, agent_id).await,
            TeamMsg::Restart(agent_id) => state.restart(&myself, agent_id).await,
            TeamMsg::Replan(team, intensity) => {
                state.team = team;
                state.intensity = intensity;
            }
            TeamMsg::Shutdown { grace, done } => {
                state.closing = Some(done);
                let ids: Vec<AgentId> = state.children.values().cloned().collect();
                for agent_id in ids {
                    if let Some(actor) = state.tree.directory.actor(&agent_id) {
                        let activity = state.tree.directory.card(&agent_id).map(|card| card.activity);
                        // Waiting is no work that could be finished: it goes on at the next boot.
                        let waits = matches!(activity, Some(Activity::Queued | Activity::Asking));
                        let grace = if waits { Duration::ZERO } else { grace };
                        drop(actor.cast(AgentMsg::Stop { grace }));
                    }
                }
                state.close_if_empty();
            }
        }
        Ok(())
    }

    async fn handle_supervisor_evt(
        &self,
        myself: ActorRef<TeamMsg>,
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
            Some(reason) if state.closing.is_none() => {
                state.tree.directory.set_status(&agent_id, AgentStatus::Restarting);
                state.crashed(&myself, &agent_id, &reason).await;
            }
            _ => state.ended(&myself, &agent_id).await,
        }
        state.close_if_empty();
        Ok(())
    }
}
