//! The handle of a running world, for the control plane and the daemon.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ghost_agent::Engine;
use ghost_agent::turn::{self, AgentSession, OperatorCall, Preview};
use ghost_config::plan::Plan;
use ghost_domain::event::{EventKind, NewEvent};
use ghost_domain::journal::CallOutcome;
use ghost_domain::ports::Signal;
use ghost_domain::{Agent, AgentId, AgentStatus, Ask, AskId, AskStatus, Limits, Party, Refusal};
use ghost_operations::{OperationContext, Tx, agents};
use ghost_provider::Providers;
use ghost_store::{Store, StoreError};
use ractor::ActorRef;
use serde_json::json;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::oneshot;
use tokio::task::{AbortHandle, JoinHandle};

use crate::directory::Directory;
use crate::loops::{self, Loops, Running};
use crate::signal_router::TeamMsg;
use crate::supervisor::Adopt;
use crate::tree::Tree;
use crate::tree::{PAUSED, agents_with_work};

/// How long the last event of a world waits for the store.
const LAST_WRITE: Duration = Duration::from_secs(5);

/// Reads the configuration again. Returns a plan with its providers, or one refusal that lists all problems.
pub type Reloader = Box<dyn Fn() -> Result<(Plan, Providers), Refusal> + Send + Sync>;

/// The thread that reads the files of a reload, until a reload has taken its result.
pub(crate) type Reading = Option<JoinHandle<Result<(Plan, Providers), Refusal>>>;

/// A running world.
pub struct World {
    pub(crate) tree: Arc<Tree>,
    pub(crate) root: ActorRef<Adopt>,
    root_task: Mutex<Option<JoinHandle<()>>>,
    loop_tasks: Mutex<Vec<JoinHandle<()>>>,
    pub(crate) reloader: Arc<Reloader>,
    /// Allows one reload at a time. Two at once could mix the plan of one with the records of the other.
    pub(crate) reloading: tokio::sync::Mutex<Reading>,
    /// Held while an operator trusts an MCP server, so that two orders do not overwrite each other's lock file.
    pub(crate) trusting: tokio::sync::Mutex<()>,
}

impl World {
    pub(crate) fn new(tree: Arc<Tree>, root: ActorRef<Adopt>, root_task: JoinHandle<()>, reloader: Reloader) -> Self {
        Self {
            tree,
            root,
            root_task: Mutex::new(Some(root_task)),
            loop_tasks: Mutex::default(),
            reloader: Arc::new(reloader),
            reloading: tokio::sync::Mutex::default(),
            trusting: tokio::sync::Mutex::default(),
        }
    }

    /// Runs a supervised loop until the world shuts down or the returned handle aborts it. [`loops`](Self::loops)
    /// shows its state.
    pub fn keep_running(&self, name: &'static str, make: impl FnMut() -> Running + Send + 'static) -> AbortHandle {
        let (ctx, store) = (self.ctx().clone(), self.store().clone());
        let task = tokio::spawn(loops::supervise(ctx, store, Arc::clone(&self.tree.loops), name, make));
        let end = task.abort_handle();
        self.loop_tasks.lock().unwrap_or_else(PoisonError::into_inner).push(task);
        end
    }

    /// The state of the world's loops.
    pub fn loops(&self) -> &Loops {
        &self.tree.loops
    }

    /// The engine that runs the agents' turns.
    pub fn engine(&self) -> &Arc<Engine> {
        &self.tree.engine
    }

    /// The store of the world.
    pub fn store(&self) -> &Store {
        &self.tree.engine.services.store
    }

    /// The context of the world rules.
    pub fn ctx(&self) -> &OperationContext {
        &self.tree.engine.services.ctx
    }

    /// Runs a command of the world's store; see [`OperationContext::write`].
    pub async fn write<T, E, F>(&self, work: F) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<StoreError> + Send + 'static,
        F: FnOnce(&mut Tx) -> Result<T, E> + Send + 'static,
    {
        self.ctx().write(self.store(), work).await
    }

