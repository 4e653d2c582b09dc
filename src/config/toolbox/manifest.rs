//! Reads the manifest of a toolbox.
//!
//! A program that a manifest names must never be run here. A manifest that came with a skill must never get a value of
//! the daemon's environment, reach another machine, or stop a world.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::command_tool::{Files, command_tool};
use super::idempotency;
use super::mcp::mcp;
use super::sections::{HINTS, Kind, ManifestSection, RuntimeSection};
use crate::files::{is_plain_relative, read_text};
use crate::kinds::Count;
use crate::node::Node;
use crate::plan::RemotePlan;
use crate::plan::toolbox::{CommandTool, ToolboxKind, ToolboxPlan, ToolboxRuntime};
use crate::reader::Field;
use crate::report::{FileReport, Report};
use crate::substitute::Env;
use crate::typed::{self, Read, Spanned, read_as};
use crate::yaml::{self, Bounds};

/// Maximum problems of a skill's manifest that are reported.
const UNTRUSTED_PROBLEMS: usize = 20;
/// A manifest that the world file names.
#[derive(Debug, Default)]
pub(super) struct Manifest {
    /// The toolbox; `None` if an error leaves none.
    pub(super) plan: Option<ToolboxPlan>,
    /// Whether an error was reported.
    pub(super) is_broken: bool,
    /// The name of a broken toolbox, as far as it is there.
    pub(super) name: Option<String>,
    /// The names of the tools of a broken toolbox, also of those with an error.
    pub(super) tools: BTreeSet<String>,
}

/// Reads the manifest at `path`, which the world file names as `source`.
pub(super) fn manifest(path: &Path, root: &Path, source: &str, report: &Report, env: Env<'_>) -> Manifest {
    let file = report.file(path);
    let before = report.errors();
    let node = read_text(path, root, yaml::FILE_MAX as u64, &file).and_then(|text| yaml::parse(&text, &file, env));
    let plan = node.as_ref().and_then(|node| toolbox(&Field::root(node, &file), path, source, None, &file));
    let is_broken = plan.is_none() || report.errors() > before;
    let (name, tools) = match node.filter(|_| is_broken) {
        Some(node) => declared(&node),
        None => (None, BTreeSet::new()),
    };
    Manifest { plan, is_broken, name, tools }
}

/// The name of a toolbox and those of its tools, whatever else is wrong with them.
fn declared(root: &Node) -> (Option<String>, BTreeSet<String>) {
    let name = |node: &Node| node.get("name").and_then(|name| name.text()).map(str::to_owned);
    let tools = root.get("tools").map(Node::items).unwrap_or_default();
    (name(root), tools.iter().filter_map(name).collect())
}

/// Reads the manifest of a skill, which may have been fetched from elsewhere: every problem is a warning, and `$` has no
/// meaning, so that no value of the environment gets into it.
pub(crate) fn untrusted_manifest(path: &Path, root: &Path, skill: &str, report: &Report) -> Option<ToolboxPlan> {
    let own = Report::default();
    let file = own.file(path);
    let plan = read_text(path, root, yaml::FILE_MAX as u64, &file)
        .and_then(|text| yaml::parse_within(&text, &file, None, Bounds::CONFIGURATION))
        .and_then(|node| toolbox(&Field::root(&node, &file), path, skill, Some(skill), &file))
        .filter(|plan| {
            // Commands see the whole directory of their toolbox. A link on the way to it could name any.
            let is_within = plan.dir.starts_with(root);
            if !is_within {
                file.error(1, "", "its directory is a symbolic link that leaves the skill's", "copy it into the skill");
            }
            is_within
        });
    let problems = own.finish().0;
    let more = problems.len().saturating_sub(UNTRUSTED_PROBLEMS);
    let file = report.file(path);
    for problem in problems.into_iter().take(UNTRUSTED_PROBLEMS) {
        file.warn(problem.line, &problem.field, problem.message, problem.hint);
    }
    if more > 0 {
        file.warn(0, "", format!("{more} more problems are not shown"), "correct those above first");
    }
    plan
}

