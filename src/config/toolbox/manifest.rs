//! Reads the manifest of a toolbox.
//!
//! A program that a manifest names must never be run here. A manifest that came with a skill must never get a value of
//! the daemon's environment, reach another machine, or stop a world.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::command_tool::{Files, command_tool};
use super::idempotency;
use super::mcp::mcp;
use super::names::{RESERVED, is_lower_name};
use crate::files::{is_plain_relative, read_text};
use crate::kinds::{TEXT_MAX, Variable};
use crate::plan::RemotePlan;
use crate::plan::toolbox::{CommandTool, ToolboxKind, ToolboxPlan, ToolboxRuntime};
use crate::reader::{Field, Map};
use crate::report::{FileReport, Report};
use crate::substitute::Env;
use crate::typed::read_as;
use crate::world_file::commands::Server;
use crate::yaml::{self, Bounds};

/// Maximum problems of a skill's manifest that are reported.
const UNTRUSTED_PROBLEMS: usize = 20;
/// Variables that a manifest may not set: the sandbox or ghostd does.
const OWN_VARIABLES: [&str; 3] = ["AGENT_WORKSPACE", "AGENT_ID", "WORLD_ID"];

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
        // What is wrong was reported, so this is read without a word.
        Some(node) => declared(&Field::root(&node, &Report::default().file(path))),
        None => (None, BTreeSet::new()),
    };
    Manifest { plan, is_broken, name, tools }
}

/// The name of a toolbox and those of its tools, whatever else is wrong with them.
fn declared(root: &Field<'_>) -> (Option<String>, BTreeSet<String>) {
    let Some(map) = root.map() else { return (None, BTreeSet::new()) };
    let text = |map: &Map<'_>| map.get("name").and_then(|field| field.text(1_024).map(str::to_owned));
    let tools = map.get("tools").map(|field| field.list()).unwrap_or_default();
    (text(&map), tools.iter().filter_map(|tool| tool.map()).filter_map(|tool| text(&tool)).collect())
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
    let map = root.map()?;
    let name = name(&map);
    if let Some(field) = map.get("version")
        && field.count(1..=1).is_none()
    {
        field.warn("this version of the format is not known", "write `version: 1`");
    }
    let description = map.get("description").and_then(|field| field.string(TEXT_MAX)).unwrap_or_default();
    let dir = path.parent()?.canonicalize().ok()?;
    let env = env(&map);
    let passthrough = map.get("passthrough_env").map(|field| (field.list(), field));
    let mut passthrough_env: Vec<String> = Vec::new();
    if let Some((items, field)) = passthrough {
        match skill {
            Some(_) => field.error("the tools of a skill get no variable of the daemon", "remove it"),
            None => passthrough_env = items.iter().filter_map(|item| Some(read_as::<Variable>(item)?.0)).collect(),
        }
    }
    let is_mcp = map.get("kind").and_then(|field| field.choice(&["commands", "mcp"])) == Some("mcp");
    let kind = match (is_mcp, &name) {
        (true, _) if skill.is_some() => {
            map.field()
                .error("a skill cannot bring an MCP server", "list the server under `toolboxes` of the world file");
            None
        }
        (true, _) => mcp(&map, &dir, file).map(ToolboxKind::Mcp),
        (false, name) => commands(&map, name.as_deref().unwrap_or("toolbox"), &dir, skill),
    };
    map.finish(&[("command", "write it for each tool under `tools`, or under `server` with `kind: mcp`")]);
    Some(ToolboxPlan {
        name: name?,
        source: source.to_owned(),
        description: description.to_owned(),
        skill: skill.map(str::to_owned),
        dir,
        env,
        passthrough_env,
        kind: kind?,
        allowed: None,
    })
}

fn name(map: &Map<'_>) -> Option<String> {
    let field = map.need("name", "devtools")?;
    let name = field.text(1_024)?;
    if !is_lower_name(name) || name.contains('.') || RESERVED.contains(&name) {
        let hint = format!("use lower-case letters, digits, `_` and `-`; not one of: {}", RESERVED.join(", "));
        field.error("the toolbox cannot have this name", hint);
        return None;
    }
    Some(name.to_owned())
}

fn env(map: &Map<'_>) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for (key, field) in map.get("env").map(|field| field.entries()).unwrap_or_default() {
        let is_name = key.text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
            && !key.text.starts_with(|c: char| c.is_ascii_digit())
            && !key.text.is_empty();
        if !is_name || OWN_VARIABLES.contains(&key.text.as_str()) {
            field.error("a variable cannot have this name", "use letters, digits and `_`; some names are Ghost's own");
        } else if let Some(text) = field.string(TEXT_MAX) {
            found.insert(key.text.clone(), text.to_owned());
        }
    }
    found
}

fn commands(map: &Map<'_>, toolbox: &str, dir: &Path, skill: Option<&str>) -> Option<ToolboxKind> {
    let runtime = match map.get("runtime") {
        Some(field) if skill.is_some() && !field.is_null() => {
            field.error("the tools of a skill run in the world's sandbox", "remove it");
            Some(ToolboxRuntime::Sandbox)
        }
        Some(field) => runtime(&field),
        None => Some(ToolboxRuntime::Sandbox),
    };
    let bin_dir = map.get("bin_dir").and_then(|field| bin_dir(&field, dir));
    let are_there = !matches!(runtime, Some(ToolboxRuntime::Remote(_)));
    let files = Files { dir, bin_dir, are_there };
    let mut tools: Vec<(Field<'_>, CommandTool)> = Vec::new();
    let mut names = BTreeSet::new();
    for item in map.get("tools").map(|field| field.list()).unwrap_or_default() {
        let Some(tool) = command_tool(&item, toolbox, &files) else { continue };
        if names.insert(tool.name.clone()) {
            tools.push((item, tool));
        } else {
            item.error("another tool has this name", "rename one of them");
        }
    }
    idempotency::check(&tools);
    Some(ToolboxKind::Commands { runtime: runtime?, tools: tools.into_iter().map(|(_, tool)| tool).collect() })
}

fn runtime(field: &Field<'_>) -> Option<ToolboxRuntime> {
    let map = field.map_of("{ kind: sandbox }")?;
    let kind = map.get("kind").and_then(|field| match field.written() {
        // The world decides which sandbox that is.
        "local" | "docker" => {
            field.error(
                "a toolbox does not choose the sandbox",
                "write `kind: sandbox`; `sandbox.kind` of the world file chooses",
            );
            None
        }
        _ => field.choice(&["remote", "sandbox"]),
    });
    let found = match kind {
        Some("remote") => {
            let url = map
                .need("url", "https://toolbox.example:9090")
                .and_then(|field| read_as::<Server>(&field).map(|url| url.0));
            let token_env = map
                .need("token_env", "GHOST_TOOLBOX_TOKEN")
                .and_then(|field| read_as::<Variable>(&field).map(|name| name.0));
            let ca_file = map.get("ca_file").and_then(|field| field.text(1_024)).map(PathBuf::from);
            url.zip(token_env).map(|(url, token_env)| ToolboxRuntime::Remote(RemotePlan { url, token_env, ca_file }))
        }
        Some(_) => Some(ToolboxRuntime::Sandbox),
        None => None,
    };
    map.finish(&[("endpoint", "write `url`"), ("image", "the sandbox of the world has the image")]);
    found
}

fn bin_dir(field: &Field<'_>, dir: &Path) -> Option<PathBuf> {
    let text = field.text(1_024)?;
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
