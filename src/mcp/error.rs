//! Why a request failed, why a connection is closed, why it was not opened. No error may leave open whether the server may
//! have acted.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use rmcp::service::ClientInitializeError;
use rmcp::transport::DynamicTransportError;
use rmcp::transport::streamable_http_client::StreamableHttpError;
use tokio::sync::watch;

use crate::incoming::UNREADABLE;
use crate::limits::shown;

/// Why a request failed. [`CallError::may_have_happened`] says whether it may be sent again without harm.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// The server did not answer in time. It was told to stop, and may have acted.
    #[error("the server gave no {what} within {after:?}: it was told to stop, and may have acted")]
    Timeout {
        /// What was missing: `answer` for the total time, `progress` for the idle time.
        what: &'static str,
        /// The time.
        after: Duration,
    },
    /// The connection was closed. If the request was sent, the server may have acted.
    #[error("the connection is closed: {reason}")]
    Closed {
        /// Why.
        reason: ClosedReason,
        /// Whether the request was sent.
        sent: bool,
    },
    /// The server refused. With the codes -32700, -32600, -32601 and -32602 it did not act; with others it may have.
    #[error("the server refused with {code}: {message}")]
    Refused {
        /// The JSON-RPC code.
        code: i32,
        /// What the server says, shortened.
        message: String,
    },
    /// The server does not accept the token, or wants one (HTTP 401 or 403). It did not act.
    #[error("the server does not accept the token: {detail}")]
    Unauthorized {
        /// What the server says, shortened.
        detail: String,
    },
    /// The request or its answer was lost on the way.
    #[error("the request failed on its way: {detail}")]
    Transport {
        /// What failed.
        detail: String,
        /// Whether the request may have reached the server.
        may_have_arrived: bool,
    },
    /// The answer is larger than the transport allows. The server may have acted.
    #[error("the answer has more than {limit} bytes: ask for less")]
    TooLarge {
        /// The bound, in bytes.
        limit: usize,
    },
    /// The arguments are too large. They were not sent.
    #[error("the arguments have {bytes} bytes, more than {limit}")]
    ArgumentsTooLarge {
        /// Their size.
        bytes: usize,
        /// The bound.
        limit: usize,
    },
    /// The request was cancelled. The server may have acted.
    #[error("the request was cancelled")]
    Cancelled,
    /// The answer cannot be understood. The server may have acted.
    #[error("the answer of the server cannot be understood: {detail}")]
    Malformed {
        /// What is wrong with it.
        detail: String,
    },
    /// The server wants input that it does not get. It may have acted on a part.
    #[error("the server wants input that it does not get: {detail}")]
    NeedsInput {
        /// What it wants.
        detail: String,
    },
}

/// Codes with which a server says that it did not understand a request: parse error, invalid request, unknown method,
/// invalid parameters.
const NOT_UNDERSTOOD: [i32; 4] = [-32_700, -32_600, -32_601, -32_602];

impl CallError {
    /// Whether the server may have acted. If not, the request can be sent again without harm. A server may lie.
    #[must_use]
    pub fn may_have_happened(&self) -> bool {
        match self {
            Self::Closed { sent, .. } => *sent,
            Self::Refused { code, .. } => !NOT_UNDERSTOOD.contains(code),
            Self::Transport { may_have_arrived, .. } => *may_have_arrived,
            Self::Unauthorized { .. } | Self::ArgumentsTooLarge { .. } => false,
            Self::Timeout { .. }
            | Self::TooLarge { .. }
            | Self::Cancelled
            | Self::Malformed { .. }
            | Self::NeedsInput { .. } => true,
        }
    }

    pub(crate) fn malformed(detail: impl Into<String>) -> Self {
        Self::Malformed { detail: detail.into() }
    }
}

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

