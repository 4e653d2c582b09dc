//! What a supervisor does with the store, one agent at a time, and what it remembers of crashes.
//!
//! Must never: run two errands of one agent at once ([`Errands`](super::errands::Errands) sees to it).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ghost_agent::AgentMsg;
use ghost_config::plan::TeamPlan;
use ghost_domain::restart::{Intensity, RestartWindow};
use ghost_domain::time::BoxFuture;
use ghost_domain::{Agent, AgentId, AgentStatus, Code, Desired, Limits, Refusal};
use ghost_rules::agents;
use ghost_store::Writes;
use ractor::ActorRef;

use crate::team_msg::{Errand, TeamMsg};
use crate::tree::Tree;

/// How long a supervisor waits when the store cannot take its word.
pub(super) const STORE_PAUSE: Duration = Duration::from_secs(1);

/// What a supervisor remembers. Nothing of it is lost that matters: a successor begins with none.
pub(super) struct Book {
    pub(super) team: Option<TeamPlan>,
    /// Of the team as a whole; for the world's own team this is its intensity over all members.
    pub(super) intensity: Intensity,
    pub(super) windows: BTreeMap<AgentId, RestartWindow>,
    pub(super) team_window: RestartWindow,
    /// Agents that have crashed and of which no record says so yet.
    crashing: BTreeSet<AgentId>,
}

/// A supervisor's hands.
pub(super) struct Hands {
    pub(super) tree: Arc<Tree>,
    pub(super) myself: ActorRef<TeamMsg>,
    book: Mutex<Book>,
}

impl Hands {
    pub(super) fn new(
        tree: Arc<Tree>,
        myself: ActorRef<TeamMsg>,
        team: Option<TeamPlan>,
        intensity: Intensity,
    ) -> Self {
        let (windows, team_window, crashing) = (BTreeMap::new(), RestartWindow::default(), BTreeSet::new());
        Self { tree, myself, book: Mutex::new(Book { team, intensity, windows, team_window, crashing }) }
    }

    /// What it remembers. Held over nothing that waits.
    pub(super) fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn replan(&self, team: Option<TeamPlan>, intensity: Intensity) {
        let mut book = self.book();
        book.team = team;
        book.intensity = intensity;
    }

    /// An agent crashed: it is restarting, whatever a record says that is read before the crash is in it.
    pub(super) fn note_crash(&self, agent_id: &AgentId) {
        let mut book = self.book();
        book.crashing.insert(agent_id.clone());
        self.tree.directory.set_status(agent_id, AgentStatus::Restarting);
    }

    /// From now on the record says it, or never will.
    pub(super) fn crash_is_settled(&self, agent_id: &AgentId) {
        self.book().crashing.remove(agent_id);
    }

    /// Does an errand.
    pub(super) async fn run(&self, agent_id: &AgentId, errand: Errand) {
        match errand {
            Errand::Reconcile => self.reconcile(agent_id).await,
            Errand::Restart => self.restart(agent_id).await,
            Errand::Crashed(reason) => self.crashed(agent_id, &reason).await,
            Errand::Failed(why) => self.failed_with_its_team(agent_id, why).await,
            Errand::Stopped => self.stopped(agent_id).await,
            Errand::OutOfPlace(why) => self.out_of_place(agent_id, why).await,
        }
    }

