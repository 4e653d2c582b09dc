//! Conversations with someone outside the world: who owns one, what was said, and what is still to be delivered
//! (BI-34..38, MSG-11..14).

use serde::{Deserialize, Serialize};

use crate::envelope::text_enum;
use crate::ids::{AgentId, ConversationId, MessageId, TurnId};
use crate::party::Party;
use crate::time::Timestamp;

text_enum! {
    /// Which way a part of a conversation went.
    Direction, "direction" {
        /// From outside to the agent.
        In = "in",
        /// From the agent to the outside.
        Out = "out",
        /// Said to neither: a handoff, a change of state.
        Note = "note",
    }
}

text_enum! {
    /// How far a part of a conversation is on its way out.
    Delivery, "delivery state" {
        /// It goes nowhere: it came in, or it is a note.
        None = "none",
        /// It is added to while the turn that writes it is open.
        Draft = "draft",
        /// It waits to be delivered, or to be tried again.
        Pending = "pending",
        /// The adapter has handed it over.
        Delivered = "delivered",
        /// It was given up after the last attempt.
        Failed = "failed",
    }
}

/// A conversation. `(adapter, thread)` is unique.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Conversation {
    /// Its id.
    pub conversation_id: ConversationId,
    /// Which adapter carries it: `control`, or `webhook:<name>`.
    pub adapter: String,
    /// What the outside calls it.
    pub thread: String,
    /// The agent that answers.
    pub owner: AgentId,
    /// Who speaks from outside.
    pub party: Party,
    /// The sequence of its last entry; 0 before the first.
    pub last_seq: i64,
    /// When it began.
    pub created_at: Timestamp,
    /// When something was last said.
    pub updated_at: Timestamp,
}

/// A workspace file that goes with what is said.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attachment {
    /// Where it lies, relative to the workspace.
    pub path: String,
    /// What the outside sees it named.
    pub name: String,
    /// Its type, such as `text/markdown`.
    pub mime_type: String,
    /// Its size in bytes when it was attached.
    pub bytes: u64,
}

/// One thing said in a conversation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ConversationEntry {
    /// The conversation.
    pub conversation_id: ConversationId,
    /// Its place there: rises by one, without a gap.
    pub seq: i64,
    /// Its id; for what goes out, also the stable delivery id.
    pub message_id: MessageId,
    /// Which way it went.
    pub direction: Direction,
    /// Who said it.
    pub from: Party,
    /// The text.
    pub content: String,
    /// Files that go with it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attachments: Vec<Attachment>,
    /// The outside's id of the message that it answers.
    pub reply_to: Option<String>,
    /// The outside's own id of what came in.
    pub external_id: Option<String>,
    /// The turn that wrote it.
    pub turn_id: Option<TurnId>,
    /// How far it is on its way.
    pub delivery: Delivery,
    /// Attempts to deliver it so far.
    pub attempts: u32,
    /// Not before this is it tried again.
    pub next_at: Option<Timestamp>,
    /// Why the last attempt failed.
    pub error: Option<String>,
    /// When it was committed.
    pub at: Timestamp,
}