impl OpenError {
    /// What the error of `rmcp` means.
    pub(crate) fn of(error: ClientInitializeError, closing: &Closing) -> Self {
        let ended = |is_discover: bool| match closing.reason() {
            ClosedReason::Ended if is_discover => Self::ClosedOnDiscover,
            reason => Self::Closed { reason },
        };
        match error {
            ClientInitializeError::ConnectionClosed(context) => ended(context.contains("discover")),
            ClientInitializeError::TransportError { error, context } => match failure(&error) {
                Failure::Stream => ended(context.contains("discover")),
                Failure::Unauthorized { detail } => Self::Unauthorized { detail },
                Failure::SessionExpired => Self::Closed { reason: ClosedReason::SessionExpired },
                Failure::TooLarge { limit } => Self::Malformed { detail: format!("it has more than {limit} bytes") },
                Failure::Other { detail, .. } => Self::Unreachable { detail },
            },
            ClientInitializeError::JsonRpcError(error) if error.code.0 == UNREADABLE => {
                Self::Malformed { detail: shown(&error.message) }
            }
            ClientInitializeError::JsonRpcError(error) => {
                Self::Refused { code: error.code.0, message: shown(&error.message) }
            }
            ClientInitializeError::NoCompatibleProtocolVersion { server_supported, .. } => {
                let versions = server_supported.iter().take(VERSIONS_MAX).map(|version| shown(version.as_str()));
                Self::NoCommonVersion { server: versions.collect() }
            }
            ClientInitializeError::LegacyFallbackFailed { fallback, .. } => Self::of(*fallback, closing),
            other => Self::Malformed { detail: shown(&other.to_string()) },
        }
    }
}

/// Why a connection is closed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClosedReason {
    /// This side closed it.
    #[error("it was closed here")]
    Here,
    /// The server closed its stream, or its process ended. It may be started again.
    #[error("the server closed it")]
    Ended,
    /// The stream failed.
    #[error("the stream of the server failed: {detail}")]
    Broken {
        /// What failed.
        detail: String,
    },
    /// The server sent a line that is too long. `Limits::line_bytes` is the bound.
    #[error("the server sent a line of more than {limit} bytes")]
    LineTooLong {
        /// The bound, in bytes.
        limit: usize,
    },
    /// The server sent too many messages that answer nothing. `Limits::messages_per_second` is the bound.
    #[error("the server sent more than {limit} messages in one second that answer nothing")]
    Flood {
        /// The bound, in messages per second.
        limit: u32,
    },
    /// The server asked too much at once. `Limits::server_requests` is the bound.
    #[error("the server had more than {limit} requests open")]
    TooManyRequests {
        /// The bound, in requests.
        limit: usize,
    },
    /// The server did not read a message. `Limits::write_timeout` is the bound.
    #[error("the server read nothing for {after:?}")]
    NotReading {
        /// The bound.
        after: Duration,
    },
    /// The server broke a rule of the protocol.
    #[error("the server broke the protocol: {detail}")]
    Protocol {
        /// Which rule.
        detail: &'static str,
    },
    /// The server forgot the session (HTTP 404). A new connection starts a new one.
    #[error("the server forgot the session: open a new connection")]
    SessionExpired,
}

/// Whether a connection is closed, and why. Clones are the same one.
#[derive(Clone, Debug)]
pub(crate) struct Closing(Arc<watch::Sender<Option<ClosedReason>>>);

impl Closing {
    pub(crate) fn new() -> Self {
        Self(Arc::new(watch::Sender::new(None)))
    }

    /// Closes for `reason`, unless it is closed already.
    pub(crate) fn set(&self, reason: ClosedReason) {
        self.0.send_if_modified(|current| {
            let is_first = current.is_none();
            if is_first {
                *current = Some(reason);
            }
            is_first
        });
    }

    /// The reason; `None` while it is open.
    pub(crate) fn get(&self) -> Option<ClosedReason> {
        self.0.borrow().clone()
    }

    /// The reason. One that is still open ends now.
    pub(crate) fn reason(&self) -> ClosedReason {
        self.get().unwrap_or(ClosedReason::Ended)
    }

