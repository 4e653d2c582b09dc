//! The world: boot, the supervision tree, the directory of agents, restarts, sleep and wake, shutdown.
//!
//! Must never: do an agent's work in its own tasks, restart what an operator stopped, or let one child's death reach
//! another unless its team's strategy says so (DESIGN.md section 3).

pub mod boot;
pub mod directory;
mod health;
pub mod loops;
mod maintenance;
mod pause;
pub mod reconcile;
mod reload;
mod root;
mod schedules;
mod signal_router;
mod signals;
mod supervisor;
mod team_msg;
mod tree;
mod wake_slot;
mod watch_set;
mod watches;
mod world;

pub use boot::{Boot, boot, has_run};
pub use directory::{AgentCard, Directory};
pub use ghost_agent::turn::OperatorCall;
pub use health::HealthProblem;
pub use loops::{LoopDown, Loops};
pub use reconcile::Reconciled;
pub use world::World;

#[cfg(test)]
mod world_tests;
