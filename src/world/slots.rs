//! The directory's entries: one small record for each agent, its rules of sleep and wake, and how many agents of each kind
//! have each status and activity. The counts change with the entries, so that reading them costs the same for any number of
//! agents: an entry changes only through [`Slots`], which counts it.
//!
//! [`WakeSlot`] holds sleep and wake as a pure type, which does not know what an actor is; a test visits every interleaving
//! of it (`world_tests/wake_model.rs`). The generation rises with every wake-up. A call is pending from the moment a wake-up
//! is sent until the read of the inbox that answers it begins. So a read that begins after a wake-up sees all mail that was
//! committed before it. A read that was already running finds at its end that the generation has risen, and the actor reads
//! again. Only the beginning of a read, or the end of the actor that should have read, clears a pending call.

use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use ghost_agent::AgentMsg;
use ghost_domain::time::Clock;
use ghost_domain::{Activity, AgentId, AgentKind, AgentStatus, Desired, Timestamp};
use ractor::ActorRef;
use serde::{Deserialize, Serialize};

/// Sleep and wake of one agent. `A` is the handle of its actor.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct WakeSlot<A> {
    actor: Option<A>,
    generation: u64,
    /// A wake-up is on its way to the actor, or an actor is being created.
    called: bool,
}

/// The receiver of a wake-up.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Call<A> {
    /// The actor.
    Actor(A),
    /// The supervisor, which must create an actor.
    Supervisor,
    /// None: a wake-up is already on its way, or the agent does not run.
    Nobody,
}

/// The receiver of a wake-up, with the team of the supervisor.
pub(crate) enum Route {
    /// The actor.
    Actor(ActorRef<AgentMsg>),
    /// The supervisor of this team, which must create an actor.
    Supervisor(Option<Arc<str>>),
    /// None: a wake-up is already on its way, or the agent does not run.
    Nowhere,
}

/// The decision of a supervisor about a request to create an actor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Activation<A> {
    /// Create an actor.
    Make,
    /// Send a wake-up to this actor, which was created in the meantime.
    Wake(A),
    /// Nothing: the agent does not run. It is woken when it runs again.
    Nothing,
}

impl<A> Default for WakeSlot<A> {
    fn default() -> Self {
        Self { actor: None, generation: 0, called: false }
    }
}

impl<A: Clone> WakeSlot<A> {
    /// Raises the generation and returns the receiver of the wake-up. `runs` says whether the agent may work.
    pub(crate) fn wake(&mut self, runs: bool) -> Call<A> {
        self.generation = self.generation.wrapping_add(1);
        if self.called || !runs {
            return Call::Nobody;
        }
        self.called = true;
        match &self.actor {
            Some(actor) => Call::Actor(actor.clone()),
            None => Call::Supervisor,
        }
    }

    /// Decides how a supervisor answers a wake-up.
    pub(crate) fn activation(&mut self, runs: bool) -> Activation<A> {
        match &self.actor {
            _ if !runs => {
                self.called = false;
                Activation::Nothing
            }
            Some(actor) => Activation::Wake(actor.clone()),
            None => Activation::Make,
        }
    }

    /// Stores a new actor. The call stays pending until the actor reads its inbox.
    pub(crate) fn activated(&mut self, actor: A) {
        self.actor = Some(actor);
    }

    /// Marks the beginning of a read of the inbox. Returns the generation that it answers. A later wake-up is sent
    /// again.
    pub(crate) fn begin_read(&mut self) -> u64 {
        self.called = false;
        self.generation
    }

    /// Whether the read that began at generation `seen` has answered every wake-up, so that the actor may go idle.
    pub(crate) fn is_answered(&self, seen: u64) -> bool {
        self.generation == seen
    }

    /// Removes the actor, so that the agent sleeps, unless it was woken since the read that began at generation
    /// `seen`. If this returns true, the actor must end.
    pub(crate) fn sleep(&mut self, seen: u64) -> bool {
        let may = self.is_answered(seen) && !self.called;
        if may {
            self.actor = None;
        }
        may
    }

    /// Removes an actor that has ended, with its pending call: the caller reads the inbox afterwards. A newer
    /// actor, or the call for one, stays. Returns whether the actor was removed.
    pub(crate) fn release(&mut self, is_it: impl FnOnce(&A) -> bool) -> bool {
        let held = self.actor.as_ref().is_some_and(is_it);
        if held {
            self.give_up();
        }
        held
    }