    /// Completes when it is closed. Dropping the future loses nothing.
    pub(crate) async fn wait(&self) -> ClosedReason {
        // The sender is `self`, so it cannot be gone.
        drop(self.0.subscribe().wait_for(Option::is_some).await);
        self.reason()
    }
}

/// What an error of a transport means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// HTTP 401 or 403.
    Unauthorized { detail: String },
    /// HTTP 404 within a session.
    SessionExpired,
    /// The answer is too large.
    TooLarge { limit: usize },
    /// The stream of a process, or the connection itself.
    Stream,
    /// Anything else over HTTP.
    Other { detail: String, may_have_arrived: bool },
}

type HttpError = StreamableHttpError<reqwest::Error>;

/// What `error` means.
pub(crate) fn failure(error: &DynamicTransportError) -> Failure {
    let mut current: Option<&(dyn Error + 'static)> = Some(error.error.as_ref());
    while let Some(cause) = current {
        if let Some(http) = cause.downcast_ref::<HttpError>() {
            return of_http(http);
        }
        current = cause.source();
    }
    Failure::Stream
}

fn of_http(error: &HttpError) -> Failure {
    let other = |may_have_arrived| Failure::Other { detail: causes(error), may_have_arrived };
    match error {
        StreamableHttpError::AuthRequired(_) | StreamableHttpError::InsufficientScope(_) => {
            Failure::Unauthorized { detail: causes(error) }
        }
        StreamableHttpError::SessionExpired => Failure::SessionExpired,
        StreamableHttpError::ResponseBodyTooLarge { max_size } => Failure::TooLarge { limit: *max_size },
        StreamableHttpError::Client(client) => other(!client.is_connect() && !client.is_builder()),
        StreamableHttpError::HttpStatus(status) => other(status.status >= 500),
        // The text begins with `HTTP` and the status for every status without a form of its own.
        StreamableHttpError::UnexpectedServerResponse(text) => match text.strip_prefix("HTTP ") {
            Some(status) if status.starts_with("401") || status.starts_with("403") => {
                Failure::Unauthorized { detail: shown(text) }
            }
            Some(status) => other(!status.starts_with(['3', '4'])),
            None => other(true),
        },
        StreamableHttpError::ReservedHeaderConflict(_) => other(false),
        _ => other(true),
    }
}

/// The texts of an error and of its causes.
fn causes(error: &HttpError) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.contains(&more) {
            text.push_str(": ");
            text.push_str(&more);
        }
        cause = error.source();
    }
    shown(&text)
}

#[cfg(test)]
mod error_tests {
    use super::*;

    #[test]
    fn an_error_says_whether_the_server_may_have_acted() {
        let refused = |code| CallError::Refused { code, message: String::new() };
        let closed = |sent| CallError::Closed { reason: ClosedReason::Ended, sent };
        let transport = |may_have_arrived| CallError::Transport { detail: String::new(), may_have_arrived };
        for error in [refused(-32_602), refused(-32_601), closed(false), transport(false)] {
            assert!(!error.may_have_happened(), "{error}");
        }
        let timeout = CallError::Timeout { what: "answer", after: Duration::from_secs(1) };
        for error in [refused(-32_603), refused(1), closed(true), transport(true), timeout, CallError::Cancelled] {
            assert!(error.may_have_happened(), "{error}");
        }
    }
}

#[cfg(test)]
mod closing_tests {
    use super::*;

    #[tokio::test]
    async fn the_first_reason_stays() {
        let closing = Closing::new();
        assert_eq!(closing.get(), None);
        closing.set(ClosedReason::Flood { limit: 3 });
        closing.set(ClosedReason::Here);
        assert_eq!(closing.get(), Some(ClosedReason::Flood { limit: 3 }));
        assert_eq!(closing.wait().await, ClosedReason::Flood { limit: 3 });
    }
}
