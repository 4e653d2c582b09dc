//! The toolboxes of a world: those that its file lists, and the references of archetypes to them.

#[cfg(test)]
mod broken_tests;
mod command_tool;
mod idempotency;
mod manifest;
pub mod mcp;
pub mod sections;
mod template;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

pub(crate) use self::manifest::untrusted_manifest;
use crate::files::is_plain_relative;
use crate::plan::toolbox::{ToolboxKind, ToolboxPlan};
use crate::reader::no_such;
use crate::report::{FileReport, Report};
use crate::substitute::Env;
use crate::world_file::WorldFile;

/// The directories in which relative paths of toolboxes and skill roots are looked up: the world's
/// directory and the two above it. Usually a world is in `worlds/<world>`, beside `toolbox/`.
#[derive(Clone, Debug)]
pub struct Bases(Vec<PathBuf>);

impl Bases {
    /// The bases of the world in `dir`, a canonical path.
    pub fn of(dir: &Path) -> Self {
        Self(dir.ancestors().take(3).map(Path::to_owned).collect())
    }

    /// The first base in which `relative` exists, and the full path.
    pub(crate) fn find(&self, relative: &str) -> Option<(&Path, PathBuf)> {
        self.0.iter().map(|base| (base.as_path(), base.join(relative))).find(|(_, path)| path.exists())
    }

    /// The world's directory.
    pub(crate) fn world(&self) -> Option<&PathBuf> {
        self.0.first()
    }

    /// The bases, the world's directory first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &PathBuf> {
        self.0.iter()
    }
}

/// A toolbox that the world lists.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Toolbox {
    /// The name of the toolbox: the first part of its tools' names.
    pub name: String,
    /// Short names of its tools.
    pub tools: BTreeSet<String>,
    /// Short names of the tools that the world allows.
    pub allowed: BTreeSet<String>,
    /// Whether an operator decides which tools it has, so that a name may be right although it is not known yet.
    pub is_open: bool,
    /// Whether its manifest has an error, which is reported.
    pub is_broken: bool,
    /// The manifest, if it exists.
    pub plan: Option<ToolboxPlan>,
}

impl Toolbox {
    /// Directory of the toolbox, if the manifest exists.
    pub fn dir(&self) -> Option<&PathBuf> {
        self.plan.as_ref().map(|plan| &plan.dir)
    }
}

/// The normal form of `source`, so that `./a` and `a` are equal.
pub fn normal_source(source: &str) -> String {
    source.split('/').filter(|part| !part.is_empty() && *part != ".").collect::<Vec<_>>().join("/")
}

/// Reads the manifests of the toolboxes that the world lists. The result is keyed by source.
pub fn toolboxes(world: &WorldFile<'_>, bases: &Bases, report: &Report, env: Env<'_>) -> BTreeMap<String, Toolbox> {
    let mut found: BTreeMap<String, Toolbox> = BTreeMap::new();
    for entry in &world.toolboxes {
        let Some(source) = &entry.source else { continue };
        let (field, source) = world.named(source);
        if !is_plain_relative(source) {
            field.error("the path is not relative, or holds `..`", "write it as toolbox/<box>/toolbox.yaml");
            continue;
        }
        let key = normal_source(source);
        if found.contains_key(&key) {
            field.error("this toolbox is listed twice", "keep one entry, with all that it allows");
            continue;
        }
        let directory_name = Path::new(&key).parent().and_then(Path::file_name).and_then(|name| name.to_str());
        let mut is_broken = false;
        let (name, tools, mut plan) = match bases.find(&key) {
            Some((base, path)) => {
                let read = manifest::manifest(&path, base, &key, report, env);
                is_broken = read.is_broken;
                let name = read.plan.as_ref().map(|plan| plan.name.clone()).or(read.name);
                let mut tools: BTreeSet<String> = read.tools;
                tools.extend(read.plan.iter().flat_map(ToolboxPlan::tool_names).map(str::to_owned));
                (name.unwrap_or_else(|| directory_name.unwrap_or("toolbox").to_owned()), tools, read.plan)
            }
            None => {
                field.warn(
                    "there is no such file: its tools will be absent",
                    "the path starts at the world's directory or up to two levels above it",
                );
                let allowed: BTreeSet<String> = entry.allow.iter().flatten().map(|tool| tool.0.clone()).collect();
                (directory_name.unwrap_or("toolbox").to_owned(), allowed, None)
            }
        };
        let is_open = plan.as_ref().is_some_and(|plan| matches!(plan.kind, ToolboxKind::Mcp(_)));
        let mut allowed = tools.clone();
        if let Some(list) = entry.allow.as_ref().map(|allow| world.all_named(allow)) {
            for (field, _) in list.iter().filter(|(_, tool)| !is_open && !is_broken && !tools.contains(*tool)) {
                let what = format!("tool in toolbox `{name}` called");
                no_such(field, &what, tools.iter().map(String::as_str), "the manifest lists its tools under `tools`");
            }
            let named = list.iter().map(|(_, tool)| (*tool).to_owned());
            allowed = named.filter(|tool| is_open || is_broken || tools.contains(tool)).collect();
            if let Some(plan) = &mut plan {
                plan.allowed = Some(allowed.clone());
            }
        }
        if !is_broken && found.values().any(|other| other.name == name) {
            field.error(format!("another toolbox is called `{name}` too"), "rename one of them");
            continue;
        }
        found.insert(key, Toolbox { name, tools, allowed, is_open, is_broken, plan });
    }
    found
}

