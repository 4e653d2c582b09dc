//! The handle of a world at work: what the control plane and the daemon ask of it.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ghost_agent::Engine;
use ghost_agent::turn::{self, AgentSession, OperatorCall, Preview};
use ghost_config::plan::Plan;
use ghost_domain::event::{EventKind, NewEvent};
use ghost_domain::journal::CallOutcome;
use ghost_domain::ports::Signal;
use ghost_domain::{Agent, AgentId, AgentStatus, Ask, AskId, AskStatus, Limits, Party, Refusal};
use ghost_provider::Providers;
use ghost_rules::{RuleContext, agents};
use ghost_store::Store;
use ghost_tools::skills::SkillShelf;
use ractor::ActorRef;
use serde_json::json;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::oneshot;
use tokio::task::{AbortHandle, JoinHandle};

use crate::directory::Directory;
use crate::loops::{self, Loops, Running};
use crate::pause::{PAUSED, waiting};
use crate::root::RootMsg;
use crate::team_msg::TeamMsg;
use crate::tree::Tree;

/// Reads the configuration anew: a plan with its providers, or every problem in words.
pub type Reloader = Box<dyn Fn() -> Result<(Plan, Providers), Refusal> + Send + Sync>;

/// The files being read for a reload, on a thread of their own, until someone has taken what came of it.
pub(crate) type Reading = Option<JoinHandle<Result<(Plan, Providers, SkillShelf), Refusal>>>;

/// A world at work.
pub struct World {
    pub(crate) tree: Arc<Tree>,
    pub(crate) root: ActorRef<RootMsg>,
    root_task: Mutex<Option<JoinHandle<()>>>,
    keepers: Mutex<Vec<JoinHandle<()>>>,
    pub(crate) reloader: Arc<Reloader>,
    /// One reload at a time: two that mixed would leave the plan of one with the records of the other.
    pub(crate) reloading: tokio::sync::Mutex<Reading>,
}

impl World {
    pub(crate) fn new(tree: Arc<Tree>, root: ActorRef<RootMsg>, root_task: JoinHandle<()>, reloader: Reloader) -> Self {
        Self {
            tree,
            root,
            root_task: Mutex::new(Some(root_task)),
            keepers: Mutex::default(),
            reloader: Arc::new(reloader),
            reloading: tokio::sync::Mutex::default(),
        }
    }

    /// Keeps a loop running, one of this room or one that hands what the world has to say to the outside, until the world
    /// shuts down or the handle is used to end it. How it stands is in [`loops`](Self::loops).
    pub fn keep_running(&self, name: &'static str, make: impl FnMut() -> Running + Send + 'static) -> AbortHandle {
        let (ctx, store) = (self.ctx().clone(), self.store().clone());
        let maintenance = tokio::spawn(loops::keep(ctx, store, Arc::clone(&self.tree.loops), name, make));
        let end = maintenance.abort_handle();
        self.keepers.lock().unwrap_or_else(PoisonError::into_inner).push(maintenance);
        end
    }

    /// How the loops stand that keep the world going.
    #[must_use]
    pub fn loops(&self) -> &Loops {
        &self.tree.loops
    }

    /// The supervision tree, for tests that break it.
    #[cfg(test)]
    pub(crate) fn tree(&self) -> &Tree {
        &self.tree
    }

    /// What its agents work with.
    #[must_use]
    pub fn engine(&self) -> &Arc<Engine> {
        &self.tree.engine
    }

    /// Its store.
    #[must_use]
    pub fn store(&self) -> &Store {
        &self.tree.engine.services.store
    }

    /// Its rules' context.
    #[must_use]
    pub fn ctx(&self) -> &RuleContext {
        &self.tree.engine.services.ctx
    }

    /// The plan in force.
    #[must_use]
    pub fn plan(&self) -> Arc<Plan> {
        self.tree.engine.services.plan()
    }

    /// Its agents, from memory.
    #[must_use]
    pub fn directory(&self) -> &Arc<Directory> {
        &self.tree.directory
    }

