//! The directory of agents in memory: which agents exist, their activity, and which have an actor. Only the directory lets an
//! agent sleep, and only if no wake-up has arrived since the actor's last read of its inbox. So no wake-up is lost.
//! [`WakeSlot`] holds the rules of sleep and wake; the directory keeps one for each agent under a lock.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ghost_agent::{ActivityPort, AgentMsg};
use ghost_domain::fair_queue::Class;
use ghost_domain::time::Clock;
use ghost_domain::{Activity, Agent, AgentId, AgentKind, AgentStatus, Timestamp};
use ghost_tools::AgentControl;
use ractor::{ActorId, ActorRef};
use tokio::sync::{Notify, watch};

use crate::places::Places;
use crate::slots::{Activation, AgentCard, Away, Call, Population, Route, Slot, Slots, WakeSlot};

/// Number of agents that are visited before the lock is released for others.
pub(crate) const AT_ONCE: usize = 256;

/// The directory.
pub struct Directory {
    slots: Mutex<Slots>,
    strings: Mutex<BTreeMap<String, Arc<str>>>,
    /// Locked alone, or while the slots are locked.
    places: Mutex<Places>,
    /// Notified when an agent waits for a place, or when a place is free for one: see [`Directory::next_awake`].
    pub(crate) places_changed: Notify,
    clock: Arc<dyn Clock>,
    started_at: Timestamp,
    paused: AtomicBool,
    closing: AtomicBool,
    /// Changes with every record that enters the directory.
    changes: watch::Sender<u64>,
    /// Number of times that the lock was taken to visit agents.
    #[cfg(test)]
    pub(crate) parts: std::sync::atomic::AtomicUsize,
}

