//! The messages to supervisors.

use std::time::Duration;

use ghost_config::plan::TeamPlan;
use ghost_domain::restart::Intensity;
use ghost_domain::{Agent, AgentId, Refusal};
use tokio::sync::oneshot;

/// A read or commit for one agent that runs beside its supervisor's mailbox.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum LifecycleStep {
    /// Read the agent's record and start, stop or update the agent as the record requires.
    Reconcile,
    /// Start the agent of a droid that was created with this record.
    DroidCreated(Box<Agent>),
    /// Stop the agent of a droid that has ended, whose record is this.
    DroidEnded(Box<Agent>),
    /// Restart the agent after its back-off.
    Restart,
    /// Handle the agent's crash, with its reason.
    Crashed(String),
    /// Fail the agent because its team failed, with the reason.
    Failed(String),
    /// Record that the agent has stopped.
    Stopped,
    /// Record that the agent cannot run under the plan.
    CannotRun(Refusal),
}

impl LifecycleStep {
    /// Whether one waiting step covers an equal one that comes later.
    pub(crate) fn repeats(&self) -> bool {
        matches!(self, Self::Reconcile | Self::Restart | Self::Stopped)
    }
}

/// A message to a supervisor.
#[derive(Debug)]
pub(crate) enum TeamMsg {
    /// Make an actor for an agent that was woken.
    Activate(AgentId),
    /// Reconcile an agent, because its record changed.
    Reconcile(AgentId),
    /// Restart a crashed agent, because its back-off is over.
    Restart(AgentId),
    /// Run a step.
    Run(AgentId, LifecycleStep),
    /// An step of this agent has ended.
    StepDone(AgentId),
    /// A read of agents that have ended is complete.
    EndsRead,
    /// The team's configuration changed.
    Replan(Option<TeamPlan>, Intensity),
    /// Stop all actors.
    Shutdown {
        /// Maximum time for running turns to finish.
        grace: Duration,
        /// Answered when no actor is left.
        done: oneshot::Sender<()>,
    },
}
