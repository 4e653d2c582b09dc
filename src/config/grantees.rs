//! Whom lists of readers and writers may name: `archetype:` and `group:` must be there, or a slip of the keyboard would
//! keep people out in silence.
//!
//! Must never: decide who may read what (that is the domain's).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ghost_domain::text::{a, clip, nearest};
use ghost_domain::{AgentId, Grantee, Refusal};

use crate::access::Groups;
use crate::plan::{Archetype, Plan};

/// The people of a world.
pub struct People<'p> {
    /// Its archetypes.
    pub archetypes: &'p BTreeMap<String, Arc<Archetype>>,
    /// Its privilege groups; none if its file cannot be read, and then any name may be one.
    pub groups: Option<&'p Groups>,
    /// The agents that its file names; others may be created later. As `groups`.
    pub agents: Option<BTreeSet<&'p AgentId>>,
}

impl People<'_> {
    /// What is wrong with an archetype or a group that a list names, if something is.
    pub fn problem(&self, grantee: &Grantee) -> Option<Refusal> {
        match grantee {
            // Where there is none at all, that was told.
            Grantee::Archetype(name) if !self.archetypes.is_empty() && !self.archetypes.contains_key(name) => {
                let near = nearest(name, self.archetypes.keys().map(String::as_str));
                Some(unknown("archetype", name, near))
            }
            Grantee::Group(name) => {
                let groups = self.groups.filter(|groups| groups.tools(name).is_none())?;
                Some(unknown("privilege group", name, nearest(name, groups.names())))
            }
            _ => None,
        }
    }
}

fn unknown(what: &str, name: &str, near: Option<&str>) -> Refusal {
    let refusal = Refusal::not_found(what, &clip(name, 64), near);
    match near {
        Some(_) => refusal,
        None => refusal.hint(format!("name {} of this world, an agent's id or `*`", a(what))),
    }
}

impl Plan {
    /// Whether every archetype and every privilege group that a list of readers or writers names is there.
    ///
    /// # Errors
    /// `NotFound` with the nearest name for the first one that is not.
    pub fn check_grantees(&self, list: &[Grantee]) -> Result<(), Refusal> {
        let people = People { archetypes: &self.archetypes, groups: Some(&self.groups), agents: None };
        list.iter().find_map(|grantee| people.problem(grantee)).map_or(Ok(()), Err)
    }
}