    /// Lets no new turn begin, or lets them begin again. Durable: a paused world is paused after a boot.
    pub async fn set_paused(&self, by: &Party, paused: bool) -> Result<(), Refusal> {
        self.set_paused_because(by, paused, None).await
    }

    /// [`set_paused`](Self::set_paused) with a reason in the words of who asks, which the feed keeps.
    pub async fn set_paused_because(&self, by: &Party, paused: bool, reason: Option<&str>) -> Result<(), Refusal> {
        let (ctx, by, reason) = (self.ctx().clone(), by.clone(), reason.map(str::to_owned));
        self.store()
            .write(move |w| {
                Box::pin(async move {
                    let before = w.meta_get(PAUSED).await?.as_deref() == Some("1");
                    if before == paused {
                        return Ok(());
                    }
                    w.meta_put(PAUSED, if paused { "1" } else { "0" }).await?;
                    // Whoever pauses and whoever resumes may be told of their commits in any order: memory follows the commits.
                    w.signal(Signal::Paused(paused));
                    let kind = if paused { EventKind::WorldPaused } else { EventKind::WorldResumed };
                    ctx.emit(w, NewEvent::new(kind, json!({ "by": by, "reason": reason }))).await
                })
            })
            .await?;
        if !paused {
            for agent_id in waiting(self.store()).await? {
                self.tree.signal_router.wake(&agent_id);
            }
        }
        Ok(())
    }

    /// Rings after every commit that gives the outside something to be handed, or takes it back.
    #[must_use]
    pub fn deliveries(&self) -> tokio::sync::watch::Receiver<u64> {
        self.tree.signal_router.deliveries()
    }

    /// Waits until an ask of someone outside is closed, and gives it. The deadline of the ask bounds the wait.
    pub async fn wait_for_ask(&self, ask_id: AskId) -> Result<Ask, Refusal> {
        let mut rings = self.tree.signal_router.asks();
        let clock = Arc::clone(&self.ctx().ports.clock);
        loop {
            let ask = self
                .store()
                .read(move |r| Box::pin(async move { r.ask_get(ask_id).await }))
                .await
                .map_err(Refusal::from)?
                .ok_or_else(|| Refusal::not_found("ask", &ask_id.to_string(), None))?;
            if ask.status != AskStatus::Open {
                return Ok(ask);
            }
            tokio::select! {
                biased;
                rings = rung(&mut rings, ask_id) => {
                    if !rings {
                        return Err(Refusal::new(ghost_domain::Code::Unavailable, "the world is stopping"));
                    }
                }
                () = clock.sleep_until(ask.deadline_at) => {
                    let ctx = self.ctx().clone();
                    self.store()
                        .write(move |w| {
                            Box::pin(async move { ghost_rules::asks::expire(w, &ctx, ask_id).await })
                        })
                        .await?;
                }
            }
        }
    }

    /// Waits until an agent that was asked to stop has stopped; bounded by the grace period and a little more.
    pub async fn wait_until_stopped(&self, agent_id: &AgentId) -> Result<Agent, Refusal> {
        let clock = Arc::clone(&self.ctx().ports.clock);
        let grace = Limits::seconds(self.ctx().limits().stop_grace_seconds) + Duration::from_secs(10);
        let deadline = self.ctx().now().plus(grace);
        let mut feed = self.store().feed();
        loop {
            let id = agent_id.clone();
            let agent = self
                .store()
                .read(move |r| Box::pin(async move { r.agent_get(&id).await }))
                .await
                .map_err(Refusal::from)?
                .ok_or_else(|| Refusal::not_found("agent", agent_id.as_str(), None))?;
            let over = agent.status != AgentStatus::Stopping || self.ctx().now() >= deadline;
            if over {
                return Ok(agent);
            }
            tokio::select! {
                biased;
                // Whatever was committed, or missed: the record is looked at again.
                _ = feed.recv() => {}
                () = clock.sleep_until(deadline) => {}
            }
        }
    }

