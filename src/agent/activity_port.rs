//! The port through which an actor reports what its agent does and asks whether it may sleep.

use ghost_domain::{Activity, AgentId};

/// Implemented by the world's directory of agents.
pub trait ActivityPort: Send + Sync + 'static {
    /// Publishes the agent's current activity.
    fn show(&self, agent_id: &AgentId, activity: Activity);

    /// Gives the agent's place among the awake ones (`limits.awake_max`) to others while it waits for something that
    /// may take long, such as a model that is down. With `waits` false it takes a place again, even if there is none.
    fn set_waits(&self, agent_id: &AgentId, waits: bool);

    /// Whether new turns may begin. False while the world is paused or shutting down, and for an
    /// agent that is stopping.
    fn may_begin(&self, agent_id: &AgentId) -> bool;

    /// Marks the beginning of an inbox read and returns the agent's current wake generation. Every
    /// wake-up raises the generation. After this call, the next wake-up is delivered to the actor
    /// again.
    fn begin_read(&self, agent_id: &AgentId) -> u64;

    /// Shows the agent as idle, unless a wake-up has arrived since the inbox read that returned
    /// generation `seen`. If this returns false, the actor must read the inbox again.
    fn try_rest(&self, agent_id: &AgentId, seen: u64) -> bool;

    /// Puts the agent to sleep, unless a wake-up has arrived since the inbox read that returned
    /// generation `seen`. If this returns true, the actor must exit at once: the next message
    /// starts a new actor.
    fn try_sleep(&self, agent_id: &AgentId, seen: u64) -> bool;
}
