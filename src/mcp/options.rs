//! What the caller chooses when it opens a connection.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::elicitation::ElicitationHandler;
use crate::limits::Limits;

/// How a connection starts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Lifecycle {
    /// Asks for protocol 2026-07-28, and makes the older handshake if the server refuses. A server that says nothing
    /// to it costs 10 seconds.
    #[default]
    Auto,
    /// The older handshake (protocol 2025-11-25 and before).
    Initialize,
}

/// What the caller chooses when it opens a connection.
#[derive(Clone)]
pub struct Options {
    /// How it starts.
    pub lifecycle: Lifecycle,
    /// Time for the whole start.
    pub start_timeout: Duration,
    /// The name of the client, which the server learns.
    pub client_name: String,
    /// The version of the client, which the server learns.
    pub client_version: String,
    /// Who answers the questions of the server. Without one, the server learns that it cannot ask.
    pub elicitation: Option<Arc<dyn ElicitationHandler>>,
    /// The bounds.
    pub limits: Limits,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            lifecycle: Lifecycle::Auto,
            start_timeout: Duration::from_secs(30),
            client_name: "ghost".to_owned(),
            client_version: env!("CARGO_PKG_VERSION").to_owned(),
            elicitation: None,
            limits: Limits::default(),
        }
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("lifecycle", &self.lifecycle)
            .field("start_timeout", &self.start_timeout)
            .field("client_name", &self.client_name)
            .field("client_version", &self.client_version)
            .field("elicitation", &self.elicitation.is_some())
            .field("limits", &self.limits)
            .finish()
    }
}
