//! Grantees: the entries of a knowledge entry's lists of readers and writers. Also the viewer that
//! they are checked against.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::ids::AgentId;
use crate::refusal::{Code, Refusal};
use crate::text::{clip, one_line};

/// Longest list of readers, and of writers.
pub const GRANTEES_MAX: usize = 256;

/// The party that reads or writes knowledge. The runtime sets it; it never comes from an argument
/// of a tool call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Viewer {
    /// An operator or the daemon. It may read and write every entry.
    Everything,
    /// An agent.
    Agent {
        /// Id of the agent.
        agent_id: AgentId,
        /// Archetype of the agent.
        archetype: String,
        /// Privilege groups of the agent.
        groups: BTreeSet<String>,
    },
}

/// Parses a list of grantees. Keeps the order and drops duplicates. `field` names the list in error
/// messages.
///
/// # Errors
/// `InvalidArguments` if the list is too long or contains a text that is not a grantee.
pub fn grantees(field: &str, texts: &[String]) -> Result<Vec<Grantee>, Refusal> {
    if texts.len() > GRANTEES_MAX {
        return Err(Refusal::new(
            Code::InvalidArguments,
            format!("{field} has {} entries; at most {GRANTEES_MAX} are taken", texts.len()),
        )
        .hint("name an archetype or a privilege group instead of its agents"));
    }
    let mut found: Vec<Grantee> = Vec::with_capacity(texts.len());
    for text in texts {
        let grantee: Grantee = text
            .trim()
            .parse()
            .map_err(|refusal: Refusal| Refusal { message: format!("{field}: {}", refusal.message), ..refusal })?;
        if !found.contains(&grantee) {
            found.push(grantee);
        }
    }
    Ok(found)
}

/// An entry of a list of readers or writers: `*`, `archetype:<name>`, `group:<privilege group>`, or
/// an agent's id.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Grantee {
    /// Every agent.
    Everyone,
    /// All agents of an archetype.
    Archetype(String),
    /// All agents whose archetype has the privilege group.
    Group(String),
    /// One agent.
    Agent(AgentId),
}

impl Grantee {
    /// Whether the grantee includes `viewer`.
    #[must_use]
    pub fn covers(&self, viewer: &Viewer) -> bool {
        match (self, viewer) {
            (Self::Everyone, _) | (_, Viewer::Everything) => true,
            (Self::Archetype(name), Viewer::Agent { archetype, .. }) => name == archetype,
            (Self::Group(name), Viewer::Agent { groups, .. }) => groups.contains(name),
            (Self::Agent(id), Viewer::Agent { agent_id, .. }) => id == agent_id,
        }
    }
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
    type Err = Refusal;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let plain = |name: &str| {
            !name.is_empty()
                && name.len() <= 64
                && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b))
        };
        match text.split_once(':') {
            None if text == "*" => Ok(Self::Everyone),
            None => text.parse().map(Self::Agent),
            Some(("archetype", name)) if plain(name) => Ok(Self::Archetype(name.to_owned())),
            Some(("group", name)) if plain(name) => Ok(Self::Group(name.to_owned())),
            Some(_) => Err(Refusal::new(
                Code::InvalidArguments,
                format!("`{}` is not a reader or writer", one_line(&clip(text, 80))),
            )
            .hint("use `*`, `archetype:<name>`, `group:<privilege group>` or an agent's id")),
        }
    }
}

impl TryFrom<String> for Grantee {
    type Error = Refusal;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<Grantee> for String {
    fn from(grantee: Grantee) -> Self {
        grantee.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn grantee() -> impl Strategy<Value = Grantee> {
        prop_oneof![
            Just(Grantee::Everyone),
            "[a-z._-]{1,9}".prop_map(Grantee::Archetype),
            "[a-z._-]{1,9}".prop_map(Grantee::Group),
            "[a-z]{1,9}".prop_map(|name| Grantee::Agent(name.parse().unwrap())),
        ]
    }

    proptest! {
        // covers: KNOW-03
        #[test]
        fn a_grantee_parses_from_its_own_text(grantee in grantee()) {
            prop_assert_eq!(grantee.to_string().parse::<Grantee>().unwrap(), grantee);
        }
    }

    #[test]
    fn a_list_drops_duplicates_and_has_a_maximum_length() {
        let texts = ["*", "group:manager", "*"].map(str::to_owned);
        assert_eq!(grantees("readers", &texts).unwrap(), [Grantee::Everyone, Grantee::Group("manager".into())]);
        assert!(grantees("readers", &["role:x".to_owned()]).unwrap_err().message.starts_with("readers: "));
        assert!(grantees("readers", &vec!["*".to_owned(); 257]).is_err());
    }
}
