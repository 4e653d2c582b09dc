//! Why a request failed. The error must never leave open whether the server may have acted.

use std::time::Duration;

use crate::closing::ClosedReason;

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

#[cfg(test)]
mod tests {
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
