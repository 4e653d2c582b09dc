//! The world: boot, the supervision tree, the directory of agents, restarts, sleep and wake, shutdown.
//!
//! Must never: do an agent's work in its own tasks, restart what an operator stopped, or let one child's death reach
//! another unless its team's strategy says so (DESIGN.md section 3).

pub mod boot;
pub mod directory;
mod ground;
mod keeper;
pub mod loops;
mod pause;
pub mod reconcile;
mod reload;
mod root;
mod schedules;
mod signals;
mod supervisor;
mod switchboard;
mod team_msg;
mod tree;
mod wake_slot;
mod watch_set;
mod watches;
mod world;

pub use boot::{Boot, boot, has_run};
pub use directory::{AgentCard, Directory};
pub use ghost_agent::turn::OperatorCall;
pub use ground::Ground;
pub use loops::{LoopDown, Loops};
pub use reconcile::Reconciled;
pub use world::World;

#[cfg(test)]
mod world_tests;
