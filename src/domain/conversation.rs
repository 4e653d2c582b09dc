//! The records of conversations with a person or program outside the world: their owner, their
//! entries, and the state of delivery.
//!
//! This module must never send anything to the outside. The adapters in `ghost-control` do that.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::ids::{AgentId, ConversationId, MessageId, TurnId};
use crate::macros::{record, text_enum};
use crate::party::Party;
use crate::time::Timestamp;

text_enum! {
    /// Direction of an entry.
    Direction, "direction" {
        /// From outside to the agent.
        In = "in",
        /// From the agent to the outside.
        Out = "out",
        /// A note for neither side, for example a handoff.
        Note = "note",
    }
}

text_enum! {
    /// State of the delivery of an entry.
    Delivery, "delivery state" {
        /// It is not delivered: it came from outside, or it is a note.
        None = "none",
        /// The reply of an open turn. The turn can still add to it.
        Draft = "draft",
        /// It waits for its first or next delivery attempt.
        Pending = "pending",
        /// The adapter delivered it.
        Delivered = "delivered",
        /// Delivery failed permanently.
        Failed = "failed",
    }
}

text_enum! {
    /// Kind of an action in a conversation besides the reply.
    ActionKind, "action" {
        /// Send a message.
        Send = "send",
        /// Delete one's own message.
        Delete = "delete",
        /// React to a message.
        React = "react",
        /// Make a poll.
        Poll = "poll",
        /// Pin a message.
        Pin = "pin",
        /// Open a thread.
        Thread = "thread",
    }
}

text_enum! {
    /// How often an agent may react to messages.
    Reactions, "level of reactions" {
        /// Once in `limits.reaction_gap` messages from outside at most.
        Minimal = "minimal",
        /// Without this limit.
        Extensive = "extensive",
    }
}

/// An action in a conversation. `message_id` in it is the id that the outside uses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Action {
    /// A message was deleted.
    Delete {
        /// Id of the message.
        message_id: String,
        /// Sequence number of the message's entry.
        seq: i64,
    },
    /// A reaction to a message.
    React {
        /// Id of the message.
        message_id: String,
        /// Sequence number of the message's entry.
        seq: i64,
        /// The reaction, such as an emoji.
        emoji: String,
        /// Whether the reaction is removed.
        remove: bool,
    },
    /// A poll. The question is the entry's text.
    Poll {
        /// Answers to choose from.
        options: Vec<String>,
    },
    /// A message was pinned.
    Pin {
        /// Id of the message.
        message_id: String,
        /// Sequence number of the message's entry.
        seq: i64,
        /// Whether the pin is removed.
        remove: bool,
    },
    /// A thread was opened. Its first message is the entry's text.
    Thread {
        /// Id of the message that the thread belongs to, if there is one.
        message_id: Option<String>,
    },
}

impl Action {
    /// Kind of the action.
    pub fn kind(&self) -> ActionKind {
        match self {
            Self::Delete { .. } => ActionKind::Delete,
            Self::React { .. } => ActionKind::React,
            Self::Poll { .. } => ActionKind::Poll,
            Self::Pin { .. } => ActionKind::Pin,
            Self::Thread { .. } => ActionKind::Thread,
        }
    }

    /// Id of the message that the action is about.
    pub fn message_id(&self) -> Option<&str> {
        match self {
            Self::Delete { message_id, .. } | Self::React { message_id, .. } | Self::Pin { message_id, .. } => {
                Some(message_id)
            }
            Self::Thread { message_id } => message_id.as_deref(),
            Self::Poll { .. } => None,
        }
    }
}

/// Actions in conversations over the control plane. Watchers of a conversation see them. There are
/// no threads: a thread would be another conversation, and only the outside begins one.
pub const CONTROL_ACTIONS: &[ActionKind] =
    &[ActionKind::Send, ActionKind::Delete, ActionKind::React, ActionKind::Poll, ActionKind::Pin];

/// Actions that a webhook supports, unless `world-config.yaml` sets others.
pub const WEBHOOK_ACTIONS: &[ActionKind] = &[ActionKind::Send, ActionKind::Delete, ActionKind::React];

/// Name of the adapter for conversations over the control plane. Watchers receive the messages.
pub const CONTROL: &str = "control";

/// Prefix of the names of webhook adapters: `webhook:<name>`.
pub const WEBHOOK: &str = "webhook:";