impl Directory {
    /// An empty directory.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            slots: Mutex::default(),
            strings: Mutex::default(),
            places: Mutex::new(Places::new(usize::MAX)),
            places_changed: Notify::new(),
            started_at: clock.steady(),
            clock,
            paused: AtomicBool::new(false),
            closing: AtomicBool::new(false),
            changes: watch::Sender::new(0),
            #[cfg(test)]
            parts: Default::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Slots> {
        // Every change under the lock is a plain assignment, so a poisoned lock still guards complete entries, and
        // a panic drops the slot that it held, which counts it.
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn places(&self) -> MutexGuard<'_, Places> {
        // A set and a queue of its members: a poisoned lock can at worst hold an agent that waits twice.
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets how many agents may be awake at once.
    pub(crate) fn set_awake_max(&self, max: u32) {
        self.places().set_max(usize::try_from(max).unwrap_or(usize::MAX));
        self.places_changed.notify_one();
    }

    /// Takes a place for an agent, or lets it wait for one.
    fn enter(&self, agent_id: &AgentId, class: Class) -> bool {
        let mut places = self.places();
        let may = places.enter(agent_id, class);
        // The first one who waits may find idle agents that can sleep.
        if places.has_begun() {
            self.places_changed.notify_one();
        }
        may
    }

    /// Frees an agent's place.
    fn leave(&self, agent_id: &AgentId) {
        let mut places = self.places();
        places.leave(agent_id);
        self.offer(&places);
    }

    /// Says that a place is free, if an agent waits for one.
    fn offer(&self, places: &Places) {
        if places.waiting() > 0 {
            self.places_changed.notify_one();
        }
    }

    /// Frees the place of an agent that begins to wait, or takes one when the wait ends.
    fn set_away(&self, slot: &mut Slot, agent_id: &AgentId, away: Away) {
        // A wait within a wait changes nothing.
        if (slot.away == Away::No) == (away == Away::No) {
            return;
        }
        if away == Away::No {
            self.forget_away(slot);
            // An actor that has ended holds no place.
            if slot.wake.actor().is_some() {
                self.places().force(agent_id);
            }
            return;
        }
        let mut places = self.places();
        match away {
            Away::Model if !places.go_away(agent_id) => return,
            Away::Model => {}
            Away::Answer | Away::No => places.leave(agent_id),
        }
        slot.away = away;
        self.offer(&places);
    }

    fn forget_away(&self, slot: &mut Slot) {
        if std::mem::replace(&mut slot.away, Away::No) == Away::Model {
            self.places().come_back();
        }
    }

    /// Gives a free place to the agent that has waited longest. The caller must let its supervisor create the actor.
    pub(crate) fn next_awake(&self) -> Option<(AgentId, Option<Arc<str>>)> {
        loop {
            let agent_id = self.places().next()?;
            match self.lock().get(&agent_id).map(|slot| slot.team.clone()) {
                Some(team) => return Some((agent_id, team)),
                // It was deleted while it waited.
                None => self.places().leave(&agent_id),
            }
        }
    }

    /// Number of agents that hold a place, and of places.
    pub fn held_places(&self) -> (usize, usize) {
        self.places().held()
    }

    /// Number of agents that wait for a place.
    pub fn waiting(&self) -> usize {
        self.places().waiting()
    }

    /// Takes a place for an agent, or lets it wait for one. Returns whether its supervisor may create its actor.
    pub(crate) fn may_wake(&self, agent_id: &AgentId) -> bool {
        let slots = self.lock();
        slots.contains_key(agent_id) && self.enter(agent_id, Class::Machine)
    }

    /// Returns one shared copy of a string that many agents have in common, such as an archetype's name.
    fn shared(&self, text: &str) -> Arc<str> {
        let mut strings = self.strings.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(string) = strings.get(text) {
            return Arc::clone(string);
        }
        let string: Arc<str> = text.into();
        strings.insert(text.to_owned(), Arc::clone(&string));
        string
    }

    /// Changes with every record that enters the directory.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Stores an agent's record in the directory. The record of a deleted agent removes it and
    /// returns its actor, which the caller must stop.
    pub(crate) fn record(&self, agent: &Agent) -> Option<ActorRef<AgentMsg>> {
        let actor = match agent.is_deleted() {
            true => self.remove(&agent.agent_id),
            false => {
                self.put(agent);
                None
            }
        };
        self.changes.send_modify(|changes| *changes = changes.wrapping_add(1));
        actor
    }

    fn remove(&self, agent_id: &AgentId) -> Option<ActorRef<AgentMsg>> {
        let mut slots = self.lock();
        let mut removed = slots.remove(agent_id);
        if let Some(slot) = &mut removed {
            self.forget_away(slot);
        }
        // Under the slots' lock, so that no one enters for the removed slot afterwards.
        self.leave(agent_id);
        removed.and_then(|slot| slot.wake.into_actor()).map(|actor| *actor)
    }

    fn put(&self, agent: &Agent) {
        let (archetype, team) = (self.shared(&agent.archetype), agent.team.as_deref().map(|team| self.shared(team)));
        let name: Option<Arc<str>> = (agent.name != agent.agent_id.as_str()).then(|| agent.name.as_str().into());
        let reason = agent.status_reason.as_deref().map(Arc::from);
        let new = Slot {
            archetype,
            name,
            team,
            reason,
            wake: WakeSlot::default(),
            created_at: agent.created_at,
            idle_since: self.clock.steady(),
            restarts: agent.restarts,
            incarnation: agent.incarnation,
            kind: agent.kind,
            desired: agent.desired,
            status: agent.status,
            activity: Activity::Asleep,
            away: Away::No,
        };
        let mut slots = self.lock();
        let Some(mut slot) = slots.get_mut(&agent.agent_id) else { return slots.insert(agent.agent_id.clone(), new) };
        let (wake, created_at, idle_since) = (std::mem::take(&mut slot.wake), slot.created_at, slot.idle_since);
        let (activity, away) = (slot.activity, slot.away);
        *slot = Slot { wake, created_at, idle_since, activity, away, ..new };
    }

    /// Raises the wake generation. Returns the receiver of the wake-up.
    pub(crate) fn wake(&self, agent_id: &AgentId, class: Class) -> Route {
        let mut slots = self.lock();
        let Some(mut slot) = slots.get_mut(agent_id) else { return Route::Nowhere };
        let runs = slot.runs();
        match slot.wake.wake(runs) {
            Call::Actor(actor) => Route::Actor(*actor),
            // Without a place the call stays pending, and `next_awake` answers it.
            Call::Supervisor if !self.enter(agent_id, class) => Route::Nowhere,
            Call::Supervisor => Route::Supervisor(slot.team.clone()),
            Call::Nobody => {
                // A person's mail may come while the agent waits in the machines' queue.
                if class == Class::Person {
                    self.places().promote(agent_id);
                }
                Route::Nowhere
            }
        }
    }

    /// Decides how a supervisor answers a request to create an actor.
    pub(crate) fn activation(&self, agent_id: &AgentId) -> Activation<Box<ActorRef<AgentMsg>>> {
        let mut slots = self.lock();
        let Some(mut slot) = slots.get_mut(agent_id) else { return Activation::Nothing };
        let runs = slot.runs();
        let activation = slot.wake.activation(runs);
        if activation == Activation::Nothing {
            self.leave(agent_id);
        }
        activation
    }

    /// Puts a new actor into its agent's slot. The caller must then send it a wake-up. Returns false if the agent
    /// was deleted in the meantime: the caller must stop the actor.
    pub(crate) fn activated(&self, agent_id: &AgentId, actor: ActorRef<AgentMsg>) -> bool {
        let mut slots = self.lock();
        let Some(mut slot) = slots.get_mut(agent_id) else { return false };
        slot.wake.activated(Box::new(actor));
        if slot.activity == Activity::Asleep {
            slot.activity = Activity::Idle;
            slot.idle_since = self.clock.steady();
        }
        true
    }

    /// Removes an actor that has ended. A newer actor of the same agent stays.
    pub(crate) fn released(&self, agent_id: &AgentId, ended: ActorId) {
        if let Some(mut slot) = self.lock().get_mut(agent_id)
            && slot.wake.release(|actor| actor.get_id() == ended)
        {
            slot.activity = Activity::Asleep;
            self.forget_away(&mut slot);
            self.leave(agent_id);
        }
    }

    /// Removes the actor or pending call of an agent, because its supervisor died or could not
    /// create an actor.
    pub(crate) fn remove_actor(&self, agent_id: &AgentId) {
        if let Some(mut slot) = self.lock().get_mut(agent_id) {
            slot.wake.give_up();
            slot.activity = Activity::Asleep;
            self.forget_away(&mut slot);
            self.leave(agent_id);
        }
    }

    /// Sets only the status, until the store's record has it too.
    pub(crate) fn set_status(&self, agent_id: &AgentId, status: AgentStatus) {
        if let Some(mut slot) = self.lock().get_mut(agent_id) {
            slot.status = status;
        }
    }

    /// Sends a message to the actor of an agent, if the agent is awake.
    pub(crate) fn tell(&self, agent_id: &AgentId, message: AgentMsg) {
        if let Some(actor) = self.actor(agent_id) {
            // An error means that the actor has just ended.
            drop(actor.cast(message));
        }
    }

    /// The actor of an agent that is awake.
    pub(crate) fn actor(&self, agent_id: &AgentId) -> Option<ActorRef<AgentMsg>> {
        self.lock().get(agent_id).and_then(|slot| slot.wake.actor().map(|actor| (**actor).clone()))
    }

    /// Visits all agents in order of id and collects the values that `take` returns. The result is
    /// not a snapshot: the lock is released between parts, because the store's writer needs it to
    /// send wake-ups.
    fn walk<T>(&self, take: impl FnMut(&AgentId, &Slot) -> Option<T>) -> Vec<T> {
        self.walk_after(None, usize::MAX, take)
    }

    /// The same for the agents after this one, until `most` results are taken.
    fn walk_after<T>(
        &self,
        mut after: Option<AgentId>,
        most: usize,
        mut take: impl FnMut(&AgentId, &Slot) -> Option<T>,
    ) -> Vec<T> {
        let mut taken = Vec::new();
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
                if taken.len() >= most {
                    return taken;
                }
            }
            after = last;
            #[cfg(test)]
            self.parts.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The actors of all agents that are awake.
    pub(crate) fn actors(&self) -> Vec<ActorRef<AgentMsg>> {
        self.walk(|_, slot| slot.wake.actor().map(|actor| (**actor).clone()))
    }

    /// The actors of agents that have been idle since before `idle_before`.
    pub(crate) fn idle_actors(&self, idle_before: Timestamp) -> Vec<ActorRef<AgentMsg>> {
        self.walk(|_, slot| {
            let idle = slot.activity == Activity::Idle && slot.idle_since < idle_before;
            slot.wake.actor().filter(|_| idle).map(|actor| (**actor).clone())
        })
    }

    /// The wake generation of an agent that runs, is idle or asleep, and has no pending wake-up.
    /// The sweep uses it.
    pub(crate) fn quiet_generation(&self, agent_id: &AgentId) -> Option<u64> {
        let slots = self.lock();
        let slot = slots.get(agent_id)?;
        let quiet = matches!(slot.activity, Activity::Asleep | Activity::Idle);
        slot.wake.uncalled().filter(|_| quiet && slot.runs())
    }

    /// Pauses the world, so that no new turn begins, or ends the pause.
    pub(crate) fn set_paused(&self, paused: bool) {
        self.paused.store(paused, Ordering::Release);
    }

    /// Whether the world is paused.
    pub fn is_paused(&self) -> bool {
        self.paused.load(Ordering::Acquire)
    }

    /// Marks the daemon as shutting down: no turn begins any more.
    pub(crate) fn set_closing(&self) {
        self.closing.store(true, Ordering::Release);
    }

    /// Whether the daemon is shutting down.
    pub fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Acquire)
    }

    /// Every agent's card, in order of id.
    pub fn cards(&self) -> Vec<AgentCard> {
        self.walk(|agent_id, slot| Some(slot.card(agent_id)))
    }

    /// How many agents of each kind have each status and activity. It costs the same for any number of agents.
    pub fn population(&self) -> Population {
        self.lock().population().clone()
    }

    /// Number of agents that were created at run time and are no droids.
    pub fn len_dynamic(&self) -> u64 {
        self.lock().len_of(AgentKind::Dynamic)
    }

    /// The cards of the first `most` agents after `after` that `wanted` accepts, by status and archetype.
    pub fn cards_after(
        &self,
        after: Option<AgentId>,
        most: usize,
        wanted: impl Fn(AgentStatus, &str) -> bool,
    ) -> Vec<AgentCard> {
        self.walk_after(after, most, |agent_id, slot| wanted(slot.status, &slot.archetype).then(|| slot.card(agent_id)))
    }

    /// Ids of stopped agents of a kind, at most `limit`.
    pub(crate) fn stopped(&self, kind: AgentKind, limit: usize) -> Vec<AgentId> {
        self.lock().stopped(kind, limit)
    }

    /// One agent's card.
    pub fn card(&self, agent_id: &AgentId) -> Option<AgentCard> {
        self.lock().get_key_value(agent_id).map(|(agent_id, slot)| slot.card(agent_id))
    }

    /// The status of an agent, as far as the directory knows.
    pub(crate) fn status(&self, agent_id: &AgentId) -> Option<AgentStatus> {
        self.lock().get(agent_id).map(|slot| slot.status)
    }
}

