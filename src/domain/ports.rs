//! The ports for ids, random numbers and wake-ups: traits that the daemon and the simulation
//! implement in their own way. The port for time is in [`crate::time`].

use std::sync::Arc;

use uuid::Uuid;

use crate::agent::Agent;
use crate::budget::Scope;
use crate::ids::{AgentId, AskId, TurnId};
use crate::time::Clock;

/// Makes new identifiers. The daemon makes UUIDs of version 7; a simulation derives them from its
/// seed.
pub trait Ids: Send + Sync + 'static {
    /// A new identifier. The port never returns the same one twice.
    fn next(&self) -> Uuid;
}

/// Random numbers for jitter. Not for secrets.
pub trait Rng: Send + Sync + 'static {
    /// A uniformly distributed number in `0..bound`; 0 if `bound` is 0.
    fn below(&self, bound: u64) -> u64;
}

/// A message from a committed transaction to the running world. What it says is in the store, so a lost signal loses no
/// data.
#[derive(Clone, Debug, PartialEq)]
pub enum Signal {
    /// The agent has new mail or a new control order.
    Wake(AgentId),
    /// As `Wake`, for a person: in the queue for a place among the awake agents, people go first.
    WakeFirst(AgentId),
    /// An ask ended: answered, failed or timed out.
    AskClosed {
        /// Id of the ask.
        ask_id: AskId,
        /// The agent that waits for the answer, if the asker is an agent.
        asker: Option<AgentId>,
    },
    /// An approval that a call of this agent waited for was closed.
    ApprovalClosed(AgentId),
    /// A person said what became of a call of this agent whose turn waits for that.
    CallSettled(AgentId),
    /// The turn was cancelled in the store. The actor that runs it must stop.
    TurnCancelled {
        /// Agent that runs the turn.
        agent_id: AgentId,
        /// Id of the turn.
        turn_id: TurnId,
    },
    /// A parked turn may continue: its budget was raised, or an operator asked for a retry.
    TurnRetry {
        /// Agent that runs the turn.
        agent_id: AgentId,
        /// Id of the turn.
        turn_id: TurnId,
    },
    /// The list of pending deliveries to the outside changed.
    Delivery,
    /// The agent's desired state or configuration changed. The supervisor must reconcile it.
    Reconcile(AgentId),
    /// A droid was created; the record of its agent. As `Reconcile`, but the record need not be read: no agent has the id
    /// of another droid, before it or after it.
    DroidCreated(Box<Agent>),
    /// A droid has ended; the record of its agent. As `Reconcile`, but the record need not be read.
    DroidEnded(Box<Agent>),
    /// In these scopes a reservation was released or the limit changed. Calls that wait in their
    /// budget queues try again. Contains only scopes that have or had a limit.
    BudgetsFreed(Vec<Scope>),
    /// A budget limit was set. Turns that parked because of a spent budget try again.
    LimitsSet,
    /// A schedule was set, changed or cancelled, so the next due time may be different.
    Schedules,
    /// The write grants of an agent changed, so what is remembered of them is out of date.
    Grants(AgentId),
    /// The world was paused (`true`) or resumed. The commit sends it, because commits have one
    /// order.
    Paused(bool),
}

/// Receives signals after COMMIT, in commit order. Implementations must not block: they enqueue and
/// return.
pub trait Wake: Send + Sync + 'static {
    /// Receives the signals of one committed batch.
    fn signal(&self, signals: &[Signal]);
}

/// The ports that the other crates share. They are one struct because most users need all of them.
#[derive(Clone)]
pub struct Ports {
    /// Present time and waiting.
    pub clock: Arc<dyn Clock>,
    /// New identifiers.
    pub ids: Arc<dyn Ids>,
    /// Random numbers for jitter.
    pub rng: Arc<dyn Rng>,
}
