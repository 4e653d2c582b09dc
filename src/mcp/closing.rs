//! Why a connection is closed. The first reason stays: a later one must never replace it.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

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

    /// Completes when it is closed. Dropping the future loses nothing.
    pub(crate) async fn wait(&self) -> ClosedReason {
        let mut receiver = self.0.subscribe();
        match receiver.wait_for(Option::is_some).await {
            Ok(reason) => reason.clone().unwrap_or(ClosedReason::Ended),
            // The sender is `self`, so it is there.
            Err(_) => ClosedReason::Ended,
        }
    }
}

#[cfg(test)]
mod tests {
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
