//! State shared by the HTTP routes.

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};

use axum::extract::State;

use super::tickets::Tickets;
use crate::control::Control;
use crate::dispatch::Methods;

/// The shared state.
pub(super) struct Rest {
    pub(super) control: Control,
    pub(super) methods: Methods,
    /// Without a token, every route that needs one refuses.
    pub(super) token: Option<Arc<str>>,
    pub(super) bound: SocketAddr,
    pub(super) has_tls: bool,
    pub(super) tickets: Tickets,
    pub(super) sessions: Tickets,
    /// The OpenAPI document, generated at the first request.
    pub(super) description: OnceLock<String>,
}

pub(super) type Shared = State<Arc<Rest>>;
