//! Checks the names in lists of readers and writers. An unknown `archetype:` or `group:` is an
//! error: a typing mistake would silently deny access.
//!
//! This module must never decide who may read an entry; `ghost_domain` decides it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ghost_domain::text::{a, clip, nearest};
use ghost_domain::{AgentId, Grantee, Refusal};

use crate::access::Groups;
use crate::plan::{Archetype, Plan};

/// The names that a list of readers or writers may use.
pub struct People<'p> {
    /// The world's archetypes.
    pub archetypes: &'p BTreeMap<String, Arc<Archetype>>,
    /// The world's privilege groups. `None` if `world-config.yaml` cannot be read; then any group
    /// is accepted.
    pub groups: Option<&'p Groups>,
    /// The agents that the world file names; others may be created later. `None` as for `groups`.
    pub agents: Option<BTreeSet<&'p AgentId>>,
}

impl People<'_> {
    /// The refusal for an unknown archetype or group.
    pub fn problem(&self, grantee: &Grantee) -> Option<Refusal> {
        match grantee {
            // If there are no archetypes, that was already reported.
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
    /// Checks that every archetype and privilege group of a list of readers or writers exists.
    ///
    /// # Errors
    ///
    /// `NotFound` for the first unknown name, with the nearest name.
    pub fn check_grantees(&self, list: &[Grantee]) -> Result<(), Refusal> {
        let people = People { archetypes: &self.archetypes, groups: Some(&self.groups), agents: None };
        list.iter().find_map(|grantee| people.problem(grantee)).map_or(Ok(()), Err)
    }
}
