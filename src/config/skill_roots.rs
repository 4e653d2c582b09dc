//! The skill roots of a world: the skills that Ghost brings, the directories of `skills.roots` or those beside the toolboxes,
//! and the world's own `skills/`, in this order of precedence.
//!
//! This module must never stop a world because a skill is faulty.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use crate::extra_tools::ExtraTools;
use crate::files::{directory_within, first_line, is_plain_relative};
use crate::near_names;
use crate::plan::ToolboxPlan;
use crate::reader::no_such;
use crate::report::Report;
use crate::skills::SkillSet;
use crate::substitute::Env;
use crate::toolbox::{Bases, Toolbox, untrusted_manifest};
use crate::world_file::Named;

/// Where a world gets its skills from.
#[derive(Default)]
pub(crate) struct SkillSources<'w> {
    /// `skills.roots`; `None` if absent.
    pub(crate) named: Option<Vec<Named<'w>>>,
    /// `skills.bundled`: the names of skills that Ghost brings.
    pub(crate) bundled: Vec<Named<'w>>,
}

/// Reads the skills of a world. Tools of toolboxes that skills declare are added to `extra`.
pub(crate) fn read_skills(
    sources: &SkillSources<'_>,
    toolboxes: &BTreeMap<String, Toolbox>,
    bases: &Bases,
    extra: &mut ExtraTools,
    (report, env): (&Report, Env<'_>),
) -> (SkillSet, Vec<ToolboxPlan>) {
    let (mut skills, mut found) = (SkillSet::default(), Vec::<ToolboxPlan>::new());
    read_bundled(&sources.bundled, &mut skills, env);
    let own = bases.world().map(|world| (world, world.join("skills")));
    for root in roots(sources.named.as_deref(), toolboxes, bases, report) {
        match own.as_ref().filter(|(_, own)| *own == root) {
            Some((world, _)) => skills.read_own_root(&root, world, env),
            None => skills.read_root(&root, None, env),
        }
    }
    for skipped in skills.skipped() {
        let hint = "repair or remove it; agents do not get it";
        report.file(&skipped.path).warn(0, "", skipped.reason.clone(), hint);
    }
    for skill in skills.all().values() {
        let directory = skill.root.join(&skill.path);
        let file = report.file(directory.join("SKILL.md"));
        for fault in &skill.faults {
            file.warn(fault.line, &fault.field, fault.message.clone(), fault.hint.clone());
        }
        let Some(source) = &skill.toolbox else { continue };
        let path = Some(directory.join(source)).filter(|path| is_plain_relative(source) && path.exists());
        match path {
            Some(path) => {
                let Some(toolbox) = untrusted_manifest(&path, &skill.root, &skill.name, report) else { continue };
                let is_taken = |name: &str| {
                    toolboxes.values().any(|other| other.name == name) || found.iter().any(|other| other.name == name)
                };
                if is_taken(&toolbox.name) {
                    let message =
                        format!("another toolbox is called `{}` too: the skill's tools are absent", toolbox.name);
                    report.file(&path).warn(1, "name", message, "rename it");
                    continue;
                }
                toolbox.tool_names().for_each(|tool| extra.insert(&toolbox.name, tool));
                found.push(toolbox);
            }
            None => {
                let message = "there is no such file: its tools will be absent";
                let hint = "name a manifest in the skill's own directory, such as toolbox.yaml";
                file.warn(1, "metadata.ghost.toolbox", message, hint);
            }
        }
    }
    (skills, found)
}

fn read_bundled(names: &[Named<'_>], skills: &mut SkillSet, env: Env<'_>) {
    let Some((first, _)) = names.first() else { return };
    let program = std::env::current_exe().ok();
    let Some(root) = bundled_directory(env, program.as_deref(), rustix::process::geteuid().as_raw()) else {
        let hint = format!("set {} to the directory, or remove the key", BUNDLED);
        first.error("the skills that Ghost brings are not beside this program", hint);
        return;
    };
    let only: BTreeSet<String> = names.iter().map(|(_, name)| (*name).to_owned()).collect();
    let mut all = SkillSet::default();
    all.read_root(&root, None, env);
    for (field, _) in names.iter().filter(|(_, name)| all.get(name).is_none()) {
        let known = all.all().keys().map(String::as_str);
        no_such(field, "bundled skill called", known, "remove it, or put the skill into the world's `skills/`");
    }
    skills.read_root(&root, Some(&only), env);
}

fn roots(
    named: Option<&[Named<'_>]>,
    toolboxes: &BTreeMap<String, Toolbox>,
    bases: &Bases,
    report: &Report,
) -> Vec<PathBuf> {
    let mut roots: Vec<PathBuf> = Vec::new();
    match named {
        Some(list) => {
            for (field, root) in list {
                let found = is_plain_relative(root).then(|| bases.find(root)).flatten();
                match found.and_then(|(base, path)| directory_within(&path, base)) {
                    Some(dir) => roots.push(dir),
                    None if !is_plain_relative(root) => field.error(
                        format!("`{}` is not relative, or holds `..`", field.shown()),
                        "the path starts at the world's directory or up to two levels above it, such as toolbox/core/skills",
                    ),
                    None => {
                        let near = bases.iter().find_map(|base| near_names::misspelt(base, root));
                        let hint = match near {
                            Some(near) => format!("did you mean `{near}`? Name it here, or rename it"),
                            None => format!(
                                "copy the directory to `{root}` in the world's directory or up to two levels \
                                 above it; or remove the entry"
                            ),
                        };
                        field.error(format!("there is no directory `{}`", field.shown()), hint);
                    }
                }
            }
        }
        None => {
            let dirs = toolboxes.values().filter_map(Toolbox::dir);
            roots.extend(dirs.filter_map(|dir| directory_within(&dir.join("skills"), dir)));
        }
    }
    if let Some(world) = bases.world()
        && let path = world.join("skills")
        && path.symlink_metadata().is_ok()
        && directory_within(&path, world).is_none()
    {
        let message = "it is not a directory within the world: nothing in it is read";
        report.file(&path).warn(
            first_line(&path),
            "",
            message,
            "make it one, or name where the skills are under `skills: { roots: [...] }`",
        );
    }
    if let Some(world) = bases.world()
        && let Some(own) = directory_within(&world.join("skills"), world)
        && !roots.contains(&own)
    {
        roots.push(own);
    }
    roots
}

/// The variable that names the directory.
const BUNDLED: &str = "GHOST_BUNDLED_SKILLS_DIR";

/// The directories in which a source tree is looked for: `target/debug` and those above it, up to
/// `TREE/target/TRIPLE/debug`.
const TREE_LEVELS: usize = 4;

/// The directory with the skills that Ghost brings, if there is one: that of the variable, else beside the program, in
/// `share/ghost/skills` of its prefix, or in `toolbox/core/skills` of the source tree in which it was built. The current
/// directory is not looked at, nor a directory above the program that others own: what is there may be anybody's. `user` is the id of the daemon's user.
fn bundled_directory(env: Env<'_>, program: Option<&Path>, user: u32) -> Option<PathBuf> {
    if let Some(named) = env(BUNDLED).filter(|path| !path.is_empty()) {
        return Some(PathBuf::from(named)).filter(|path| path.is_dir());
    }
    let beside = program?.parent()?;
    let prefix = beside.parent().map(|prefix| prefix.join("share/ghost/skills"));
    // Programs may lie below a directory like /tmp, in which anybody may put a `toolbox`.
    let trusted = |path: &PathBuf| path.metadata().is_ok_and(|facts| [0, user].contains(&facts.uid()));
    let above = beside.ancestors().take(TREE_LEVELS).map(|dir| dir.join("toolbox/core/skills")).filter(trusted);
    std::iter::once(beside.join("skills")).chain(prefix).chain(above).find(|path| path.is_dir())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user() -> u32 {
        rustix::process::geteuid().as_raw()
    }

    #[test]
    fn what_others_put_above_the_program_is_not_taken() {
        let root = tempfile::tempdir().unwrap();
        let skills = root.path().join("toolbox/core/skills");
        std::fs::create_dir_all(&skills).unwrap();
        let found = |program: &str, user| bundled_directory(&|_| None, Some(&root.path().join(program)), user);
        assert_eq!(found("target/x/debug/ghostd", user()), Some(skills.clone()));
        assert_eq!(found("a/b/c/d/ghostd", user()), None, "too far above");
        // Root may give the directory away; what root owns is trusted by all.
        let owner = if user() == 0 { 12_345 } else { user() };
        std::os::unix::fs::chown(&skills, Some(owner), None).unwrap();
        assert_eq!(found("target/debug/ghostd", owner + 1), None, "it belongs to another user");
    }

    // covers: SKILL-12
    #[test]
    fn they_are_found_by_the_variable_and_from_the_program() {
        let root = tempfile::tempdir().unwrap();
        let at = |path: &str| root.path().join(path);
        let program = at("a/bin/ghostd");
        let found = |named: Option<&Path>| {
            let env = |name: &str| (name == BUNDLED).then(|| named.map(|path| path.display().to_string())).flatten();
            bundled_directory(&env, Some(&program), user())
        };
        assert_eq!(found(None), None);
        for path in ["toolbox/core/skills", "a/share/ghost/skills", "a/bin/skills"] {
            std::fs::create_dir_all(at(path)).unwrap();
            assert_eq!(found(None), Some(at(path)));
        }
        assert_eq!(found(Some(root.path())), Some(root.path().to_owned()));
        assert_eq!(found(Some(&at("none"))), None);
    }
}
