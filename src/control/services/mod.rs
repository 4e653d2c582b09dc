//! The gRPC services, one file each.

mod agents;
mod budgets;
mod chat;
mod conversations;
mod events;
mod knowledge;
mod ledger;
mod messages;
mod schedules;
mod state;
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
pub use chat::ChatService;
pub use conversations::ConversationsService;
pub use events::EventsService;
pub use knowledge::KnowledgeService;
pub use ledger::LedgerService;
pub use messages::MessagesService;
pub use schedules::SchedulesService;
pub use state::StateService;
pub use tasks::TasksService;
pub use tools::ToolsService;
pub use turns::TurnsService;
pub use world::WorldService;
pub(crate) use world::population;

use crate::streams::{Lately, Readers};

/// Bytes of a page. Rows may be long, and a client takes only so much at once.
const PAGE_BYTES: usize = 1024 * 1024;

/// As many of a page's rows as fit its bytes, the first one always; and whether more follow.
fn within_bytes<T: prost::Message>(mut rows: Vec<T>, more: bool) -> (Vec<T>, bool) {
    let mut used = 0;
    let fits = rows.iter().take_while(|row| {
        used += row.encoded_len();
        used <= PAGE_BYTES
    });
    let fits = fits.count().max(1);
    let more = more || fits < rows.len();
    rows.truncate(fits);
    (rows, more)
}

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
    pub(crate) readers: Arc<Readers>,
    /// The events that their readers got lately.
    pub(crate) lately: Arc<Lately>,
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
        Self { world, endpoints, on_shutdown, closed, readers: Arc::default(), lately: Arc::default() }
    }
}
