//! Which tools an agent may use: privilege groups, single overrides, public tools, the legacy allow-list and profiles
//! become one [`ToolAccess`] (ACC-01..15, CONF-01..03). Pure functions; every name is resolved to its canonical form
//! before any rule looks at it, so that no alias reaches past a group.
//!
//! Must never: grant by default what a rule did not name, or let a later layer widen an earlier one.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ghost_domain::tool_catalogue::{self, Profile};

use crate::extra_tools::ExtraTools;
use crate::plan::archetype::AccessSection;

/// Tools that exist only with a conversation from outside (CONF-03).
const CHANNEL_CONTEXT: [&str; 2] = ["syscall.channel.handoff", "syscall.channel.send"];

/// What the owner of a task says how far it is with (TASK-05).
pub(crate) const TASK_UPDATE: &str = "syscall.task.update";
/// Makes an agent.
const AGENT_CREATE: &str = "syscall.agent.create";
/// Takes one back.
const AGENT_DELETE: &str = "syscall.agent.delete";

/// What holds for a tool that no group lists (CONF-27).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AccessDefault {
    /// Everyone may use it.
    #[default]
    Public,
    /// Only who names it as an override may use it.
    Privileged,
}

/// The name that rules are applied to: lower case, aliases resolved. Names outside the catalogue stay as they are.
#[must_use]
pub fn canonical_name(name: &str) -> Cow<'_, str> {
    if let Some(entry) = tool_catalogue::entry(name) {
        return Cow::Borrowed(entry.name);
    }
    let lower = name.trim().to_ascii_lowercase();
    match tool_catalogue::canonical(&lower) {
        Some(canonical) => Cow::Borrowed(canonical),
        None => Cow::Owned(lower),
    }
}

/// Whether the tool is registered whatever any rule says (ACC-04). `name` must be canonical.
fn always_on(name: &str) -> bool {
    tool_catalogue::entry(name).is_some_and(|entry| entry.always_on)
}

/// The access rules of a world: privilege groups and what holds outside them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Groups {
    members: BTreeMap<String, BTreeSet<String>>,
    listed: Arc<BTreeSet<String>>,
    default: AccessDefault,
    strict_channel: bool,
    extra: ExtraTools,
}

impl Groups {
    /// Rules from groups of words as the world file has them; words are expanded, and those that stand for nothing are
    /// dropped. Whoever reads files reports those first (see [`ExtraTools::expand`]).
    #[must_use]
    pub fn new(
        words: &BTreeMap<String, Vec<String>>,
        default: AccessDefault,
        strict_channel: bool,
        extra: ExtraTools,
    ) -> Self {
        let members: BTreeMap<String, BTreeSet<String>> = words
            .iter()
            .map(|(group, words)| (group.clone(), words.iter().flat_map(|word| extra.expand(word)).collect()))
            .collect();
        let listed = Arc::new(members.values().flatten().cloned().collect());
        Self { members, listed, default, strict_channel, extra }
    }

    /// Group names, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.members.keys().map(String::as_str)
    }

    /// The canonical names of the tools in `group`.
    #[must_use]
    pub fn tools(&self, group: &str) -> Option<&BTreeSet<String>> {
        self.members.get(group)
    }

    /// The groups that list `tool`, sorted: for hints such as "ask for one of these".
    #[must_use]
    pub fn groups_of(&self, tool: &str) -> Vec<&str> {
        let tool = canonical_name(tool);
        self.members
            .iter()
            .filter(|(_, tools)| tools.contains(tool.as_ref()))
            .map(|(group, _)| group.as_str())
            .collect()
    }

    /// Whether there is no group.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// Tools of toolboxes and skills that may be named.
    #[must_use]
    pub fn extra(&self) -> &ExtraTools {
        &self.extra
    }

    /// Whether everyone may use `tool`: it is in no group and the default is public, or it is always on and in no group
    /// (ACC-02).
    #[must_use]
    pub fn is_public(&self, tool: &str) -> bool {
        public(&canonical_name(tool), &self.listed, self.default)
    }
}