    /// Shortens the grace period of an agent that is stopping. One that runs, because it was started again meanwhile, is
    /// left alone.
    pub async fn hasten_stop(&self, agent_id: &AgentId, grace: Duration) -> Result<(), Refusal> {
        let id = agent_id.clone();
        let record: Option<Agent> =
            self.store().read(move |r| Box::pin(async move { r.agent_get(&id).await })).await.map_err(Refusal::from)?;
        if record.is_some_and(|agent| agent.status == AgentStatus::Stopping)
            && let Some(actor) = self.tree.directory.actor(agent_id)
        {
            // An actor that has just ended needs no hastening.
            drop(actor.cast(ghost_agent::AgentMsg::Stop { grace }));
        }
        Ok(())
    }

    /// Calls a tool as an agent, in a turn of the operator's.
    pub async fn call_tool(&self, call: OperatorCall) -> Result<CallOutcome, Refusal> {
        let session = Arc::new(AgentSession::default());
        let mut rings = self.tree.signal_router.asks();
        let bell = Arc::clone(&session);
        let ringing = async move {
            while !matches!(rings.recv().await, Err(RecvError::Closed)) {
                bell.bell.notify_waiters();
            }
            std::future::pending::<()>().await;
        };
        tokio::select! {
            biased;
            outcome = turn::call_for_operator(&self.tree.engine, call, &session) => outcome,
            () = ringing => Err(Refusal::new(ghost_domain::Code::Unavailable, "the world is stopping")),
        }
    }

    /// The prompt that an agent would get now.
    pub async fn preview(&self, agent_id: &AgentId) -> Result<Preview, Refusal> {
        turn::preview(&self.tree.engine, agent_id).await
    }

    /// Stops in order: no new turns, a grace period for those under way, then the end of all actors. What is cut off goes
    /// on at the next boot. The store stays open.
    pub async fn shutdown(&self, reason: &str) {
        self.tree.directory.set_closing();
        for maintenance in std::mem::take(&mut *self.keepers.lock().unwrap_or_else(PoisonError::into_inner)) {
            maintenance.abort();
        }
        let grace = Limits::seconds(self.ctx().limits().stop_grace_seconds);
        let mut ends = Vec::new();
        for supervisor in self.tree.signal_router.supervisors() {
            let (done, ended) = oneshot::channel();
            if supervisor.cast(TeamMsg::Shutdown { grace, done }).is_ok() {
                ends.push(ended);
            }
        }
        let clock = Arc::clone(&self.ctx().ports.clock);
        let all = futures_util::future::join_all(ends);
        tokio::select! {
            biased;
            _ = all => {}
            () = clock.sleep(grace + Duration::from_secs(5)) => {
                tracing::warn!("some agents did not stop within the grace period; they go on at the next start");
            }
        }
        let (ctx, payload) = (self.ctx().clone(), json!({ "reason": reason }));
        let said = self
            .store()
            .write(move |w| Box::pin(async move { ctx.emit(w, NewEvent::new(EventKind::WorldStopped, payload)).await }))
            .await;
        if let Err(refusal) = said {
            tracing::warn!(%refusal, "the end could not be recorded; nothing else is lost");
        }
        self.root.stop(None);
        let task = self.root_task.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(task) = task {
            // The root's own panic was logged when it happened.
            let _ = task.await;
        }
    }

    /// Asks an agent to stop, once, and gives its record when it has stopped.
    pub async fn stop_agent(&self, by: &Party, agent_id: &AgentId, reason: Option<String>) -> Result<Agent, Refusal> {
        let (ctx, by, id) = (self.ctx().clone(), by.clone(), agent_id.clone());
        self.store()
            .write(move |w| {
                Box::pin(async move { agents::stop(w, &ctx, &by, &id, reason.as_deref()).await.map(|_| ()) })
            })
            .await?;
        self.wait_until_stopped(agent_id).await
    }
}

/// Waits until it is said that an ask is closed, or that may have been missed. False if nothing more will be said.
async fn rung(rings: &mut Receiver<Option<AskId>>, ask_id: AskId) -> bool {
    loop {
        match rings.recv().await {
            Ok(Some(closed)) if closed != ask_id => {}
            Ok(_) | Err(RecvError::Lagged(_)) => return true,
            Err(RecvError::Closed) => return false,
        }
    }
}
