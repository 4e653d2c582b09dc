//! The handle of a world at work: what the control plane and the daemon ask of it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ghost_agent::Engine;
use ghost_agent::turn::{self, Bench, Preview};
use ghost_commons::{Cx, agents};
use ghost_config::FileChanges;
use ghost_config::diff::Return;
use ghost_config::plan::Plan;
use ghost_domain::event::{EventKind, NewEvent};
use ghost_domain::journal::CallOutcome;
use ghost_domain::{Agent, AgentId, AgentStatus, Ask, AskId, AskStatus, Desired, Limits, Party, Refusal, TurnId};
use ghost_provider::Providers;
use ghost_store::Store;
use ghost_tools::skills::SkillShelf;
use ractor::ActorRef;
use serde_json::{Value, json};
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::boot::{PAUSED, waiting};
use crate::directory::Directory;
use crate::reconcile::{self, Reconciled};
use crate::root::RootMsg;
use crate::supervisor::{TeamMsg, Tree};

/// Reads the configuration anew: a plan with its providers, or every problem in words.
pub type Reloader = Box<dyn Fn() -> Result<(Plan, Providers), Refusal> + Send + Sync>;

/// A world at work.
pub struct World {
    tree: Arc<Tree>,
    root: ActorRef<RootMsg>,
    root_task: Mutex<Option<JoinHandle<()>>>,
    keepers: Mutex<Vec<JoinHandle<()>>>,
    reloader: Reloader,
    /// One reload at a time: two that mixed would leave the plan of one with the records of the other.
    reloading: tokio::sync::Mutex<()>,
}

impl World {
    pub(crate) fn new(tree: Arc<Tree>, root: ActorRef<RootMsg>, root_task: JoinHandle<()>, reloader: Reloader) -> Self {
        Self {
            tree,
            root,
            root_task: Mutex::new(Some(root_task)),
            keepers: Mutex::default(),
            reloader,
            reloading: tokio::sync::Mutex::new(()),
        }
    }

    pub(crate) fn keep(&self, keeper: JoinHandle<()>) {
        self.keepers.lock().unwrap_or_else(PoisonError::into_inner).push(keeper);
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
        &self.tree.engine.office.store
    }

    /// Its rules' context.
    #[must_use]
    pub fn cx(&self) -> &Cx {
        &self.tree.engine.office.cx
    }

    /// The plan in force.
    #[must_use]
    pub fn plan(&self) -> Arc<Plan> {
        self.tree.engine.office.plan()
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
        let (cx, by, reason) = (self.cx().clone(), by.clone(), reason.map(str::to_owned));
        self.store()
            .write(move |w| {
                Box::pin(async move {
                    let before = w.meta_get(PAUSED).await?.as_deref() == Some("1");
                    if before == paused {
                        return Ok(());
                    }
                    w.meta_put(PAUSED, if paused { "1" } else { "0" }).await?;
                    let kind = if paused { EventKind::WorldPaused } else { EventKind::WorldResumed };
                    cx.emit(w, NewEvent::new(kind, json!({ "by": by, "reason": reason }))).await
                })
            })
            .await?;
        self.tree.directory.set_paused(paused);
        self.tree.switchboard.ring_schedules();
        if !paused {
            for agent_id in waiting(self.store()).await? {
                self.tree.switchboard.wake(&agent_id);
            }
        }
        Ok(())
    }

