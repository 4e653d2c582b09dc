//! Scopes of budgets: the world, a team, an agent, a root, or one day of the first three.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::envelope::text_enum;
use crate::ids::{AgentId, RootId};
use crate::refusal::{Code, Refusal};

/// The work that a budget covers. The text form is `world`, `team:news`, `agent:chora` or
/// `root:<uuid>`. The first three can end in `/day` for one day: `agent:chora/day`.
/// `ghostctl budget` uses this form.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Scope {
    /// The whole world.
    World,
    /// The agents of one team, and the agents that they created.
    Team(String),
    /// One agent, the agents that it created, the agents that those created, and so on.
    Agent(AgentId),
    /// All work of one root.
    Root(RootId),
    /// The world, a team or an agent within one day, from midnight to midnight UTC.
    Day(Daily),
}

text_enum! {
    /// The kind of a scope, as a filter for lists.
    ScopeSort, "kind of scope" {
        /// The whole world.
        World = "world",
        /// Teams.
        Team = "team",
        /// Agents.
        Agent = "agent",
        /// Roots.
        Root = "root",
        /// Daily scopes.
        Day = "day",
    }
}

/// The work that a daily budget covers.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Daily {
    /// The whole world.
    World,
    /// One team, as [`Scope::Team`].
    Team(String),
    /// One agent, as [`Scope::Agent`].
    Agent(AgentId),
}

impl Daily {
    /// The same scope without the limit to one day.
    #[must_use]
    pub fn whole(&self) -> Scope {
        match self {
            Self::World => Scope::World,
            Self::Team(name) => Scope::Team(name.clone()),
            Self::Agent(id) => Scope::Agent(id.clone()),
        }
    }
}

/// The end of a daily scope's text.
const DAY: &str = "/day";

impl Scope {
    /// The same scope for one day. `None` for a scope that is daily already, and for a root.
    #[must_use]
    pub fn daily(&self) -> Option<Self> {
        match self {
            Self::World => Some(Self::Day(Daily::World)),
            Self::Team(name) => Some(Self::Day(Daily::Team(name.clone()))),
            Self::Agent(id) => Some(Self::Day(Daily::Agent(id.clone()))),
            Self::Root(_) | Self::Day(_) => None,
        }
    }

    /// The kind of the scope.
    #[must_use]
    pub fn sort(&self) -> ScopeSort {
        match self {
            Self::World => ScopeSort::World,
            Self::Team(_) => ScopeSort::Team,
            Self::Agent(_) => ScopeSort::Agent,
            Self::Root(_) => ScopeSort::Root,
            Self::Day(_) => ScopeSort::Day,
        }
    }

    /// The agent of the scope, if it is the scope of an agent, daily or not.
    #[must_use]
    pub fn agent(&self) -> Option<&AgentId> {
        match self {
            Self::Agent(agent_id) | Self::Day(Daily::Agent(agent_id)) => Some(agent_id),
            Self::World | Self::Team(_) | Self::Root(_) | Self::Day(Daily::World | Daily::Team(_)) => None,
        }
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::World => f.write_str("world"),
            Self::Team(name) => write!(f, "team:{name}"),
            Self::Agent(id) => write!(f, "agent:{id}"),
            Self::Root(id) => write!(f, "root:{id}"),
            Self::Day(daily) => write!(f, "{}{DAY}", daily.whole()),
        }
    }
}

impl FromStr for Scope {
    type Err = Refusal;

    fn from_str(text: &str) -> Result<Self, Refusal> {
        let unknown = || {
            Refusal::new(Code::InvalidArguments, format!("`{}` is not a budget scope", crate::text::shown(text, 80)))
                .hint("a scope is world, team:<name>, agent:<id> or root:<id>; the first three with /day for one day")
        };
        if let Some(whole) = text.strip_suffix(DAY) {
            if whole.ends_with(DAY) {
                return Err(unknown());
            }
            return whole.parse::<Self>()?.daily().ok_or_else(unknown);
        }
        match text.split_once(':') {
            None if text == "world" => Ok(Self::World),
            Some(("team", name)) if !name.is_empty() && name.len() <= 64 && !name.ends_with(DAY) => {
                Ok(Self::Team(name.to_owned()))
            }
            // The part after the slash is wrong, not the id.
            Some(("agent" | "root", id)) if id.contains('/') => Err(unknown()),
            Some(("agent", id)) => Ok(Self::Agent(id.parse()?)),
            Some(("root", id)) => Ok(Self::Root(id.parse()?)),
            _ => Err(unknown()),
        }
    }
}

impl TryFrom<String> for Scope {
    type Error = Refusal;

    fn try_from(text: String) -> Result<Self, Refusal> {
        text.parse()
    }
}

impl From<Scope> for String {
    fn from(scope: Scope) -> Self {
        scope.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn invalid_scopes_are_refused() {
        for text in
            ["root:019f9c68-0000-7000-8000-000000000000/day", "world/day/day", "/day", "team:/day", "world/days"]
        {
            assert!(text.parse::<Scope>().is_err(), "{text}");
        }
        let slip = "agent:chora/dya".parse::<Scope>().unwrap_err();
        assert!(slip.message.contains("`agent:chora/dya`"), "{slip}");
    }

    proptest! {
        #[test]
        fn a_scope_parses_from_its_own_text(name in "[a-z][a-z0-9-]{0,20}") {
            for text in ["world".to_owned(), format!("team:{name}"), format!("agent:{name}")] {
                let scope: Scope = text.parse().unwrap();
                let daily = format!("{text}/day");
                prop_assert_eq!(scope.daily(), Some(daily.parse::<Scope>().unwrap()));
                prop_assert_eq!(scope.daily().unwrap().to_string(), daily);
                prop_assert_eq!(scope.to_string(), text);
            }
        }
    }
}
