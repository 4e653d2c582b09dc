//! State shared by the HTTP routes.

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};

use axum::extract::State;
use ghost_domain::{Party, Refusal};
use ghost_proto::Change;

use super::tickets::Tickets;
use crate::control::Control;
use crate::dispatch::{Mutation, Query};

/// The shared state.
pub(super) struct Rest {
    pub(super) control: Control,
    /// Without a token, every route that needs one refuses.
    pub(super) token: Option<Arc<str>>,
    pub(super) bound: SocketAddr,
    pub(super) has_tls: bool,
    pub(super) tickets: Tickets,
    pub(super) sessions: Tickets,
    pub(super) description: Description,
}

impl Rest {
    /// What a handler that reads gets.
    pub(super) fn query(&self) -> Query {
        Query::new(&self.control, Party::Operator("http".to_owned()))
    }

    /// What a handler that changes something gets.
    pub(super) fn mutation<R: Change>(&self, request: &R) -> Result<Mutation, Refusal> {
        // The same principal as over gRPC with the token, so one key means one request over both.
        Mutation::new(&self.control, Party::Operator("token".to_owned()), request)
    }
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
