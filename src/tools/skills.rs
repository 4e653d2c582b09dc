//! The skills that a world offers: folders with a SKILL.md, read once when a plan comes into force (SKILL-02, 03, 11, 17).
//!
//! Must never: follow a link out of a skill root, or let one broken skill hide the others.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cap_std::ambient_authority;
use cap_std::fs::{Dir, OpenOptions, OpenOptionsExt};
use ghost_domain::text::{clip, one_line};
use rustix::fs::OFlags;
use serde::Deserialize;

/// Candidates that one root may hold (SKILL-17).
pub const CANDIDATES_MAX: usize = 300;
/// Bytes of one SKILL.md (SKILL-17).
pub const FILE_BYTES: u64 = 256_000;
/// Levels below a root that are searched (SKILL-17).
pub const DEPTH_MAX: usize = 6;
/// Characters of a document that an agent gets (SKILL-46).
pub const DOCUMENT_CHARS: usize = 20_000;
/// Entries that are looked at under one root.
const SCAN_MAX: usize = 20_000;
/// Characters of a name and of a description.
const NAME_MAX: usize = 64;
const DESCRIPTION_MAX: usize = 1_024;
/// Bytes of frontmatter.
const FRONT_BYTES: usize = 32_768;
/// Problems that are kept to be shown.
const PROBLEMS_MAX: usize = 100;

/// One skill.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skill {
    /// Its name.
    pub name: String,
    /// What it is for, on one line.
    pub description: String,
    /// Its text, at most [`DOCUMENT_CHARS`] characters, a cut marked.
    pub document: String,
    /// Whether the text was cut.
    pub truncated: bool,
    /// Whether it brings tools of its own, which this version does not load.
    pub has_schema: bool,
    /// Whether models may load it by themselves (`disable-model-invocation`).
    pub for_models: bool,
}

/// All skills of a world by name. A later root wins over an earlier one.
#[derive(Clone, Debug, Default)]
pub struct SkillShelf {
    skills: BTreeMap<String, Arc<Skill>>,
    problems: Vec<String>,
}

/// The part of a frontmatter that is read; skills are written for other programs too, so the rest is passed over.
#[derive(Debug, Default, Deserialize)]
struct Front {
    name: Option<String>,
    description: Option<String>,
    #[serde(default, rename = "disable-model-invocation")]
    disable_model_invocation: bool,
}

impl SkillShelf {
    /// Reads every skill under `roots`, lowest precedence first. Blocks. What cannot be read is a problem, not an error.
    #[must_use]
    pub fn read(roots: &[PathBuf]) -> Self {
        let mut shelf = Self::default();
        for root in roots {
            shelf.read_root(root);
        }
        shelf
    }

    /// Every skill by name, hidden ones among them.
    #[must_use]
    pub fn all(&self) -> &BTreeMap<String, Arc<Skill>> {
        &self.skills
    }

