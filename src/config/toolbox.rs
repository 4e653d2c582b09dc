//! Reads toolbox manifests to learn which tools exist (WORLD-07, TBX-01, TBX-03). Nothing loads the tools of toolboxes yet.
//!
//! A program that a manifest names must never be run.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use ghost_domain::tool_catalogue;

use crate::files::{is_plain_relative, read_text};
use crate::reader::{is_name, no_such};
use crate::report::{FileReport, Report};
use crate::substitute::Env;
use crate::world_file::ToolboxEntry;
use crate::yaml::{self, Bounds, Node, Value};

/// First parts of built-in tool names. A toolbox with such a name could be mistaken for built-in
/// tools.
const RESERVED: [&str; 7] = ["channel", "group", "memory", "syscall", "tool", "util", "workspace"];

/// Maximum problems of a skill's manifest that are reported.
const UNTRUSTED_PROBLEMS: usize = 20;

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
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Toolbox {
    /// The name of the toolbox: the first part of its tools' names.
    pub name: String,
    /// Short names of its tools.
    pub tools: BTreeSet<String>,
    /// Short names of the tools that the world allows.
    pub allowed: BTreeSet<String>,
    /// Directory of the toolbox, if the manifest exists.
    pub dir: Option<PathBuf>,
}

/// The normal form of `source`, so that `./a` and `a` are equal.
pub fn normal_source(source: &str) -> String {
    source.split('/').filter(|part| !part.is_empty() && *part != ".").collect::<Vec<_>>().join("/")
}

/// Reads the manifests of the toolboxes that the world lists. The result is keyed by source.
pub fn toolboxes(
    entries: &[ToolboxEntry<'_>],
    bases: &Bases,
    report: &Report,
    env: Env<'_>,
) -> BTreeMap<String, Toolbox> {
    let mut found: BTreeMap<String, Toolbox> = BTreeMap::new();
    for entry in entries {
        let (field, source) = &entry.source;
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
        let (name, tools, dir) = match bases.find(&key) {
            Some((base, path)) => {
                let Some((name, tools)) = manifest(&path, base, report, env) else { continue };
                (name, tools, path.parent().map(Path::to_owned))
            }
            None => {
                field.warn(
                    "there is no such file: its tools will be absent",
                    "the path starts at the world's directory or up to two levels above it",
                );
                let allowed = entry.allow.iter().flatten().map(|(_, tool)| (*tool).to_owned()).collect();
                (directory_name.unwrap_or("toolbox").to_owned(), allowed, None)
            }
        };
        let mut allowed = tools.clone();
        if let Some(list) = &entry.allow {
            for (field, _) in list.iter().filter(|(_, tool)| !tools.contains(*tool)) {
                let what = format!("tool in toolbox `{name}` called");
                no_such(field, &what, tools.iter().map(String::as_str), "the manifest lists its tools under `tools`");
            }
            allowed = list.iter().map(|(_, tool)| (*tool).to_owned()).filter(|tool| tools.contains(tool)).collect();
        }
        if found.values().any(|other| other.name == name) {
            field.error(format!("another toolbox is called `{name}` too"), "rename one of them");
            continue;
        }
        found.insert(key, Toolbox { name, tools, allowed, dir });
    }
    found
}

/// Reads the name and the tools of the manifest at `path`. All other keys are ignored.
pub(crate) fn manifest(path: &Path, root: &Path, report: &Report, env: Env<'_>) -> Option<(String, BTreeSet<String>)> {
    let file = report.file(path);
    let text = read_text(path, root, yaml::FILE_MAX as u64, &file)?;
    let node = yaml::parse(&text, &file, env)?;
    tools_of(&node, &file)
}

/// Reads the manifest of a skill, which may have been fetched from elsewhere: every problem is a warning, and `$` has no
/// meaning, so that no value of the environment gets into it.
pub(crate) fn untrusted_manifest(path: &Path, root: &Path, report: &Report) -> Option<(String, BTreeSet<String>)> {
    let own = Report::default();
    let file = own.file(path);
    let tools = read_text(path, root, yaml::FILE_MAX as u64, &file)
        .and_then(|text| yaml::parse_within(&text, &file, None, Bounds::CONFIGURATION))
        .and_then(|node| tools_of(&node, &file));
    let problems = own.finish().0;
    let more = problems.len().saturating_sub(UNTRUSTED_PROBLEMS);
    let file = report.file(path);
    for problem in problems.into_iter().take(UNTRUSTED_PROBLEMS) {
        file.warn(problem.line, &problem.field, problem.message, problem.hint);
    }
    if more > 0 {
        file.warn(0, "", format!("{more} more problems are not shown"), "correct those above first");
    }
    tools
}

/// The name and the tools of a parsed manifest.
fn tools_of(node: &Node, file: &FileReport<'_>) -> Option<(String, BTreeSet<String>)> {
    let Some(name) = node.get("name").and_then(Node::text) else {
        file.error(node.line, "name", "the toolbox has no name", "for example `name: devtools`");
        return None;
    };
    let name_line = node.get("name").map_or(node.line, |node| node.line);
    if !is_lower_name(name) || name.contains('.') || RESERVED.contains(&name) {
        let hint = format!("use lower-case letters, digits, `_` and `-`; not one of: {}", RESERVED.join(", "));
        file.error(name_line, "name", "the toolbox cannot have this name", hint);
        return None;
    }
    let mut tools = BTreeSet::new();
    let list = match node.get("tools") {
        Some(Node { value: Value::List(list), .. }) => list.as_slice(),
        None => &[],
        Some(other) => {
            file.error(other.line, "tools", "`tools` is not a list", "for example [{ name: repo-git }]");
            &[]
        }
    };
    for (at, tool) in list.iter().enumerate() {
        let path = format!("tools[{at}].name");
        match tool.get("name").and_then(Node::text) {
            Some(short) if is_lower_name(short) && tool_catalogue::expand(&format!("{name}.{short}")).is_empty() => {
                if !tools.insert(short.to_owned()) {
                    file.error(tool.line, &path, "another tool has this name", "rename one of them");
                }
            }
            Some(_) => {
                let hint = "use lower-case letters, digits, `.`, `_` and `-`";
                file.error(tool.line, &path, "a tool cannot have this name", hint);
            }
            None => file.error(tool.line, &path, "the tool has no name", "for example { name: repo-git }"),
        }
    }
    Some((name.to_owned(), tools))
}

fn is_lower_name(name: &str) -> bool {
    is_name(name) && name == name.to_ascii_lowercase() && !name.contains("__")
}

/// Checks an archetype's reference to a toolbox. If the world does not list the source or does not
/// allow the tool, the archetype's agents do not start, but the world does (WORLD-07).
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
    let mut full = BTreeSet::new();
    let mut refused = None;
    for (line, tool) in wanted {
        let short = tool.strip_prefix(&format!("{}.", toolbox.name)).unwrap_or(tool);
        if !toolbox.tools.contains(short) {
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
