//! Mail: the messages in an agent's inbox, and their kinds. `docs/design.md` has a table of the
//! kinds. Also the macro for enums that are stored as text.

use serde::{Deserialize, Serialize};

use crate::ids::{AgentId, AskId, ConversationId, MessageId, RootId, TurnId};
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

            /// The value's text in the database, on the wire and in lists.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text),+ }
            }
        }

        impl $crate::envelope::TextEnum for $name {
            const ALL: &'static [Self] = Self::ALL;

            fn as_str(self) -> &'static str {
                self.as_str()
            }
        }

        impl schemars::JsonSchema for $name {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!({ "type": "string", "enum": [$($text),+] })
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

/// An enum whose values have fixed texts.
pub trait TextEnum: Copy + 'static {
    /// Every value, in declaration order.
    const ALL: &'static [Self];

    /// The value's text.
    fn as_str(self) -> &'static str;
}

text_enum! {
    /// The kind of a message in an inbox. It decides whether the message merges with other mail and
    /// whether it expects a reply.
    Kind, "kind of mail" {
        /// An ask: the asker waits for the turn's last text.
        Ask = "ask",
        /// A message from outside. The turn's last text goes to its conversation.
        Conversation = "conversation",
        /// A message from one party to one agent. No reply is expected.
        Message = "message",
        /// A message from one agent to all others.
        Broadcast = "broadcast",
        /// A task was assigned or changed.
        Task = "task",
        /// A conversation was handed over to the agent.
        Handoff = "handoff",
        /// A droid ended.
        DroidDone = "droid_done",
        /// A timer fired.
        Timer = "timer",
        /// A cron job ran.
        Cron = "cron",
        /// A cron job ran that has a turn of its own.
        CronTurn = "cron_turn",
        /// A watched path changed.
        Watch = "watch",
        /// A wake-up for messages in a chat channel, or a chat message that an operator delivered.
        Chat = "chat",
        /// A heartbeat: the regular wake-up of an agent.
        Heartbeat = "heartbeat",
        /// A message from the daemon: a note, a correction, a first goal.
        System = "system",
    }
}

impl Kind {
    /// Whether the turn that takes this message sends its last text as a reply.
    #[must_use]
    pub fn expects_reply(self) -> bool {
        matches!(self, Self::Ask | Self::Conversation)
    }

    /// Whether the message may join a turn that another envelope opened.
    #[must_use]
    pub fn merges(self) -> bool {
        !matches!(self, Self::Ask | Self::Heartbeat | Self::Conversation | Self::CronTurn)
    }
}

text_enum! {
    /// State of a message in an inbox.
    MailState, "state of mail" {
        /// In the inbox.
        Pending = "pending",
        /// Taken by an open turn.
        Taken = "taken",
        /// Its turn has ended.
        Consumed = "consumed",
        /// Part of a dead letter; see [`crate::dead_letter`].
        Dead = "dead",
    }
}

/// One message in an agent's durable inbox.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Envelope {
    /// Id of the message.
    pub message_id: MessageId,
    /// Sequence number in the order of all mail of the world; 0 until the store has assigned it.
    pub seq: i64,
    /// Receiver.
    pub to: AgentId,
    /// Sender.
    pub from: Party,
    /// Kind of the message.
    pub kind: Kind,
    /// Subject line, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// Text of the message.
    pub body: String,
    /// Paths of attached files, relative to the workspace.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attachments: Vec<String>,
    /// Id of the ask, if the message is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ask_id: Option<AskId>,
    /// The conversation that started the chain of work, if one did. It is the session of the turn that takes the
    /// message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conversation_id: Option<ConversationId>,
    /// Root of the chain of work that the message belongs to.
    pub root_id: RootId,
    /// Number of turns between the root and this message.
    pub hop: u32,
    /// Whether the message wakes the agent.
    pub wake: bool,
    /// When the message was accepted.
    pub created_at: Timestamp,
    /// When a turn last took the message; `None` if none has, or if an older version did not record it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_at: Option<Timestamp>,
    /// State of the message.
    pub state: MailState,
    /// The last turn that took the message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn_id: Option<TurnId>,
    /// How often the agent crashed in a turn with this message.
    pub crashes: u32,
}

impl Envelope {
    /// Pending mail that wakes its receiver, at the start of a chain.
    #[must_use]
    pub fn new(
        message_id: MessageId,
        (from, to): (Party, AgentId),
        (kind, body): (Kind, String),
        root_id: RootId,
        created_at: Timestamp,
    ) -> Self {
        Self {
            message_id,
            seq: 0,
            to,
            from,
            kind,
            subject: None,
            body,
            attachments: Vec::new(),
            ask_id: None,
            conversation_id: None,
            root_id,
            hop: 0,
            wake: true,
            created_at,
            read_at: None,
            state: MailState::Pending,
            turn_id: None,
            crashes: 0,
        }
    }

    /// Whether the message is only a wake-up for new messages in a chat channel. The turn reads
    /// those itself, from the member's cursor.
    #[must_use]
    pub fn is_chat_wake(&self) -> bool {
        self.kind == Kind::Chat && self.body.is_empty()
    }
}
