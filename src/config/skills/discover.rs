//! Finds the skills below a root and reads their files.
//!
//! This module must never open anything outside the root.

use std::collections::{BTreeSet, VecDeque};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cap_std::ambient_authority;
use cap_std::fs::{Dir, MetadataExt, OpenOptions, OpenOptionsExt};
use rustix::fs::OFlags;

use super::head::{self, Fault};
use super::skill::{DOCUMENT_CHARS, Skill, SkillSet, Skipped};
use crate::files::is_utf16;
use crate::substitute::Env;

/// Maximum skills in one root.
const CANDIDATES_MAX: usize = 300;
/// Maximum bytes of a SKILL.md.
const FILE_BYTES: u64 = 256_000;
/// Maximum levels below a root that are searched.
const DEPTH_MAX: usize = 6;
/// Maximum directory entries that are read in one root.
const SCAN_MAX: usize = 20_000;
/// Maximum entries that are remembered as skipped.
const SKIPPED_MAX: usize = 100;
const FILE: &str = "SKILL.md";

impl SkillSet {
    fn skip(&mut self, path: PathBuf, reason: impl std::fmt::Display) {
        if self.skipped.len() < SKIPPED_MAX {
            self.skipped.push(Skipped { path, reason: reason.to_string() });
        }
    }

    /// Reads a root; of its skills only those in `only`, if given.
    pub(crate) fn read_root(&mut self, root: &Path, only: Option<&BTreeSet<String>>, env: Env<'_>) {
        self.read_below(root, only, None, env);
    }

    /// Reads the root `skills/` of the world in `world`, a canonical path. A link directly in it may name the directory
    /// of a skill elsewhere in the world.
    pub(crate) fn read_own_root(&mut self, root: &Path, world: &Path, env: Env<'_>) {
        self.read_below(root, None, Some(world), env);
    }

    fn read_below(&mut self, root: &Path, only: Option<&BTreeSet<String>>, world: Option<&Path>, env: Env<'_>) {
        let opened = root.canonicalize().and_then(|real| {
            let dir = Dir::open_ambient_dir(&real, ambient_authority())?;
            Ok((real, dir))
        });
        let (root, dir) = match opened {
            Ok(opened) => opened,
            Err(error) => {
                self.roots.push(root.to_owned());
                return self.skip(root.to_owned(), error);
            }
        };
        self.roots.push(root.clone());
        let mut own = BTreeSet::new();
        let mut queue = VecDeque::from([(PathBuf::new(), 0_usize)]);
        let (mut scanned, mut found) = (0, 0);
        let mut listed = BTreeSet::new();
        let mut links: Vec<(PathBuf, PathBuf)> = Vec::new();
        while let Some((path, depth)) = queue.pop_front() {
            if dir.symlink_metadata(path.join(FILE)).is_ok() {
                found += 1;
                if found > CANDIDATES_MAX {
                    let reason = format!("a root may hold {CANDIDATES_MAX} skills; the rest is ignored");
                    return self.skip(root.join(&path), reason);
                }
                match read_skill(&dir, &root, &path, env) {
                    Ok(skill) if only.is_some_and(|only| !only.contains(&skill.name)) => {}
                    // Skills from elsewhere lie beside the operator's own, and must not replace them.
                    Ok(skill) if !own.insert(skill.name.clone()) => {
                        let reason = format!("another skill here has the name `{}`, which counts", skill.name);
                        self.skip(root.join(&path).join(FILE), reason);
                    }
                    Ok(skill) => drop(self.skills.insert(skill.name.clone(), Arc::new(skill))),
                    Err(reason) => self.skip(root.join(&path).join(FILE), reason),
                }
                continue;
            }
            // What one skill holds must not hide the others: those that are known by now are still read.
            if depth == DEPTH_MAX || scanned > SCAN_MAX {
                continue;
            }
            let here = if path.as_os_str().is_empty() { Path::new(".") } else { &path };
            // A link to a directory above it would repeat all that is there, again and again.
            if dir.metadata(here).is_ok_and(|facts| !listed.insert((facts.dev(), facts.ino()))) {
                continue;
            }
            let entries = match dir.read_dir(here) {
                Ok(entries) => entries,
                Err(error) => {
                    self.skip(root.join(&path), error);
                    continue;
                }
            };
            let mut names: Vec<String> = Vec::new();
            for entry in entries.flatten() {
                scanned += 1;
                if scanned > SCAN_MAX {
                    self.skip(root.join(&path), format!("more than {SCAN_MAX} entries; the rest is ignored"));
                    break;
                }
                names.extend(entry.file_name().into_string());
            }
            // The order decides which of two skills with the same name counts: the first.
            names.sort();
            for name in names.into_iter().filter(|name| !name.starts_with('.') && name != "node_modules") {
                let inner = path.join(&name);
                match dir.metadata(&inner) {
                    Ok(facts) if facts.is_dir() => queue.push_back((inner, depth + 1)),
                    Ok(_) if name.eq_ignore_ascii_case(FILE) => {
                        self.skip(root.join(&inner), format!("it must be called {FILE}, in these letters"));
                    }
                    Ok(_) => {}
                    Err(error) => match world.filter(|_| depth == 0).and_then(|world| linked(&root, &inner, world)) {
                        Some(target) => links.push((inner, target)),
                        None => self.skip(root.join(&inner), error),
                    },
                }
            }
        }
        // A skill in the directory itself comes before one that a link names.
        for (link, target) in links {
            found += 1;
            if found > CANDIDATES_MAX {
                let reason = format!("a root may hold {CANDIDATES_MAX} skills; the rest is ignored");
                return self.skip(root.join(&link), reason);
            }
            // Its own directory is its root: nothing beside it can be read through it.
            let read = Dir::open_ambient_dir(&target, ambient_authority()).map_err(|error| error.to_string());
            match read.and_then(|dir| read_skill(&dir, &target, Path::new(""), env)) {
                Ok(skill) if !own.insert(skill.name.clone()) => {
                    let reason = format!("another skill here has the name `{}`, which counts", skill.name);
                    self.skip(root.join(&link), reason);
                }
                Ok(skill) => drop(self.skills.insert(skill.name.clone(), Arc::new(skill))),
                Err(reason) => self.skip(root.join(&link), reason),
            }
        }
    }
}

