//! Typed identifiers. The compiler refuses an id of one kind where another is expected. Parsing an
//! id from outside checks it.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::droid_id::{self, DROIDS};
use crate::refusal::{Code, Refusal};

/// The schema of an id for a caller: a text.
macro_rules! text_schema {
    ($name:ident) => {
        impl schemars::JsonSchema for $name {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
                String::json_schema(generator)
            }
        }
    };
}

macro_rules! uuid_id {
    ($(#[$doc:meta])* $name:ident, $what:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "Uuid")]
        pub struct $name(pub Uuid);

        text_schema!($name);

        impl TryFrom<String> for $name {
            type Error = Refusal;

            fn try_from(text: String) -> Result<Self, Refusal> {
                text.parse()
            }
        }

        impl From<$name> for Uuid {
            fn from(id: $name) -> Self {
                id.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl FromStr for $name {
            type Err = Refusal;

            fn from_str(text: &str) -> Result<Self, Refusal> {
                Uuid::parse_str(text.trim()).map($name).map_err(|_| {
                    Refusal::new(
                        Code::InvalidArguments,
                        format!("`{}` is not {}", crate::text::shown(text, 80), crate::text::a(concat!($what, " id"))),
                    )
                    .hint(format!("{} is a UUID, as the lists print it", crate::text::a(concat!($what, " id"))))
                })
            }
        }
    };
}

uuid_id!(
    /// Id of a message in an inbox, or of an entry of a conversation or chat channel. Also the
    /// idempotency key in the store.
    MessageId, "message"
);
uuid_id!(
    /// Id of a turn of one agent.
    TurnId, "turn"
);
uuid_id!(
    /// Ghost's id of a tool call. The provider's own id is kept in the transcript.
    CallId, "call"
);
uuid_id!(
    /// Id of an ask. It stays the same across restarts.
    AskId, "ask"
);
uuid_id!(
    /// Id of an approval: a call that waits for an operator.
    ApprovalId, "approval"
);
uuid_id!(
    /// Id of a root: the event that started a chain of work. All later work of the chain is charged
    /// to it.
    RootId, "root"
);
uuid_id!(
    /// Id of a task.
    TaskId, "task"
);
uuid_id!(
    /// Id of an event.
    EventId, "event"
);
uuid_id!(
    /// Id of a dead letter.
    DeadLetterId, "dead letter"
);
uuid_id!(
    /// Id of the budget reservation of a model call.
    ReservationId, "reservation"
);

uuid_id!(
    /// Id of a conversation with a person or program outside.
    ConversationId, "conversation"
);
uuid_id!(
    /// Id of a timer, cron job, watch or heartbeat.
    ScheduleId, "schedule"
);

uuid_id!(
    /// Id of a write grant.
    GrantId, "grant"
);
uuid_id!(
    /// Id of an artifact.
    ArtifactId, "artifact"
);

/// A client's id for one mutation, unique to its principal: 1 to 128 printable ASCII characters
/// without spaces.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RequestId(String);

impl RequestId {
    /// The text as the client sent it.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for RequestId {
    type Err = Refusal;

    fn from_str(text: &str) -> Result<Self, Refusal> {
        let valid = !text.is_empty() && text.len() <= 128 && text.bytes().all(|b| b.is_ascii_graphic());
        if valid {
            Ok(Self(text.to_owned()))
        } else {
            Err(Refusal::new(Code::InvalidArguments, "request_id must be 1 to 128 printable ASCII characters")
                .hint("send a fresh UUID for each mutation, and the same one when you retry it"))
        }
    }
}

macro_rules! name_id {
    ($(#[$doc:meta])* $name:ident, $article:literal, $what:literal) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(Arc<str>);

        text_schema!($name);

        impl $name {
            /// The name as text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }

            /// The name as shared text, without a copy.
            #[must_use]
            pub fn shared(&self) -> Arc<str> {
                Arc::clone(&self.0)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self.0)
            }
        }

        impl FromStr for $name {
            type Err = Refusal;

            fn from_str(text: &str) -> Result<Self, Refusal> {
                if is_name(text) {
                    Ok(Self(text.into()))
                } else {
                    Err(Refusal::new(
                        Code::InvalidArguments,
                        format!(concat!("`{}` is not ", $article, " ", $what), crate::text::shown(text, 80)),
                    )
                    .hint("use 1 to 64 of a-z, 0-9, '.', '_' and '-', starting with a letter or a digit"))
                }
            }
        }

        impl TryFrom<String> for $name {
            type Error = Refusal;

            fn try_from(text: String) -> Result<Self, Refusal> {
                text.parse()
            }
        }

        impl From<$name> for String {
            fn from(name: $name) -> Self {
                name.0.to_string()
            }
        }
    };
}

/// Whether a text is a valid name: 1 to 64 characters of `a-z`, `0-9`, `.`, `_`, `-`, starting with
/// a letter or digit.
fn is_name(text: &str) -> bool {
    let starts = text.bytes().next().is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    let body = text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'.' | b'_' | b'-'));
    starts && body && text.len() <= 64
}

name_id!(
    /// The name of an agent, unique in its world: 1 to 64 characters of `a-z`, `0-9`, `.`, `_`, `-`, starting with a
    /// letter or digit. It is also the name of a directory, so other characters are not allowed.
    AgentId, "an", "agent id"
);
name_id!(
    /// The name of a chat channel, unique in its world. The same characters as for an agent.
    ChannelName, "a", "channel name"
);

/// Ids that a new agent cannot have: `system` means the daemon, and `@all` everyone in a channel.
pub const RESERVED_AGENT_IDS: [&str; 2] = ["all", "system"];

impl AgentId {
    /// Whether this is the id of a droid. No other agent can have such an id.
    #[must_use]
    pub fn is_droid(&self) -> bool {
        droid_id::is_droid(self.as_str())
    }

    /// The agent's own directory, relative to the workspace.
    #[must_use]
    pub fn home(&self) -> String {
        if self.is_droid() { format!("{}/{self}", DROIDS) } else { format!("agents/{self}") }
    }

    /// Checks that a new agent may have this id. Ids of existing records are not checked, so they
    /// stay readable.
    ///
    /// # Errors
    /// `InvalidArguments` if it is one of [`RESERVED_AGENT_IDS`], or has the form of a droid's id.
    pub fn check_new(&self) -> Result<(), Refusal> {
        if self.is_droid() {
            return Err(Refusal::new(Code::InvalidArguments, format!("no agent can be called `{self}`"))
                .hint("`droid-` and eight hexadecimal digits name droids; choose another id")
                .details(serde_json::json!({ "field": "agent_id" })));
        }
        if RESERVED_AGENT_IDS.contains(&self.as_str()) {
            return Err(Refusal::new(Code::InvalidArguments, format!("no agent can be called `{self}`"))
                .hint("`system` means the daemon and `@all` everyone in a channel; choose another id")
                .details(serde_json::json!({ "field": "agent_id" })));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserved_ids_are_refused_for_new_agents_and_still_parse() {
        assert!(RESERVED_AGENT_IDS.contains(&crate::chat::EVERYONE));
        assert!(RESERVED_AGENT_IDS.contains(&crate::party::Party::System.to_string().as_str()));
        for id in RESERVED_AGENT_IDS {
            let id: AgentId = serde_json::from_value(id.into()).unwrap();
            assert_eq!(id.check_new().unwrap_err().code, Code::InvalidArguments);
        }
        assert_eq!("system-1".parse::<AgentId>().unwrap().check_new(), Ok(()));
    }

    #[test]
    fn agent_ids_are_directory_safe() {
        for good in ["chora", "a", "0x", "agent-1.b_c"] {
            assert!(good.parse::<AgentId>().is_ok(), "{good}");
        }
        let long = "x".repeat(65);
        for bad in ["", ".", "..", "-a", "A", "a/b", "a b", "é", long.as_str(), "a\0"] {
            let refusal = bad.parse::<AgentId>().unwrap_err();
            assert!(!refusal.message.contains(char::is_control), "{refusal}");
        }
    }

    #[test]
    fn a_bad_agent_id_is_refused_by_serde_too() {
        assert!(serde_json::from_str::<AgentId>("\"../x\"").is_err());
    }
}
