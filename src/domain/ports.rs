//! The ports through which ids, randomness and wake-ups reach the core. Time is in [`crate::time`].

use std::sync::Arc;

use uuid::Uuid;

use crate::ids::{AgentId, AskId, TurnId};
use crate::scope::Scope;
use crate::time::Clock;

/// Makes new identifiers. In the daemon they are UUIDs of version 7; in a simulation they follow from the seed.
pub trait Ids: Send + Sync + 'static {
    /// A new identifier, never returned before by this port.
    fn next(&self) -> Uuid;
}

/// Randomness for jitter. Never for secrets.
pub trait Rng: Send + Sync + 'static {
    /// A uniformly distributed number in `0..bound`; 0 if `bound` is 0.
    fn below(&self, bound: u64) -> u64;
}

/// What a committed transaction tells the running world. Losing one loses nothing: it only says "look again".
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Signal {
    /// The agent has mail or control to look at.
    Wake(AgentId),
    /// The ask is no longer open.
    AskClosed {
        /// Which ask.
        ask_id: AskId,
        /// The agent that waits for it, if the asker is one.
        asker: Option<AgentId>,
    },
    /// The turn was ended from outside; whoever runs it must let go.
    TurnCancelled {
        /// Whose turn.
        agent_id: AgentId,
        /// Which.
        turn_id: TurnId,
    },
    /// A parked turn may go on: its budget was raised, or someone says that it is time to try again.
    TurnRetry {
        /// Whose turn.
        agent_id: AgentId,
        /// Which.
        turn_id: TurnId,
    },
    /// Something waits to be handed to the outside, or no longer does.
    Delivery,
    /// The agent's desired state or configuration changed; the supervisor must reconcile it.
    Reconcile(AgentId),
    /// In these scopes less is held than before, or the limit is another: whoever waits for room in one tries again. Only of
    /// scopes that have a limit, or had one.
    BudgetsFreed(Vec<Scope>),
    /// A limit was set: whoever found a budget spent tries again.
    LimitsSet,
    /// A schedule was set, changed or cancelled: what falls due next may be another.
    Schedules,
    /// The world was paused, or resumed. Said by the commit that made it so, because only commits have one order.
    Paused(bool),
}

/// Receives signals after commit, in commit order. Must not block: implementations enqueue and return.
pub trait Wake: Send + Sync + 'static {
    /// Takes the signals of one committed batch.
    fn signal(&self, signals: &[Signal]);
}

/// The ports that every room below domain shares, bundled because they always travel together.
#[derive(Clone)]
pub struct Ports {
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Identifiers.
    pub ids: Arc<dyn Ids>,
    /// Jitter.
    pub rng: Arc<dyn Rng>,
}
