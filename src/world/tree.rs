//! What the supervisors and the loops of a world share.
//!
//! Must never: do anything.

use std::sync::Arc;

use ghost_agent::Engine;

use crate::directory::Directory;
use crate::loops::Loops;
use crate::signal_router::SignalRouter;

/// What all supervisors of a world share.
pub(crate) struct Tree {
    pub(crate) engine: Arc<Engine>,
    pub(crate) directory: Arc<Directory>,
    pub(crate) signal_router: Arc<SignalRouter>,
    pub(crate) loops: Arc<Loops>,
}
