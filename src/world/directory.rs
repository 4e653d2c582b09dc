//! The directory of agents: who exists, what each does, and who is awake. It alone lets an agent sleep, and only against
//! the wake generation that the agent's actor last saw, so that no wake-up is lost between two looks at an inbox. How an
//! agent falls asleep and wakes is [`WakeSlot`]'s; here it stands under a lock, beside what people are shown.
//!
//! Must never: hold its lock over anything that waits.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ghost_agent::{ActivityPort, AgentMsg};
use ghost_domain::time::Clock;
use ghost_domain::{Activity, Agent, AgentId, AgentKind, AgentStatus, Desired, Timestamp};
use ghost_tools::AgentControl;
use ractor::{ActorId, ActorRef};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use crate::wake_slot::{Activation, Call, WakeSlot};

/// What lists and lookups show of an agent, from memory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AgentCard {
    /// Its id.
    pub agent_id: AgentId,
    /// Its archetype.
    pub archetype: Arc<str>,
    /// The name people see.
    pub name: Arc<str>,
    /// Its team.
    pub team: Option<Arc<str>>,
    /// Where it came from.
    pub kind: AgentKind,
    /// What the supervisor says of it.
    pub status: AgentStatus,
    /// Why it is stopped or failed.
    pub status_reason: Option<Arc<str>>,
    /// What it does.
    pub activity: Activity,
    /// Restarts after a crash, ever.
    pub restarts: u32,
    /// Which agent of this id it is.
    pub incarnation: u32,
    /// When it was created.
    pub created_at: Timestamp,
}

/// One agent in the directory. Kept small: a world's population costs only this while it sleeps.
struct Slot {
    archetype: Arc<str>,
    /// `None` if it is the id.
    name: Option<Arc<str>>,
    team: Option<Arc<str>>,
    reason: Option<Arc<str>>,
    wake: WakeSlot<Box<ActorRef<AgentMsg>>>,
    created_at: Timestamp,
    idle_since: Timestamp,
    restarts: u32,
    incarnation: u32,
    kind: AgentKind,
    desired: Desired,
    status: AgentStatus,
    activity: Activity,
}

/// Where a wake-up must go.
pub(crate) enum Route {
    /// To the actor.
    Actor(ActorRef<AgentMsg>),
    /// To the supervisor, to make an actor.
    Supervisor(Option<Arc<str>>),
    /// Nowhere: it is on its way already, or the agent does not run.
    Nowhere,
}

/// Agents that are looked at in one go while others wait for the lock.
pub(crate) const AT_ONCE: usize = 256;

/// The directory.
pub struct Directory {
    slots: Mutex<BTreeMap<AgentId, Slot>>,
    words: Mutex<BTreeMap<String, Arc<str>>>,
    clock: Arc<dyn Clock>,
    started_at: Timestamp,
    paused: AtomicBool,
    closing: AtomicBool,
    /// Changes with every record that is taken over.
    changes: watch::Sender<u64>,
    /// Parts in which agents were gone through.
    #[cfg(test)]
    pub(crate) parts: std::sync::atomic::AtomicUsize,
}

