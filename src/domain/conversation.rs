//! Conversations with someone outside the world: who owns one, what was said, and what is still to be delivered
//! (BI-34..38, MSG-11..14).
//!
//! Must never: reach the outside. What an adapter can do is said here; that it does it is the adapter's.

use std::time::Duration;

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

text_enum! {
    /// What can be done in a conversation besides replying (BI-38).
    ActionKind, "action" {
        /// Say something.
        Send = "send",
        /// Take back what one said.
        Delete = "delete",
        /// React to a message.
        React = "react",
        /// Ask everyone there to choose.
        Poll = "poll",
        /// Have a message stand out.
        Pin = "pin",
        /// Open a thread of its own.
        Thread = "thread",
    }
}

text_enum! {
    /// How freely an agent reacts to messages (MSG-14).
    Reactions, "level of reactions" {
        /// At most once in `limits.reaction_gap` messages from outside.
        Minimal = "minimal",
        /// Whenever it seems fit.
        Extensive = "extensive",
    }
}

/// Something done in a conversation. What it is about stands in it under the id that the outside knows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Action {
    /// A message was taken back.
    Delete {
        /// Which, as the outside knows it.
        message_id: String,
        /// Its place in the conversation.
        seq: i64,
    },
    /// A reaction to a message.
    React {
        /// To which, as the outside knows it.
        message_id: String,
        /// Its place in the conversation.
        seq: i64,
        /// The reaction.
        emoji: String,
        /// Whether it is taken back.
        remove: bool,
    },
    /// A question with answers to choose from; the question is the entry's text.
    Poll {
        /// The answers.
        options: Vec<String>,
    },
    /// A message stands out.
    Pin {
        /// Which, as the outside knows it.
        message_id: String,
        /// Its place in the conversation.
        seq: i64,
        /// Whether it no longer does.
        remove: bool,
    },
    /// A thread was opened; its first words are the entry's text.
    Thread {
        /// The message that it hangs on, as the outside knows it, if on one.
        message_id: Option<String>,
    },
}

impl Action {
    /// What kind it is.
    #[must_use]
    pub fn kind(&self) -> ActionKind {
        match self {
            Self::Delete { .. } => ActionKind::Delete,
            Self::React { .. } => ActionKind::React,
            Self::Poll { .. } => ActionKind::Poll,
            Self::Pin { .. } => ActionKind::Pin,
            Self::Thread { .. } => ActionKind::Thread,
        }
    }

    /// The message that it is about, as the outside knows it.
    #[must_use]
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

/// What the control plane's own conversations can do: whoever watches one sees it done. A thread there would be another
/// conversation, which only the one outside begins.
pub const CONTROL_ACTIONS: &[ActionKind] =
    &[ActionKind::Send, ActionKind::Delete, ActionKind::React, ActionKind::Poll, ActionKind::Pin];

/// What a webhook can do unless the world file says otherwise.
pub const WEBHOOK_ACTIONS: &[ActionKind] = &[ActionKind::Send, ActionKind::Delete, ActionKind::React];

/// The adapter of conversations held over the control plane: whoever watches one has it.
pub const CONTROL: &str = "control";

/// What the adapters of webhooks begin with: `webhook:<name>`.
pub const WEBHOOK: &str = "webhook:";

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
    /// Messages that came from outside so far.
    #[serde(default)]
    pub heard: u64,
    /// When the last of them came.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub heard_at: Option<Timestamp>,
    /// How many had come when an agent last reacted to one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reacted: Option<u64>,
    /// The agents that gave it away since something last came from outside: it does not come back to them before that.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub passed_on: Vec<AgentId>,
}

/// What a turn that comes from a conversation can reach there (CONF-03).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChannelContext {
    /// The conversation.
    pub conversation_id: ConversationId,
    /// Whether the turn's last text is the reply there. It is not if the conversation was only handed over.
    pub replies: bool,
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
    /// What was done, if something was done and not only said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub action: Option<Action>,
    /// Whether it was taken back: its text and its files are gone.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub deleted: bool,
}

