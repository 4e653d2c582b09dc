//! Looks at the git repositories that commands of a directory work in: whether their own configuration is plain, so that
//! git runs nothing but itself there.
//!
//! It must never take a repository for plain that it has not read whole. It looks at more repositories than git does: also
//! at those above the nearest one.

use std::collections::BTreeSet;
use std::io::ErrorKind;

use cap_std::fs::Dir;
use ghost_domain::text::clip;
use ghost_domain::write_acl::{in_repository, is_git_place};
use ghost_domain::{Code, WorkspacePath};
use ghost_operations::Result;
use ghost_policy::{Setting, foreign_setting};

use super::reading;
use super::system::join;

/// Bytes of a configuration file.
const CONFIG_BYTES: u64 = 256 * 1024;
/// Bytes of a file that holds one path.
const POINTER_BYTES: u64 = 8 * 1024;
/// Repositories of one look.
const REPOSITORIES_MAX: usize = 256;
/// Directories below each other in which submodules are looked for.
const MODULES_DEPTH: usize = 8;
/// Hooks that are named.
const HOOKS_MAX: usize = 16;
/// Files that decide what a directory is to git. A line that writes one could make a repository of it.
const DECIDE: [&str; 5] = ["HEAD", "config", "config.worktree", "commondir", ".gitmodules"];

/// What was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GitLook {
    /// The configuration files that git reads, relative to the workspace.
    pub files: Vec<String>,
    /// Why git may run something else there: the first reason that was found.
    pub foreign: Option<String>,
    /// The hooks that git would run if it ran any.
    pub hooks: Vec<String>,
}

/// The places of one line.
#[derive(Clone, Debug, Default)]
pub struct GitPlaces {
    /// For each command of git, the directories that it may work in. One that is not there is left out.
    pub dirs: Vec<Vec<String>>,
    /// Files that the line may write meanwhile.
    pub written: Vec<String>,
    /// Whether something else of the line could make a directory that is not there yet.
    pub may_make: bool,
    /// The path at which commands see the workspace.
    pub seen_at: String,
}

pub(super) fn look(root: &Dir, places: &GitPlaces) -> GitLook {
    let mut look = Look { root, places, levels: BTreeSet::new(), git_dirs: BTreeSet::new(), found: GitLook::default() };
    for dirs in &places.dirs {
        let mut is_there = false;
        for dir in dirs {
            is_there |= look.upwards(dir);
        }
        if !is_there && places.may_make {
            look.foreign(format!("`{}` is not there yet", dirs.first().map_or("", String::as_str)));
        }
    }
    for path in &places.written {
        look.written(path);
    }
    look.found
}

/// Refuses a file in a directory that git takes for a repository.
pub(super) fn check_outside(root: &Dir, path: &WorkspacePath) -> Result<()> {
    let mut above = path.as_str();
    while let Some((dir, _)) = above.rsplit_once('/') {
        if is_git_dir(root, dir) {
            return Err(in_repository(path));
        }
        above = dir;
    }
    Ok(())
}

/// Whether git takes a directory for the directory of a repository, or of a working copy that belongs to one.
fn is_git_dir(root: &Dir, dir: &str) -> bool {
    let has = |name: &str| root.symlink_metadata(join(dir, name)).is_ok();
    has("HEAD") && (has("commondir") || (has("objects") && has("refs")))
}

struct Look<'l> {
    root: &'l Dir,
    places: &'l GitPlaces,
    levels: BTreeSet<String>,
    git_dirs: BTreeSet<String>,
    found: GitLook,
}

