//! The gRPC services, one file each.

mod agents;
mod budgets;
mod events;
mod ledger;
mod messages;
mod tasks;
mod tools;
mod turns;
mod world;

use std::sync::Arc;

use ghost_domain::Party;
use ghost_world::World;

pub use agents::AgentsService;
pub use budgets::BudgetsService;
pub use events::EventsService;
pub use ledger::LedgerService;
pub use messages::MessagesService;
pub use tasks::TasksService;
pub use tools::ToolsService;
pub use turns::TurnsService;
pub use world::WorldService;

/// What every service works with. Cheap to clone.
#[derive(Clone)]
pub struct Control {
    /// The world.
    pub world: Arc<World>,
    /// Where the control plane listens, for status.
    pub endpoints: Arc<[String]>,
    /// Begins the daemon's orderly end, on a principal's word.
    pub on_shutdown: Arc<dyn Fn(&Party) + Send + Sync>,
}
