//! The items that a reader gets from a stream.

use std::sync::Arc;

use ghost_domain::Refusal;

use super::recent::EncodedEvent;

/// One item of a stream.
#[derive(Debug)]
pub(crate) enum Item {
    /// An event, and the position after it.
    Event(Arc<EncodedEvent>, i64),
    /// A sign of life. Every matching stored event up to this position has been sent.
    Position(i64),
    /// The final item.
    Ended(Ended),
}

/// Why the daemon ended a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EndReason {
    /// The reader was too slow.
    Lagged,
    /// The daemon is stopping.
    Stopping,
    /// The feed could not be read.
    Failed,
}

/// The end of a stream that its reader can resume.
#[derive(Clone, Debug)]
pub(crate) struct Ended {
    pub reason: EndReason,
    pub refusal: Refusal,
    /// Every matching stored event up to this position has been sent.
    pub position: i64,
}