    /// Removes the actor and any pending call, because no actor will answer the call.
    pub(crate) fn give_up(&mut self) {
        self.actor = None;
        self.called = false;
    }

    /// The actor, if the agent is awake.
    pub(crate) fn actor(&self) -> Option<&A> {
        self.actor.as_ref()
    }

    /// The generation, if no call is pending. The sweep uses it.
    pub(crate) fn uncalled(&self) -> Option<u64> {
        (!self.called).then_some(self.generation)
    }

    /// Consumes the slot and returns the actor.
    pub(crate) fn into_actor(self) -> Option<A> {
        self.actor
    }
}

/// The fields of an agent that lists and lookups show. Read from memory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AgentCard {
    /// Id of the agent.
    pub agent_id: AgentId,
    /// Name of the archetype that it was made from.
    pub archetype: Arc<str>,
    /// The name for people; the id if the agent has no other.
    pub name: Arc<str>,
    /// Name of its team; `None` if it has none.
    pub team: Option<Arc<str>>,
    /// Whether `world-config.yaml` declares the agent or it was created at run time.
    pub kind: AgentKind,
    /// Its state in supervision.
    pub status: AgentStatus,
    /// Why it is stopped or failed.
    pub status_reason: Option<Arc<str>>,
    /// The agent's current activity.
    pub activity: Activity,
    /// Number of restarts after a crash, since it was created.
    pub restarts: u32,
    /// Distinguishes successive agents with this id. It grows with each new one.
    pub incarnation: u32,
    /// When it was created.
    pub created_at: Timestamp,
}

/// One agent in the directory. Kept small, because a sleeping agent costs only this.
pub(crate) struct Slot {
    pub(crate) archetype: Arc<str>,
    /// `None` if the name is the id.
    pub(crate) name: Option<Arc<str>>,
    pub(crate) team: Option<Arc<str>>,
    pub(crate) reason: Option<Arc<str>>,
    pub(crate) wake: WakeSlot<Box<ActorRef<AgentMsg>>>,
    pub(crate) created_at: Timestamp,
    pub(crate) idle_since: Timestamp,
    pub(crate) restarts: u32,
    pub(crate) incarnation: u32,
    pub(crate) kind: AgentKind,
    pub(crate) desired: Desired,
    pub(crate) status: AgentStatus,
    pub(crate) activity: Activity,
    /// Whether it works without a place, and why.
    pub(crate) away: Away,
}

/// Why an agent that is awake holds no place.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Away {
    /// It holds one.
    No,
    /// It waits for another agent's answer. That one may need the place.
    Answer,
    /// It waits for a model or a budget.
    Model,
}

impl Slot {
    pub(crate) fn show(&mut self, activity: Activity, clock: &dyn Clock) {
        if activity == Activity::Idle && self.activity != Activity::Idle {
            self.idle_since = clock.steady();
        }
        self.activity = activity;
    }

    /// Whether the agent may take turns.
    pub(crate) fn runs(&self) -> bool {
        self.desired == Desired::Running && self.status == AgentStatus::Running
    }

    pub(crate) fn card(&self, agent_id: &AgentId) -> AgentCard {
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

/// Number of agents by kind, status and activity. No number is 0.
pub type Population = BTreeMap<Group, u64>;

/// What agents are counted by.
type Group = (AgentKind, AgentStatus, Activity);

/// All entries, and their counts.
#[derive(Default)]
pub(crate) struct Slots {
    by_id: BTreeMap<AgentId, Slot>,
    population: Population,
}

impl Slots {
    /// An entry that can be changed. It is counted anew when the caller lets it go.
    pub(crate) fn get_mut(&mut self, agent_id: &AgentId) -> Option<SlotMut<'_>> {
        let slot = self.by_id.get_mut(agent_id)?;
        Some(SlotMut { counted: group(slot), slot, population: &mut self.population })
    }

    /// Adds an entry. The caller knows that the id has none.
    pub(crate) fn insert(&mut self, agent_id: AgentId, slot: Slot) {
        let new = Some(group(&slot));
        let old = self.by_id.insert(agent_id, slot);
        recount(&mut self.population, old.as_ref().map(group), new);
    }

    /// Removes an entry.
    pub(crate) fn remove(&mut self, agent_id: &AgentId) -> Option<Slot> {
        let slot = self.by_id.remove(agent_id)?;
        recount(&mut self.population, Some(group(&slot)), None);
        Some(slot)
    }

    /// Number of agents of a kind.
    pub(crate) fn len_of(&self, kind: AgentKind) -> u64 {
        self.population.iter().filter(|((of, ..), _)| *of == kind).map(|(_, count)| count).sum()
    }

    /// Ids of stopped agents of a kind, at most `limit`.
    pub(crate) fn stopped(&self, kind: AgentKind, limit: usize) -> Vec<AgentId> {
        let stopped = self.by_id.iter().filter(|(_, slot)| slot.kind == kind && slot.status == AgentStatus::Stopped);
        stopped.map(|(agent_id, _)| agent_id.clone()).take(limit).collect()
    }

    /// How many agents of each kind have each status and activity.
    pub(crate) fn population(&self) -> &Population {
        &self.population
    }
}

/// Entries can be read as the map that they are.
impl Deref for Slots {
    type Target = BTreeMap<AgentId, Slot>;

