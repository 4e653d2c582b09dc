//! The shared state of a world's supervisors and loops.

use std::sync::Arc;

use ghost_agent::Engine;

use crate::directory::Directory;
use crate::loops::Loops;
use crate::signal_router::SignalRouter;

/// Shared by all supervisors and loops of a world. It has no behaviour.
pub(crate) struct Tree {
    pub(crate) engine: Arc<Engine>,
    pub(crate) directory: Arc<Directory>,
    pub(crate) signal_router: Arc<SignalRouter>,
    pub(crate) loops: Arc<Loops>,
}