/// The tool whose grant decides over `canonical`. Who makes agents can take them back, and nobody else has made any: unless a
/// group names it, deleting goes with creating. What narrows it by its own name narrows it all the same.
fn goes_with<'a>(canonical: &'a str, listed: &BTreeSet<String>) -> &'a str {
    if canonical == AGENT_DELETE && !listed.contains(canonical) { AGENT_CREATE } else { canonical }
}

fn public(canonical: &str, listed: &BTreeSet<String>, default: AccessDefault) -> bool {
    let canonical = goes_with(canonical, listed);
    !listed.contains(canonical) && (default == AccessDefault::Public || always_on(canonical))
}

/// Which rule decided, for the log (CONF-02).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mode {
    /// Groups and overrides.
    Privileges,
    /// The legacy allow-list alone.
    AllowList,
    /// The legacy allow-list, cut down to what groups allow.
    AllowListWithinPrivileges,
}

impl Mode {
    /// The mode as it is logged.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Privileges => "privileges",
            Self::AllowList => "allow_list",
            Self::AllowListWithinPrivileges => "allow_list_within_privileges",
        }
    }
}

/// What one agent may use. Two agents with the same rules have equal values, so that one `Arc` can serve thousands.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ToolAccess {
    mode: Mode,
    default: AccessDefault,
    strict_channel: bool,
    /// Every tool in any group of the world; shared by all agents of it.
    listed: Arc<BTreeSet<String>>,
    granted: BTreeSet<String>,
    /// The privilege groups that the agent has, whatever of them its filters leave.
    groups: BTreeSet<String>,
    denied: BTreeSet<String>,
    profiles: BTreeSet<Profile>,
    list: Option<BTreeSet<String>>,
    only: Option<BTreeSet<String>>,
}

impl ToolAccess {
    /// Whether the agent may use the tool of that name, alias or not.
    #[must_use]
    pub fn can_access(&self, name: &str) -> bool {
        let name = canonical_name(name);
        if always_on(&name) {
            return true;
        }
        let rules = self.passes_rules(goes_with(&name, &self.listed));
        rules && self.passes_filters(&name) && self.passes_list(&name)
    }

    /// The same in a turn that came from an outside conversation: `syscall.channel.send` and `syscall.channel.handoff`
    /// are there whatever groups say, unless the world is strict about it (CONF-03). Denials, profiles and overrides
    /// narrow these too.
    #[must_use]
    pub fn can_access_with_channel(&self, name: &str) -> bool {
        let canonical = canonical_name(name);
        if !self.strict_channel && CHANNEL_CONTEXT.contains(&canonical.as_ref()) {
            return self.passes_filters(&canonical);
        }
        self.can_access(name)
    }

    /// Whether the agent may be given `syscall.task.update` for its own tasks in a world that lets owners have it: they
    /// need no group then (TASK-05). Denials, profiles, overrides and an allow-list narrow this too (ACC-07, ACC-15).
    #[must_use]
    pub fn may_update_own_tasks(&self) -> bool {
        self.passes_filters(TASK_UPDATE) && self.passes_list(TASK_UPDATE)
    }

    /// The same for a tool that a held skill brings: it needs no grant unless a world group lists it (ACC-10).
    #[must_use]
    pub fn can_access_of_skill(&self, name: &str) -> bool {
        let name = canonical_name(name);
        if tool_catalogue::entry(&name).is_some() {
            return self.can_access(&name);
        }
        self.passes_filters(&name) && (!self.listed.contains(name.as_ref()) || self.granted.contains(name.as_ref()))
    }

    /// Whether the tool is in no group of the world and open by default (ACC-02).
    #[must_use]
    pub fn is_public(&self, name: &str) -> bool {
        public(&canonical_name(name), &self.listed, self.default)
    }

    /// The privilege groups that this agent has, sorted: what `group:<name>` means in lists of readers and writers.
    #[must_use]
    pub fn groups(&self) -> &BTreeSet<String> {
        &self.groups
    }

    /// The privileged tools that this agent has, sorted.
    #[must_use]
    pub fn granted_privileged(&self) -> Vec<String> {
        self.granted.iter().filter(|name| !self.is_public(name) && self.can_access(name)).cloned().collect()
    }

