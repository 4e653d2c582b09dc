//! State shared by the HTTP routes.

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};

use axum::extract::State;

use super::tickets::Tickets;
use crate::control::Control;
use crate::services::AgentsService;

/// The shared state.
pub(super) struct Rest {
    pub(super) control: Control,
    /// Caches agents that were read recently.
    pub(super) agents: AgentsService,
    /// Without a token, every route that needs one refuses.
    pub(super) token: Option<Arc<str>>,
    pub(super) bound: SocketAddr,
    pub(super) has_tls: bool,
    pub(super) tickets: Tickets,
    pub(super) sessions: Tickets,
    pub(super) description: Description,
}

/// The OpenAPI document, generated at the first request.
pub(super) struct Description {
    text: OnceLock<String>,
    generate: fn() -> String,
}

impl Description {
    pub(super) fn new(generate: fn() -> String) -> Self {
        Self { text: OnceLock::new(), generate }
    }

    pub(super) fn text(&self) -> &str {
        self.text.get_or_init(self.generate)
    }
}

pub(super) type Shared = State<Arc<Rest>>;
