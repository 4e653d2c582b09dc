//! The port through which an actor says what its agent does, and asks whether it may sleep.

use ghost_domain::{Activity, AgentId};

/// Implemented by the world's directory.
pub trait ActivityPort: Send + Sync + 'static {
    /// Says what the agent does now.
    fn show(&self, agent_id: &AgentId, activity: Activity);

    /// Whether new turns may begin: false while the world is paused or shutting down, and for an agent that is
    /// stopping.
    fn may_begin(&self, agent_id: &AgentId) -> bool;

    /// Says that a look at the inbox begins, and gives the wake generation that it answers: the generation rises with
    /// every wake-up, and the next one is sent again.
    fn look(&self, agent_id: &AgentId) -> u64;

    /// Shows the agent as idle, unless it was woken after the look that began at `seen`. If this gives false the actor
    /// must look again.
    fn try_rest(&self, agent_id: &AgentId, seen: u64) -> bool;

    /// Puts the agent to sleep, unless it was woken after the look that began at `seen`. If this gives true the actor must
    /// exit at once: the next message makes a new one.
    fn try_sleep(&self, agent_id: &AgentId, seen: u64) -> bool;
}
