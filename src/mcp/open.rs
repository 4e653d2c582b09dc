//! Opens a connection. The whole start is bounded in time.

use std::sync::Arc;
use std::time::Duration;

use rmcp::model::ProtocolVersion;
use rmcp::service::{ClientInitializeError, RunningService};
use rmcp::transport::Transport;
use rmcp::{ClientLifecycleMode, ClientServiceExt as _, RoleClient};

use crate::closing::{ClosedReason, Closing};
use crate::gate::Gate;
use crate::guarded::Guarded;
use crate::handler::Handler;
use crate::http::transport;
use crate::incoming::UNREADABLE;
use crate::limits::Limits;
use crate::lines::Lines;
use crate::link::Link;
use crate::options::Lifecycle;
use crate::text::shown;
use crate::time::within;
use crate::transport_error::{Failure, failure};

/// Why a connection was not opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// The server did not finish the start in time.
    #[error("the server did not start within {after:?}")]
    Timeout {
        /// `Options::start_timeout`.
        after: Duration,
    },
    /// The server ended when it was asked for protocol 2026-07-28. Start it again, and open with
    /// [`Lifecycle::Initialize`].
    #[error("the server ended at `server/discover`: start it again with the older handshake")]
    ClosedOnDiscover,
    /// The connection was closed during the start.
    #[error("the connection was closed during the start: {reason}")]
    Closed {
        /// Why.
        reason: ClosedReason,
    },
    /// The server refused the start.
    #[error("the server refused with {code}: {message}")]
    Refused {
        /// The JSON-RPC code.
        code: i32,
        /// What the server says, shortened.
        message: String,
    },
    /// No version of the protocol is known to both.
    #[error("the server speaks only the protocol versions {}", server.join(", "))]
    NoCommonVersion {
        /// The versions of the server, at most 20.
        server: Vec<String>,
    },
    /// The server does not accept the token, or wants one (HTTP 401 or 403).
    #[error("the server does not accept the token: {detail}")]
    Unauthorized {
        /// What the server says, shortened.
        detail: String,
    },
    /// The server cannot be reached.
    #[error("the server cannot be reached: {detail}")]
    Unreachable {
        /// What failed.
        detail: String,
    },
    /// The answer of the server cannot be understood.
    #[error("the answer of the server cannot be understood: {detail}")]
    Malformed {
        /// What is wrong with it.
        detail: String,
    },
    /// The address is not one of an HTTP server.
    #[error("the address does not begin with `https://` or `http://`")]
    Address,
}

/// Versions of a server that an error names.
const VERSIONS_MAX: usize = 20;

/// Makes the start over `link`.
///
/// # Errors
/// Any [`OpenError`].
pub(crate) async fn start(
    link: Link,
    handler: Handler,
    gate: Arc<Gate>,
    lifecycle: Lifecycle,
    limits: &Limits,
    limit: Duration,
) -> Result<RunningService<RoleClient, Handler>, OpenError> {
    let closing = gate.closing().clone();
    let started = match link {
        Link::Streams { reader, writer } => {
            let lines = Lines::new(reader, writer, Arc::clone(&gate), limits.clone());
            within(limit, serve(handler, Guarded::new(lines, gate, limits.close_timeout), lifecycle)).await
        }
        Link::Http { client, url, token } => {
            if !url.starts_with("https://") && !url.starts_with("http://") {
                return Err(OpenError::Address);
            }
            let http = transport(client, &url, token.as_ref(), Arc::clone(&gate), limits);
            within(limit, serve(handler, Guarded::new(http, gate, limits.close_timeout), lifecycle)).await
        }
    };
    let started = match started {
        Some(started) => started.map_err(|error| open_error(error, &closing)),
        None => Err(OpenError::Timeout { after: limit }),
    };
    if started.is_err() {
        closing.set(ClosedReason::Here);
    }
    started
}

async fn serve<T: Transport<RoleClient> + 'static>(
    handler: Handler,
    transport: T,
    lifecycle: Lifecycle,
) -> Result<RunningService<RoleClient, Handler>, ClientInitializeError> {
    let mode = match lifecycle {
        Lifecycle::Auto => ClientLifecycleMode::Auto {
            preferred_versions: vec![ProtocolVersion::V_2026_07_28],
            legacy_version: Some(ProtocolVersion::LATEST_WITH_INITIALIZE),
        },
        Lifecycle::Initialize => ClientLifecycleMode::Initialize,
    };
    handler.serve_with_lifecycle(transport, mode).await
}

fn open_error(error: ClientInitializeError, closing: &Closing) -> OpenError {
    let ended = |is_discover: bool| match closing.get().unwrap_or(ClosedReason::Ended) {
        ClosedReason::Ended if is_discover => OpenError::ClosedOnDiscover,
        reason => OpenError::Closed { reason },
    };
    match error {
        ClientInitializeError::ConnectionClosed(context) => ended(context.contains("discover")),
        ClientInitializeError::TransportError { error, context } => match failure(&error) {
            Failure::Stream => ended(context.contains("discover")),
            Failure::Unauthorized { detail } => OpenError::Unauthorized { detail },
            Failure::SessionExpired => OpenError::Closed { reason: ClosedReason::SessionExpired },
            Failure::TooLarge { limit } => OpenError::Malformed { detail: format!("it has more than {limit} bytes") },
            Failure::Other { detail, .. } => OpenError::Unreachable { detail },
        },
        ClientInitializeError::JsonRpcError(error) if error.code.0 == UNREADABLE => {
            OpenError::Malformed { detail: shown(&error.message) }
        }
        ClientInitializeError::JsonRpcError(error) => {
            OpenError::Refused { code: error.code.0, message: shown(&error.message) }
        }
        ClientInitializeError::NoCompatibleProtocolVersion { server_supported, .. } => {
            let versions = server_supported.iter().take(VERSIONS_MAX).map(|version| shown(version.as_str()));
            OpenError::NoCommonVersion { server: versions.collect() }
        }
        ClientInitializeError::LegacyFallbackFailed { fallback, .. } => open_error(*fallback, closing),
        other => OpenError::Malformed { detail: shown(&other.to_string()) },
    }
}
