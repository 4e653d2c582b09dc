//! The state that the services, the event streams and the HTTP side share: the world and the control
//! plane's own counters.
//!
//! State that only one service needs must never be here.

use std::sync::Arc;

use ghost_domain::redact::Redactor;
use ghost_domain::{Party, Refusal};
use ghost_world::World;
use tokio::sync::watch;

use crate::queries::AgentsRead;
use crate::streams::reader::{Readers, RecentEvents, StreamPermit};
use crate::tallies::Tallies;

/// Shared state of all services. Cheap to clone.
#[derive(Clone)]
pub struct Control {
    /// The world that this daemon runs.
    pub world: Arc<World>,
    /// Addresses that the control plane listens on, as `status` shows them.
    pub endpoints: Arc<[String]>,
    /// Starts the orderly shutdown of the daemon. The argument is the principal that requested it.
    pub on_shutdown: Arc<dyn Fn(&Party) + Send + Sync>,
    /// Becomes true when the daemon stops; streams then end.
    pub closed: watch::Receiver<bool>,
    /// Counts the open event streams, which `subscribers_max` limits.
    pub(crate) readers: Arc<Readers>,
    /// Cache of recently sent events, already encoded.
    pub(crate) recent: Arc<RecentEvents>,
    /// Cache of agents that were read recently.
    pub(crate) agents_read: Arc<AgentsRead>,
    /// Counts since the start of the daemon, for metrics.
    pub(crate) tallies: Arc<Tallies>,
}

impl Control {
    /// A place among the open streams.
    ///
    /// # Errors
    /// If there are as many as `subscribers_max` allows.
    pub(crate) fn reader_permit(&self) -> Result<Arc<StreamPermit>, Refusal> {
        Ok(Arc::new(self.readers.take(self.world.ctx().limits().subscribers_max)?))
    }

    /// Redacts secrets in texts of agents.
    pub(crate) fn redactor(&self) -> &Redactor {
        &self.world.ctx().redactor
    }

    /// State for the services of `world`. `closed` becomes true when the daemon stops.
    #[must_use]
    pub fn new(
        world: Arc<World>,
        endpoints: Arc<[String]>,
        on_shutdown: Arc<dyn Fn(&Party) + Send + Sync>,
        closed: watch::Receiver<bool>,
    ) -> Self {
        Self {
            world,
            endpoints,
            on_shutdown,
            closed,
            readers: Arc::default(),
            recent: Arc::default(),
            agents_read: Arc::default(),
            tallies: Arc::default(),
        }
    }
}