    /// Reads the configuration anew and brings the world to it. With `dry_run` it only says what it would do.
    pub async fn reload(&self, by: &Party, dry_run: bool) -> Result<Reconciled, Refusal> {
        let _one = self.reloading.lock().await;
        let (plan, mut providers) = (self.reloader)()?;
        let before = self.plan();
        if plan.world_id != before.world_id {
            return Err(Refusal::new(
                ghost_domain::Code::Conflict,
                format!("the file now names the world `{}`, but `{}` runs", plan.world_id, before.world_id),
            )
            .hint("a world's id cannot change while it runs"));
        }
        let skills = SkillShelf::read(&plan.skill_roots);
        let files = FileChanges {
            scripts: FileChanges::of(self.tree.engine.providers().scripts(), providers.scripts()),
            skills: FileChanges::of(self.tree.engine.office.skills().all(), skills.all()),
        };
        let mut changes = ghost_config::diff(&before, &plan, &files);
        changes.returning(self.returning(&changes.added, &plan).await?);
        // An agent that someone deleted and the file still names is made again, which no comparison of files shows.
        let again: String = plan
            .agents
            .iter()
            .filter(|named| {
                self.tree.directory.card(&named.agent_id).is_none() && before.agent(&named.agent_id).is_some()
            })
            .map(|named| format!("+ agent {}\n", named.agent_id))
            .collect();
        let words = if changes.is_empty() && !again.is_empty() { again } else { format!("{again}{changes}") };
        if dry_run {
            return Ok(Reconciled { plan: words, ..Reconciled::default() });
        }
        let plan = Arc::new(plan);
        // In force before the records are: an agent that is created must find its archetype.
        let providers_before = self.tree.engine.providers();
        self.tree.engine.office.set_plan(Arc::clone(&plan));
        providers.keep_pools(&providers_before);
        self.tree.engine.set_providers(Arc::new(providers));
        self.cx().set_limits(plan.limits.clone());
        self.cx().set_chat_wake(plan.chat_wake);
        self.cx().set_webhooks(plan.webhook_agents());
        self.replan(&plan).await;
        let (cx, by) = (self.cx().clone(), by.clone());
        let (wanted, text) = (Arc::clone(&plan), words.clone());
        let recorded = self
            .store()
            .write(move |w| {
                Box::pin(async move {
                    let done = reconcile::records(w, &cx, &by, &wanted).await?;
                    let payload = json!({
                        "by": by, "created": done.created, "updated": done.updated, "started": done.started,
                        "stopped": done.stopped, "plan": text,
                    });
                    cx.emit(w, NewEvent::new(EventKind::WorldReloaded, payload)).await?;
                    Ok::<_, Refusal>(done)
                })
            })
            .await;
        let mut done = match recorded {
            Ok(done) => done,
            Err(refusal) => {
                // Nothing of it may stay in force when its records could not be made.
                self.tree.engine.office.set_plan(Arc::clone(&before));
                self.tree.engine.set_providers(providers_before);
                self.cx().set_limits(before.limits.clone());
                self.cx().set_chat_wake(before.chat_wake);
                self.cx().set_webhooks(before.webhook_agents());
                self.replan(&before).await;
                return Err(refusal);
            }
        };
        for agent_id in done.updated.iter().chain(&done.created) {
            let team = self.tree.directory.card(agent_id).and_then(|card| card.team);
            if let Some(supervisor) = self.tree.switchboard.supervisor(team.as_ref()) {
                drop(supervisor.cast(TeamMsg::Reconcile(agent_id.clone())));
            }
        }
        reconcile::log_access(&plan);
        done.plan = words;
        Ok(done)
    }

    /// What becomes of those among `added` that have a record from earlier.
    async fn returning(&self, added: &[AgentId], plan: &Plan) -> Result<BTreeMap<AgentId, Return>, Refusal> {
        let ids = added.to_vec();
        let records: Vec<Agent> = self
            .store()
            .read(move |r| {
                Box::pin(async move {
                    let mut found = Vec::new();
                    for agent_id in &ids {
                        found.extend(r.agent_get(agent_id).await?.filter(|agent| !agent.is_deleted()));
                    }
                    Ok::<_, ghost_store::StoreError>(found)
                })
            })
            .await
            .map_err(Refusal::from)?;
        let how = |agent: &Agent| {
            let autostart = plan.agent(&agent.agent_id).is_some_and(|named| named.autostart);
            match agent.desired {
                Desired::Running => Return::Runs,
                Desired::Stopped if agent.dropped && autostart => Return::Starts,
                Desired::Stopped => Return::StaysStopped,
            }
        };
        Ok(records.into_iter().map(|agent| (agent.agent_id.clone(), how(&agent))).collect())
    }

    /// Tells every supervisor of its team's new rules; makes supervisors for teams that are new.
    async fn replan(&self, plan: &Plan) {
        if let Some(own) = self.tree.switchboard.supervisor(None) {
            drop(own.cast(TeamMsg::Replan(None, plan.root_intensity)));
        }
        for team in &plan.teams {
            let name: Arc<str> = team.name.as_str().into();
            if self.tree.switchboard.has(&name) {
                if let Some(supervisor) = self.tree.switchboard.supervisor(Some(&name)) {
                    drop(supervisor.cast(TeamMsg::Replan(Some(team.clone()), team.intensity)));
                }
                continue;
            }
            let (done, there) = oneshot::channel();
            if self.root.cast(RootMsg::Adopt(Some(team.clone()), team.intensity, done)).is_ok() {
                // If the root is gone the world is ending, and its agents fall to the world's own supervisor until then.
                let _ = there.await;
            }
        }
    }

