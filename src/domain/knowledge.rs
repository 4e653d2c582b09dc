//! Knowledge: entries that agents share, each with its own readers and writers (KNOW-01..06).

use serde::{Deserialize, Serialize};

use crate::party::Party;
use crate::time::Timestamp;

/// An entry as it stands.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KnowledgeEntry {
    /// Its id: 1 to 128 of `a-z`, `0-9`, `.`, `_`, `-`, `/`.
    pub entry_id: String,
    /// One line.
    pub title: String,
    /// The text.
    pub content: String,
    /// Words to find it by.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// Who may read it; see [`Grantee`].
    pub readers: Vec<Grantee>,
    /// Who may change or delete it, and so read it too.
    pub writers: Vec<Grantee>,
    /// Rises by one with every change, and goes on over a deletion.
    pub version: i64,
    /// Who wrote the first version; may always write (KNOW-03).
    pub creator: Party,
    /// Who wrote this one.
    pub updated_by: Party,
    /// When the first version was written.
    pub created_at: Timestamp,
    /// When this one was.
    pub updated_at: Timestamp,
    /// Whether it was deleted: nobody is shown it, and a new entry of the same id goes on with its version.
    pub deleted: bool,
}

/// An earlier version of an entry.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KnowledgeVersion {
    /// The entry.
    pub entry_id: String,
    /// Which version.
    pub version: i64,
    /// Its title.
    pub title: String,
    /// Its text.
    pub content: String,
    /// Who wrote it.
    pub by: Party,
    /// When.
    pub at: Timestamp,
}

/// Someone to whom an entry is open: `*`, `archetype:<name>`, `group:<privilege group>`, or an agent's id (KNOW-03).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Grantee {
    /// Every agent.
    Everyone,
    /// Agents of an archetype.
    Archetype(String),
    /// Agents whose archetype has the privilege group.
    Group(String),
    /// One agent.
    Agent(crate::ids::AgentId),
}

impl std::fmt::Display for Grantee {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Everyone => f.write_str("*"),
            Self::Archetype(name) => write!(f, "archetype:{name}"),
            Self::Group(name) => write!(f, "group:{name}"),
            Self::Agent(id) => write!(f, "{id}"),
        }
    }
}

impl std::str::FromStr for Grantee {
    type Err = crate::refusal::Refusal;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let plain = |name: &str| {
            !name.is_empty() && name.len() <= 64 && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b))
        };
        match text.split_once(':') {
            None if text == "*" => Ok(Self::Everyone),
            None => text.parse().map(Self::Agent),
            Some(("archetype", name)) if plain(name) => Ok(Self::Archetype(name.to_owned())),
            Some(("group", name)) if plain(name) => Ok(Self::Group(name.to_owned())),
            Some(_) => Err(crate::refusal::Refusal::new(
                crate::refusal::Code::InvalidArguments,
                format!("`{}` names nobody who could be given access", crate::text::clip(text, 80)),
            )
            .hint("use `*`, `archetype:<name>`, `group:<privilege group>` or an agent's id")),
        }
    }
}

impl TryFrom<String> for Grantee {
    type Error = crate::refusal::Refusal;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<Grantee> for String {
    fn from(grantee: Grantee) -> Self {
        grantee.to_string()
    }
}
