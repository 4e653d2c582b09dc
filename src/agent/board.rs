//! The port through which an actor says what its agent does, and asks whether it may sleep.

use ghost_domain::{Activity, AgentId};

/// Implemented by the world's directory.
pub trait Board: Send + Sync + 'static {
    /// Says what the agent does now.
    fn show(&self, agent_id: &AgentId, activity: Activity);

    /// Whether new turns may begin: false while the world is paused or shutting down, and for an agent that is
    /// stopping.
    fn may_begin(&self, agent_id: &AgentId) -> bool;

    /// The agent's wake generation: it rises with every wake-up.
    fn generation(&self, agent_id: &AgentId) -> u64;

    /// Says that the actor has got its wake-up, so that the next one is sent again.
    fn heard(&self, agent_id: &AgentId);

    /// Puts the agent to sleep, unless it was woken after the wake generation that its actor last saw. If this gives
    /// true the actor must exit at once: the next message makes a new one.
    fn try_sleep(&self, agent_id: &AgentId, seen: u64) -> bool;
}