/// The first wait after an attempt that failed; each next one is four times as long, up to [`LONGEST_WAIT`].
const FIRST_WAIT: Duration = Duration::from_secs(1);
/// See [`FIRST_WAIT`].
const LONGEST_WAIT: Duration = Duration::from_secs(3_600);

/// The wait after attempt number `attempt` (from 1) to deliver something: exponential, and up to half as long again by
/// `jitter`, a number in `0..1_000`, so that what failed together does not come back together.
#[must_use]
pub fn delivery_wait(attempt: u32, jitter: u64) -> Duration {
    let factor = 4_u32.saturating_pow(attempt.saturating_sub(1).min(16));
    let wait = FIRST_WAIT.saturating_mul(factor).min(LONGEST_WAIT);
    let extra = wait.as_millis() / 2 * u128::from(jitter.min(999)) / 1_000;
    wait + Duration::from_millis(u64::try_from(extra).unwrap_or(0))
}

/// Whether a text can be a reaction: 1 to 64 bytes without space and control characters, such as an emoji or `:eyes:`.
#[must_use]
pub fn is_reaction(text: &str) -> bool {
    !text.is_empty() && text.len() <= 64 && !text.contains(|c: char| crate::text::is_strange(c) || c.is_whitespace())
}

/// The type of a file as its name says; `application/octet-stream` if it says none that is known here.
#[must_use]
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

/// Whether a text is a media type such as `text/markdown`, or `text/plain; charset=utf-8`: printable ASCII of at most 127
/// characters with one slash between two words.
#[must_use]
pub fn is_mime_type(text: &str) -> bool {
    let essence = text.split(';').next().unwrap_or_default().trim();
    let word =
        |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_alphanumeric() || b"!#$&-^_.+".contains(&b));
    text.len() <= 127
        && text.bytes().all(|b| b == b' ' || b.is_ascii_graphic())
        && essence.split_once('/').is_some_and(|(kind, sub)| word(kind) && word(sub))
}

/// Whether a text can be the name of an attached file: 1 to 128 characters, none of them a separator or a control
/// character, not `.` or `..`.
#[must_use]
pub fn is_file_name(text: &str) -> bool {
    let strange = |c: char| crate::text::is_strange(c) || c == '/' || c == '\\';
    !text.trim().is_empty() && text.chars().count() <= 128 && !text.contains(strange) && text != "." && text != ".."
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn types_follow_names() {
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
    fn reactions_are_short_and_actions_read_back() {
        for (text, fits) in [("👍", true), (":eyes:", true), ("", false), ("a b", false), ("a\n", false)] {
            assert_eq!(is_reaction(text), fits, "{text:?}");
        }
        assert!(!is_reaction(&"x".repeat(65)));
        let act = Action::React { message_id: "m".into(), seq: 3, emoji: "👍".into(), remove: false };
        let json = serde_json::to_value(&act).unwrap();
        assert_eq!((json["kind"].as_str(), act.kind()), (Some("react"), ActionKind::React));
        assert_eq!(serde_json::from_value::<Action>(json).unwrap(), act);
        let kinds = [CONTROL_ACTIONS, WEBHOOK_ACTIONS];
        assert!(kinds.iter().all(|kinds| kinds.starts_with(WEBHOOK_ACTIONS)), "everyone can at least do these");
    }

    proptest! {
        #[test]
        fn waits_grow_and_stay_within_their_bounds(attempt in 0u32..200, jitter in 0u64..2_000) {
            let wait = delivery_wait(attempt, jitter);
            prop_assert!(wait >= FIRST_WAIT && wait <= LONGEST_WAIT * 3 / 2);
            prop_assert!(delivery_wait(attempt + 1, 0) >= delivery_wait(attempt, 0));
            prop_assert!(wait >= delivery_wait(attempt, 0));
        }

        #[test]
        fn any_text_is_judged_without_a_panic(text in "\\PC{0,200}") {
            let _ = (mime_of(&text), is_mime_type(&text), is_file_name(&text), is_reaction(&text));
        }
    }
}
