//! Decides which tools an agent may use. Privilege groups, single overrides, public tools, the
//! legacy allow-list and profiles become one [`ToolAccess`]. All
//! functions are pure. Every name is resolved to its canonical form before a rule is applied, so an
//! alias cannot bypass a group.
//!
//! The rules must never grant a tool that no rule names. A later rule must never widen an earlier
//! one.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ghost_domain::tool_catalogue::{self, Profile};

use crate::extra_tools::ExtraTools;
use crate::plan::archetype::AccessSection;

/// Tools that need a conversation from outside.
const CHANNEL_CONTEXT: [&str; 2] = ["syscall.channel.handoff", "syscall.channel.send"];

/// The tool with which the owner of a task reports progress.
pub(crate) const TASK_UPDATE: &str = "syscall.task.update";
/// The tool that creates agents.
const AGENT_CREATE: &str = "syscall.agent.create";
/// The tool that deletes agents.
const AGENT_DELETE: &str = "syscall.agent.delete";
/// The tool that starts droids.
const DROID_SPAWN: &str = "syscall.droid.spawn";
/// Tools of whoever starts droids.
const WITH_DROIDS: [&str; 2] = ["syscall.artifact.promote", "syscall.droid.control"];

/// The default rule for a tool that no group lists.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum AccessDefault {
    /// Every agent may use the tool unless the catalogue marks it as dangerous.
    #[default]
    Safe,
    /// Every agent may use the tool.
    Public,
    /// Only an agent whose `config.md` names the tool may use it.
    Privileged,
}

/// The name that rules apply to: lower case, aliases resolved. A name outside the catalogue is only
/// put into lower case.
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

/// Whether the tool is registered regardless of the rules. `name` must be canonical.
fn always_on(name: &str) -> bool {
    tool_catalogue::entry(name).is_some_and(|entry| entry.always_on)
}

/// The access rules of a world: its privilege groups and the default for other tools.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Groups {
    members: BTreeMap<String, BTreeSet<String>>,
    listed: Arc<BTreeSet<String>>,
    default: AccessDefault,
    strict_channel: bool,
    extra: ExtraTools,
}

impl Groups {
    /// Builds the rules from the words of each group in `world-config.yaml`. Unknown words are
    /// dropped here; the code that reads the file reports them first (see [`ExtraTools::expand`]).
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

    /// The groups that list `tool`, sorted. Hints name these groups to agents without the tool.
    #[must_use]
    pub fn groups_of(&self, tool: &str) -> Vec<&str> {
        let tool = canonical_name(tool);
        self.members
            .iter()
            .filter(|(_, tools)| tools.contains(tool.as_ref()))
            .map(|(group, _)| group.as_str())
            .collect()
    }

    /// Whether the world defines no groups.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// The tools of toolboxes and skills.
    #[must_use]
    pub fn extra(&self) -> &ExtraTools {
        &self.extra
    }

    /// Whether every agent may use `tool`: no group lists it, and the default opens it or it is
    /// always on.
    #[must_use]
    pub fn is_public(&self, tool: &str) -> bool {
        public(&canonical_name(tool), &self.listed, self.default)
    }
}

/// The tool whose grant decides about `canonical`. An agent can delete only agents that it created,
/// so `syscall.agent.delete` follows the grant of `syscall.agent.create` unless a group lists it. In the same way, the tools
/// for an agent's own droids follow the grant of `syscall.droid.spawn`.
/// Denials and other filters on the tool's own name still apply.
fn goes_with<'a>(canonical: &'a str, listed: &BTreeSet<String>) -> &'a str {
    match canonical {
        _ if listed.contains(canonical) => canonical,
        AGENT_DELETE => AGENT_CREATE,
        _ if WITH_DROIDS.contains(&canonical) => DROID_SPAWN,
        _ => canonical,
    }
}