record! {
    /// The record of a conversation. `(adapter, thread)` is unique.
    pub struct Conversation {
        /// Id of the conversation.
        pub conversation_id: ConversationId,
        /// Name of its adapter: `control` or `webhook:<name>`.
        pub adapter: String,
        /// Name of the conversation outside.
        pub thread: String,
        /// The agent that answers in the conversation.
        pub owner: AgentId,
        /// The party outside.
        pub party: Party,
        /// Sequence number of the last entry; 0 before the first.
        pub last_seq: i64 = 0,
        /// When it began.
        pub created_at: Timestamp,
        /// When the last entry was added.
        pub updated_at: Timestamp = created_at,
        /// Number of messages from outside so far.
        #[serde(default)]
        pub heard: u64 = 0,
        /// When the last message from outside came.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub heard_at: Option<Timestamp> = None,
        /// The value of `heard` at the time of an agent's last reaction.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub reacted: Option<u64> = None,
        /// Agents that handed the conversation over since the last message from outside. Until the next
        /// message from outside, it cannot be handed back to them.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub passed_on: Vec<AgentId> = Vec::new(),
        /// When an operator ended it. The next message from outside opens it again.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub ended_at: Option<Timestamp> = None,
    }

    /// A conversation that begins now and has no entry.
    pub fn new(
        conversation_id: ConversationId,
        (adapter, thread): (String, String),
        owner: AgentId,
        party: Party,
        created_at: Timestamp,
    )
}

impl Conversation {
    /// The conversation's next entry, without files and delivery.
    pub fn next_entry(
        &self,
        message_id: MessageId,
        direction: Direction,
        sent: (Party, String),
        at: Timestamp,
    ) -> ConversationEntry {
        ConversationEntry::new(self.conversation_id, self.last_seq + 1, (message_id, direction), sent, at)
    }
}

/// The conversation that a turn belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChannelContext {
    /// Id of the conversation.
    pub conversation_id: ConversationId,
    /// Whether the turn's last text is the reply. It is not if the conversation was only handed
    /// over to the agent.
    pub replies: bool,
}

/// A workspace file that is attached to a message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attachment {
    /// Path relative to the workspace.
    pub path: String,
    /// File name for the outside.
    pub name: String,
    /// Media type, such as `text/markdown`.
    pub mime_type: String,
    /// Size in bytes when it was attached.
    pub bytes: u64,
}

record! {
    /// One entry of a conversation: a message, an action or a note.
    pub struct ConversationEntry {
        /// Id of the conversation.
        pub conversation_id: ConversationId,
        /// Sequence number in the conversation. It rises by one, without gaps.
        pub seq: i64,
        /// Id of the message. For a message to the outside it is also the delivery id, which stays the
        /// same for all attempts.
        pub message_id: MessageId,
        /// Direction of the entry.
        pub direction: Direction,
        /// Author of the entry.
        pub from: Party,
        /// Text of the entry.
        pub content: String,
        /// Attached files.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub attachments: Vec<Attachment> = Vec::new(),
        /// Id of the message that this one answers, in the form that the outside uses.
        pub reply_to: Option<String> = None,
        /// The outside's id of a message from outside.
        pub external_id: Option<String> = None,
        /// The turn that wrote the entry.
        pub turn_id: Option<TurnId> = None,
        /// State of the delivery.
        pub delivery: Delivery = Delivery::None,
        /// Delivery attempts so far.
        pub attempts: u32 = 0,
        /// Earliest time of the next attempt.
        pub next_at: Option<Timestamp> = None,
        /// Why the last attempt failed.
        pub error: Option<String> = None,
        /// When the entry was committed.
        pub at: Timestamp,
        /// The action, if the entry is not a plain message.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub action: Option<Action> = None,
        /// Whether the message was deleted. Its text and files are then removed.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        pub deleted: bool = false,
    }

    /// An entry without files and delivery.
    pub fn new(
        conversation_id: ConversationId,
        seq: i64,
        (message_id, direction): (MessageId, Direction),
        (from, content): (Party, String),
        at: Timestamp,
    )
}

/// The wait after the first failed attempt. Each further wait is four times as long, up to
/// [`LONGEST_WAIT`].
const FIRST_WAIT: Duration = Duration::from_secs(1);
/// No wait is longer, also if the other side asks for more.
pub const DELIVERY_WAIT_MAX: Duration = Duration::from_secs(2 * 3_600);
/// The longest wait, without jitter.
const LONGEST_WAIT: Duration = Duration::from_secs(3_600);

/// The wait after failed delivery attempt number `attempt` (from 1). It grows exponentially.
/// `jitter`, a random number in `0..1_000`, adds up to a half, so that deliveries that failed
/// together are not repeated together.
pub fn delivery_wait(attempt: u32, jitter: u64) -> Duration {
    let factor = 4_u32.saturating_pow(attempt.saturating_sub(1).min(16));
    let wait = FIRST_WAIT.saturating_mul(factor).min(LONGEST_WAIT);
    let extra = wait.as_millis() / 2 * u128::from(jitter.min(999)) / 1_000;
    wait + Duration::from_millis(u64::try_from(extra).unwrap_or(0))
}

