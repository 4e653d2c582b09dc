//! Mail: what an agent is woken by, and the table of kinds (DESIGN.md section 2).

use serde::{Deserialize, Serialize};

use crate::ids::{AgentId, AskId, MessageId, RootId, TurnId};
use crate::party::Party;
use crate::time::Timestamp;

macro_rules! text_enum {
    ($(#[$doc:meta])* $name:ident, $what:literal { $($(#[$vdoc:meta])* $variant:ident = $text:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
        pub enum $name { $($(#[$vdoc])* #[serde(rename = $text)] $variant),+ }

        impl $name {
            /// Every value, in declaration order.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// The value as it is written in the database, on the wire and in lists.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text),+ }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl std::str::FromStr for $name {
            type Err = $crate::refusal::Refusal;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                Self::ALL.iter().copied().find(|value| value.as_str() == text).ok_or_else(|| {
                    let all: Vec<&str> = Self::ALL.iter().map(|value| value.as_str()).collect();
                    $crate::refusal::Refusal::new(
                        $crate::refusal::Code::InvalidArguments,
                        format!("`{}` is not {}", $crate::text::shown(text, 80), $crate::text::a($what)),
                    )
                    .hint(format!("one of: {}", all.join(", ")))
                })
            }
        }
    };
}
pub(crate) use text_enum;

text_enum! {
    /// What a piece of mail is. The kind alone decides whether it wakes, merges and is answered.
    Kind, "kind of mail" {
        /// Someone waits for the turn's last text.
        Ask = "ask",
        /// From outside, through a conversation that gets the turn's last text.
        Conversation = "conversation",
        /// One agent to another, no answer expected.
        Message = "message",
        /// One agent to all others.
        Broadcast = "broadcast",
        /// A task was assigned or changed.
        Task = "task",
        /// A conversation was handed over.
        Handoff = "handoff",
        /// A droid ended.
        DroidDone = "droid_done",
        /// A timer fired.
        Timer = "timer",
        /// A cron slot came.
        Cron = "cron",
        /// A cron slot came, and is a turn of its own.
        CronTurn = "cron_turn",
        /// A watched path changed.
        Watch = "watch",
        /// A post in a chat channel.
        Chat = "chat",
        /// The regular look around.
        Heartbeat = "heartbeat",
        /// From the supervisor: a note, a correction, a first goal.
        System = "system",
    }
}

impl Kind {
    /// Whether the turn that takes it owes someone its last text.
    #[must_use]
    pub fn expects_reply(self) -> bool {
        matches!(self, Self::Ask | Self::Conversation)
    }

    /// Whether it may join a turn that another envelope opened.
    #[must_use]
    pub fn merges(self) -> bool {
        !matches!(self, Self::Ask | Self::Heartbeat | Self::Conversation | Self::CronTurn)
    }
}

text_enum! {
    /// Where a piece of mail is on its way.
    MailState, "state of mail" {
        /// In the inbox.
        Pending = "pending",
        /// In the hands of an open turn.
        Taken = "taken",
        /// Its turn has ended.
        Consumed = "consumed",
        /// Set aside; see [`crate::dead_letter`].
        Dead = "dead",
    }
}

/// One piece of mail, as it lies in the durable inbox.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Envelope {
    /// Its identity.
    pub message_id: MessageId,
    /// Its place in the order of all mail of the world; 0 until the store has given one.
    pub seq: i64,
    /// The receiver.
    pub to: AgentId,
    /// The sender.
    pub from: Party,
    /// What it is.
    pub kind: Kind,
    /// A short line above the body, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// The text.
    pub body: String,
    /// Workspace paths that go with it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attachments: Vec<String>,
    /// For an ask: which.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ask_id: Option<AskId>,
    /// For a conversation: which.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conversation_id: Option<String>,
    /// What started the chain it belongs to.
    pub root_id: RootId,
    /// How many turns lie between the root and this.
    pub hop: u32,
    /// Whether it wakes a sleeping agent.
    pub wake: bool,
    /// When it was accepted.
    pub created_at: Timestamp,
    /// Where it is on its way.
    pub state: MailState,
    /// The turn that took it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn_id: Option<TurnId>,
    /// How often its agent crashed on it.
    pub crashes: u32,
}

impl Envelope {
    /// Whether it only says that a chat channel has something to read: the turn that takes it reads the posts by cursor.
    #[must_use]
    pub fn is_chat_wake(&self) -> bool {
        self.kind == Kind::Chat && self.body.is_empty()
    }
}