impl ActivityPort for Directory {
    fn show(&self, agent_id: &AgentId, activity: Activity) {
        if let Some(mut slot) = self.lock().get_mut(agent_id) {
            // An agent that waits for another's answer holds no place: the other one may need it to answer.
            if activity == Activity::Asking {
                self.set_away(&mut slot, agent_id, Away::Answer);
            } else if slot.activity == Activity::Asking {
                self.set_away(&mut slot, agent_id, Away::No);
            }
            slot.show(activity, &*self.clock);
        }
    }

    fn set_waits(&self, agent_id: &AgentId, waits: bool) {
        if let Some(mut slot) = self.lock().get_mut(agent_id) {
            self.set_away(&mut slot, agent_id, if waits { Away::Model } else { Away::No });
        }
    }

    fn may_begin(&self, agent_id: &AgentId) -> bool {
        !self.is_paused() && !self.is_closing() && self.lock().get(agent_id).is_some_and(Slot::runs)
    }

    fn begin_read(&self, agent_id: &AgentId) -> u64 {
        self.lock().get_mut(agent_id).map_or(0, |mut slot| slot.wake.begin_read())
    }

    fn try_rest(&self, agent_id: &AgentId, seen: u64) -> bool {
        let mut slots = self.lock();
        let Some(mut slot) = slots.get_mut(agent_id) else { return true };
        let may_rest = slot.wake.is_answered(seen);
        if may_rest {
            // A cancelled turn may have ended in a wait.
            self.set_away(&mut slot, agent_id, Away::No);
            slot.show(Activity::Idle, &*self.clock);
            if self.places().waiting() > 0
                && let Some(actor) = slot.wake.actor()
            {
                // Another agent waits for this place. An actor that has just ended needs no sleep.
                drop(actor.cast(AgentMsg::TrySleep));
            }
        }
        may_rest
    }

    fn try_sleep(&self, agent_id: &AgentId, seen: u64) -> bool {
        let mut slots = self.lock();
        let Some(mut slot) = slots.get_mut(agent_id) else { return true };
        let sleeps = slot.wake.sleep(seen);
        if sleeps {
            slot.activity = Activity::Asleep;
            self.forget_away(&mut slot);
            self.leave(agent_id);
        }
        sleeps
    }
}

impl AgentControl for Directory {
    fn activities(&self) -> BTreeMap<AgentId, Activity> {
        self.walk(|agent_id, slot| Some((agent_id.clone(), slot.activity))).into_iter().collect()
    }

    fn started_at(&self) -> Timestamp {
        self.clock.wall_of(self.started_at)
    }
}