/// Checks an archetype's reference to a toolbox. If the world does not list the source or does not
/// allow the tool, the archetype's agents do not start, but the world does.
pub fn check_reference(
    toolboxes: &BTreeMap<String, Toolbox>,
    (source, line): (&str, usize),
    wanted: &[(usize, String)],
    file: &FileReport<'_>,
) -> Result<BTreeSet<String>, String> {
    let field = "Toolbox.source";
    let Some(toolbox) = toolboxes.get(&normal_source(source)) else {
        let reason =
            format!("its toolbox `{}` is not among the world's `toolboxes`", ghost_domain::text::clip(source, 120));
        let known = toolboxes.keys().map(String::as_str);
        let near = ghost_domain::text::nearest(source, known).map(|near| format!("did you mean `{near}`?"));
        let hint = near.unwrap_or_else(|| "list it under `toolboxes` in the world file".to_owned());
        file.warn(line, field, format!("{reason}; its agents will not start"), hint);
        return Err(reason);
    };
    if toolbox.is_broken {
        // What the manifest does not have may be missing because of its error.
        let short = |tool: &str| tool.strip_prefix(&format!("{}.", toolbox.name)).unwrap_or(tool).to_owned();
        return Ok(wanted.iter().map(|(_, tool)| format!("{}.{}", toolbox.name, short(tool))).collect());
    }
    let mut full = BTreeSet::new();
    let mut refused = None;
    for (line, tool) in wanted {
        let short = tool.strip_prefix(&format!("{}.", toolbox.name)).unwrap_or(tool);
        if short == "*" {
            full.extend(toolbox.allowed.iter().map(|short| format!("{}.{short}", toolbox.name)));
        } else if toolbox.is_open && !toolbox.tools.contains(short) {
            let message =
                format!("the tool `{}` of `{}` is not trusted yet", ghost_domain::text::clip(tool, 80), toolbox.name);
            let hint = format!("trust it with `ghostctl toolbox trust {} {short}`, or correct the name", toolbox.name);
            file.warn(*line, "Toolbox", message, hint);
            full.insert(format!("{}.{short}", toolbox.name));
        } else if !toolbox.tools.contains(short) {
            let message =
                format!("there is no tool `{}` in toolbox `{}`", ghost_domain::text::clip(tool, 80), toolbox.name);
            let otherwise = "its manifest lists its tools under `tools`";
            let hint = crate::report::did_you_mean(short, toolbox.tools.iter().map(String::as_str), otherwise);
            file.error(*line, "Toolbox", message, hint);
        } else if !toolbox.allowed.contains(short) {
            let reason = format!("the world does not allow `{short}` of toolbox `{}`", toolbox.name);
            let hint = "add it to that toolbox's `allow` in the world file";
            file.warn(*line, "Toolbox", format!("{reason}; its agents will not start"), hint);
            refused = Some(reason);
        } else {
            full.insert(format!("{}.{short}", toolbox.name));
        }
    }
    refused.map_or(Ok(full), Err)
}
