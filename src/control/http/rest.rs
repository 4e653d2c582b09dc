//! What the routes of the HTTP side share.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::extract::State;

use super::tickets::Tickets;
use crate::control::Control;
use crate::services::AgentsService;

/// What every route works with.
pub(super) struct Rest {
    pub(super) control: Control,
    /// Remembers what was lately read.
    pub(super) agents: AgentsService,
    /// Without one, nothing that needs it is answered.
    pub(super) token: Option<Arc<str>>,
    pub(super) bound: SocketAddr,
    pub(super) tickets: Tickets,
}

pub(super) type Shared = State<Arc<Rest>>;
