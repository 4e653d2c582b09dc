//! Typed identifiers. The compiler refuses an id of one kind where another is expected. Parsing an
//! id from outside checks it.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::macros::serde_as_text;
use crate::refusal::{Refusal, refusal};
use crate::text::{a, shown};

/// An id as JSON and in schemas: a text.
macro_rules! text_id {
    ($name:ident) => {
        serde_as_text!($name);

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

macro_rules! uuid_ids {
    ($($(#[$doc:meta])* $name:ident, $what:literal;)+) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub Uuid);

        text_id!($name);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl FromStr for $name {
            type Err = Refusal;

            fn from_str(text: &str) -> Result<Self, Refusal> {
                let what = a(concat!($what, " id"));
                Uuid::parse_str(text.trim()).map($name).map_err(|_| {
                    refusal!(InvalidArguments, "`{}` is not {what}", shown(text, 80))
                        .hint(format!("{what} is a UUID, as the lists print it"))
                })
            }
        }
    )+};
}

uuid_ids! {
    /// Id of a message in an inbox, or of an entry of a conversation or chat channel. Also the
    /// idempotency key in the store.
    MessageId, "message";
    /// Id of a turn of one agent.
    TurnId, "turn";
    /// Ghost's id of a tool call. The provider's own id is kept in the transcript.
    CallId, "call";
    /// Id of an ask. It stays the same across restarts.
    AskId, "ask";
    /// Id of an approval: a call that waits for an operator.
    ApprovalId, "approval";
    /// Id of a root: the event that started a chain of work. All later work of the chain is charged
    /// to it.
    RootId, "root";
    /// Id of a task.
    TaskId, "task";
    /// Id of an event.
    EventId, "event";
    /// Id of a dead letter.
    DeadLetterId, "dead letter";
    /// Id of the budget reservation of a model call.
    ReservationId, "reservation";
    /// Id of a conversation with a person or program outside.
    ConversationId, "conversation";
    /// Id of a timer, cron job, watch or heartbeat.
    ScheduleId, "schedule";
    /// Id of a write grant.
    GrantId, "grant";
    /// Id of an artifact.
    ArtifactId, "artifact";
}

/// A client's id for one mutation, unique to its principal: 1 to 128 printable ASCII characters
/// without spaces.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RequestId(String);

impl RequestId {
    /// The text as the client sent it.
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
            Err(refusal!(InvalidArguments, "request_id must be 1 to 128 printable ASCII characters")
                .hint("send a fresh UUID for each mutation, and the same one when you retry it"))
        }
    }
}

macro_rules! name_id {
    ($(#[$doc:meta])* $name:ident, $what:literal) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Arc<str>);

        text_id!($name);

        impl $name {
            /// The name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }

            /// The name as shared text, without a copy.
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
                checked_name(text, $what).map(Self)
            }
        }
    };
}

/// A valid name: 1 to 64 characters of `a-z`, `0-9`, `.`, `_`, `-`, starting with a letter or digit.
fn checked_name(text: &str, what: &str) -> Result<Arc<str>, Refusal> {
    let starts = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let first = text.bytes().next().is_some_and(starts);
    if first && text.len() <= 64 && text.bytes().all(|b| starts(b) || matches!(b, b'.' | b'_' | b'-')) {
        return Ok(text.into());
    }
    Err(refusal!(InvalidArguments, "`{}` is not {}", shown(text, 80), a(what))
        .hint("use 1 to 64 of a-z, 0-9, '.', '_' and '-', starting with a letter or a digit"))
}

name_id!(
    /// The name of an agent, unique in its world: 1 to 64 characters of `a-z`, `0-9`, `.`, `_`, `-`, starting with a
    /// letter or digit. It is also the name of a directory, so other characters are not allowed.
    AgentId, "agent id"
);
name_id!(
    /// The name of a chat channel, unique in its world. The same characters as for an agent.
    ChannelName, "channel name"
);

/// Ids that a new agent cannot have: `system` means the daemon, and `@all` everyone in a channel.
pub const RESERVED_AGENT_IDS: [&str; 2] = ["all", "system"];

impl AgentId {
    /// Whether this is the id of a droid. No other agent can have such an id.
    pub fn is_droid(&self) -> bool {
        is_droid_text(self.as_str())
    }

    /// The agent's own directory, relative to the workspace.
    pub fn home(&self) -> String {
        if self.is_droid() { format!("{DROIDS}/{self}") } else { format!("agents/{self}") }
    }

    /// Checks that a new agent may have this id. Ids of existing records are not checked, so they
    /// stay readable.
    ///
    /// # Errors
    /// `InvalidArguments` if it is one of [`RESERVED_AGENT_IDS`], or has the form of a droid's id.
    pub fn check_new(&self) -> Result<(), Refusal> {
        let hint = if self.is_droid() {
            "`droid-` and eight hexadecimal digits name droids; choose another id"
        } else if RESERVED_AGENT_IDS.contains(&self.as_str()) {
            "`system` means the daemon and `@all` everyone in a channel; choose another id"
        } else {
            return Ok(());
        };
        Err(refusal!(InvalidArguments, "no agent can be called `{self}`")
            .hint(hint)
            .details(serde_json::json!({ "field": "agent_id" })))
    }
}

/// The beginning of every droid's id. Eight lower-case hexadecimal digits follow.
const PREFIX: &str = "droid-";
/// Digits after the prefix.
const DIGITS: usize = 8;
/// The directory of the workspace that has the droids' own directories.
pub const DROIDS: &str = "droids";

/// 2^32 divided by the golden ratio. It is odd, so multiplication by it maps no two numbers to one.
const SCATTER: u32 = 0x9e37_79b1;

/// The id of a world's droid number `n`. No two numbers have the same id, and ids of neighbours do not look alike.
pub fn droid_text(n: u32) -> String {
    format!("{PREFIX}{:08x}", n.wrapping_mul(SCATTER))
}

/// Whether `id` has the form of a droid's id.
pub fn is_droid_text(id: &str) -> bool {
    id.strip_prefix(PREFIX)
        .is_some_and(|digits| digits.len() == DIGITS && digits.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::refusal::Code;

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

#[cfg(test)]
mod droid_tests {
    use super::*;

    // covers: DROID-02
    #[test]
    fn ids_of_droids_have_one_form() {
        assert_eq!((droid_text(1), droid_text(2)), ("droid-9e3779b1".to_owned(), "droid-3c6ef362".to_owned()));
        assert!(is_droid_text(&droid_text(u32::MAX)));
        assert_eq!((0..10_000).map(droid_text).collect::<std::collections::BTreeSet<_>>().len(), 10_000);
        for bad in ["droid-", "droid-1234567", "droid-123456789", "droid-1234567G", "droid-ABCDEF12", "xdroid-12345678"]
        {
            assert!(!is_droid_text(bad), "{bad}");
        }
    }
}
