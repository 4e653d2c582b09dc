//! Reads toolbox manifests and skill folders to learn which tool and skill names exist (WORLD-07,
//! TBX-01, TBX-03, SKILL-02, SKILL-07). Nothing loads the tools of toolboxes yet.
//!
//! A program that a manifest names must never be run.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use ghost_domain::tool_catalogue;

use crate::extra_tools::ExtraTools;
use crate::files::{MARKDOWN_MAX, directory_within, first_line, is_plain_relative, names_in, read_text};
use crate::near_names;
use crate::reader::{is_free, is_name, no_such};
use crate::report::{FileReport, Report};
use crate::substitute::Env;
use crate::world_file::ToolboxEntry;
use crate::yaml::{self, Node, Value};

/// First parts of built-in tool names. A toolbox with such a name could be mistaken for built-in
/// tools.
const RESERVED: [&str; 7] = ["channel", "group", "memory", "syscall", "tool", "util", "workspace"];

/// The largest number of skills in one root.
const SKILLS_MAX: usize = 1_000;

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
    fn find(&self, relative: &str) -> Option<(&Path, PathBuf)> {
        self.0.iter().map(|base| (base.as_path(), base.join(relative))).find(|(_, path)| path.exists())
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
fn manifest(path: &Path, root: &Path, report: &Report, env: Env<'_>) -> Option<(String, BTreeSet<String>)> {
    let file = report.file(path);
    let text = read_text(path, root, yaml::FILE_MAX as u64, &file)?;
    let node = yaml::parse(&text, &file, env)?;
    tools_of(&node, &file)
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

/// The skill folders of a world and the names of their skills.
#[derive(Clone, Debug, Default)]
pub struct Skills {
    /// The folders, lowest precedence first.
    pub roots: Vec<PathBuf>,
    /// The names of all skills.
    pub names: BTreeSet<String>,
}

/// Finds skills: in the roots that the world names, or else beside each listed toolbox. The world's
/// own `skills/` comes last and takes precedence. Tools of toolboxes that skills declare are added
/// to `extra`.
pub fn skills(
    named: Option<&[crate::world_file::Named<'_>]>,
    toolboxes: &BTreeMap<String, Toolbox>,
    bases: &Bases,
    extra: &mut ExtraTools,
    (report, env): (&Report, Env<'_>),
) -> Skills {
    let mut skills = Skills::default();
    let mut roots: Vec<(PathBuf, PathBuf)> = Vec::new();
    match named {
        Some(list) => {
            for (field, root) in list {
                let found = is_plain_relative(root).then(|| bases.find(root)).flatten();
                match found.and_then(|(base, path)| directory_within(&path, base).map(|dir| (base.to_owned(), dir))) {
                    Some(pair) => roots.push(pair),
                    None if !is_plain_relative(root) => field.error(
                        format!("`{}` is not relative, or holds `..`", field.shown()),
                        "the path starts at the world's directory or up to two levels above it, such as toolbox/core/skills",
                    ),
                    None => {
                        let near = bases.0.iter().find_map(|base| near_names::misspelt(base, root));
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
            let dirs = toolboxes.values().filter_map(|toolbox| toolbox.dir.as_ref());
            roots.extend(dirs.filter_map(|dir| Some((dir.clone(), directory_within(&dir.join("skills"), dir)?))));
        }
    }
    if let Some(world) = bases.0.first()
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
    if let Some(world) = bases.0.first()
        && let Some(own) = directory_within(&world.join("skills"), world)
        && roots.iter().all(|(_, root)| *root != own)
    {
        roots.push((world.clone(), own));
    }
    for (base, root) in roots {
        let names = names_in(&root, &report.file(&root));
        if names.len() > SKILLS_MAX {
            let message = format!("the directory has more than {SKILLS_MAX} skills");
            report.file(&root).error(0, "", message, "move unused ones elsewhere");
        }
        for name in names.into_iter().take(SKILLS_MAX).filter(|name| !name.starts_with('.')) {
            let document = root.join(&name).join("SKILL.md");
            if document.is_file() {
                skills.names.insert(skill(&name, &document, &base, extra, (report, env)));
            }
        }
        skills.roots.push(root);
    }
    skills
}

/// Returns the name of one skill. If it declares a toolbox (`metadata.ghost.toolbox`), the tools
/// are added to `extra`.
fn skill(
    folder: &str,
    document: &Path,
    base: &Path,
    extra: &mut ExtraTools,
    (report, env): (&Report, Env<'_>),
) -> String {
    let file = report.file(document);
    let Some(text) = read_text(document, base, MARKDOWN_MAX * 4, &file) else { return folder.to_owned() };
    let Some(matter) = frontmatter(&text) else {
        let (line, message) = match text.starts_with("---") {
            true => (1, "the frontmatter begins with `---` and has no end; agents do not get this skill"),
            false => (1, "there is no frontmatter; the skill is known by its folder's name"),
        };
        file.warn(line, "", message, "write `name` and `description` between two lines `---`");
        return folder.to_owned();
    };
    // Skills come from many authors. Errors in a skill's frontmatter become warnings, so that they
    // do not keep the world from starting.
    let quiet = Report::default();
    let Some(node) = yaml::parse(matter, &quiet.file(document), env) else {
        let message = "the frontmatter cannot be read; the skill is known by its folder's name";
        let (line, hint) = match quiet.finish().0.into_iter().next() {
            Some(problem) => (problem.line, format!("{}: {}", problem.message, problem.hint)),
            None => (0, "check its YAML".to_owned()),
        };
        file.warn(line + 1, "", message, hint);
        return folder.to_owned();
    };
    check_frontmatter(&node, &file);
    let declared = node.get("metadata").and_then(|node| node.get("ghost")).and_then(|node| node.get("toolbox"));
    if let Some(source) = declared.and_then(Node::text) {
        let path = document.parent().map(|dir| dir.join(source)).filter(|_| is_plain_relative(source));
        match path.filter(|path| path.exists()) {
            Some(path) => {
                if let Some((name, tools)) = manifest(&path, base, report, env) {
                    tools.iter().for_each(|tool| extra.insert(&name, tool));
                }
            }
            None => {
                let message = "there is no such file: its tools will be absent";
                let hint = "name a manifest in the skill's own directory, such as toolbox.yaml";
                file.warn(1, "metadata.ghost.toolbox", message, hint);
            }
        }
    }
    let name = node.get("name").and_then(Node::text).filter(|name| is_name(name));
    name.unwrap_or(folder).to_owned()
}

/// Keys of a skill's frontmatter: those that Ghost reads, and those of the common skill format.
const SKILL_KEYS: [&str; 7] =
    ["name", "description", "disable-model-invocation", "metadata", "license", "compatibility", "allowed-tools"];

/// Warns about missing and unknown keys of a frontmatter. The frontmatter begins on the second line
/// of the file.
fn check_frontmatter(node: &Node, file: &FileReport<'_>) {
    let Value::Map(pairs) = &node.value else {
        let hint = "write `name:` and `description:`, each on a line";
        file.warn(2, "", "the frontmatter has no keys; the skill is known by its folder's name", hint);
        return;
    };
    for (key, value) in pairs {
        let (line, word) = (key.line + 1, key.text.as_str());
        if !SKILL_KEYS.contains(&word) && !is_free(word) {
            let shown = ghost_domain::text::clip(word, 60);
            let near = ghost_domain::text::nearest(word, SKILL_KEYS).map(|near| format!("did you mean `{near}`?"));
            let hint = near.unwrap_or_else(|| "put keys of your own under `metadata`".to_owned());
            file.warn(line, &shown, format!("nothing reads `{shown}`"), hint);
        } else if word == "name" && !value.text().is_some_and(is_name) {
            let hint = "use 1 to 64 letters, digits, `.`, `_` and `-`, starting with a letter or a digit";
            file.warn(line, word, "this is not a name for a skill", hint);
        } else if word == "description" && value.text().is_none_or(|text| text.trim().is_empty()) {
            file.warn(line, word, "the description is not text", "say when the skill is of use");
        }
    }
    for (word, hint) in [
        ("name", "without one, the skill is known by its folder's name"),
        ("description", "agents choose skills by it: say when this one is of use"),
    ] {
        if node.get(word).is_none() {
            file.warn(1, word, format!("`{word}` is missing"), hint);
        }
    }
}

/// The text between the first two `---` lines.
fn frontmatter(text: &str) -> Option<&str> {
    let rest = text.strip_prefix("---")?.trim_start_matches('\r').strip_prefix('\n')?;
    rest.find("\n---").map(|end| &rest[..=end])
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
