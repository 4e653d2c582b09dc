//! Who is awake: the transitions of one agent between sleep and work, as a pure type. The directory holds one for each
//! agent under its lock; a model visits every interleaving of the same code (`world_tests/wake_model.rs`).
//!
//! Two facts carry it. The generation rises with every wake-up. A call is out from the wake-up that was sent until the
//! look that answers it begins. So mail that was committed before a wake-up is either seen by a look that begins after it,
//! or the look that was under way finds at its end that the generation has risen, and looks again.
//!
//! Must never: know what an actor is, wait, or forget a call in any other way than by a look or by the end of whoever was
//! to look.

/// The wakefulness of one agent, whose actor is known as `A`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct WakeSlot<A> {
    actor: Option<A>,
    generation: u64,
    /// A wake-up is on its way to the actor, or an actor is being made.
    called: bool,
}

/// Where a wake-up must go.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Call<A> {
    /// To the actor.
    Actor(A),
    /// To the supervisor, to make an actor.
    Supervisor,
    /// Nowhere: one is on its way already, or the agent does not run.
    Nobody,
}

/// What a supervisor does that was asked for an actor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Activation<A> {
    /// It makes one.
    Make,
    /// There is one already, made while the question was on its way: it gets the wake-up.
    Tell(A),
    /// The agent does not run. Whoever lets it run again wakes it.
    Nothing,
}

impl<A> Default for WakeSlot<A> {
    fn default() -> Self {
        Self { actor: None, generation: 0, called: false }
    }
}

impl<A: Clone> WakeSlot<A> {
    /// Raises the generation, and says where the wake-up must go. `runs` says that the agent may work at all.
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

    /// What becomes of a call that has reached the supervisor.
    pub(crate) fn activation(&mut self, runs: bool) -> Activation<A> {
        match &self.actor {
            _ if !runs => {
                self.called = false;
                Activation::Nothing
            }
            Some(actor) => Activation::Tell(actor.clone()),
            None => Activation::Make,
        }
    }

    /// There is an actor. It has yet to be told to look: the call stays out until it does.
    pub(crate) fn activated(&mut self, actor: A) {
        self.actor = Some(actor);
    }

    /// A look at the inbox begins. Gives the generation that it answers; what comes from now on is called again.
    pub(crate) fn look(&mut self) -> u64 {
        self.called = false;
        self.generation
    }

    /// Whether the look that began at `seen` has answered everything, so that the actor may rest.
    pub(crate) fn is_answered(&self, seen: u64) -> bool {
        self.generation == seen
    }

    /// Lets the agent sleep, unless it was woken since the look that began at `seen`. The actor must end if it gives true.
    pub(crate) fn sleep(&mut self, seen: u64) -> bool {
        let may = self.is_answered(seen) && !self.called;
        if may {
            self.actor = None;
        }
        may
    }

    /// Forgets an actor that has ended, and the call that may have ended with it: whoever releases it looks at the inbox
    /// afterwards. A newer actor, or the call for one, stays. Gives whether anything was forgotten.
    pub(crate) fn release(&mut self, is_it: impl FnOnce(&A) -> bool) -> bool {
        let held = self.actor.as_ref().is_some_and(is_it);
        if held {
            self.give_up();
        }
        held
    }

    /// Forgets whatever actor or call there is: nobody is left who would answer it.
    pub(crate) fn give_up(&mut self) {
        self.actor = None;
        self.called = false;
    }

    /// The actor.
    pub(crate) fn actor(&self) -> Option<&A> {
        self.actor.as_ref()
    }

    /// The generation, if no call is out: for the sweep.
    pub(crate) fn uncalled(&self) -> Option<u64> {
        (!self.called).then_some(self.generation)
    }

    /// Takes the actor out, to end it.
    pub(crate) fn into_actor(self) -> Option<A> {
        self.actor
    }
}
