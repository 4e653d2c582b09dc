//! What the supervisors of teams are told, by whoever tells it.

use std::time::Duration;

use ghost_config::plan::TeamPlan;
use ghost_domain::restart::Intensity;
use ghost_domain::{AgentId, Refusal};
use tokio::sync::oneshot;

/// What reads and commits for one agent, beside its supervisor's mailbox.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Errand {
    /// Its record is looked at, and what it asks for is done.
    Reconcile,
    /// It runs again.
    Restart,
    /// It crashed, for this reason.
    Crashed(String),
    /// It fails with its team, for this reason.
    Failed(String),
    /// It has stopped.
    Stopped,
    /// The plan has no place for it.
    OutOfPlace(Refusal),
}

impl Errand {
    /// Whether one that waits does for another that comes after it.
    pub(crate) fn repeats(&self) -> bool {
        matches!(self, Self::Reconcile | Self::Restart | Self::Stopped)
    }
}

/// What a supervisor is told.
#[derive(Debug)]
pub(crate) enum TeamMsg {
    /// Make an actor for an agent that was woken.
    Activate(AgentId),
    /// The record of an agent changed.
    Reconcile(AgentId),
    /// The back-off of a crashed agent is over.
    Restart(AgentId),
    /// An agent that has ended, or whose team has failed, needs this.
    Run(AgentId, Errand),
    /// An errand of this agent's is over.
    Ran(AgentId),
    /// A look at agents that have ended is over.
    Looked,
    /// Its team changed in the configuration.
    Replan(Option<TeamPlan>, Intensity),
    /// Stop every actor in order; the answer comes when none is left.
    Shutdown {
        /// How long turns may still take.
        grace: Duration,
        /// Told when all have ended.
        done: oneshot::Sender<()>,
    },
}
