//! Dangerous tools belong to nobody by default. A world of an earlier version, in which every agent had them,
//! gets one error if it relies on that: it names such a tool, and no agent there may use it.
//!
//! This must never grant anything.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::sync::Arc;

use ghost_domain::tool_catalogue::{self, Entry};

use crate::access::{AccessDefault, Groups, ToolAccess};
use crate::files::text_of;
use crate::plan::{AgentPlan, Archetype, SandboxKind};
use crate::report::FileReport;
use crate::world_file::WorldFile;

/// Bytes of a script that are searched for the names of tools.
const SCRIPT_MAX: u64 = 1_048_576;

/// The archetypes and agents of a world, with what they may use.
pub(crate) struct Members<'a> {
    pub(crate) archetypes: &'a BTreeMap<String, Arc<Archetype>>,
    pub(crate) of_archetypes: &'a BTreeMap<String, Arc<ToolAccess>>,
    pub(crate) agents: &'a [AgentPlan],
}

impl Members<'_> {
    fn all(&self) -> impl Iterator<Item = &ToolAccess> {
        self.of_archetypes.values().chain(self.agents.iter().map(|agent| &agent.access)).map(AsRef::as_ref)
    }

    fn of<'s>(&'s self, archetype: &'s str) -> impl Iterator<Item = &'s ToolAccess> {
        let of_agents = self.agents.iter().filter(move |agent| agent.archetype == archetype).map(|agent| &agent.access);
        self.of_archetypes.get(archetype).into_iter().chain(of_agents).map(AsRef::as_ref)
    }
}

/// Reports an error if a part of the world names a dangerous tool that it could use only by the default of earlier
/// versions. `scripts` are the directories of scripted models.
pub(crate) fn report_lost(
    world: &WorldFile<'_>,
    groups: &Groups,
    members: &Members<'_>,
    scripts: &BTreeSet<&Path>,
    file: &FileReport<'_>,
) {
    // What is written is a decision.
    if world.access.default.is_some() {
        return;
    }
    // Tools that run commands are absent without a sandbox.
    let has = |entry: &&Entry| !entry.name.starts_with("tool.") || world.sandbox.kind != SandboxKind::None;
    let scripts: Vec<String> = scripts.iter().flat_map(|dir| texts(dir)).collect();
    let (mut tools, mut by) = (BTreeSet::new(), BTreeSet::new());
    for entry in tool_catalogue::CATALOGUE.iter().filter(|entry| entry.dangerous).filter(has) {
        let mut names: Vec<String> = Vec::new();
        for (name, archetype) in members.archetypes {
            if was_lost(members.of(name), entry.name) && archetype_names(archetype, groups, entry) {
                names.push(format!("archetype `{name}`"));
            }
        }
        if was_lost(members.all(), entry.name) {
            if entry.name == "tool.cli" && world.cli_policy.is_some() {
                names.push("`cli_policy`".to_owned());
            }
            if scripts.iter().any(|text| names_it(text, entry)) {
                names.push("a script".to_owned());
            }
        }
        if !names.is_empty() {
            tools.insert(format!("`{}`", entry.name));
            by.extend(names);
        }
    }
    if !tools.is_empty() {
        let list = |texts: BTreeSet<String>| texts.into_iter().collect::<Vec<_>>().join(", ");
        let message = format!(
            "{} counts on {}, and no agent may use that without a grant: it is dangerous",
            list(by),
            list(tools)
        );
        let hint = "list the tool under `## Tool Access` of the archetype or in a group; or write `access: { default: public }` to give \
                    dangerous tools to every agent, as earlier versions did, or `access: { default: safe }` to leave it so";
        let line = world.tool_privileges.as_ref().map_or(1, |groups| world.at(groups).line());
        file.error(line, "access.default", message, hint);
    }
}

/// Whether nobody here may use the tool, and somebody could if it were public.
fn was_lost<'a>(accesses: impl Iterator<Item = &'a ToolAccess>, tool: &str) -> bool {
    let mut lost = false;
    for access in accesses {
        if access.can_access(tool) {
            return false;
        }
        lost |= access.with_default(AccessDefault::Public).can_access(tool);
    }
    lost
}

fn archetype_names(archetype: &Archetype, groups: &Groups, entry: &Entry) -> bool {
    let texts = [&archetype.soul, &archetype.goal, &archetype.agent];
    let listed = archetype.config.legacy_tools.iter().flatten();
    texts.iter().any(|text| names_it(text, entry))
        || listed.flat_map(|word| groups.extra().expand(word)).any(|name| name == entry.name)
}

/// Whether a text has the tool's name, or another name of it that is not a plain word.
fn names_it(text: &str, entry: &Entry) -> bool {
    let is_part = |letter: char| letter.is_alphanumeric() || letter == '_';
    let found = |name: &str| {
        text.match_indices(name).any(|(at, _)| {
            let (before, after) = (&text[..at], &text[at + name.len()..]);
            !before.ends_with(|letter| is_part(letter) || letter == '.') && !after.starts_with(is_part)
        })
    };
    found(entry.name) || entry.aliases.iter().filter(|alias| alias.contains('_')).any(|alias| found(alias))
}

/// The texts of a directory's scripts. What cannot be read is reported where the scripts are parsed.
fn texts(dir: &Path) -> Vec<String> {
    let files = fs::read_dir(dir).into_iter().flatten().flatten().map(|file| file.path());
    let scripts = files.filter(|path| path.extension().is_some_and(|ending| ending == "yaml"));
    scripts.filter_map(|path| text_of(&path, dir, SCRIPT_MAX).ok()).collect()
}
