//! Turns committed signals into wake-ups and orders. A wake-up goes to the agent's actor if the agent is awake, else to the
//! supervisor that must create an actor. It never waits, sends no second wake-up while the first is on its way, and its
//! panics do not reach the store's writer.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ghost_agent::{AgentMsg, BudgetQueue};
use ghost_config::plan::TeamPlan;
use ghost_domain::fair_queue::Class;
use ghost_domain::ports::{Signal, Wake};
use ghost_domain::text::panic_text;
use ghost_domain::{Agent, AgentId, AskId, Refusal, Timestamp};
use ghost_tools::GrantCache;
use ractor::ActorRef;
use tokio::sync::{Notify, broadcast, oneshot, watch};

use crate::directory::Directory;
use crate::loops::{Loops, SIGNAL_ROUTER};

use crate::slots::Route;

/// A read or commit for one agent that runs beside its supervisor's mailbox.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum LifecycleStep {
    /// Read the agent's record and start, stop or update the agent as the record requires.
    Reconcile,
    /// Start the agent of a droid that was created with this record, or stop that of one that has ended.
    Droid(Box<Agent>),
    /// Restart the agent after its back-off.
    Restart,
    /// Handle the agent's crash, with its reason.
    Crashed(String),
    /// Fail the agent because its team failed, with the reason.
    Failed(String),
    /// Record that the agent has stopped.
    Stopped,
    /// Record that the agent cannot run under the plan.
    CannotRun(Refusal),
}

/// A message to a supervisor.
#[derive(Debug)]
pub(crate) enum TeamMsg {
    /// Make an actor for an agent that was woken.
    Activate(AgentId),
    /// Run a step.
    Run(AgentId, LifecycleStep),
    /// A step of this agent has ended.
    StepDone(AgentId),
    /// A read of agents that have ended is complete.
    EndsRead,
    /// The team's configuration changed.
    Replan(TeamPlan),
    /// Stop all actors.
    Shutdown {
        /// Maximum time for running turns to finish.
        grace: Duration,
        /// Answered when no actor is left.
        done: oneshot::Sender<()>,
    },
}

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
    pub(crate) asks: broadcast::Sender<Option<AskId>>,
    /// Changes whenever a message waits for delivery to the outside, or no longer does.
    pub(crate) deliveries: watch::Sender<u64>,
    /// Changes whenever a schedule is set, changed or cancelled, and when the world is paused or resumed.
    pub(crate) schedules: watch::Sender<u64>,
    /// Model calls that wait for free budget.
    budget_queue: Arc<BudgetQueue>,
    /// What is remembered of write grants. A signal comes before the answer of the commit that sent it, so a revoke
    /// holds when its caller hears of it.
    grants: Arc<GrantCache>,
    loops: Arc<Loops>,
    /// Why the last signal could not be delivered, until the loop that routes signals reads it.
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

    /// Has an agent's supervisor run a step, which is the world's own for an agent that is not known yet.
    pub(crate) fn supervise(&self, agent_id: &AgentId, step: LifecycleStep) {
        let team = self.directory.card(agent_id).and_then(|card| card.team);
        self.order(team.as_ref(), agent_id.clone(), step);
    }

    /// Has the supervisor of a team run a step for an agent.
    pub(crate) fn order(&self, team: Option<&Arc<str>>, agent_id: AgentId, step: LifecycleStep) {
        self.send(team, TeamMsg::Run(agent_id, step));
    }

    fn send(&self, team: Option<&Arc<str>>, message: TeamMsg) {
        if let Some(supervisor) = self.supervisor(team) {
            // If this supervisor is dead, the next one reads every record and wakes all agents.
            drop(supervisor.cast(message));
        }
    }

    pub(crate) fn supervisors(&self) -> Vec<ActorRef<TeamMsg>> {
        self.teams.lock().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
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
        // The supervisor sends the wake-up to the actor, if there is one.
        let team = self.directory.card(agent_id).and_then(|card| card.team);
        self.send(team.as_ref(), TeamMsg::Activate(agent_id.clone()));
    }

    /// Wakes the agents that wait for a place, as many as there are places. When agents begin to wait, idle ones are put
    /// to sleep for them; who becomes idle later does so by itself.
    pub(crate) fn wake_waiting(&self) {
        while let Some((agent_id, team)) = self.directory.next_awake() {
            self.send(team.as_ref(), TeamMsg::Activate(agent_id));
        }
        if self.directory.places().take_begun() && self.directory.waiting() > 0 {
            for actor in self.directory.idle_actors(Timestamp(i64::MAX)) {
                drop(actor.cast(AgentMsg::TrySleep));
            }
        }
    }

    pub(crate) fn wake(&self, agent_id: &AgentId) {
        self.wake_for(agent_id, Class::Machine);
    }

    fn wake_for(&self, agent_id: &AgentId, class: Class) {
        match self.directory.wake(agent_id, class) {
            // If the actor or supervisor ends now, the inbox is read again after its end.
            Route::Actor(actor) => drop(actor.cast(AgentMsg::Wake)),
            Route::Supervisor(team) => self.send(team.as_ref(), TeamMsg::Activate(agent_id.clone())),
            Route::Nowhere => {}
        }
    }

    fn pass_on(&self, signal: &Signal) {
        self.loops.may_fail(SIGNAL_ROUTER);
        match signal {
            Signal::Wake(agent_id) => self.wake(agent_id),
            Signal::WakeFirst(agent_id) => self.wake_for(agent_id, Class::Person),
            Signal::AskClosed { ask_id, asker } => {
                // An error means that no caller outside waits.
                drop(self.asks.send(Some(*ask_id)));
                if let Some(asker) = asker {
                    self.directory.tell(asker, AgentMsg::WaitEnded);
                }
            }
            Signal::ApprovalClosed(agent_id) | Signal::CallSettled(agent_id) => {
                self.directory.tell(agent_id, AgentMsg::WaitEnded);
            }
            Signal::Delivery => self.deliveries.send_modify(|changes| *changes = changes.wrapping_add(1)),
            Signal::TurnCancelled { agent_id, turn_id } => {
                self.directory.tell(agent_id, AgentMsg::Cancel(*turn_id));
            }
            Signal::BudgetsFreed(scopes) => self.budget_queue.freed(scopes),
            Signal::LimitsSet => self.budget_queue.limits_set(),
            Signal::TurnRetry { agent_id, turn_id } => {
                self.directory.tell(agent_id, AgentMsg::Retry(*turn_id));
                // A running actor reads again only if the wake generation rose.
                self.wake(agent_id);
            }
            Signal::Grants(agent_id) => self.grants.forget(agent_id),
            Signal::Schedules => self.notify_schedules(),
            Signal::Paused(paused) => {
                self.directory.set_paused(*paused);
                self.notify_schedules();
            }
            Signal::Reconcile(agent_id) => self.supervise(agent_id, LifecycleStep::Reconcile),
            Signal::DroidCreated(agent) | Signal::DroidEnded(agent) => {
                self.supervise(&agent.agent_id, LifecycleStep::Droid(agent.clone()));
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