impl Directory {
    /// An empty directory.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            slots: Mutex::default(),
            words: Mutex::default(),
            started_at: clock.now(),
            clock,
            paused: AtomicBool::new(false),
            closing: AtomicBool::new(false),
            changes: watch::Sender::new(0),
            #[cfg(test)]
            parts: Default::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<AgentId, Slot>> {
        // Every change under the lock is a plain assignment, so a poisoned lock still guards whole slots.
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One copy of a word that many agents share, such as an archetype's name.
    fn word(&self, text: &str) -> Arc<str> {
        let mut words = self.words.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(word) = words.get(text) {
            return Arc::clone(word);
        }
        let word: Arc<str> = text.into();
        words.insert(text.to_owned(), Arc::clone(&word));
        word
    }

    /// Rings with every record that is taken over.
    #[must_use]
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Takes over what the store says of an agent. A tombstone takes it out, and gives its actor back to be stopped.
    pub(crate) fn record(&self, agent: &Agent) -> Option<ActorRef<AgentMsg>> {
        let actor = self.take_over(agent);
        self.changes.send_modify(|changes| *changes = changes.wrapping_add(1));
        actor
    }

    fn take_over(&self, agent: &Agent) -> Option<ActorRef<AgentMsg>> {
        if agent.is_deleted() {
            return self.lock().remove(&agent.agent_id).and_then(|slot| slot.wake.into_actor()).map(|actor| *actor);
        }
        let (archetype, team) = (self.word(&agent.archetype), agent.team.as_deref().map(|team| self.word(team)));
        let name: Option<Arc<str>> = (agent.name != agent.agent_id.as_str()).then(|| agent.name.as_str().into());
        let reason = agent.status_reason.as_deref().map(Arc::from);
        let mut slots = self.lock();
        match slots.get_mut(&agent.agent_id) {
            Some(slot) => {
                slot.archetype = archetype;
                slot.team = team;
                slot.name = name;
                slot.reason = reason;
                slot.desired = agent.desired;
                slot.status = agent.status;
                slot.restarts = agent.restarts;
                slot.incarnation = agent.incarnation;
                slot.kind = agent.kind;
            }
            None => {
                slots.insert(
                    agent.agent_id.clone(),
                    Slot {
                        archetype,
                        name,
                        team,
                        reason,
                        wake: WakeSlot::default(),
                        created_at: agent.created_at,
                        idle_since: self.clock.now(),
                        restarts: agent.restarts,
                        incarnation: agent.incarnation,
                        kind: agent.kind,
                        desired: agent.desired,
                        status: agent.status,
                        activity: Activity::Asleep,
                    },
                );
            }
        }
        None
    }

    /// Raises the wake generation, and says where the wake-up must go.
    pub(crate) fn wake(&self, agent_id: &AgentId) -> Route {
        let mut slots = self.lock();
        let Some(slot) = slots.get_mut(agent_id) else { return Route::Nowhere };
        let runs = slot.runs();
        match slot.wake.wake(runs) {
            Call::Actor(actor) => Route::Actor(*actor),
            Call::Supervisor => Route::Supervisor(slot.team.clone()),
            Call::Nobody => Route::Nowhere,
        }
    }

    /// What a supervisor does that was asked for an actor.
    pub(crate) fn activation(&self, agent_id: &AgentId) -> Activation<Box<ActorRef<AgentMsg>>> {
        let mut slots = self.lock();
        let Some(slot) = slots.get_mut(agent_id) else { return Activation::Nothing };
        let runs = slot.runs();
        slot.wake.activation(runs)
    }

    /// Records a new actor, which is to be told to look. False if the agent was deleted meanwhile.
    pub(crate) fn activated(&self, agent_id: &AgentId, actor: ActorRef<AgentMsg>) -> bool {
        let mut slots = self.lock();
        let Some(slot) = slots.get_mut(agent_id) else { return false };
        slot.wake.activated(Box::new(actor));
        if slot.activity == Activity::Asleep {
            slot.activity = Activity::Idle;
            slot.idle_since = self.clock.now();
        }
        true
    }

    /// Forgets an actor that has ended. A newer one, made while the news of the old one's end was on its way, stays.
    pub(crate) fn released(&self, agent_id: &AgentId, ended: ActorId) {
        if let Some(slot) = self.lock().get_mut(agent_id)
            && slot.wake.release(|actor| actor.get_id() == ended)
        {
            slot.activity = Activity::Asleep;
        }
    }

    /// Forgets whatever actor or call an agent has: its supervisor died with them, or could make none.
    pub(crate) fn given_up(&self, agent_id: &AgentId) {
        if let Some(slot) = self.lock().get_mut(agent_id) {
            slot.wake.give_up();
            slot.activity = Activity::Asleep;
        }
    }

    /// Sets the status alone, between what the store is told and what it says.
    pub(crate) fn set_status(&self, agent_id: &AgentId, status: AgentStatus) {
        if let Some(slot) = self.lock().get_mut(agent_id) {
            slot.status = status;
        }
    }

    /// The actor of an agent that is awake.
    pub(crate) fn actor(&self, agent_id: &AgentId) -> Option<ActorRef<AgentMsg>> {
        self.lock().get(agent_id).and_then(|slot| slot.wake.actor().map(|actor| (**actor).clone()))
    }

    /// Goes through all agents in order of id, and gives what `take` makes of each. Not at one instant: the lock is let go
    /// again and again, because whoever publishes a commit needs it to pass wake-ups on.
    fn walk<T>(&self, mut take: impl FnMut(&AgentId, &Slot) -> Option<T>) -> Vec<T> {
        let (mut taken, mut after) = (Vec::new(), None::<AgentId>);
        loop {
            let slots = self.lock();
            let from = after.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
            let mut part = slots.range::<AgentId, _>((from, Bound::Unbounded)).take(AT_ONCE).peekable();
            if part.peek().is_none() {
                return taken;
            }
            let mut last = None;
            for (agent_id, slot) in part {
                taken.extend(take(agent_id, slot));
                last = Some(agent_id.clone());
            }
            after = last;
            #[cfg(test)]
            self.parts.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Every actor.
    pub(crate) fn actors(&self) -> Vec<ActorRef<AgentMsg>> {
        self.walk(|_, slot| slot.wake.actor().map(|actor| (**actor).clone()))
    }

    /// The actors of agents that have been idle since before `idle_before`.
    pub(crate) fn drowsy(&self, idle_before: Timestamp) -> Vec<ActorRef<AgentMsg>> {
        self.walk(|_, slot| {
            let drowsy = slot.activity == Activity::Idle && slot.idle_since < idle_before;
            slot.wake.actor().filter(|_| drowsy).map(|actor| (**actor).clone())
        })
    }

    /// The wake generation of an agent that runs, has no wake-up on its way, and does nothing: for the backstop sweep.
    pub(crate) fn quiet_generation(&self, agent_id: &AgentId) -> Option<u64> {
        let slots = self.lock();
        let slot = slots.get(agent_id)?;
        let quiet = matches!(slot.activity, Activity::Asleep | Activity::Idle);
        slot.wake.uncalled().filter(|_| quiet && slot.runs())
    }

    /// Stops or lets begin new turns for the whole world.
    pub(crate) fn set_paused(&self, paused: bool) {
        self.paused.store(paused, Ordering::Release);
    }

    /// Whether the world is paused.
    #[must_use]
    pub fn is_paused(&self) -> bool {
        self.paused.load(Ordering::Acquire)
    }

    /// No turn begins any more: the daemon is shutting down.
    pub(crate) fn set_closing(&self) {
        self.closing.store(true, Ordering::Release);
    }

    /// Whether the daemon is shutting down.
    #[must_use]
    pub fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Acquire)
    }

    /// Every agent's card, in order of id.
    #[must_use]
    pub fn cards(&self) -> Vec<AgentCard> {
        self.walk(|agent_id, slot| Some(slot.card(agent_id)))
    }

    /// Agents that were created at run time and stand still, at most `most`.
    #[must_use]
    pub(crate) fn stopped_helpers(&self, most: usize) -> Vec<AgentId> {
        let slots = self.lock();
        let stopped =
            slots.iter().filter(|(_, slot)| slot.kind == AgentKind::Dynamic && slot.status == AgentStatus::Stopped);
        stopped.map(|(agent_id, _)| agent_id.clone()).take(most).collect()
    }

    /// One agent's card.
    #[must_use]
    pub fn card(&self, agent_id: &AgentId) -> Option<AgentCard> {
        self.lock().get_key_value(agent_id).map(|(agent_id, slot)| slot.card(agent_id))
    }

    /// Agents in the directory.
    #[must_use]
    pub fn len(&self) -> usize {
        self.lock().len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }
}

impl Slot {
    fn show(&mut self, activity: Activity, clock: &dyn Clock) {
        if activity == Activity::Idle && self.activity != Activity::Idle {
            self.idle_since = clock.now();
        }
        self.activity = activity;
    }