    /// The skill of that name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Arc<Skill>> {
        self.skills.get(name)
    }

    /// The skills that an agent with this filter may hold, sorted by name. `None` lets all through (SKILL-24).
    pub fn visible<'s>(&'s self, filter: Option<&'s BTreeSet<String>>) -> impl Iterator<Item = &'s Arc<Skill>> {
        self.skills
            .values()
            .filter(move |skill| skill.for_models && filter.is_none_or(|filter| filter.contains(&skill.name)))
    }

    /// What was passed over, and why; at most 100.
    #[must_use]
    pub fn problems(&self) -> &[String] {
        &self.problems
    }

    fn problem(&mut self, place: &str, what: impl std::fmt::Display) {
        let text = format!("skill {place}: {what}");
        tracing::warn!("{text}");
        if self.problems.len() < PROBLEMS_MAX {
            self.problems.push(text);
        }
    }

    fn read_root(&mut self, root: &Path) {
        let place = root.display().to_string();
        let dir = match Dir::open_ambient_dir(root, ambient_authority()) {
            Ok(dir) => dir,
            Err(error) => return self.problem(&place, error),
        };
        let mut waiting = VecDeque::from([(PathBuf::from("."), 0_usize)]);
        let (mut scanned, mut found) = (0, 0);
        while let Some((path, depth)) = waiting.pop_front() {
            let place = root.join(&path).display().to_string();
            let file = path.join("SKILL.md");
            if dir.symlink_metadata(&file).is_ok() {
                found += 1;
                if found > CANDIDATES_MAX {
                    return self
                        .problem(&place, format!("a root may hold {CANDIDATES_MAX} skills; the rest is left out"));
                }
                match read_skill(&dir, root, &path) {
                    Ok(skill) => drop(self.skills.insert(skill.name.clone(), Arc::new(skill))),
                    Err(what) => self.problem(&place, what),
                }
                continue;
            }
            if depth == DEPTH_MAX {
                continue;
            }
            let entries = match dir.read_dir(&path) {
                Ok(entries) => entries,
                Err(error) => {
                    self.problem(&place, error);
                    continue;
                }
            };
            let mut names: Vec<String> = Vec::new();
            for entry in entries.flatten() {
                scanned += 1;
                if scanned > SCAN_MAX {
                    return self.problem(&place, format!("more than {SCAN_MAX} entries; the rest is left out"));
                }
                names.extend(entry.file_name().into_string());
            }
            // Order reaches the choice between two skills of one name.
            names.sort();
            for name in names.into_iter().filter(|name| !name.starts_with('.') && name != "node_modules") {
                let inner = path.join(&name);
                match dir.metadata(&inner) {
                    Ok(facts) if facts.is_dir() => waiting.push_back((inner, depth + 1)),
                    Ok(_) => {}
                    Err(error) => self.problem(&root.join(&inner).display().to_string(), error),
                }
            }
        }
    }
}

fn read_skill(dir: &Dir, root: &Path, path: &Path) -> Result<Skill, String> {
    let file = path.join("SKILL.md");
    let facts = dir.metadata(&file).map_err(|error| error.to_string())?;
    if !facts.is_file() || facts.len() > FILE_BYTES {
        return Err(format!("SKILL.md must be a file of at most {FILE_BYTES} bytes"));
    }
    let mut text = String::new();
    // What takes the file's place meanwhile, such as a pipe, must not make the reader wait.
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed());
    let opened = dir.open_with(&file, &options).map_err(|error| error.to_string())?;
    if !opened.metadata().map_err(|error| error.to_string())?.is_file() {
        return Err("SKILL.md must be a file".to_owned());
    }
    opened.take(FILE_BYTES).read_to_string(&mut text).map_err(|error| error.to_string())?;
    if text.contains('\0') {
        return Err("SKILL.md holds a NUL byte".to_owned());
    }
    let (front, body) = split(&text)?;
    let folder = if path == Path::new(".") { root.file_name() } else { path.file_name() };
    let name = front.name.or_else(|| Some(folder?.to_string_lossy().into_owned())).unwrap_or_default();
    let name = name.trim().to_owned();
    if name.is_empty() || name.chars().count() > NAME_MAX || name.contains(ghost_domain::text::is_strange) {
        return Err(format!("its name must have 1 to {NAME_MAX} characters"));
    }
    let heading = || body.lines().find_map(|line| line.strip_prefix("# ")).unwrap_or_default().to_owned();
    let description = clip(&one_line(&front.description.unwrap_or_else(heading)), DESCRIPTION_MAX);
    let count = body.chars().count();
    let truncated = count > DOCUMENT_CHARS;
    let mut document: String = body.chars().take(DOCUMENT_CHARS).collect();
    if truncated {
        document.push_str(&format!("\n[cut: {DOCUMENT_CHARS} of {count} characters shown]"));
    }
    let has_schema = dir.symlink_metadata(path.join("schema.json")).is_ok();
    Ok(Skill { name, description, document, truncated, has_schema, for_models: !front.disable_model_invocation })
}