    fn deref(&self) -> &Self::Target {
        &self.by_id
    }
}

/// An entry under change.
pub(crate) struct SlotMut<'a> {
    slot: &'a mut Slot,
    population: &'a mut Population,
    counted: Group,
}

impl Deref for SlotMut<'_> {
    type Target = Slot;

    fn deref(&self) -> &Slot {
        self.slot
    }
}

impl DerefMut for SlotMut<'_> {
    fn deref_mut(&mut self) -> &mut Slot {
        self.slot
    }
}

impl Drop for SlotMut<'_> {
    fn drop(&mut self) {
        recount(self.population, Some(self.counted), Some(group(self.slot)));
    }
}

fn group(slot: &Slot) -> Group {
    (slot.kind, slot.status, slot.activity)
}

fn recount(population: &mut Population, before: Option<Group>, after: Option<Group>) {
    if before == after {
        return;
    }
    if let Some(count) = after {
        *population.entry(count).or_default() += 1;
    }
    if let Some(before) = before
        && let Some(count) = population.get_mut(&before)
    {
        *count = count.saturating_sub(1);
        if *count == 0 {
            population.remove(&before);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn slot(kind: AgentKind, status: AgentStatus) -> Slot {
        Slot {
            archetype: "worker".into(),
            name: None,
            team: None,
            reason: None,
            wake: WakeSlot::default(),
            created_at: Timestamp::default(),
            idle_since: Timestamp::default(),
            restarts: 0,
            incarnation: 1,
            kind,
            desired: Desired::Running,
            status,
            activity: Activity::Asleep,
            away: Away::No,
        }
    }

    /// What an entry goes through.
    #[derive(Clone, Debug)]
    enum Step {
        Insert(AgentKind, AgentStatus),
        Kind(AgentKind),
        Status(AgentStatus),
        Activity(Activity),
        Remove,
    }

    fn step() -> impl Strategy<Value = Step> {
        let kind = || prop::sample::select(vec![AgentKind::Persistent, AgentKind::Dynamic, AgentKind::Droid]);
        let status = || prop::sample::select(vec![AgentStatus::Running, AgentStatus::Stopping, AgentStatus::Failed]);
        let activity = prop::sample::select(vec![Activity::Asleep, Activity::Idle, Activity::Thinking]);
        prop_oneof![
            (kind(), status()).prop_map(|(kind, status)| Step::Insert(kind, status)),
            kind().prop_map(Step::Kind),
            status().prop_map(Step::Status),
            activity.prop_map(Step::Activity),
            Just(Step::Remove),
        ]
    }

    proptest! {
        /// What `status` and the metrics say is what a count of every agent says, after any change.
        #[test]
        fn the_counts_are_those_of_the_entries(steps in prop::collection::vec((0u8..4, step()), 0..60)) {
            let mut slots = Slots::default();
            for (n, step) in steps {
                let agent_id: AgentId = format!("a{n}").parse().unwrap();
                match step {
                    Step::Insert(kind, status) => slots.insert(agent_id, slot(kind, status)),
                    Step::Remove => drop(slots.remove(&agent_id)),
                    change => {
                        if let Some(mut slot) = slots.get_mut(&agent_id) {
                            match change {
                                Step::Kind(kind) => slot.kind = kind,
                                Step::Status(status) => slot.status = status,
                                Step::Activity(activity) => slot.activity = activity,
                                Step::Insert(..) | Step::Remove => unreachable!("handled above"),
                            }
                        }
                    }
                }
                let mut recounted = Population::new();
                for slot in slots.values() {
                    *recounted.entry(group(slot)).or_default() += 1;
                }
                prop_assert_eq!(slots.population(), &recounted);
            }
        }
    }
}