impl Look<'_> {
    fn foreign(&mut self, why: String) {
        self.found.foreign.get_or_insert_with(|| clip(&why, 300));
    }

    /// The path without links and `..`; `None` if nothing is there.
    fn real(&mut self, path: &str) -> Option<String> {
        match self.root.canonicalize(if path.is_empty() { "." } else { path }) {
            Ok(real) => match real.to_str() {
                Some(".") => Some(String::new()),
                Some(real) => Some(real.trim_start_matches("./").to_owned()),
                None => {
                    self.foreign(format!("`{path}` has a name that is no text"));
                    None
                }
            },
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => None,
            Err(_) => {
                self.foreign(format!("`{path}` leads out of the workspace or cannot be read"));
                None
            }
        }
    }

    /// Looks at a directory and all above it. Returns whether it is there.
    fn upwards(&mut self, dir: &str) -> bool {
        let Some(real) = self.real(dir) else { return false };
        let mut at = real.as_str();
        while self.levels.insert(at.to_owned()) {
            self.level(at);
            match at.rsplit_once('/') {
                Some((above, _)) => at = above,
                None => at = "",
            }
        }
        true
    }

    fn level(&mut self, at: &str) {
        let git = join(at, ".git");
        match self.root.symlink_metadata(&git) {
            Ok(found) if found.is_dir() => self.git_dir(&git),
            Ok(found) if found.is_file() => {
                let target = self.pointer(&git);
                // A file without this word is none of git's; git ends there with an error.
                if let Some(target) = target.as_deref().and_then(|text| text.strip_prefix("gitdir: ")) {
                    self.follow(at, target);
                }
            }
            Ok(_) => self.foreign(format!("`{git}` is a link or something else that is no directory")),
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {}
            Err(_) => self.foreign(format!("`{git}` cannot be read")),
        }
        if is_git_dir(self.root, at) {
            self.git_dir(at);
        }
        self.settings(&join(at, ".gitmodules"));
    }

    fn has(&self, path: &str) -> bool {
        self.root.symlink_metadata(path).is_ok()
    }

    /// Looks at the directory that a file of git's names.
    fn follow(&mut self, at: &str, target: &str) {
        let inside = |target: &str| {
            let rest = target.strip_prefix(self.places.seen_at.as_str()).filter(|_| !self.places.seen_at.is_empty())?;
            (rest.is_empty() || rest.starts_with('/')).then(|| rest.trim_start_matches('/').to_owned())
        };
        let path = if target.starts_with('/') { inside(target) } else { Some(join(at, target)) };
        match path {
            Some(path) => self.git_dir(&path),
            None => self.foreign(format!("the repository of `{at}` is outside the workspace")),
        }
    }

    /// Looks at the directory of a repository.
    fn git_dir(&mut self, path: &str) {
        let Some(path) = self.real(path) else { return };
        if self.git_dirs.len() >= REPOSITORIES_MAX {
            return self.foreign(format!("there are more than {REPOSITORIES_MAX} repositories"));
        }
        if !self.git_dirs.insert(path.clone()) {
            return;
        }
        self.settings(&join(&path, "config"));
        self.settings(&join(&path, "config.worktree"));
        if self.has(&join(&path, "commondir"))
            && let Some(target) = self.pointer(&join(&path, "commondir"))
        {
            self.follow(&path, &target);
        }
        self.modules(&join(&path, "modules"), 0);
        if let Ok(entries) = self.root.read_dir(join(&path, "hooks")) {
            let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
            let mut names: Vec<String> = names.filter(|name| !name.ends_with(".sample")).collect();
            names.sort();
            self.found.hooks.extend(names);
            self.found.hooks.truncate(HOOKS_MAX);
        }
    }

    /// Looks at the repositories of submodules, whose working copies `git status` and `git diff` enter.
    fn modules(&mut self, dir: &str, depth: usize) {
        let entries = match self.root.read_dir(dir) {
            Ok(entries) => entries,
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => return,
            Err(_) => return self.foreign(format!("`{dir}` cannot be read")),
        };
        if depth >= MODULES_DEPTH {
            return self.foreign(format!("`{dir}` is too deep"));
        }
        for (at, entry) in entries.enumerate() {
            let name = entry.ok().and_then(|entry| entry.file_name().into_string().ok());
            let Some(name) = name.filter(|_| at < REPOSITORIES_MAX) else {
                return self.foreign(format!("`{dir}` cannot be read whole"));
            };
            let path = join(dir, &name);
            match self.root.symlink_metadata(&path) {
                Ok(found) if found.is_symlink() => self.foreign(format!("`{path}` is a link")),
                Ok(found) if found.is_dir() && self.has(&join(&path, "HEAD")) => self.git_dir(&path),
                Ok(found) if found.is_dir() => self.modules(&path, depth + 1),
                _ => {}
            }
        }
    }

    /// The path in a file of git's.
    fn pointer(&mut self, path: &str) -> Option<String> {
        let text = self.text(path, POINTER_BYTES)?;
        Some(text.trim_end_matches(['\n', '\r']).to_owned())
    }

    /// The content of a file; `None` if there is none, or if it cannot be judged, which is noted.
    fn text(&mut self, path: &str, max_bytes: u64) -> Option<String> {
        let read = WorkspacePath::parse(path, false).and_then(|path| reading::read(self.root, &path, max_bytes));
        match read.map(String::from_utf8) {
            Ok(Ok(text)) => Some(text),
            Err(refusal) if refusal.code == Code::NotFound => None,
            _ => {
                self.foreign(format!("`{path}` cannot be read as text of at most {max_bytes} bytes"));
                None
            }
        }
    }

    fn settings(&mut self, path: &str) {
        let Some(text) = self.text(path, CONFIG_BYTES) else { return };
        match foreign_setting(&text) {
            None => {}
            Some(Setting::Key(key)) => self.foreign(format!("`{path}` sets `{key}`, which may run a program")),
            Some(Setting::Unreadable(line)) => self.foreign(format!("line {line} of `{path}` is not plain")),
        }
        self.found.files.push(path.to_owned());
    }

    /// A file that the line may write must not become a part of a repository, also not through a link.
    fn written(&mut self, path: &str) {
        let (above, name) = path.rsplit_once('/').unwrap_or(("", path));
        let real = self.real(path).or_else(|| self.real(above).map(|above| join(&above, name)));
        // Neither is there: the line may make the directory first.
        let real = real.unwrap_or_else(|| path.to_owned());
        let within = |git: &String| git.is_empty() || real == *git || real.starts_with(&format!("{git}/"));
        let decides = real.rsplit('/').next().is_some_and(|name| DECIDE.contains(&name));
        if decides || real.split('/').any(is_git_place) || self.git_dirs.iter().any(within) {
            self.foreign(format!("the line may write `{path}`, which git reads"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Place {
        dir: tempfile::TempDir,
        root: Dir,
    }

    impl Place {
        fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            let root = Dir::open_ambient_dir(dir.path(), cap_std::ambient_authority()).unwrap();
            Self { dir, root }
        }

        fn write(&self, path: &str, text: &str) -> &Self {
            let path = self.dir.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
            self
        }

        fn look(&self, dir: &str) -> GitLook {
            self.look_with(&[dir], &[], false)
        }

        fn look_with(&self, dirs: &[&str], written: &[&str], may_make: bool) -> GitLook {
            let own = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
            let places =
                GitPlaces { dirs: vec![own(dirs)], written: own(written), may_make, seen_at: "/work".to_owned() };
            look(&self.root, &places)
        }
    }

    const PLAIN: &str = "[core]\n\tbare = false\n";
    /// Stands for a file that is larger than what is read.
    const LARGE: &str = "large";
    const EVIL: &str = "[diff]\n\texternal = ./x\n";

    #[test]
    fn a_plain_repository_is_plain_from_each_of_its_directories() {
        let place = Place::new();
        place.write("a/r/.git/config", PLAIN).write("a/r/src/deep/x", "").write("a/r/.git/hooks/pre-commit", "");
        place.write("a/r/.git/hooks/pre-push.sample", "");
        for dir in ["a/r", "a/r/src/deep", "a/r/src/../src", "a/r/.git"] {
            let found = place.look(dir);
            let expected =
                GitLook { files: vec!["a/r/.git/config".into()], foreign: None, hooks: vec!["pre-commit".into()] };
            assert_eq!(found, expected, "{dir}");
        }
        assert_eq!(place.look("a"), GitLook::default());
        assert_eq!(place.look("none"), GitLook::default());
        assert_eq!(place.look(""), GitLook::default());
    }

    // covers: SBX-11
    #[test]
    fn every_way_to_a_setting_is_followed() {
        type Files = &'static [(&'static str, &'static str)];
        let ways: [(&str, &str, Files); 12] = [
            ("plain", "r/s", &[("r/.git/config", EVIL), ("r/s/x", "")]),
            ("above a plain one", "r/s", &[("r/.git/config", EVIL), ("r/s/.git/config", PLAIN)]),
            ("gitdir", "r", &[("r/.git", "gitdir: ../g\n"), ("g/config", EVIL)]),
            ("absolute gitdir", "r", &[("r/.git", "gitdir: /work/g\n"), ("g/config", EVIL)]),
            ("gitdir outside", "r", &[("r/.git", "gitdir: /tmp/g\n")]),
            ("gitdir out", "r", &[("r/.git", "gitdir: ../../g\n")]),
            (
                "common",
                "r",
                &[
                    ("r/.git", "gitdir: ../m/.git/worktrees/r\n"),
                    ("m/.git/worktrees/r/commondir", "../..\n"),
                    ("m/.git/config", EVIL),
                ],
            ),
            ("worktree", "r", &[("r/.git/config", PLAIN), ("r/.git/config.worktree", EVIL)]),
            ("bare", "r/refs", &[("r/HEAD", ""), ("r/objects/x", ""), ("r/refs/x", ""), ("r/config", EVIL)]),
            (
                "submodule",
                "r",
                &[("r/.git/config", PLAIN), ("r/.git/modules/a/b/HEAD", ""), ("r/.git/modules/a/b/config", EVIL)],
            ),
            ("modules", "r", &[("r/.git/config", PLAIN), ("r/.gitmodules", "[submodule \"a\"]\nignore=none")]),
            ("too large", "r", &[("r/.git/config", LARGE)]),
        ];
        let large = "#".repeat(300_000);
        for (name, dir, files) in ways {
            let place = Place::new();
            for (path, text) in files {
                place.write(path, if *text == LARGE { &large } else { text });
            }
            assert!(place.look(dir).foreign.is_some(), "{name}");
        }
        let place = Place::new();
        place.write("r/.git/x", "");
        std::fs::write(place.dir.path().join("r/.git/config"), [0xff, 0xfe]).unwrap();
        assert!(place.look("r").foreign.is_some(), "not text");
    }

    #[cfg(unix)]
    #[test]
    fn links_are_followed_or_named() {
        use std::os::unix::fs::symlink;
        let place = Place::new();
        place
            .write("evil/.git/config", EVIL)
            .write("evil/s/x", "")
            .write("r/.git/config", PLAIN)
            .write("g/config", PLAIN);
        let at = |path: &str| place.dir.path().join(path);
        symlink("../evil/s", at("r/link")).unwrap();
        symlink("../g", at("evil/s/.git")).unwrap();
        symlink(".git", at("r/d")).unwrap();
        symlink("/etc", at("r/out")).unwrap();
        assert!(place.look("r/link").foreign.is_some());
        assert!(place.look("r/out").foreign.is_some());
        assert_eq!(place.look("r").foreign, None);
        let written = |path: &str| place.look_with(&["r"], &[path], false).foreign.is_some();
        for path in ["r/d/config", "r/d/x", "r/.git/x", "r/config", "x/HEAD", "r/.GIT/x"] {
            assert!(written(path), "{path}");
        }
        assert!(!written("r/out.patch") && !written("r/sub/x"));
    }

    // covers: ACL-01
    #[test]
    fn files_of_a_repository_under_any_name_are_found() {
        let place = Place::new();
        for (dir, marks) in [("x.git", ["HEAD", "objects/x", "refs/x"]), ("a/work", ["HEAD", "commondir", "gitdir"])] {
            for mark in marks {
                place.write(&format!("{dir}/{mark}"), "");
            }
        }
        place.write("plain/HEAD", "").write("plain/config", "");
        for (path, is_inside) in [
            ("x.git/config", true),
            ("x.git/hooks/a/b", true),
            ("x.git", false),
            ("a/work/config.worktree", true),
            ("a/x", false),
            ("plain/config", false),
            ("none/x", false),
        ] {
            let path = WorkspacePath::parse(path, false).unwrap();
            assert_eq!(check_outside(&place.root, &path).is_err(), is_inside, "{path:?}");
        }
    }

    #[test]
    fn a_directory_that_the_line_could_make_is_not_plain() {
        let place = Place::new();
        assert!(place.look_with(&["r"], &[], true).foreign.is_some());
        place.write("s/x", "");
        assert_eq!(place.look_with(&["r", "s"], &[], true).foreign, None);
    }
}
