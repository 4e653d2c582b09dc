//! How a turn ends, and what its end must know of its mail: what whoever pays its debts is given.
//!
//! Must never: end a turn, or read or write anything.

use std::borrow::Cow;

use ghost_domain::turn::CUT_MARK;
use ghost_domain::{AskId, ConversationId, Envelope, Kind, MessageId, Refusal};

/// How a turn ends.
#[derive(Clone, Debug, PartialEq)]
pub enum Ending {
    /// With the model's last text, which may be empty.
    Finished(String),
    /// With the model's last text, which was cut: it reached its token limit for one answer, or its provider paused it.
    Cut(String),
    /// With a reason; whoever asked gets it as the error.
    Failed(Refusal),
    /// Cancelled by someone.
    Cancelled(String),
}

impl Ending {
    /// The last text as whoever asked gets it, if there is one: where it was cut, it says so.
    #[must_use]
    pub fn said(&self) -> Option<Cow<'_, str>> {
        match self {
            Self::Finished(text) => Some(Cow::Borrowed(text)),
            Self::Cut(text) => Some(Cow::Owned(format!("{text}\n\n{CUT_MARK}"))),
            Self::Failed(_) | Self::Cancelled(_) => None,
        }
    }
}

/// The mail that a turn holds, as its runner knows it.
pub type Held = Vec<HeldMail>;

/// What the end of a turn must know of a piece of its mail.
#[derive(Clone, Debug, PartialEq)]
pub struct HeldMail {
    /// Which.
    pub message_id: MessageId,
    /// What it is.
    pub kind: Kind,
    /// The ask that it carries, if any.
    pub ask_id: Option<AskId>,
    /// The conversation that it belongs to, if any.
    pub conversation_id: Option<ConversationId>,
}

impl HeldMail {
    /// What is to be known of `envelope`.
    #[must_use]
    pub fn of(envelope: &Envelope) -> Self {
        Self {
            message_id: envelope.message_id,
            kind: envelope.kind,
            ask_id: envelope.ask_id,
            conversation_id: envelope.conversation_id.as_deref().and_then(|id| id.parse().ok()),
        }
    }
}
