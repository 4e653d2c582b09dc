//! Turns committed signals into wake-ups. A wake-up goes to the agent's actor if the agent is
//! awake, else to the supervisor that must create an actor.
//!
//! The signal router must never wait or send a second wake-up while the first is on its way. Its
//! panics must never reach the store's writer.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};

use ghost_agent::{AgentMsg, BudgetQueue};
use ghost_domain::ports::{Signal, Wake};
use ghost_domain::text::panic_text;
use ghost_domain::{AgentId, AskId, Timestamp};
use ghost_tools::GrantCache;
use ractor::ActorRef;
use tokio::sync::{Notify, broadcast, watch};

use crate::directory::{Directory, Route};
use crate::loops::{Loops, SIGNAL_ROUTER};
use crate::places::Rank;
use crate::team_msg::{LifecycleStep, TeamMsg};

/// Capacity of the channel of closed asks. A receiver that misses a message reads its ask from the
/// store.
const ASKS: usize = 256;

/// The signal router.
pub(crate) struct SignalRouter {
    directory: Arc<Directory>,
    /// The supervisors by team. `None` is the world's own.
    teams: Mutex<BTreeMap<Option<Arc<str>>, ActorRef<TeamMsg>>>,
    /// Sends the id of each closed ask to callers outside that wait; `None` says that one may have been missed. Not
    /// a `watch` channel: that wakes its receivers in a random order (promise 8).
    asks: broadcast::Sender<Option<AskId>>,
    /// Changes when there is a new message to deliver to the outside.
    deliveries: watch::Sender<u64>,
    /// Changes when a schedule changes.
    schedules: watch::Sender<u64>,
    /// Model calls that wait for free budget.
    budget_queue: Arc<BudgetQueue>,
    /// What is remembered of write grants. A signal comes before the answer of the commit that sent it, so a revoke
    /// holds when its caller hears of it.
    grants: Arc<GrantCache>,
    loops: Arc<Loops>,
    /// Why the last signal could not be delivered, until the loop in `signals` reads it.
    failed: Mutex<Option<String>>,
    alarm: Notify,
}

impl SignalRouter {
    pub(crate) fn new(
        directory: Arc<Directory>,
        budget_queue: Arc<BudgetQueue>,
        grants: Arc<GrantCache>,
        loops: Arc<Loops>,
    ) -> Self {
        Self {
            directory,
            teams: Mutex::default(),
            asks: broadcast::Sender::new(ASKS),
            deliveries: watch::Sender::new(0),
            schedules: watch::Sender::new(0),
            budget_queue,
            grants,
            loops,
            failed: Mutex::default(),
            alarm: Notify::new(),
        }
    }

    /// Returns when a signal could not be delivered, with the reason.
    pub(crate) async fn failure(&self) -> String {
        loop {
            let failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner).take();
            match failed {
                Some(why) => return why,
                None => self.alarm.notified().await,
            }
        }
    }

    pub(crate) fn connect(&self, team: Option<Arc<str>>, supervisor: ActorRef<TeamMsg>) {
        self.teams.lock().unwrap_or_else(PoisonError::into_inner).insert(team, supervisor);
    }

    /// The supervisor of a team; the world's own if the team has none.
    pub(crate) fn supervisor(&self, team: Option<&Arc<str>>) -> Option<ActorRef<TeamMsg>> {
        let teams = self.teams.lock().unwrap_or_else(PoisonError::into_inner);
        teams.get(&team.cloned()).or_else(|| teams.get(&None)).cloned()
    }

    /// Whether a team has a supervisor of its own.
    pub(crate) fn has(&self, team: &Arc<str>) -> bool {
        self.teams.lock().unwrap_or_else(PoisonError::into_inner).contains_key(&Some(Arc::clone(team)))
    }

    /// Whether the supervisor of `own` has the agents of `team`. The world's own supervisor has the
    /// agents of teams without a supervisor.
    pub(crate) fn has_agents_of(&self, own: Option<&Arc<str>>, team: Option<&Arc<str>>) -> bool {
        team == own || (own.is_none() && team.is_some_and(|team| !self.has(team)))
    }

    /// Sends a message about an agent to its supervisor, which is the world's own for an agent that is not known yet.
    fn supervise(&self, agent_id: &AgentId, message: TeamMsg) {
        let team = self.directory.card(agent_id).and_then(|card| card.team);
        if let Some(supervisor) = self.supervisor(team.as_ref()) {
            drop(supervisor.cast(message));
        }
    }

    pub(crate) fn supervisors(&self) -> Vec<ActorRef<TeamMsg>> {
        self.teams.lock().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    /// Receives the id of every ask that is closed.
    pub(crate) fn asks(&self) -> broadcast::Receiver<Option<AskId>> {
        self.asks.subscribe()
    }

    /// Changes whenever a message waits for delivery to the outside, or no longer does.
    pub(crate) fn deliveries(&self) -> watch::Receiver<u64> {
        self.deliveries.subscribe()
    }

    /// Changes whenever a schedule is set, changed or cancelled, and when the world is paused or resumed.
    pub(crate) fn schedules(&self) -> watch::Receiver<u64> {
        self.schedules.subscribe()
    }

    pub(crate) fn notify_schedules(&self) {
        self.schedules.send_modify(|changes| *changes = changes.wrapping_add(1));
    }

    /// Notifies every receiver, so that each reads its state from the store again.
    pub(crate) fn notify_all(&self) {
        // Errors are ignored: there may be no receiver, and an actor that has ended waits for
        // nothing.
        drop(self.asks.send(None));
        for actor in self.directory.actors() {
            drop(actor.cast(AgentMsg::WaitEnded));
        }
        self.budget_queue.limits_set();
        self.grants.forget_all();
        self.deliveries.send_modify(|changes| *changes = changes.wrapping_add(1));
        self.notify_schedules();
    }

    /// Wakes an agent even if an earlier wake-up was lost on its way. A superfluous wake-up does no harm.
    pub(crate) fn force_wake(&self, agent_id: &AgentId) {
        self.wake(agent_id);
        if !self.directory.may_wake(agent_id) {
            return;
        }
        let team = self.directory.card(agent_id).and_then(|card| card.team);
        if let Some(supervisor) = self.supervisor(team.as_ref()) {
            // The supervisor sends the wake-up to the actor, if there is one. If the supervisor is
            // dead, the next one wakes all agents.
            drop(supervisor.cast(TeamMsg::Activate(agent_id.clone())));
        }
    }

    /// Wakes the agents that wait for a place, as many as there are places. When agents begin to wait, idle ones are put
    /// to sleep for them; who becomes idle later does so by itself.
    pub(crate) fn wake_waiting(&self) {
        while let Some((agent_id, team)) = self.directory.next_awake() {
            if let Some(supervisor) = self.supervisor(team.as_ref()) {
                drop(supervisor.cast(TeamMsg::Activate(agent_id)));
            }
        }
        if self.directory.take_begun() && self.directory.waiting() > 0 {
            for actor in self.directory.idle_actors(Timestamp(i64::MAX)) {
                drop(actor.cast(AgentMsg::TrySleep));
            }
        }
    }

    pub(crate) fn wake(&self, agent_id: &AgentId) {
        self.wake_for(agent_id, Rank::Machine);
    }

    fn wake_for(&self, agent_id: &AgentId, rank: Rank) {
        match self.directory.wake(agent_id, rank) {
            // If the actor or supervisor ends now, the inbox is read again after its end.
            Route::Actor(actor) => drop(actor.cast(AgentMsg::Wake)),
            Route::Supervisor(team) => {
                if let Some(supervisor) = self.supervisor(team.as_ref()) {
                    drop(supervisor.cast(TeamMsg::Activate(agent_id.clone())));
                }
            }
            Route::Nowhere => {}
        }
    }
}

