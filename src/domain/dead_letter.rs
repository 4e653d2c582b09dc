//! Mail set aside because its agent crashed on it, for an operator to read, retry or drop (promise 3).

use serde::{Deserialize, Serialize};

use crate::envelope::text_enum;
use crate::ids::{AgentId, DeadLetterId, MessageId, TurnId};
use crate::time::Timestamp;

text_enum! {
    /// What became of a dead letter.
    DeadLetterStatus, "dead letter status" {
        /// Waiting for an operator.
        Held = "held",
        /// Put back to work.
        Retried = "retried",
        /// Given up.
        Dropped = "dropped",
    }
}

/// A dead letter: the mail, the turn that crashed on it, and why.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DeadLetter {
    /// Its id.
    pub dead_letter_id: DeadLetterId,
    /// Whose mail it was.
    pub agent_id: AgentId,
    /// The turn that crashed on it; its journal is kept for a retry.
    pub turn_id: TurnId,
    /// The mail.
    pub messages: Vec<MessageId>,
    /// The last crash, in words.
    pub reason: String,
    /// How many crashes.
    pub crashes: u32,
    /// What became of it.
    pub status: DeadLetterStatus,
    /// When it was set aside.
    pub created_at: Timestamp,
    /// When an operator dealt with it.
    pub resolved_at: Option<Timestamp>,
}