/// The directory of a skill that the link at `path` in `root` names, if it is within `world` and not around the root.
fn linked(root: &Path, path: &Path, world: &Path) -> Option<PathBuf> {
    let link = root.join(path);
    let target = link.is_symlink().then(|| link.canonicalize().ok()).flatten()?;
    let is_within = target.starts_with(world) && !root.starts_with(&target) && !target.starts_with(root);
    (is_within && target.is_dir() && target.join(FILE).symlink_metadata().is_ok()).then_some(target)
}

fn read_skill(dir: &Dir, root: &Path, path: &Path, env: Env<'_>) -> Result<Skill, String> {
    let file = path.join(FILE);
    let facts = dir.metadata(&file).map_err(|error| error.to_string())?;
    if !facts.is_file() || facts.len() > FILE_BYTES {
        return Err(format!("it must be a file of at most {FILE_BYTES} bytes"));
    }
    // Opening must not block, even if a pipe replaces the file meanwhile.
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed());
    let opened = dir.open_with(&file, &options).map_err(|error| error.to_string())?;
    if !opened.metadata().map_err(|error| error.to_string())?.is_file() {
        return Err("it must be a file".to_owned());
    }
    let mut bytes = Vec::new();
    opened.take(FILE_BYTES).read_to_end(&mut bytes).map_err(|error| error.to_string())?;
    if is_utf16(&bytes) {
        return Err(format!("it is UTF-16, in which no program reads a {FILE}: save it as UTF-8"));
    }
    if bytes.contains(&0) {
        return Err("it holds a NUL byte".to_owned());
    }
    let text = String::from_utf8_lossy(&bytes);
    let folder = if path.as_os_str().is_empty() { root.file_name() } else { path.file_name() };
    let mut head = head::read(&text, &folder.unwrap_or_default().to_string_lossy());
    if matches!(text, std::borrow::Cow::Owned(_)) {
        head.faults.push(Fault {
            line: 1,
            field: String::new(),
            message: "it is not UTF-8; what is not is shown as U+FFFD".to_owned(),
            hint: "save it as UTF-8".to_owned(),
        });
    }
    let (document, continues_at) = first_part(&head.body, head.body_line);
    if let Some(line) = continues_at {
        head.faults.push(Fault {
            line,
            field: String::new(),
            message: format!("a prompt holds {DOCUMENT_CHARS} characters of the text; agents must read on from here"),
            hint: "move details into other files of the skill, and say when to read which".to_owned(),
        });
    }
    Ok(Skill {
        document,
        continues_at,
        has_tools: head.toolbox.is_some() || dir.symlink_metadata(path.join("schema.json")).is_ok(),
        for_models: head.for_models,
        missing: head.requirements.missing(env),
        toolbox: head.toolbox,
        root: root.to_owned(),
        path: path.to_owned(),
        faults: head.faults,
        name: head.name,
        description: head.description,
    })
}

