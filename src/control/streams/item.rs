//! What a reader of a stream gets, piece by piece.

use std::sync::Arc;

use ghost_domain::Refusal;

use super::shown::Shown;

/// What a reader gets.
#[derive(Debug)]
pub(crate) enum Item {
    /// An event, and the position that is reached with it.
    Event(Arc<Shown>, i64),
    /// The stream lives, and every stored event up to here that is wanted has been sent.
    Position(i64),
    /// The last word.
    Ended(Ended),
}

/// Why a stream ended before its reader did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    /// The reader is too slow.
    Lagged,
    /// The daemon goes.
    Stopping,
    /// The feed cannot be read.
    Failed,
}

/// The last word of a stream that its reader can go on from.
#[derive(Clone, Debug)]
pub(crate) struct Ended {
    pub why: Why,
    pub refusal: Refusal,
    /// Every stored event up to here that is wanted has been sent.
    pub position: i64,
}
