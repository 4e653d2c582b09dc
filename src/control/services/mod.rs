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
use tokio::sync::watch;

pub use agents::AgentsService;
pub use budgets::BudgetsService;
pub use events::EventsService;
pub use ledger::LedgerService;
pub use messages::MessagesService;
pub use tasks::TasksService;
pub use tools::ToolsService;
pub use turns::TurnsService;
pub use world::WorldService;
pub(crate) use world::population;

/// What every service works with. Cheap to clone.
#[derive(Clone)]
pub struct Control {
    /// The world.
    pub world: Arc<World>,
    /// Where the control plane listens, for status.
    pub endpoints: Arc<[String]>,
    /// Begins the daemon's orderly end, on a principal's word.
    pub on_shutdown: Arc<dyn Fn(&Party) + Send + Sync>,
    /// Turns true when the daemon has stopped its world and ends its streams.
    pub closed: watch::Receiver<bool>,
    /// The event streams that are open.
    pub(crate) readers: Arc<events::Readers>,
}

impl Control {
    /// What the services of a world work with, until `closed` turns true.
    #[must_use]
    pub fn new(
        world: Arc<World>,
        endpoints: Arc<[String]>,
        on_shutdown: Arc<dyn Fn(&Party) + Send + Sync>,
        closed: watch::Receiver<bool>,
    ) -> Self {
        Self { world, endpoints, on_shutdown, closed, readers: Arc::default() }
    }
}
