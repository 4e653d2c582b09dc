//! Turns committed signals into wake-ups: to actors that are awake, else to the supervisor that must make one.
//!
//! Must never: wait, send a second wake-up while the first is on its way, or end whatever commits with a panic of its own.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};

use ghost_agent::{AgentMsg, BudgetQueue, panics};
use ghost_domain::ports::{Signal, Wake};
use ghost_domain::{AgentId, AskId};
use ractor::ActorRef;
use tokio::sync::{Notify, broadcast, watch};

use crate::directory::{Directory, Route};
use crate::loops::{Loops, SIGNAL_ROUTER};
use crate::team_msg::TeamMsg;

/// Closed asks that whoever waits may be behind; then it looks for itself.
const ASKS: usize = 256;

/// The switchboard.
pub(crate) struct SignalRouter {
    directory: Arc<Directory>,
    /// The world's own supervisor is under `None`.
    teams: Mutex<BTreeMap<Option<Arc<str>>, ActorRef<TeamMsg>>>,
    /// Rings for those outside who wait for asks; `None` says that one may have been missed. No `watch`: that wakes those who
    /// wait in an order of chance (promise 8).
    asks: broadcast::Sender<Option<AskId>>,
    /// Rings for whoever delivers to the outside.
    deliveries: watch::Sender<u64>,
    /// Rings for whoever sets schedules off.
    schedules: watch::Sender<u64>,
    /// Who waits for room in a budget.
    line: Arc<BudgetQueue>,
    loops: Arc<Loops>,
    /// Why a signal could not be passed on, until someone sees to it.
    failed: Mutex<Option<String>>,
    alarm: Notify,
}

impl SignalRouter {
    pub(crate) fn new(directory: Arc<Directory>, line: Arc<BudgetQueue>, loops: Arc<Loops>) -> Self {
        Self {
            directory,
            teams: Mutex::default(),
            asks: broadcast::Sender::new(ASKS),
            deliveries: watch::Sender::new(0),
            schedules: watch::Sender::new(0),
            line,
            loops,
            failed: Mutex::default(),
            alarm: Notify::new(),
        }
    }

    /// Returns when a signal could not be passed on, and says why.
    pub(crate) async fn trouble(&self) -> String {
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

    /// Whether the supervisor of `own` is the one that agents of `team` fall to.
    pub(crate) fn falls_to(&self, own: Option<&Arc<str>>, team: Option<&Arc<str>>) -> bool {
        team == own || (own.is_none() && team.is_some_and(|team| !self.has(team)))
    }

    pub(crate) fn supervisors(&self) -> Vec<ActorRef<TeamMsg>> {
        self.teams.lock().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    /// Says of every ask that it is closed.
    pub(crate) fn asks(&self) -> broadcast::Receiver<Option<AskId>> {
        self.asks.subscribe()
    }

    /// Changes whenever something waits to be handed to the outside, or no longer does.
    pub(crate) fn deliveries(&self) -> watch::Receiver<u64> {
        self.deliveries.subscribe()
    }

    /// Changes whenever a schedule was set, changed or cancelled, and when the world is resumed.
    pub(crate) fn schedules(&self) -> watch::Receiver<u64> {
        self.schedules.subscribe()
    }

    pub(crate) fn ring_schedules(&self) {
        self.schedules.send_modify(|rings| *rings = rings.wrapping_add(1));
    }

    /// Everyone who waits for a signal looks for himself.
    pub(crate) fn ring_all(&self) {
        // That nobody waits is no error, and an actor that has ended waits for nothing.
        drop(self.asks.send(None));
        for actor in self.directory.actors() {
            drop(actor.cast(AgentMsg::AskClosed));
        }
        self.line.limits_set();
        self.deliveries.send_modify(|changes| *changes = changes.wrapping_add(1));
        self.ring_schedules();
    }

    /// Wakes an agent though a call for it may have been lost on its way: a wake-up too many does no harm.
    pub(crate) fn wake_surely(&self, agent_id: &AgentId) {
        self.wake(agent_id);
        let team = self.directory.card(agent_id).and_then(|card| card.team);
        if let Some(supervisor) = self.supervisor(team.as_ref()) {
            // It tells the actor if there is one. A dead one has a successor, which wakes everyone.
            drop(supervisor.cast(TeamMsg::Activate(agent_id.clone())));
        }
    }

    pub(crate) fn wake(&self, agent_id: &AgentId) {
        match self.directory.wake(agent_id) {
            // An actor or supervisor that ends now has its children's inboxes looked at again by whoever comes next.
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
            Signal::AskClosed { ask_id, asker } => {
                // That nobody outside waits for one is no error.
                drop(self.asks.send(Some(*ask_id)));
                if let Some(actor) = asker.as_ref().and_then(|asker| self.directory.actor(asker)) {
                    drop(actor.cast(AgentMsg::AskClosed));
                }
            }
            Signal::Delivery => self.deliveries.send_modify(|changes| *changes = changes.wrapping_add(1)),
            Signal::TurnCancelled { agent_id, turn_id } => {
                if let Some(actor) = self.directory.actor(agent_id) {
                    drop(actor.cast(AgentMsg::Cancel(*turn_id)));
                }
            }
            Signal::BudgetsFreed(scopes) => self.line.freed(scopes),
            Signal::LimitsSet => self.line.limits_set(),
            Signal::TurnRetry { agent_id, turn_id } => {
                if let Some(actor) = self.directory.actor(agent_id) {
                    drop(actor.cast(AgentMsg::Retry(*turn_id)));
                }
                // An actor at work looks again only for what raises the generation.
                self.wake(agent_id);
            }
            Signal::Schedules => self.ring_schedules(),
            Signal::Paused(paused) => {
                self.directory.set_paused(*paused);
                self.ring_schedules();
            }
            Signal::Reconcile(agent_id) => {
                let team = self.directory.card(agent_id).and_then(|card| card.team);
                if let Some(supervisor) = self.supervisor(team.as_ref()) {
                    drop(supervisor.cast(TeamMsg::Reconcile(agent_id.clone())));
                }
            }
        }
    }
}

impl Wake for SignalRouter {
    fn signal(&self, signals: &[Signal]) {
        for signal in signals {
            // Whoever commits calls this. What is lost here is looked up again; a writer that dies of it is the daemon's end.
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| self.pass_on(signal))) {
                *self.failed.lock().unwrap_or_else(PoisonError::into_inner) =
                    Some(format!("panic: {}", panics::text(&*panic)));
                self.alarm.notify_one();
            }
        }
    }
}
