//! Runs a world: boot, the supervision tree, the directory of agents, restarts, sleep and wake,
//! reload, shutdown.
//!
//! No agent's work is done in this crate's own tasks. The death of one agent affects another only if the strategy of its team
//! says so (`docs/design.md`).

mod boot;
mod clock;
mod directory;
mod health;
pub mod loops;
mod maintenance;
mod places;
mod reconcile;
mod reload;
mod signal_router;
mod slots;
mod supervisor;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod toolboxes;
mod tree;
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
