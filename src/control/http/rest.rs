//! What the routes of the HTTP side share.

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};

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
    pub(super) sessions: Tickets,
    pub(super) description: Description,
}

/// The description of all routes, made when someone first asks for it.
pub(super) struct Description {
    made: OnceLock<String>,
    make: fn() -> String,
}

impl Description {
    pub(super) fn new(make: fn() -> String) -> Self {
        Self { made: OnceLock::new(), make }
    }

    pub(super) fn text(&self) -> &str {
        self.made.get_or_init(self.make)
    }
}

pub(super) type Shared = State<Arc<Rest>>;
