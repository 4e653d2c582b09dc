//! What the caller chooses: how a server is reached, how a connection is opened, how a call is made.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use secrecy::SecretString;
use serde_json::{Map, Value};
use tokio::io::{AsyncRead, AsyncWrite};

use crate::elicitation::ElicitationHandler;
use crate::limits::Limits;
use crate::transports::HttpClient;

/// How a server is reached. Its `Debug` never shows the token.
pub enum Link {
    /// Two streams, with one message on each line: the standard streams of a process. The caller owns the process
    /// and ends it after the connection is closed.
    Streams {
        /// What the server writes.
        reader: Box<dyn AsyncRead + Send + Unpin>,
        /// What the server reads.
        writer: Box<dyn AsyncWrite + Send + Unpin>,
    },
    /// Streamable HTTP.
    Http {
        /// The client. It follows no redirect.
        client: HttpClient,
        /// The address of the server, `http://..` or `https://..`.
        url: String,
        /// The token for the header `Authorization: Bearer`, without the word `Bearer`.
        token: Option<SecretString>,
    },
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Streams { .. } => f.write_str("Link::Streams"),
            Self::Http { url, token, .. } => {
                f.debug_struct("Link::Http").field("url", url).field("token", token).finish_non_exhaustive()
            }
        }
    }
}

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
            elicitation: None,
            limits: Limits::default(),
        }
    }
}

/// How a call is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallOptions {
    /// Time for the whole call, with the answers to questions of the server.
    pub timeout: Duration,
    /// Time without progress; `None` is without a bound. It does not run while a question waits for its answer.
    pub idle: Option<Duration>,
    /// Bytes of the result that are kept. Text is cut, and data that does not fit is left out.
    pub result_limit: usize,
    /// What stands for this call in [`crate::Elicitation::call`].
    pub label: Option<Arc<str>>,
    /// Entries of the request's `_meta`, such as an idempotency key.
    pub meta: Map<String, Value>,
}

impl Default for CallOptions {
    /// 60 seconds, no idle time, 256 KiB, no label, no entries.
    fn default() -> Self {
        Self { timeout: Duration::from_secs(60), idle: None, result_limit: 256 * 1_024, label: None, meta: Map::new() }
    }
}