    /// Which rule decided.
    #[must_use]
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// The catalogue's tools that this agent may use, sorted: a row of the access matrix.
    #[must_use]
    pub fn catalogue(&self) -> Vec<&'static str> {
        tool_catalogue::CATALOGUE.iter().map(|entry| entry.name).filter(|name| self.can_access(name)).collect()
    }

    fn within_only(&self, name: &str) -> bool {
        self.only.as_ref().is_none_or(|only| only.contains(name))
    }

    /// Layers that only narrow: denials first, because they beat everything (ACC-15).
    fn passes_filters(&self, name: &str) -> bool {
        !self.denied.contains(name)
            && self.within_only(name)
            && self.profiles.iter().all(|profile| profile.allows(name))
    }

    fn passes_list(&self, name: &str) -> bool {
        self.list.as_ref().is_none_or(|list| list.contains(name))
    }

    fn passes_rules(&self, name: &str) -> bool {
        // With no groups anywhere the allow-list is the rule (ACC-07).
        self.mode == Mode::AllowList || public(name, &self.listed, self.default) || self.granted.contains(name)
    }
}

/// Resolves one agent's access. `section` is its `## Tool Access`, `extra_groups` and `profile` come from the world file,
/// `legacy` is its `## Tools` list. A section makes `legacy` irrelevant; without one, a world with groups cuts the list
/// down to what groups allow (CONF-02). Unknown groups and words grant nothing.
#[must_use]
pub fn resolve(
    groups: &Groups,
    section: Option<&AccessSection>,
    extra_groups: &BTreeSet<String>,
    legacy: Option<&[String]>,
    profile: Option<Profile>,
) -> ToolAccess {
    let active = section.is_some() || !groups.is_empty();
    let empty = AccessSection::default();
    let section_or_empty = section.unwrap_or(&empty);
    let known = section_or_empty.groups.iter().chain(extra_groups).filter(|group| groups.tools(group).is_some());
    let own: BTreeSet<String> = known.cloned().collect();
    let mut granted: BTreeSet<String> = own.iter().filter_map(|group| groups.tools(group)).flatten().cloned().collect();
    granted.extend(section_or_empty.overrides.iter().flat_map(|word| groups.extra.expand(word)));
    let list = match (section, legacy) {
        (None, Some(words)) => Some(words.iter().flat_map(|word| groups.extra.expand(word)).collect()),
        _ => None,
    };
    let mode = match (&list, active) {
        (None, _) => Mode::Privileges,
        (Some(_), false) => Mode::AllowList,
        (Some(_), true) => Mode::AllowListWithinPrivileges,
    };
    let named = section_or_empty.profile.as_deref().map(|name| {
        // An unknown profile was reported when it was read; the narrowest one is the safe meaning of it here.
        Profile::named(&name.to_ascii_lowercase()).unwrap_or(Profile::Minimal)
    });
    ToolAccess {
        mode,
        default: groups.default,
        strict_channel: groups.strict_channel,
        listed: Arc::clone(&groups.listed),
        granted,
        groups: own,
        denied: section_or_empty.denied.iter().flat_map(|word| groups.extra.expand(word)).collect(),
        profiles: named.into_iter().chain(profile).filter(|profile| *profile != Profile::Full).collect(),
        list,
        only: None,
    }
}

/// `access` cut down to `allowed` (canonical names, aliases or patterns). Always-on tools stay; nothing is added (BI-22).
#[must_use]
pub fn narrow(access: &ToolAccess, allowed: &BTreeSet<String>) -> ToolAccess {
    let mut wanted: BTreeSet<String> = BTreeSet::new();
    for word in allowed {
        let known = tool_catalogue::expand(word);
        if known.is_empty() {
            wanted.insert(canonical_name(word).into_owned());
        } else {
            wanted.extend(known.into_iter().map(str::to_owned));
        }
    }
    let only = match &access.only {
        Some(before) => before.intersection(&wanted).cloned().collect(),
        None => wanted,
    };
    ToolAccess { only: Some(only), ..access.clone() }
}

#[cfg(test)]
#[path = "access_tests.rs"]
mod tests;
