//! Dead letters: mail that its agent crashed on too often. An operator can read, retry or drop it
//! (promise 3 in `docs/design.md`).

use serde::{Deserialize, Serialize};

use crate::envelope::text_enum;
use crate::ids::{AgentId, DeadLetterId, MessageId, TurnId};
use crate::time::Timestamp;

text_enum! {
    /// State of a dead letter.
    DeadLetterStatus, "dead letter status" {
        /// Waiting for an operator.
        Held = "held",
        /// An operator sent the mail to the agent again.
        Retried = "retried",
        /// An operator dropped the mail.
        Dropped = "dropped",
    }
}

/// A dead letter: the mail, the turn that crashed on it, and the reason.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DeadLetter {
    /// Id of the dead letter.
    pub dead_letter_id: DeadLetterId,
    /// Id of the agent that received the mail.
    pub agent_id: AgentId,
    /// Turn that crashed on the mail. Its journal is kept for a retry.
    pub turn_id: TurnId,
    /// Ids of the mail.
    pub messages: Vec<MessageId>,
    /// Description of the last crash.
    pub reason: String,
    /// Number of crashes.
    pub crashes: u32,
    /// State of the dead letter.
    pub status: DeadLetterStatus,
    /// When the mail became a dead letter.
    pub created_at: Timestamp,
    /// When an operator retried or dropped it.
    pub resolved_at: Option<Timestamp>,
}
