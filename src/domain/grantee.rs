//! Who is meant by a list of readers or writers, and who comes to look (KNOW-03).

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::ids::AgentId;
use crate::refusal::{Code, Refusal};
use crate::text::{clip, one_line};

/// Most readers of an entry, and most writers.
pub const GRANTEES_MAX: usize = 256;

/// Who looks at knowledge. Bound by the runtime, never taken from an argument of an agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Viewer {
    /// An operator, or the supervisor: every entry is open to it.
    Everything,
    /// An agent.
    Agent {
        /// Which.
        agent_id: AgentId,
        /// What it is made from.
        archetype: String,
        /// The privilege groups that it has.
        groups: BTreeSet<String>,
    },
}

/// The people that a list of texts gives access to, each once, in the list's order.
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
    Agent(AgentId),
}

impl Grantee {
    /// Whether `viewer` is meant.
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
                format!("`{}` names nobody who could be given access", one_line(&clip(text, 80))),
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
        fn grantees_read_back(grantee in grantee()) {
            prop_assert_eq!(grantee.to_string().parse::<Grantee>().unwrap(), grantee);
        }
    }

    #[test]
    fn a_list_names_each_once_and_has_its_bound() {
        let texts = ["*", "group:manager", "*"].map(str::to_owned);
        assert_eq!(grantees("readers", &texts).unwrap(), [Grantee::Everyone, Grantee::Group("manager".into())]);
        assert!(grantees("readers", &["role:x".to_owned()]).unwrap_err().message.starts_with("readers: "));
        assert!(grantees("readers", &vec!["*".to_owned(); 257]).is_err());
    }
}