    /// Runs a query of the world's store; see [`OperationContext::read`].
    pub async fn read<T, E, F>(&self, work: F) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<StoreError> + Send + 'static,
        F: FnOnce(&mut Tx) -> Result<T, E> + Send + 'static,
    {
        self.ctx().read(self.store(), work).await
    }

    /// The current plan.
    pub fn plan(&self) -> Arc<Plan> {
        self.tree.engine.services.plan()
    }

    /// The agents in memory.
    pub fn directory(&self) -> &Arc<Directory> {
        &self.tree.directory
    }

    /// Pauses the world, so that no new turn begins, or resumes it. The pause survives a restart.
    pub async fn set_paused(&self, by: &Party, paused: bool) -> Result<(), Refusal> {
        self.set_paused_because(by, paused, None).await
    }

    /// [`set_paused`](Self::set_paused) with a reason from the caller, which the event keeps.
    pub async fn set_paused_because(&self, by: &Party, paused: bool, reason: Option<&str>) -> Result<(), Refusal> {
        let (by, reason) = (by.clone(), reason.map(str::to_owned));
        self.write(move |w| {
            let before = w.meta_get(PAUSED)?.as_deref() == Some("1");
            if before == paused {
                return Ok(());
            }
            w.meta_put(PAUSED, if paused { "1" } else { "0" })?;
            // The flag in memory is set by a signal, so that it follows the order of the commits.
            w.signal(Signal::Paused(paused));
            let kind = if paused { EventKind::WorldPaused } else { EventKind::WorldResumed };
            w.emit(NewEvent::new(kind, json!({ "by": by, "reason": reason })))
        })
        .await?;
        if !paused {
            for agent_id in agents_with_work(self.store()).await? {
                self.tree.signal_router.wake(&agent_id);
            }
        }
        Ok(())
    }

    /// Changes with every commit that adds a message for delivery to the outside, or removes one.
    pub fn deliveries(&self) -> tokio::sync::watch::Receiver<u64> {
        self.tree.signal_router.deliveries.subscribe()
    }

    /// Waits until an ask from outside is closed, at most until its deadline, and returns it.
    pub async fn wait_for_ask(&self, ask_id: AskId) -> Result<Ask, Refusal> {
        let mut closed = self.tree.signal_router.asks.subscribe();
        let clock = Arc::clone(&self.ctx().ports.clock);
        loop {
            let ask = self
                .store()
                .read(move |r| r.ask_get(ask_id))
                .await
                .map_err(Refusal::from)?
                .ok_or_else(|| Refusal::not_found("ask", &ask_id.to_string(), None))?;
            if ask.status != AskStatus::Open {
                return Ok(ask);
            }
            tokio::select! {
                biased;
                open = next_closed(&mut closed, ask_id) => {
                    if !open {
                        return Err(Refusal::new(ghost_domain::Code::Unavailable, "the world is stopping"));
                    }
                }
                () = clock.sleep_until(ask.deadline_at) => {
                    self.write(move |w| { ghost_operations::asks::expire(w, ask_id) })
                        .await?;
                }
            }
        }
    }

    /// Waits until a stopping agent has stopped, at most for the grace period and 10 s.
    pub async fn wait_until_stopped(&self, agent_id: &AgentId) -> Result<Agent, Refusal> {
        let clock = Arc::clone(&self.ctx().ports.clock);
        let grace = Limits::seconds(self.ctx().limits().stop_grace_seconds) + Duration::from_secs(10);
        let deadline = clock.steady().plus(grace);
        let mut feed = self.store().feed();
        loop {
            let id = agent_id.clone();
            let agent = self
                .store()
                .read(move |r| r.agent_get(&id))
                .await
                .map_err(Refusal::from)?
                .ok_or_else(|| Refusal::not_found("agent", agent_id.as_str(), None))?;
            let over = agent.status != AgentStatus::Stopping || clock.steady() >= deadline;
            if over {
                return Ok(agent);
            }
            tokio::select! {
                biased;
                // A commit may have changed the agent, so the record is read again.
                _ = feed.recv() => {}
                () = clock.sleep(deadline.since(clock.steady())) => {}
            }
        }
    }