fn public(canonical: &str, listed: &BTreeSet<String>, default: AccessDefault) -> bool {
    let canonical = goes_with(canonical, listed);
    let open = match default {
        AccessDefault::Public => true,
        AccessDefault::Safe => !tool_catalogue::entry(canonical).is_some_and(|entry| entry.dangerous),
        AccessDefault::Privileged => false,
    };
    !listed.contains(canonical) && (open || always_on(canonical))
}

/// The rule that decided, for the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mode {
    /// Groups and overrides.
    Privileges,
    /// The legacy allow-list alone.
    AllowList,
    /// The legacy allow-list, reduced to the tools that the groups allow.
    AllowListWithinPrivileges,
}

impl Mode {
    /// The name of the mode in logs.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Privileges => "privileges",
            Self::AllowList => "allow_list",
            Self::AllowListWithinPrivileges => "allow_list_within_privileges",
        }
    }
}

/// The tools that one agent may use. Agents with the same rules have equal values, so one `Arc` can
/// serve thousands.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ToolAccess {
    mode: Mode,
    default: AccessDefault,
    strict_channel: bool,
    /// Every tool that any group of the world lists. All agents of the world share the set.
    listed: Arc<BTreeSet<String>>,
    granted: BTreeSet<String>,
    /// The agent's privilege groups, regardless of its filters.
    groups: BTreeSet<String>,
    denied: BTreeSet<String>,
    profiles: BTreeSet<Profile>,
    list: Option<BTreeSet<String>>,
    only: Option<BTreeSet<String>>,
    /// Whether even the tools that are always on need a grant, as for droids.
    closed: bool,
}

impl ToolAccess {
    /// The access of a droid: exactly these tools. `own` are the privilege groups of its parent, so that a
    /// rule that binds the parent binds the droid.
    #[must_use]
    pub fn of_droid(groups: &Groups, own: BTreeSet<String>, tools: BTreeSet<String>) -> Self {
        Self {
            mode: Mode::Privileges,
            default: AccessDefault::Privileged,
            strict_channel: true,
            listed: Arc::clone(&groups.listed),
            granted: tools.clone(),
            groups: own,
            denied: BTreeSet::new(),
            profiles: BTreeSet::new(),
            list: None,
            only: Some(tools),
            closed: true,
        }
    }

    /// Whether the agent may use the tool. `name` may be an alias.
    #[must_use]
    pub fn can_access(&self, name: &str) -> bool {
        let name = canonical_name(name);
        if always_on(&name) && !self.closed {
            return true;
        }
        let rules = self.passes_rules(goes_with(&name, &self.listed));
        rules && self.passes_filters(&name) && self.passes_list(&name)
    }

    /// Like [`can_access`](Self::can_access), for a turn that came from an outside conversation. Such
    /// a turn has `syscall.channel.send` and `syscall.channel.handoff` regardless of groups, unless
    /// the world sets strict channel access. Denials, profiles and overrides still narrow
    /// these tools.
    #[must_use]
    pub fn can_access_with_channel(&self, name: &str) -> bool {
        let canonical = canonical_name(name);
        if !self.strict_channel && CHANNEL_CONTEXT.contains(&canonical.as_ref()) {
            return self.passes_filters(&canonical);
        }
        self.can_access(name)
    }

    /// Whether the agent may have `syscall.task.update` for its own tasks, in a world that allows
    /// this to owners. No group is needed. Denials, profiles, overrides and an allow-list
    /// still narrow it.
    #[must_use]
    pub fn may_update_own_tasks(&self) -> bool {
        self.passes_filters(TASK_UPDATE) && self.passes_list(TASK_UPDATE)
    }

    /// Like [`can_access`](Self::can_access), for a tool that one of the agent's skills brings. It
    /// needs no grant unless a group of the world lists it.
    #[must_use]
    pub fn can_access_of_skill(&self, name: &str) -> bool {
        let name = canonical_name(name);
        if tool_catalogue::entry(&name).is_some() {
            return self.can_access(&name);
        }
        self.passes_filters(&name) && (!self.listed.contains(name.as_ref()) || self.granted.contains(name.as_ref()))
    }