    pub(super) async fn write<T, F>(&self, work: F) -> Result<T, Refusal>
    where
        T: Send + 'static,
        F: for<'t> FnOnce(&'t mut dyn Writes, ghost_rules::RuleContext) -> BoxFuture<'t, Result<T, Refusal>>
            + Send
            + 'static,
    {
        let ctx = self.tree.engine.services.ctx.clone();
        self.tree.engine.services.store.write(move |w| work(w, ctx)).await
    }

    /// Reads an agent's record and takes it over into the directory.
    pub(super) async fn refresh(&self, agent_id: &AgentId) -> Result<Option<Agent>, Refusal> {
        let id = agent_id.clone();
        let record: Option<Agent> = self
            .tree
            .engine
            .services
            .store
            .read(move |r| Box::pin(async move { r.agent_get(&id).await }))
            .await
            .map_err(Refusal::from)?;
        if let Some(agent) = &record
            && let Some(actor) = self.take_over(agent)
        {
            // Deleted while awake.
            drop(actor.cast(AgentMsg::Stop { grace: Duration::ZERO }));
        }
        Ok(record)
    }

    fn take_over(&self, agent: &Agent) -> Option<ActorRef<AgentMsg>> {
        // Under the lock, so that a crash that is noted now is not undone by a record from before it.
        let book = self.book();
        if agent.status == AgentStatus::Running && book.crashing.contains(&agent.agent_id) {
            return self.tree.directory.record(&Agent { status: AgentStatus::Restarting, ..agent.clone() });
        }
        self.tree.directory.record(agent)
    }

    async fn reconcile(&self, agent_id: &AgentId) {
        let record = match self.refresh(agent_id).await {
            Ok(Some(agent)) if !agent.is_deleted() => agent,
            Ok(_) => {
                let mut book = self.book();
                book.windows.remove(agent_id);
                book.crashing.remove(agent_id);
                return;
            }
            Err(refusal) => return self.again(TeamMsg::Reconcile(agent_id.clone()), &refusal),
        };
        match record.desired {
            Desired::Stopped => match self.tree.directory.actor(agent_id) {
                Some(actor) => drop(actor.cast(AgentMsg::Stop { grace: self.grace() })),
                None => self.stopped(agent_id).await,
            },
            Desired::Running => {
                // Someone asked for it, so what was before no longer counts.
                self.book().windows.remove(agent_id);
                match (self.unfit(&record), self.tree.directory.actor(agent_id)) {
                    (None, _) => self.tree.signal_router.wake(agent_id),
                    (Some(why), None) => self.out_of_place(agent_id, why).await,
                    // It may finish its turn; then it is looked at again.
                    (Some(_), Some(actor)) => drop(actor.cast(AgentMsg::Stop { grace: self.grace() })),
                }
            }
        }
    }

    fn grace(&self) -> Duration {
        Limits::seconds(self.tree.engine.services.ctx.limits().stop_grace_seconds)
    }

    /// Why an agent that runs by its record cannot by the plan in force, if that is so.
    pub(super) fn unfit(&self, record: &Agent) -> Option<Refusal> {
        let runs = matches!(record.status, AgentStatus::Running | AgentStatus::Restarting);
        if runs { self.tree.engine.services.plan().may_run(record).err() } else { None }
    }

    /// Records that the plan has no place for an agent, before it takes any more mail.
    async fn out_of_place(&self, agent_id: &AgentId, why: Refusal) {
        let id = agent_id.clone();
        let recorded = self.write(move |w, ctx| Box::pin(async move { agents::unfit(w, &ctx, &id, &why).await })).await;
        if let Err(refusal) = recorded
            && passing(&refusal)
        {
            self.again(TeamMsg::Reconcile(agent_id.clone()), &refusal);
        }
    }

    pub(super) async fn stopped(&self, agent_id: &AgentId) {
        let id = agent_id.clone();
        let recorded = self.write(move |w, ctx| Box::pin(async move { agents::stopped(w, &ctx, &id).await })).await;
        if let Err(refusal) = recorded
            && passing(&refusal)
        {
            return self.again(TeamMsg::Reconcile(agent_id.clone()), &refusal);
        }
        if let Err(refusal) = self.refresh(agent_id).await {
            tracing::warn!(%agent_id, %refusal, "cannot read the record of a stopped agent");
        }
    }

    /// The store could not take the supervisor's word: the same again later.
    pub(super) fn again(&self, message: TeamMsg, refusal: &Refusal) {
        tracing::warn!(?message, %refusal, "the store cannot take this; trying again");
        self.later(STORE_PAUSE, message);
    }

    pub(super) fn later(&self, after: Duration, message: TeamMsg) {
        let sleep = self.tree.engine.services.ctx.ports.clock.sleep(after);
        let myself = self.myself.clone();
        tokio::spawn(async move {
            sleep.await;
            // A supervisor that is gone has no use for it: its successor looks at everything anew.
            drop(myself.cast(message));
        });
    }

    async fn restart(&self, agent_id: &AgentId) {
        self.crash_is_settled(agent_id);
        let id = agent_id.clone();
        let recorded = self.write(move |w, ctx| Box::pin(async move { agents::restarted(w, &ctx, &id).await })).await;
        match recorded {
            Ok(()) => {}
            Err(refusal) if passing(&refusal) => {
                return self.again(TeamMsg::Restart(agent_id.clone()), &refusal);
            }
            Err(refusal) => {
                tracing::warn!(%agent_id, %refusal, "a restart was given up");
                return;
            }
        }
        match self.refresh(agent_id).await {
            Ok(_) => self.tree.signal_router.wake(agent_id),
            Err(refusal) => self.again(TeamMsg::Restart(agent_id.clone()), &refusal),
        }
    }
}

/// Whether a refusal of the supervisor's own word may pass by itself. An agent that is gone, or that another daemon owns
/// now, is let go; anything else must not leave it between two states.
pub(super) fn passing(refusal: &Refusal) -> bool {
    !matches!(refusal.code, Code::NotFound | Code::Conflict)
}
