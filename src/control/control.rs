//! What the services, the streams and the HTTP side work with: the world, and what belongs to the control plane itself.
//!
//! Must never: hold what one service alone needs.

use std::sync::Arc;

use ghost_domain::Party;
use ghost_world::World;
use tokio::sync::watch;

use crate::streams::readers::Readers;
use crate::streams::shown::Lately;
use crate::tallies::Tallies;

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
    /// What happened since the start, for metrics.
    pub(crate) tallies: Arc<Tallies>,
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
        Self {
            world,
            endpoints,
            on_shutdown,
            closed,
            readers: Arc::default(),
            lately: Arc::default(),
            tallies: Arc::default(),
        }
    }
}
