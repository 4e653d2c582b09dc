//! Who did something: the sender of mail, the author of a change, the principal of a request.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::ids::AgentId;
use crate::refusal::{Code, Refusal};

/// An actor that can be held responsible. Its text form is what the database, the wire and the lists show:
/// `agent:chora`, `operator:uid-1000`, `outside:web`, `system`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Party {
    /// An agent of this world. Bound by the runtime, never taken from an argument (promise 4).
    Agent(AgentId),
    /// A person or program at the control plane, by principal name.
    Operator(String),
    /// Someone outside the world who speaks through a conversation.
    Outside(String),
    /// The supervisor itself.
    System,
}

impl Party {
    /// The agent, if it is one.
    #[must_use]
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
            _ => {
                Err(Refusal::new(Code::InvalidArguments, format!("`{}` names no party", crate::text::shown(text, 80)))
                    .hint("a party is agent:<id>, operator:<name>, outside:<name> or system"))
            }
        }
    }
}

impl TryFrom<String> for Party {
    type Error = Refusal;

    fn try_from(text: String) -> Result<Self, Refusal> {
        text.parse()
    }
}

impl From<Party> for String {
    fn from(party: Party) -> Self {
        party.to_string()
    }
}