fn toolbox(
    root: &Field<'_>,
    path: &Path,
    source: &str,
    skill: Option<&str>,
    file: &FileReport<'_>,
) -> Option<ToolboxPlan> {
    let manifest: Read<'_, ManifestSection> = typed::read(root, &HINTS)?;
    let is_mcp = manifest.kind == Kind::Mcp;
    without_effect(root, is_mcp);
    if let Some(version) = &manifest.version
        && read_as::<Count<1, 1>>(manifest.at(version)).is_none()
    {
        manifest.at(version).warn("this version of the format is not known", "write `version: 1`");
    }
    let dir = path.parent()?.canonicalize().ok()?;
    let passthrough = manifest.passthrough_env.as_ref();
    if let Some(field) = passthrough.filter(|_| skill.is_some()) {
        manifest.at(field).error("the tools of a skill get no variable of the daemon", "remove it");
    }
    let passthrough_env = passthrough.filter(|_| skill.is_none()).into_iter().flat_map(|names| &names.value);
    let name = manifest.name.as_ref().map(|name| name.0.clone());
    let kind = match (is_mcp, &name) {
        (true, _) if skill.is_some() => {
            root.error("a skill cannot bring an MCP server", "list the server under `toolboxes` of the world file");
            None
        }
        (true, _) => mcp(&manifest, root, &dir, file).map(ToolboxKind::Mcp),
        (false, name) => commands(&manifest, name.as_deref().unwrap_or("toolbox"), &dir, skill),
    };
    Some(ToolboxPlan {
        name: name?,
        source: source.to_owned(),
        description: manifest.description.as_ref().map(|text| text.0.clone()).unwrap_or_default(),
        skill: skill.map(str::to_owned),
        dir,
        env: manifest.env.iter().map(|(name, text)| (name.0.clone(), text.0.clone())).collect(),
        passthrough_env: passthrough_env.map(|name| name.0.clone()).collect(),
        kind: kind?,
        allowed: None,
    })
}

/// Reports the keys that only the other kind of toolbox has.
fn without_effect(root: &Field<'_>, is_mcp: bool) {
    let keys: &[&str] = match is_mcp {
        true => &["runtime", "bin_dir", "tools"],
        false => &["server", "timeout_seconds", "output_limit_bytes", "idempotency"],
    };
    let (kind, other) = if is_mcp { ("mcp", "commands") } else { ("commands", "mcp") };
    for field in keys.iter().filter_map(|key| root.get(key)) {
        let hint = format!("remove it, or write `kind: {other}`");
        field.error(format!("a toolbox of `kind: {kind}` has no such key"), hint);
    }
}

fn commands(
    manifest: &Read<'_, ManifestSection>,
    toolbox: &str,
    dir: &Path,
    skill: Option<&str>,
) -> Option<ToolboxKind> {
    let runtime = match &manifest.runtime {
        Some(section) if skill.is_some() && !manifest.at(section).is_null() => {
            manifest.at(section).error("the tools of a skill run in the world's sandbox", "remove it");
            Some(ToolboxRuntime::Sandbox)
        }
        Some(section) => runtime(manifest, section),
        None => Some(ToolboxRuntime::Sandbox),
    };
    let bin_dir = manifest.bin_dir.as_ref().and_then(|text| bin_dir(manifest.at(text), text, dir));
    let are_there = !matches!(runtime, Some(ToolboxRuntime::Remote(_)));
    let files = Files { dir, bin_dir, are_there };
    let mut tools: Vec<(&Field<'_>, CommandTool)> = Vec::new();
    let mut names = BTreeSet::new();
    for section in manifest.tools.iter().flat_map(|tools| &tools.value) {
        let Some(tool) = command_tool(manifest, section, toolbox, &files) else { continue };
        if names.insert(tool.name.clone()) {
            tools.push((manifest.at(section), tool));
        } else {
            manifest.at(section).error("another tool has this name", "rename one of them");
        }
    }
    idempotency::check(&tools);
    Some(ToolboxKind::Commands { runtime: runtime?, tools: tools.into_iter().map(|(_, tool)| tool).collect() })
}

fn runtime(manifest: &Read<'_, ManifestSection>, section: &Spanned<RuntimeSection>) -> Option<ToolboxRuntime> {
    let field = manifest.at(section);
    match section.kind.as_ref().map(|kind| kind.0) {
        Some(true) => {
            for (key, example) in [("url", "https://toolbox.example:9090"), ("token_env", "GHOST_TOOLBOX_TOKEN")] {
                if field.get(key).is_none() {
                    field.error(format!("`{key}` is missing"), format!("for example `{key}: {example}`"));
                }
            }
            let ca_file = section.ca_file.as_ref().map(|file| PathBuf::from(&file.0));
            let (url, token_env) = (section.url.as_ref()?.0.clone(), section.token_env.as_ref()?.0.clone());
            Some(ToolboxRuntime::Remote(RemotePlan { url, token_env, ca_file }))
        }
        // What the kind should be is unknown.
        None if field.get("kind").is_some() => None,
        Some(false) | None => {
            for field in ["url", "token_env", "ca_file"].into_iter().filter_map(|key| field.get(key)) {
                field.error("only a toolbox server has it", "write `kind: remote` beside it, or remove it");
            }
            Some(ToolboxRuntime::Sandbox)
        }
    }
}

fn bin_dir(field: &Field<'_>, text: &str, dir: &Path) -> Option<PathBuf> {
    if !is_plain_relative(text) {
        field.error("the path is not relative, or holds `..`", "name a directory of the toolbox, such as `bin`");
        return None;
    }
    match dir.join(text).canonicalize() {
        Ok(real) if real.starts_with(dir) && real.is_dir() => Some(PathBuf::from(text)),
        _ => {
            field.error("there is no such directory in the toolbox", "add it, or remove the key");
            None
        }
    }
}
