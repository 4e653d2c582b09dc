//! Where a world's files lie, and how messages name them.
//!
//! Must never: leave the world's directory.

use std::path::{Path, PathBuf};

use crate::files::{MARKDOWN_MAX, read_text};
use crate::load::WORLD_FILE;
use crate::near_names::{self, Wanted};
use crate::reader::is_name;
use crate::report::{FileReport, Report};
use crate::world_file::WorldFile;

/// The markdown files that a world's directory may hold.
const MARKDOWN: [&str; 2] = ["laws.md", "tools.md"];

/// A world's directory and its own file.
pub struct Place {
    /// The directory as it is named in messages.
    pub shown: PathBuf,
    /// The directory, canonical.
    pub dir: PathBuf,
    /// The world file, within `dir`.
    pub file: PathBuf,
    /// The world file as it is named in messages.
    pub shown_file: PathBuf,
}

/// The directory of the world at `path`, its directory or its world file, as messages name it.
#[must_use]
pub fn shown_dir(path: &Path) -> PathBuf {
    if path.is_file() {
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        parent.unwrap_or(Path::new(".")).to_owned()
    } else {
        path.to_owned()
    }
}

impl Place {
    /// The place of the world at `path`; what keeps it from being one goes into `report`.
    pub fn of(path: &Path, report: &Report) -> Option<Self> {
        let file = report.file(path);
        let shown = shown_dir(path);
        let dir = match shown.canonicalize() {
            Ok(dir) if dir.is_dir() => dir,
            Ok(_) => {
                file.error(0, "", "this is neither a world's directory nor its world file", None);
                return None;
            }
            Err(error) => {
                let hint = "name a directory that holds world-config.yaml; `ghostd init DIR` makes one".to_owned();
                file.error(0, "", format!("the world cannot be read: {error}"), Some(hint));
                return None;
            }
        };
        let name = if path.is_file() { path.file_name().map(PathBuf::from)? } else { PathBuf::from(WORLD_FILE) };
        let shown_file = shown.join(&name);
        if !dir.join(&name).exists() {
            let hint = "`ghostd init DIR` makes a world to start from".to_owned();
            report.file(&shown_file).error(0, "", "the world file is missing", Some(hint));
            return None;
        }
        Some(Self { file: dir.join(name), shown, dir, shown_file })
    }

    /// The texts of `laws.md` and `tools.md`; empty where there is none. Files that were meant to be one of them are
    /// reported.
    pub fn markdowns(&self, report: &Report) -> (String, String) {
        let names = near_names::names_in(&self.dir);
        let at = |name: &str| report.file(self.shown.join(name));
        near_names::report(names.iter().map(String::as_str), &MARKDOWN, Wanted::World, &at);
        let [laws, tools] = MARKDOWN.map(|name| self.markdown(name, report));
        (laws, tools)
    }

    fn markdown(&self, name: &str, report: &Report) -> String {
        let path = self.dir.join(name);
        let read = || read_text(&path, &self.dir, MARKDOWN_MAX, &report.file(self.shown.join(name)));
        // A dangling link is a mistake, not an absent file, so links are not followed to see whether it is there.
        if path.symlink_metadata().is_ok() { read().unwrap_or_default() } else { String::new() }
    }

    /// The world's id and its name.
    pub fn identity(&self, world: &WorldFile<'_>, file: &FileReport<'_>) -> Option<(String, String)> {
        let from_dir =
            || self.dir.file_name().and_then(|name| name.to_str()).filter(|name| is_name(name)).map(str::to_owned);
        let Some(id) = world.id.clone().or_else(from_dir) else {
            let hint = "write `world: { id: my-world }`".to_owned();
            file.error(0, "world.id", "the world has no id, and its directory's name cannot be one", Some(hint));
            return None;
        };
        Some((id.clone(), world.name.clone().unwrap_or(id)))
    }
}