/// Whether a text is a valid reaction: 1 to 64 bytes without white space and control characters,
/// such as an emoji or `:eyes:`.
pub fn is_reaction(text: &str) -> bool {
    !text.is_empty() && text.len() <= 64 && !text.contains(|c: char| crate::text::is_strange(c) || c.is_whitespace())
}

/// The media type for a file name's extension; `application/octet-stream` if the extension is not
/// known.
pub fn mime_of(name: &str) -> &'static str {
    let ending = name.rsplit('/').next().and_then(|name| name.rsplit_once('.')).map(|(_, ending)| ending);
    match ending.map(str::to_ascii_lowercase).as_deref() {
        Some("csv") => "text/csv",
        Some("gif") => "image/gif",
        Some("htm" | "html") => "text/html",
        Some("jpeg" | "jpg") => "image/jpeg",
        Some("json") => "application/json",
        Some("md") => "text/markdown",
        Some("pdf") => "application/pdf",
        Some("png") => "image/png",
        Some("svg") => "image/svg+xml",
        Some("txt" | "log") => "text/plain",
        Some("xml") => "application/xml",
        Some("yaml" | "yml") => "application/yaml",
        Some("zip") => "application/zip",
        _ => "application/octet-stream",
    }
}

/// Whether a text is a media type such as `text/markdown` or `text/plain; charset=utf-8`: at most
/// 127 printable ASCII characters, with one slash between two words.
pub fn is_mime_type(text: &str) -> bool {
    let essence = text.split(';').next().unwrap_or_default().trim();
    let word =
        |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_alphanumeric() || b"!#$&-^_.+".contains(&b));
    text.len() <= 127
        && text.bytes().all(|b| b == b' ' || b.is_ascii_graphic())
        && essence.split_once('/').is_some_and(|(kind, sub)| word(kind) && word(sub))
}

/// Whether a text is a valid name for an attached file: 1 to 128 characters, without slashes,
/// backslashes and control characters, and not `.` or `..`.
pub fn is_file_name(text: &str) -> bool {
    let strange = |c: char| crate::text::is_strange(c) || c == '/' || c == '\\';
    !text.trim().is_empty() && text.chars().count() <= 128 && !text.contains(strange) && text != "." && text != ".."
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn media_types_and_file_names_are_checked() {
        for (name, mime) in [("a/b.md", "text/markdown"), ("B.PNG", "image/png"), ("a.b/c", "application/octet-stream")]
        {
            assert_eq!(mime_of(name), mime, "{name}");
            assert!(is_mime_type(mime));
        }
        for (text, fits) in
            [("text/plain; charset=utf-8", true), ("text", false), ("a/b/c", false), ("a/\nb", false), ("", false)]
        {
            assert_eq!(is_mime_type(text), fits, "{text:?}");
        }
        for (text, fits) in [("a.md", true), ("", false), ("a/b", false), ("..", false), ("a\0", false), (" ", false)] {
            assert_eq!(is_file_name(text), fits, "{text:?}");
        }
    }

    #[test]
    fn reactions_are_short_and_actions_parse_from_their_own_json() {
        for (text, fits) in [("👍", true), (":eyes:", true), ("", false), ("a b", false), ("a\n", false)] {
            assert_eq!(is_reaction(text), fits, "{text:?}");
        }
        assert!(!is_reaction(&"x".repeat(65)));
        let act = Action::React { message_id: "m".into(), seq: 3, emoji: "👍".into(), remove: false };
        let json = serde_json::to_value(&act).unwrap();
        assert_eq!((json["kind"].as_str(), act.kind()), (Some("react"), ActionKind::React));
        assert_eq!(serde_json::from_value::<Action>(json).unwrap(), act);
        let kinds = [CONTROL_ACTIONS, WEBHOOK_ACTIONS];
        assert!(kinds.iter().all(|kinds| kinds.starts_with(WEBHOOK_ACTIONS)), "every adapter supports at least these");
    }

    proptest! {
        #[test]
        fn delivery_waits_grow_up_to_the_longest(attempt in 0u32..200, jitter in 0u64..2_000) {
            let wait = delivery_wait(attempt, jitter);
            prop_assert!(wait >= FIRST_WAIT && wait <= LONGEST_WAIT * 3 / 2);
            prop_assert!(delivery_wait(attempt + 1, 0) >= delivery_wait(attempt, 0));
            prop_assert!(wait >= delivery_wait(attempt, 0));
        }

        #[test]
        fn no_text_causes_a_panic(text in "\\PC{0,200}") {
            let _ = (mime_of(&text), is_mime_type(&text), is_file_name(&text), is_reaction(&text));
        }
    }
}