    /// Whether its agent may work.
    fn runs(&self) -> bool {
        self.desired == Desired::Running && self.status == AgentStatus::Running
    }

    fn card(&self, agent_id: &AgentId) -> AgentCard {
        AgentCard {
            agent_id: agent_id.clone(),
            archetype: Arc::clone(&self.archetype),
            name: self.name.clone().unwrap_or_else(|| agent_id.shared()),
            team: self.team.clone(),
            kind: self.kind,
            status: self.status,
            status_reason: self.reason.clone(),
            activity: self.activity,
            restarts: self.restarts,
            incarnation: self.incarnation,
            created_at: self.created_at,
        }
    }
}

impl ActivityPort for Directory {
    fn show(&self, agent_id: &AgentId, activity: Activity) {
        if let Some(slot) = self.lock().get_mut(agent_id) {
            slot.show(activity, &*self.clock);
        }
    }

    fn may_begin(&self, agent_id: &AgentId) -> bool {
        if self.is_paused() || self.closing.load(Ordering::Acquire) {
            return false;
        }
        self.lock().get(agent_id).is_some_and(Slot::runs)
    }

    fn look(&self, agent_id: &AgentId) -> u64 {
        self.lock().get_mut(agent_id).map_or(0, |slot| slot.wake.look())
    }

    fn try_rest(&self, agent_id: &AgentId, seen: u64) -> bool {
        let mut slots = self.lock();
        let Some(slot) = slots.get_mut(agent_id) else { return true };
        let rests = slot.wake.is_answered(seen);
        if rests {
            slot.show(Activity::Idle, &*self.clock);
        }
        rests
    }

    fn try_sleep(&self, agent_id: &AgentId, seen: u64) -> bool {
        let mut slots = self.lock();
        let Some(slot) = slots.get_mut(agent_id) else { return true };
        let sleeps = slot.wake.sleep(seen);
        if sleeps {
            slot.activity = Activity::Asleep;
        }
        sleeps
    }
}

impl AgentControl for Directory {
    fn activities(&self) -> BTreeMap<AgentId, Activity> {
        self.walk(|agent_id, slot| Some((agent_id.clone(), slot.activity))).into_iter().collect()
    }

    fn started_at(&self) -> Timestamp {
        self.started_at
    }
}
