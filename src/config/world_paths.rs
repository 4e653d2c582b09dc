//! Finds a world's files, and the names of these files in messages.
//!
//! A path must never leave the world's directory.

use std::path::{Path, PathBuf};

use crate::files::{ARCHETYPES, MARKDOWN_MAX, WORLD_FILE, read_text};
use crate::near_names;
use crate::reader::{Field, is_name};
use crate::report::{FileReport, Report};
use crate::snippets::{SNIPPETS, expanded};
use crate::world_file::WorldFile;

/// The markdown files that a world's directory may contain.
const MARKDOWN: [&str; 2] = ["laws.md", "tools.md"];

/// The paths of a world's directory and its world file.
pub struct WorldPaths {
    /// The directory as messages name it.
    pub shown: PathBuf,
    /// The directory, canonical.
    pub dir: PathBuf,
    /// `world-config.yaml`, within `dir`.
    pub file: PathBuf,
    /// The world file as messages name it.
    pub shown_file: PathBuf,
    /// Whether the world file exists. A missing file was reported.
    pub exists: bool,
}

/// The directory of the world at `path`, as messages name it. `path` is the directory or the world
/// file.
#[must_use]
pub fn shown_dir(path: &Path) -> PathBuf {
    if path.is_file() {
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        parent.unwrap_or(Path::new(".")).to_owned()
    } else {
        path.to_owned()
    }
}

impl WorldPaths {
    /// The paths of the world at `path`. Reports the reason if there is no world.
    pub fn of(path: &Path, report: &Report) -> Option<Self> {
        let file = report.file(path);
        let shown = shown_dir(path);
        let dir = match shown.canonicalize() {
            Ok(dir) if dir.is_dir() => dir,
            Ok(_) => {
                let message = "this is neither a world's directory nor its world file";
                file.error(0, "", message, "name a directory that holds world-config.yaml");
                return None;
            }
            Err(error) => {
                let hint = "name a directory that holds world-config.yaml; `ghostd init DIR` makes one";
                file.error(0, "", format!("the world cannot be read: {error}"), hint);
                return None;
            }
        };
        let name = if path.is_file() { path.file_name().map(PathBuf::from)? } else { PathBuf::from(WORLD_FILE) };
        let shown_file = shown.join(&name);
        let exists = dir.join(&name).symlink_metadata().is_ok();
        if !exists {
            let hint = match near_names::misspelt(&dir, WORLD_FILE) {
                Some(near) => format!("did you mean `{near}`? Rename it to `{WORLD_FILE}`"),
                None => "`ghostd init DIR` makes a world to start from".to_owned(),
            };
            report.file(&shown_file).error(0, "", "the world file is missing", hint);
            // If there are no archetypes either, this is not a world, so report nothing else.
            if !dir.join(ARCHETYPES).is_dir() {
                return None;
            }
        }
        Some(Self { file: dir.join(name), shown, dir, shown_file, exists })
    }

    /// The texts of `laws.md` and `tools.md`; empty if absent. Also reports misspelt names of files
    /// and directories.
    pub fn markdowns(&self, report: &Report) -> (String, String) {
        // The command line may name a world file with another name.
        let file = self.file.file_name().and_then(|name| name.to_str()).unwrap_or(WORLD_FILE);
        let known = [WORLD_FILE, ARCHETYPES, MARKDOWN[0], MARKDOWN[1], "knowledge", "skills", SNIPPETS];
        near_names::report(&self.dir, &self.shown, &known, &[file], report);
        let [laws, tools] = MARKDOWN.map(|name| self.markdown(name, report));
        (laws, tools)
    }

    fn markdown(&self, name: &str, report: &Report) -> String {
        let path = self.dir.join(name);
        let read = || {
            let file = report.file(self.shown.join(name));
            read_text(&path, &self.dir, MARKDOWN_MAX, &file).map(|text| expanded(text, &self.dir, &file))
        };
        // A dangling link is a mistake, not an absent file. So the check does not follow links.
        if path.symlink_metadata().is_ok() { read().unwrap_or_default() } else { String::new() }
    }

    /// The world's id and its name.
    pub fn identity(&self, world: &WorldFile<'_>, root: &Field<'_>, file: &FileReport<'_>) -> Option<(String, String)> {
        let from_dir =
            || self.dir.file_name().and_then(|name| name.to_str()).filter(|name| is_name(name)).map(str::to_owned);
        let Some(id) = world.world.id.as_ref().map(|id| id.0.clone()).or_else(from_dir) else {
            let line = root.get("world").map_or(1, |field| field.line());
            let hint = "write `world: { id: my-world }`";
            file.error(line, "world.id", "the world has no id, and its directory's name cannot be one", hint);
            return None;
        };
        Some((id.clone(), world.world.name.as_ref().map(|name| name.0.clone()).unwrap_or(id)))
    }
}