    /// Like [`can_access`](Self::can_access), for a tool of the world's toolboxes. `referenced` says whether the agent's
    /// archetype names it. A tool that a group lists needs the group, as ever.
    #[must_use]
    pub fn can_access_of_toolbox(&self, name: &str, referenced: bool) -> bool {
        let name = canonical_name(name);
        let is_named = self.granted.contains(name.as_ref()) || (referenced && !self.listed.contains(name.as_ref()));
        is_named && self.passes_filters(&name) && self.passes_list(&name)
    }

    /// Whether no group lists the tool and it is open by default.
    #[must_use]
    pub fn is_public(&self, name: &str) -> bool {
        public(&canonical_name(name), &self.listed, self.default)
    }

    /// The agent's privilege groups, sorted. Lists of readers and writers refer to them as
    /// `group:<name>`.
    #[must_use]
    pub fn groups(&self) -> &BTreeSet<String> {
        &self.groups
    }

    /// The privileged tools that the agent may use, sorted.
    #[must_use]
    pub fn granted_privileged(&self) -> Vec<String> {
        self.granted.iter().filter(|name| !self.is_public(name) && self.can_access(name)).cloned().collect()
    }

    /// The same access in a world with another default.
    #[must_use]
    pub(crate) fn with_default(&self, default: AccessDefault) -> Self {
        Self { default, ..self.clone() }
    }

    /// The rule that decided.
    #[must_use]
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// The catalogue tools that the agent may use, sorted: one row of the access matrix.
    #[must_use]
    pub fn catalogue(&self) -> Vec<&'static str> {
        tool_catalogue::CATALOGUE.iter().map(|entry| entry.name).filter(|name| self.can_access(name)).collect()
    }

    fn within_only(&self, name: &str) -> bool {
        self.only.as_ref().is_none_or(|only| only.contains(name))
    }

    /// The filters that only narrow. Denials come first: they override everything.
    fn passes_filters(&self, name: &str) -> bool {
        !self.denied.contains(name)
            && self.within_only(name)
            && self.profiles.iter().all(|profile| profile.allows(name))
    }

    fn passes_list(&self, name: &str) -> bool {
        self.list.as_ref().is_none_or(|list| list.contains(name))
    }

    fn passes_rules(&self, name: &str) -> bool {
        // Without groups, the allow-list is the only rule.
        self.mode == Mode::AllowList || public(name, &self.listed, self.default) || self.granted.contains(name)
    }
}

/// Resolves the access of one agent. `section` is its `## Tool Access`; `extra_groups` and
/// `profile` come from the world file; `legacy` is its `## Tools` list. If there is a section,
/// `legacy` is ignored. Otherwise a world with groups reduces the list to what the groups allow.
/// Unknown groups and words grant nothing.
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
    let own_groups: BTreeSet<String> = known.cloned().collect();
    let mut granted: BTreeSet<String> =
        own_groups.iter().filter_map(|group| groups.tools(group)).flatten().cloned().collect();
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
        // An unknown profile was reported when the file was read. The narrowest profile is the safe
        // choice.
        Profile::named(&name.to_ascii_lowercase()).unwrap_or(Profile::Minimal)
    });
    ToolAccess {
        mode,
        default: groups.default,
        strict_channel: groups.strict_channel,
        listed: Arc::clone(&groups.listed),
        granted,
        groups: own_groups,
        denied: section_or_empty.denied.iter().flat_map(|word| groups.extra.expand(word)).collect(),
        profiles: named.into_iter().chain(profile).filter(|profile| *profile != Profile::Full).collect(),
        list,
        only: None,
        closed: false,
    }
}

/// Reduces `access` to `allowed` (canonical names, aliases or patterns). Always-on tools stay; no
/// tool is added.
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
