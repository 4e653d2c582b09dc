//! What the supervisors of teams are told, by whoever tells it.

use std::time::Duration;

use ghost_config::plan::TeamPlan;
use ghost_domain::AgentId;
use ghost_domain::restart::Intensity;
use tokio::sync::oneshot;

/// What a supervisor is told.
#[derive(Debug)]
pub(crate) enum TeamMsg {
    /// Make an actor for an agent that was woken.
    Activate(AgentId),
    /// The record of an agent changed.
    Reconcile(AgentId),
    /// The back-off of a crashed agent is over.
    Restart(AgentId),
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
