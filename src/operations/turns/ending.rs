//! The kinds of a turn's end.
//!
//! This module must never end a turn, or read or write the store.

use std::borrow::Cow;

use ghost_domain::turn::{CUT_MARK, bound_mark};

use crate::prelude::*;

/// How a turn ends.
#[derive(Clone, Debug, PartialEq)]
pub enum Ending {
    /// It finished with the model's last text, which may be empty.
    Finished(String),
    /// It finished with the model's last text, but the text was truncated: it reached the token
    /// limit of one answer, or the provider paused it.
    Cut(String),
    /// It failed. An agent that asked gets the refusal as the error.
    Failed(Refusal),
    /// It reached a bound. Whoever its last text would have answered gets what it said last, with a mark.
    AtBound {
        /// The bound.
        refusal: Refusal,
        /// Whether it is the turn's own bound of time or of model calls.
        timed_out: bool,
        /// The last text that the model wrote for its reader. If it is empty, the turn answers like one that failed.
        text: String,
    },
    /// It was cancelled, for this reason.
    Cancelled(String),
}

impl Ending {
    /// The status of a turn that ended so.
    #[must_use]
    pub fn status(&self) -> TurnStatus {
        match self {
            Self::Finished(_) | Self::Cut(_) => TurnStatus::Finished,
            Self::Failed(_) | Self::AtBound { timed_out: false, .. } => TurnStatus::Failed,
            Self::AtBound { timed_out: true, .. } => TurnStatus::TimedOut,
            Self::Cancelled(_) => TurnStatus::Cancelled,
        }
    }

    /// The model's last text without a mark, if there is one.
    #[must_use]
    pub fn text(&self) -> Option<&str> {
        match self {
            Self::Finished(text) | Self::Cut(text) => Some(text),
            Self::AtBound { text, .. } => Some(text).filter(|text| !text.trim().is_empty()).map(String::as_str),
            Self::Failed(_) | Self::Cancelled(_) => None,
        }
    }

    /// The refusal that ended the turn, if one did.
    #[must_use]
    pub fn refusal(&self) -> Option<&Refusal> {
        match self {
            Self::Failed(refusal) | Self::AtBound { refusal, .. } => Some(refusal),
            Self::Finished(_) | Self::Cut(_) | Self::Cancelled(_) => None,
        }
    }

    /// Whether the last text is not all that the model wanted to say.
    #[must_use]
    pub fn is_cut(&self) -> bool {
        matches!(self, Self::Cut(_) | Self::AtBound { .. }) && self.text().is_some()
    }

    /// The last text in the form that its reader receives, if there is one. A text that was cut off carries
    /// a mark that says so.
    #[must_use]
    pub fn answer_text(&self) -> Option<Cow<'_, str>> {
        match self {
            Self::Finished(text) => Some(Cow::Borrowed(text)),
            Self::Cut(text) => Some(Cow::Owned(format!("{text}\n\n{CUT_MARK}"))),
            Self::AtBound { refusal, .. } => {
                self.text().map(|text| Cow::Owned(format!("{text}\n\n{}", bound_mark(&refusal.message))))
            }
            Self::Failed(_) | Self::Cancelled(_) => None,
        }
    }
}
