//! Turns the heartbeat of a plan into the form that the operations need.

use ghost_config::plan::HeartbeatPlan;
use ghost_operations::schedules::Wanted;

/// The heartbeat that an agent should have.
#[must_use]
pub fn wanted(heartbeat: &HeartbeatPlan) -> Wanted {
    let every_ms = u64::try_from(heartbeat.every.as_millis()).unwrap_or(u64::MAX);
    Wanted { every_ms, target: heartbeat.target.clone() }
}
