//! Sleep and wake of one agent, as a pure type. The directory holds one slot for each agent under
//! its lock. A test visits every interleaving of this code (`world_tests/wake_model.rs`).
//!
//! The generation rises with every wake-up. A call is pending from the moment a wake-up is sent
//! until the read of the inbox that answers it begins. So a read that begins after a wake-up sees
//! all mail that was committed before it. A read that was already running finds at its end that the
//! generation has risen, and the actor reads again.
//!
//! This type must never know what an actor is, or wait. It must never clear a pending call except
//! when a read begins or when the actor that should have read ends.

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