    /// Shortens the grace period of a stopping agent. An agent that was started again in the meantime is not affected.
    pub async fn hasten_stop(&self, agent_id: &AgentId, grace: Duration) -> Result<(), Refusal> {
        let id = agent_id.clone();
        let record: Option<Agent> = self.store().read(move |r| r.agent_get(&id)).await.map_err(Refusal::from)?;
        if record.is_some_and(|agent| agent.status == AgentStatus::Stopping) {
            self.tree.directory.tell(agent_id, ghost_agent::AgentMsg::Stop { grace });
        }
        Ok(())
    }

    /// Calls a tool as an agent, in a turn of the operator.
    pub async fn call_tool(&self, call: OperatorCall) -> Result<CallOutcome, Refusal> {
        let session = Arc::new(AgentSession::default());
        let mut closed = self.tree.signal_router.asks.subscribe();
        let waiter = Arc::clone(&session);
        let forward = async move {
            while !matches!(closed.recv().await, Err(RecvError::Closed)) {
                waiter.bell.notify_waiters();
            }
            std::future::pending::<()>().await;
        };
        tokio::select! {
            biased;
            outcome = turn::call_for_operator(&self.tree.engine, call, &session) => outcome,
            () = forward => Err(Refusal::new(ghost_domain::Code::Unavailable, "the world is stopping")),
        }
    }

    /// The prompt that an agent would get now. It starts no turn.
    pub async fn preview(&self, agent_id: &AgentId) -> Result<Preview, Refusal> {
        turn::preview(&self.tree.engine, agent_id).await
    }

    /// Stops the world: no new turns begin, running turns get a grace period, then all actors end.
    /// An interrupted turn resumes at the next boot. The store stays open.
    pub async fn shutdown(&self, reason: &str) {
        self.tree.directory.set_closing();
        for task in std::mem::take(&mut *self.loop_tasks.lock().unwrap_or_else(PoisonError::into_inner)) {
            task.abort();
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
                tracing::warn!("some agents did not stop within the grace period; their turns resume at the next start");
            }
        }
        let payload = json!({ "reason": reason });
        let written = self.write(move |w| w.emit(NewEvent::new(EventKind::WorldStopped, payload)));
        tokio::select! {
            biased;
            written = written => if let Err(refusal) = written {
                tracing::warn!(%refusal, "the event `world.stopped` could not be written; nothing else is lost");
            },
            // A database that is away must not hold up the end.
            () = clock.sleep(LAST_WRITE) => {
                tracing::warn!("the store did not take the event `world.stopped` in time; nothing else is lost");
            }
        }
        self.root.stop(None);
        let task = self.root_task.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(task) = task {
            // The root's panic is already logged.
            let _ = task.await;
        }
    }

    /// Stops an agent and returns its record when it has stopped.
    pub async fn stop_agent(&self, by: &Party, agent_id: &AgentId, reason: Option<String>) -> Result<Agent, Refusal> {
        let (by, id) = (by.clone(), agent_id.clone());
        self.write(move |w| agents::stop(w, &by, &id, reason.as_deref()).map(|_| ())).await?;
        self.wait_until_stopped(agent_id).await
    }
}

/// Waits until the ask is closed, or until its signal may have been missed. Returns false if the world is ending.
async fn next_closed(closed: &mut Receiver<Option<AskId>>, ask_id: AskId) -> bool {
    loop {
        match closed.recv().await {
            Ok(Some(other)) if other != ask_id => {}
            Ok(_) | Err(RecvError::Lagged(_)) => return true,
            Err(RecvError::Closed) => return false,
        }
    }
}