impl SignalRouter {
    fn pass_on(&self, signal: &Signal) {
        self.loops.may_fail(SIGNAL_ROUTER);
        match signal {
            Signal::Wake(agent_id) => self.wake(agent_id),
            Signal::WakeFirst(agent_id) => self.wake_for(agent_id, Rank::Person),
            Signal::AskClosed { ask_id, asker } => {
                // An error means that no caller outside waits.
                drop(self.asks.send(Some(*ask_id)));
                if let Some(actor) = asker.as_ref().and_then(|asker| self.directory.actor(asker)) {
                    drop(actor.cast(AgentMsg::WaitEnded));
                }
            }
            Signal::ApprovalClosed(agent_id) | Signal::CallSettled(agent_id) => {
                if let Some(actor) = self.directory.actor(agent_id) {
                    drop(actor.cast(AgentMsg::WaitEnded));
                }
            }
            Signal::Delivery => self.deliveries.send_modify(|changes| *changes = changes.wrapping_add(1)),
            Signal::TurnCancelled { agent_id, turn_id } => {
                if let Some(actor) = self.directory.actor(agent_id) {
                    drop(actor.cast(AgentMsg::Cancel(*turn_id)));
                }
            }
            Signal::BudgetsFreed(scopes) => self.budget_queue.freed(scopes),
            Signal::LimitsSet => self.budget_queue.limits_set(),
            Signal::TurnRetry { agent_id, turn_id } => {
                if let Some(actor) = self.directory.actor(agent_id) {
                    drop(actor.cast(AgentMsg::Retry(*turn_id)));
                }
                // A running actor reads again only if the wake generation rose.
                self.wake(agent_id);
            }
            Signal::Grants(agent_id) => self.grants.forget(agent_id),
            Signal::Schedules => self.notify_schedules(),
            Signal::Paused(paused) => {
                self.directory.set_paused(*paused);
                self.notify_schedules();
            }
            Signal::Reconcile(agent_id) => {
                self.supervise(agent_id, TeamMsg::Reconcile(agent_id.clone()));
            }
            Signal::DroidCreated(agent) => {
                let step = LifecycleStep::DroidCreated(agent.clone());
                self.supervise(&agent.agent_id, TeamMsg::Run(agent.agent_id.clone(), step));
            }
            Signal::DroidEnded(agent) => {
                let step = LifecycleStep::DroidEnded(agent.clone());
                self.supervise(&agent.agent_id, TeamMsg::Run(agent.agent_id.clone(), step));
            }
        }
    }
}

impl Wake for SignalRouter {
    fn signal(&self, signals: &[Signal]) {
        for signal in signals {
            // The store's writer calls this. A lost signal is repaired from the store; a panic in the writer would
            // end the daemon.
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| self.pass_on(signal))) {
                *self.failed.lock().unwrap_or_else(PoisonError::into_inner) =
                    Some(format!("panic: {}", panic_text(&*panic)));
                self.alarm.notify_one();
            }
        }
    }
}