/// The first [`DOCUMENT_CHARS`] characters of a text that begins at `line`, and the line at which the rest begins.
fn first_part(text: &str, line: usize) -> (String, Option<usize>) {
    let Some((end, _)) = text.char_indices().nth(DOCUMENT_CHARS) else { return (text.to_owned(), None) };
    let part = &text[..end];
    let part = part.rfind('\n').map_or(part, |at| &part[..=at]);
    (part.to_owned(), Some(line + part.matches('\n').count()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(root: &Path, path: &str, text: impl AsRef<[u8]>) {
        let file = root.join(path);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, text).unwrap();
    }

    fn read(roots: &[&Path]) -> SkillSet {
        let roots: Vec<PathBuf> = roots.iter().map(|root| (*root).to_owned()).collect();
        SkillSet::read(&roots, &|_| None)
    }

    // covers: CONF-18, SKILL-02, SKILL-11, SKILL-20, TEST-06
    #[test]
    fn later_roots_win_and_broken_skills_do_not_hide_others() {
        let (low, high, outside) =
            (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        put(low.path(), "git/SKILL.md", "---\nname: git\ndescription: old words\n---\n# Old\n");
        put(high.path(), "deep/er/git/SKILL.md", "---\nname: git\ndescription: new words\n---\n\n# New\n");
        put(high.path(), "plain/SKILL.md", "# A plain one\n\ntext\n");
        put(high.path(), "plain/schema.json", "[]");
        put(high.path(), "bad/SKILL.md", "---\nname: [\n---\n# Bad\n");
        put(high.path(), "latin/SKILL.md", b"# caf\xe9\n");
        put(high.path(), "quiet/SKILL.md", "---\nname: quiet\ndisable-model-invocation: true\n---\nx");
        put(high.path(), "needy/SKILL.md", "---\nmetadata: { openclaw: { requires: { bins: [no-such] } } }\n---\nx");
        put(high.path(), ".hidden/SKILL.md", "# hidden");
        put(high.path(), "1/2/3/4/5/6/7/SKILL.md", "# too deep");
        put(high.path(), "lower/skill.md", "# lower");
        put(outside.path(), "SKILL.md", "# outside");
        std::os::unix::fs::symlink(outside.path(), high.path().join("escape")).unwrap();
        let skills = read(&[low.path(), high.path()]);
        let names: Vec<&str> = skills.visible(None).map(|skill| skill.name.as_str()).collect();
        assert_eq!(names, ["bad", "git", "latin", "needy", "plain"]);
        let git = skills.get("git").unwrap();
        assert_eq!((git.description.as_str(), git.document.as_str()), ("new words", "# New\n"));
        let root = high.path().canonicalize().unwrap();
        assert_eq!((git.root.as_path(), git.path.as_path()), (root.as_path(), Path::new("deep/er/git")));
        assert!(git.for_models && !skills.get("quiet").unwrap().for_models);
        let plain = skills.get("plain").unwrap();
        assert!(plain.has_tools && plain.description == "A plain one" && plain.missing.is_empty());
        assert_eq!(skills.get("needy").unwrap().missing.len(), 1);
        let skipped: Vec<_> = skills.skipped().iter().map(|skipped| skipped.path.clone()).collect();
        assert_eq!(skipped, [high.path().join("escape"), high.path().join("lower/skill.md")]);
        assert_eq!(skills.visible(Some(&BTreeSet::from(["git".to_owned()]))).count(), 1);
        assert_eq!(skills.visible(Some(&BTreeSet::new())).count(), 0);
    }

    #[test]
    fn a_link_in_a_worlds_own_root_may_name_a_skill_elsewhere_in_the_world_only() {
        let (world, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let dir = world.path().canonicalize().unwrap();
        put(&dir, "ext/git/SKILL.md", "---\nname: git\ndescription: d\n---\n# Git\n");
        put(&dir, "ext/plain/notes.md", "no skill");
        put(&dir, "SKILL.md", "# The world itself");
        put(outside.path(), "SKILL.md", "# Outside");
        put(&dir, "skills/own/SKILL.md", "---\nname: own\n---\n# Own\n");
        put(&dir, "skills/deep/readme.md", "x");
        let link = |target: &Path, at: &str| std::os::unix::fs::symlink(target, dir.join("skills").join(at)).unwrap();
        link(Path::new("../ext/git"), "git");
        link(Path::new("../ext/git"), "deep/git");
        link(Path::new(".."), "all");
        link(Path::new("../ext/plain"), "plain");
        link(outside.path(), "outside");
        link(Path::new("nowhere"), "nowhere");
        let mut skills = SkillSet::default();
        skills.read_own_root(&dir.join("skills"), &dir, &|_| None);
        assert_eq!(skills.all().keys().map(String::as_str).collect::<Vec<_>>(), ["git", "own"]);
        // Nothing beside the directory can be read through the skill.
        let git = skills.get("git").unwrap();
        assert_eq!((git.root.as_path(), git.path.as_os_str().is_empty()), (dir.join("ext/git").as_path(), true));
        let skipped = |skills: &SkillSet| -> Vec<String> {
            let names = skills.skipped().iter().map(|skipped| skipped.path.strip_prefix(dir.join("skills")).unwrap());
            names.map(|path| path.display().to_string()).collect()
        };
        assert_eq!(skipped(&skills), ["all", "nowhere", "outside", "plain", "deep/git"]);
        // Other roots, which hold skills from elsewhere, follow no link.
        let mut others = SkillSet::default();
        others.read_root(&dir.join("skills"), None, &|_| None);
        assert_eq!(others.all().keys().map(String::as_str).collect::<Vec<_>>(), ["own"]);
        assert_eq!(skipped(&others).len(), 6);
    }

    // covers: SKILL-11
    #[test]
    fn no_link_of_a_skill_leads_out_of_its_root_or_hides_another() {
        let (root, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let secret = outside.path().join("SKILL.md");
        std::fs::write(&secret, "---\nname: secret\n---\nsecret").unwrap();
        put(outside.path(), "skill/SKILL.md", "---\nname: secret\n---\nsecret");
        let link = |target: &Path, at: &str| {
            let at = root.path().join(at);
            std::fs::create_dir_all(at.parent().unwrap()).unwrap();
            std::os::unix::fs::symlink(target, at).unwrap();
        };
        let up = |path: &Path| Path::new("../../../../../../../..").join(path.strip_prefix("/").unwrap());
        put(root.path(), "good/SKILL.md", "---\nname: good\n---\n# Good\n");
        put(root.path(), "deep/er/good/SKILL.md", "---\nname: deeper\n---\n# Deeper\n");
        link(&secret, "absolute/SKILL.md");
        link(&up(&secret), "relative/SKILL.md");
        link(Path::new("SKILL.md"), "circle/SKILL.md");
        link(Path::new("nowhere"), "dangling/SKILL.md");
        link(Path::new("/dev/zero"), "device/SKILL.md");
        link(Path::new("/proc/self/environ"), "environ/SKILL.md");
        link(outside.path(), "folder/SKILL.md");
        link(&outside.path().join("skill"), "skill");
        link(Path::new("/proc/self/cwd"), "cwd");
        // Within the root a link may lead to another skill's file, which is known under its own name then.
        link(Path::new("../good/SKILL.md"), "near/SKILL.md");
        for n in 0..40 {
            link(Path::new(".."), &format!("aaa/{n}"));
            link(Path::new("."), &format!("aaa/dot{n}"));
        }
        let skills = read(&[root.path()]);
        assert_eq!(skills.all().keys().map(String::as_str).collect::<Vec<_>>(), ["deeper", "good"]);
        assert!(skills.skipped().iter().all(|skipped| !skipped.reason.contains("ignored")));
        assert_eq!(skills.skipped().len(), 10, "{:?}", skills.skipped());
    }

    // covers: SKILL-17
    #[test]
    fn a_skill_with_too_many_files_does_not_hide_the_others() {
        let root = tempfile::tempdir().unwrap();
        let many = root.path().join("aaa");
        std::fs::create_dir(&many).unwrap();
        for n in 0..=SCAN_MAX {
            std::fs::File::create(many.join(n.to_string())).unwrap();
        }
        put(root.path(), "good/SKILL.md", "---\nname: good\n---\n# Good\n");
        let skills = read(&[root.path()]);
        assert!(skills.get("good").is_some());
        assert_eq!(skills.skipped().len(), 1);
    }

    #[test]
    fn a_file_in_utf_16_is_named_as_such() {
        let root = tempfile::tempdir().unwrap();
        let utf16 = |text: &str| text.encode_utf16().flat_map(u16::to_le_bytes).collect::<Vec<u8>>();
        put(root.path(), "marked/SKILL.md", utf16("\u{feff}# Marked\n"));
        put(root.path(), "bare/SKILL.md", utf16("# Bare, without a mark\n"));
        put(root.path(), "nul/SKILL.md", "# nul\n\0");
        let skills = read(&[root.path()]);
        let encoding: Vec<bool> = skills.skipped().iter().map(|skipped| skipped.reason.contains("UTF-16")).collect();
        assert_eq!(encoding, [true, true, false]);
    }

    // covers: SKILL-11
    #[test]
    fn within_a_root_no_skill_replaces_another() {
        let root = tempfile::tempdir().unwrap();
        put(root.path(), "git/SKILL.md", "---\nname: git\n---\n# Own\n");
        put(root.path(), "zzz/SKILL.md", "---\nname: git\n---\n# Fetched\n");
        let skills = read(&[root.path()]);
        assert_eq!(skills.get("git").unwrap().document, "# Own\n");
        let skipped: Vec<_> = skills.skipped().iter().map(|skipped| skipped.path.clone()).collect();
        assert_eq!(skipped, [root.path().canonicalize().unwrap().join("zzz/SKILL.md")]);
    }

    // covers: LIM-33, SKILL-17, SKILL-46
    #[test]
    fn limits_are_enforced() {
        let root = tempfile::tempdir().unwrap();
        put(root.path(), "long/SKILL.md", format!("---\nname: long\n---\n# long\n{}", "éé\n".repeat(30_000)));
        put(root.path(), "wide/SKILL.md", format!("# wide {}", "x".repeat(30_000)));
        put(root.path(), "huge/SKILL.md", "x".repeat(300_000));
        put(root.path(), "nul/SKILL.md", "# nul\n\0");
        std::fs::create_dir(root.path().join("pipe")).unwrap();
        let (pipe, mode) = (root.path().join("pipe/SKILL.md"), rustix::fs::Mode::RUSR);
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        let skills = read(&[root.path(), &root.path().join("missing")]);
        let long = skills.get("long").unwrap();
        // 20,000 characters are the heading, 6,664 whole lines and a part of the next.
        assert_eq!((long.document.chars().count(), long.continues_at), (19_999, Some(4 + 1 + 6_664)));
        let wide = skills.get("wide").unwrap();
        assert_eq!((wide.document.chars().count(), wide.continues_at), (DOCUMENT_CHARS, Some(1)));
        assert_eq!((skills.all().len(), skills.skipped().len()), (2, 4));
    }
}
