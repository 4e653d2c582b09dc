//! A party: an agent, an operator, a person or program outside, or the daemon. A party sends mail,
//! makes changes and requests.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::ids::{AgentId, RequestId};
use crate::macros::serde_as_text;
use crate::refusal::{Refusal, refusal};
use crate::time::Timestamp;

/// The author of a message or change. The database, the wire and lists use its text form:
/// `agent:chora`, `operator:uid-1000`, `outside:web`, `system`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Party {
    /// An agent of this world. The runtime sets it; it never comes from an argument of a tool call
    /// (promise 4 in `docs/design.md`).
    Agent(AgentId),
    /// A person or program that uses the control plane, with its principal name.
    Operator(String),
    /// A person or program outside the world who writes in a conversation.
    Outside(String),
    /// The daemon itself.
    System,
}

serde_as_text!(Party);

impl Party {
    /// The agent's id; `None` if the party is not an agent.
    pub fn agent(&self) -> Option<&AgentId> {
        match self {
            Self::Agent(id) => Some(id),
            _ => None,
        }
    }
}

impl fmt::Display for Party {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Agent(id) => write!(f, "agent:{id}"),
            Self::Operator(name) => write!(f, "operator:{name}"),
            Self::Outside(name) => write!(f, "outside:{name}"),
            Self::System => f.write_str("system"),
        }
    }
}

impl FromStr for Party {
    type Err = Refusal;

    fn from_str(text: &str) -> Result<Self, Refusal> {
        match text.split_once(':') {
            Some(("agent", id)) => Ok(Self::Agent(id.parse()?)),
            Some(("operator", name)) if !name.is_empty() => Ok(Self::Operator(name.to_owned())),
            Some(("outside", name)) if !name.is_empty() => Ok(Self::Outside(name.to_owned())),
            None if text == "system" => Ok(Self::System),
            _ => Err(refusal!(InvalidArguments, "`{}` is not a party", crate::text::shown(text, 80))
                .hint("a party is agent:<id>, operator:<name>, outside:<name> or system")),
        }
    }
}

/// Identifies one mutation by one principal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestKey {
    /// The principal that sent the request.
    pub principal: Party,
    /// Id of the request, chosen by the principal.
    pub request_id: RequestId,
    /// The RPC method. The same id with another method is a conflict.
    pub method: String,
    /// Hash of the request's content. The same id with other content is a conflict.
    pub digest: String,
}

/// The stored answer to a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredAnswer {
    /// The request that was answered.
    pub key: RequestKey,
    /// The answer as JSON text, in the form of the method.
    pub answer: String,
    /// When the request was answered.
    pub at: Timestamp,
}