    /// Rings after every commit that gives the outside something to be handed, or takes it back.
    #[must_use]
    pub fn deliveries(&self) -> tokio::sync::watch::Receiver<u64> {
        self.tree.switchboard.deliveries()
    }

    /// Waits until an ask of someone outside is closed, and gives it. The deadline of the ask bounds the wait.
    pub async fn wait_for_ask(&self, ask_id: AskId) -> Result<Ask, Refusal> {
        let mut rings = self.tree.switchboard.asks();
        let clock = Arc::clone(&self.cx().ports.clock);
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
                    let cx = self.cx().clone();
                    self.store()
                        .write(move |w| {
                            Box::pin(async move { ghost_commons::asks::expire(w, &cx, ask_id).await })
                        })
                        .await?;
                }
            }
        }
    }

    /// Waits until an agent that was asked to stop has stopped; bounded by the grace period and a little more.
    pub async fn wait_until_stopped(&self, agent_id: &AgentId) -> Result<Agent, Refusal> {
        let clock = Arc::clone(&self.cx().ports.clock);
        let grace = Limits::seconds(self.cx().limits().stop_grace_seconds) + Duration::from_secs(10);
        let deadline = self.cx().now().plus(grace);
        let mut feed = self.store().feed();
        loop {
            let id = agent_id.clone();
            let agent = self
                .store()
                .read(move |r| Box::pin(async move { r.agent_get(&id).await }))
                .await
                .map_err(Refusal::from)?
                .ok_or_else(|| Refusal::not_found("agent", agent_id.as_str(), None))?;
            let over = agent.status != AgentStatus::Stopping || self.cx().now() >= deadline;
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
    pub async fn call_tool(
        &self,
        agent_id: &AgentId,
        tool: &str,
        arguments: Value,
    ) -> Result<(TurnId, CallOutcome), Refusal> {
        let bench = Arc::new(Bench::default());
        let mut rings = self.tree.switchboard.asks();
        let bell = Arc::clone(&bench);
        let ringing = async move {
            while !matches!(rings.recv().await, Err(RecvError::Closed)) {
                bell.bell.notify_waiters();
            }
            std::future::pending::<()>().await;
        };
        tokio::select! {
            biased;
            outcome = turn::call_for_operator(&self.tree.engine, agent_id, tool, arguments, &bench) => outcome,
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
        for keeper in std::mem::take(&mut *self.keepers.lock().unwrap_or_else(PoisonError::into_inner)) {
            keeper.abort();
        }
        let grace = Limits::seconds(self.cx().limits().stop_grace_seconds);
        let mut ends = Vec::new();
        for supervisor in self.tree.switchboard.supervisors() {
            let (done, ended) = oneshot::channel();
            if supervisor.cast(TeamMsg::Shutdown { grace, done }).is_ok() {
                ends.push(ended);
            }
        }
        let clock = Arc::clone(&self.cx().ports.clock);
        let all = futures_util::future::join_all(ends);
        tokio::select! {
            biased;
            _ = all => {}
            () = clock.sleep(grace + Duration::from_secs(5)) => {
                tracing::warn!("some agents did not stop within the grace period; they go on at the next start");
            }
        }
        let (cx, payload) = (self.cx().clone(), json!({ "reason": reason }));
        let said = self
            .store()
            .write(move |w| Box::pin(async move { cx.emit(w, NewEvent::new(EventKind::WorldStopped, payload)).await }))
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
        let (cx, by, id) = (self.cx().clone(), by.clone(), agent_id.clone());
        self.store()
            .write(move |w| {
                Box::pin(async move { agents::stop(w, &cx, &by, &id, reason.as_deref()).await.map(|_| ()) })
            })
            .await?;
        self.wait_until_stopped(agent_id).await
    }
}

/// Waits until it is said that an ask is closed, or that may have been missed. False if nothing more will be said.
async fn rung(rings: &mut Receiver<AskId>, ask_id: AskId) -> bool {
    loop {
        match rings.recv().await {
            Ok(closed) if closed != ask_id => {}
            Ok(_) | Err(RecvError::Lagged(_)) => return true,
            Err(RecvError::Closed) => return false,
        }
    }
}
