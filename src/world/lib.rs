//! Runs a world: boot, the supervision tree, the directory of agents, restarts, sleep and wake,
//! reload, shutdown.
//!
//! This crate must never do an agent's work in its own tasks or restart an agent that an operator
//! stopped. The death of one agent must never affect another unless the strategy of its team says
//! so (`docs/design.md`).

pub mod boot;
mod clock;
pub mod directory;
mod health;
pub mod loops;
mod maintenance;
mod manifest;
mod pause;
mod places;
pub mod reconcile;
mod reload;
mod room;
mod root;
mod schedules;
mod signal_router;
mod signals;
mod slots;
mod supervisor;
mod team_msg;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod toolboxes;
mod tree;
mod trust;
mod wake_slot;
mod watch_set;
mod watches;
mod world;

pub use boot::{Boot, boot, has_run};
pub use directory::Directory;
pub use ghost_agent::turn::OperatorCall;
pub use health::HealthProblem;
pub use loops::{LoopDown, Loops};
pub use reconcile::Reconciled;
pub use slots::{AgentCard, Population};
pub use world::World;

#[cfg(test)]
mod world_tests;