/// Frontmatter and the rest. A file without frontmatter is all rest.
fn split(text: &str) -> Result<(Front, &str), String> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut lines = text.split_inclusive('\n');
    let Some(first) = lines.next().filter(|line| line.trim_end() == "---") else {
        return Ok((Front::default(), text));
    };
    let mut at = first.len();
    for line in lines {
        if line.trim_end() == "---" {
            let front = &text[first.len()..at];
            if front.len() > FRONT_BYTES {
                return Err(format!("its frontmatter has more than {FRONT_BYTES} bytes"));
            }
            let front: Option<Front> =
                serde_yaml::from_str(front).map_err(|error| format!("its frontmatter is not valid: {error}"))?;
            return Ok((front.unwrap_or_default(), text[at + line.len()..].trim_start_matches(['\r', '\n'])));
        }
        at += line.len();
    }
    Err("its frontmatter begins with `---` and has no end".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn put(root: &Path, path: &str, text: &str) {
        let file = root.join(path);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, text).unwrap();
    }

    // covers: CONF-18, SKILL-02, SKILL-03, SKILL-11, TEST-06
    #[test]
    fn later_roots_win_and_broken_skills_hide_no_other() {
        let (low, high, outside) =
            (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        put(
            low.path(),
            "git/SKILL.md",
            "---\nname: git\ndescription: >\n  old\n  words\nmetadata: {x: 1}\n---\n# Old\n",
        );
        put(high.path(), "deep/er/git/SKILL.md", "---\nname: git\ndescription: new words\n---\n\n# New\n");
        put(high.path(), "plain/SKILL.md", "# A plain one\n\ntext\n");
        put(high.path(), "plain/schema.json", "[]");
        put(high.path(), "bad/SKILL.md", "---\nname: [\n---\n");
        put(high.path(), "endless/SKILL.md", "---\nname: x\n");
        put(high.path(), "quiet/SKILL.md", "---\nname: quiet\ndisable-model-invocation: true\n---\nx");
        put(high.path(), ".hidden/SKILL.md", "# hidden");
        put(high.path(), "1/2/3/4/5/6/7/SKILL.md", "# too deep");
        put(outside.path(), "SKILL.md", "# outside");
        std::os::unix::fs::symlink(outside.path(), high.path().join("escape")).unwrap();
        let shelf = SkillShelf::read(&[low.path().to_owned(), high.path().to_owned()]);
        let names: Vec<&str> = shelf.visible(None).map(|skill| skill.name.as_str()).collect();
        assert_eq!(names, ["git", "plain"]);
        let git = shelf.get("git").unwrap();
        assert_eq!((git.description.as_str(), git.document.as_str()), ("new words", "# New\n"));
        let plain = shelf.get("plain").unwrap();
        assert!(plain.has_schema && plain.description == "A plain one");
        assert_eq!(shelf.problems().len(), 3, "{:?}", shelf.problems());
        assert_eq!(shelf.visible(Some(&BTreeSet::from(["git".to_owned()]))).count(), 1);
        assert_eq!(shelf.visible(Some(&BTreeSet::new())).count(), 0);
    }

    // covers: LIM-33, SKILL-17, SKILL-46
    #[test]
    fn bounds_hold() {
        let root = tempfile::tempdir().unwrap();
        put(root.path(), "long/SKILL.md", &format!("# long\n{}", "é".repeat(30_000)));
        put(root.path(), "huge/SKILL.md", &"x".repeat(300_000));
        put(root.path(), "nul/SKILL.md", "# nul\n\0");
        std::fs::create_dir(root.path().join("pipe")).unwrap();
        let (pipe, mode) = (root.path().join("pipe/SKILL.md"), rustix::fs::Mode::RUSR);
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        let shelf = SkillShelf::read(&[root.path().to_owned(), root.path().join("missing")]);
        let long = shelf.get("long").unwrap();
        assert!(long.truncated && long.document.chars().count() < DOCUMENT_CHARS + 60);
        assert_eq!(shelf.all().len(), 1);
        assert_eq!(shelf.problems().len(), 4);
    }

    proptest! {
        #[test]
        fn no_text_makes_the_reader_panic(text in "(---\n)?[a-z:\\[\\]{}&*!#\"' \n-]{0,120}(---\n)?.{0,40}") {
            let _ = split(&text);
        }
    }
}
