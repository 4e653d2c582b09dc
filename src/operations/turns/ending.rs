//! The kinds of a turn's end, and the facts about its mail that the end of the turn needs.
//!
//! This module must never end a turn, or read or write the store.

use std::borrow::Cow;

use ghost_domain::turn::CUT_MARK;
use ghost_domain::{AskId, ConversationId, Envelope, Kind, MessageId, Refusal};

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
    /// It was cancelled, for this reason.
    Cancelled(String),
}

impl Ending {
    /// The last text in the form that the asker receives, if there is one. A truncated text carries
    /// a mark that says so.
    #[must_use]
    pub fn answer_text(&self) -> Option<Cow<'_, str>> {
        match self {
            Self::Finished(text) => Some(Cow::Borrowed(text)),
            Self::Cut(text) => Some(Cow::Owned(format!("{text}\n\n{CUT_MARK}"))),
            Self::Failed(_) | Self::Cancelled(_) => None,
        }
    }
}

/// The mail of a turn, in the memory of the agent that runs the turn.
pub type Held = Vec<HeldMail>;

/// The facts about one envelope that the end of a turn needs.
#[derive(Clone, Debug, PartialEq)]
pub struct HeldMail {
    /// Id of the message.
    pub message_id: MessageId,
    /// Kind of the message.
    pub kind: Kind,
    /// The ask that it carries, if any.
    pub ask_id: Option<AskId>,
    /// The conversation that it belongs to, if any.
    pub conversation_id: Option<ConversationId>,
}

impl HeldMail {
    /// Extracts these facts from `envelope`.
    #[must_use]
    pub fn of(envelope: &Envelope) -> Self {
        Self {
            message_id: envelope.message_id,
            kind: envelope.kind,
            ask_id: envelope.ask_id,
            conversation_id: envelope.conversation_id,
        }
    }
}
