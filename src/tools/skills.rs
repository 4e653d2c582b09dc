//! Reads the skills of a world: folders with a SKILL.md, read when a plan becomes current
//! (SKILL-02, 03, 11, 17).
//!
//! Reading must never follow a link out of a skill root. A broken skill must never hide the others.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cap_std::ambient_authority;
use cap_std::fs::{Dir, OpenOptions, OpenOptionsExt};
use ghost_domain::text::{clip, one_line};
use rustix::fs::OFlags;
use serde::Deserialize;

/// The largest number of skills in one root (SKILL-17).
pub const CANDIDATES_MAX: usize = 300;
/// The largest size of a SKILL.md, in bytes (SKILL-17).
pub const FILE_BYTES: u64 = 256_000;
/// The largest number of levels below a root that are searched (SKILL-17).
pub const DEPTH_MAX: usize = 6;
/// The largest number of characters of a document that an agent gets (SKILL-46).
pub const DOCUMENT_CHARS: usize = 20_000;
/// The largest number of directory entries that are read in one root.
const SCAN_MAX: usize = 20_000;
/// The largest number of characters in a name, and in a description.
const NAME_MAX: usize = 64;
const DESCRIPTION_MAX: usize = 1_024;
/// The largest size of the frontmatter, in bytes.
const FRONT_BYTES: usize = 32_768;
/// The largest number of problems that are kept.
const PROBLEMS_MAX: usize = 100;

/// A skill.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skill {
    /// The name of the skill.
    pub name: String,
    /// The description, on one line.
    pub description: String,
    /// The document: at most [`DOCUMENT_CHARS`] characters, then a mark if it was truncated.
    pub document: String,
    /// Whether the document was truncated.
    pub truncated: bool,
    /// Whether it brings tools of its own. This version does not load them.
    pub has_schema: bool,
    /// Whether models may load it on their own: not `disable-model-invocation`.
    pub for_models: bool,
}

/// The skills of a world by name. A skill in a later root replaces one of the same name in an
/// earlier root.
#[derive(Clone, Debug, Default)]
pub struct SkillSet {
    skills: BTreeMap<String, Arc<Skill>>,
    problems: Vec<String>,
}

/// The keys of the frontmatter that Ghost uses. Skills are also written for other programs, so
/// other keys are ignored.
#[derive(Debug, Default, Deserialize)]
struct Front {
    name: Option<String>,
    description: Option<String>,
    #[serde(default, rename = "disable-model-invocation")]
    disable_model_invocation: bool,
}

impl SkillSet {
    /// Reads every skill under `roots`, lowest precedence first. Blocks. A skill that cannot be
    /// read becomes a problem, not an error.
    #[must_use]
    pub fn read(roots: &[PathBuf]) -> Self {
        let mut skills = Self::default();
        for root in roots {
            skills.read_root(root);
        }
        skills
    }

    /// Every skill by name, including those hidden from models.
    #[must_use]
    pub fn all(&self) -> &BTreeMap<String, Arc<Skill>> {
        &self.skills
    }

    /// The skill with that name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Arc<Skill>> {
        self.skills.get(name)
    }

    /// The skills that an agent with this filter may hold, sorted by name. `None` allows all
    /// (SKILL-24).
    pub fn visible<'s>(&'s self, filter: Option<&'s BTreeSet<String>>) -> impl Iterator<Item = &'s Arc<Skill>> {
        self.skills
            .values()
            .filter(move |skill| skill.for_models && filter.is_none_or(|filter| filter.contains(&skill.name)))
    }

    /// The skills that were skipped, with the reason; at most 100.
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
        let mut queue = VecDeque::from([(PathBuf::from("."), 0_usize)]);
        let (mut scanned, mut found) = (0, 0);
        while let Some((path, depth)) = queue.pop_front() {
            let place = root.join(&path).display().to_string();
            let file = path.join("SKILL.md");
            if dir.symlink_metadata(&file).is_ok() {
                found += 1;
                if found > CANDIDATES_MAX {
                    return self
                        .problem(&place, format!("a root may hold {CANDIDATES_MAX} skills; the rest is ignored"));
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
                    return self.problem(&place, format!("more than {SCAN_MAX} entries; the rest is ignored"));
                }
                names.extend(entry.file_name().into_string());
            }
            // The order decides which of two skills with the same name is used.
            names.sort();
            for name in names.into_iter().filter(|name| !name.starts_with('.') && name != "node_modules") {
                let inner = path.join(&name);
                match dir.metadata(&inner) {
                    Ok(facts) if facts.is_dir() => queue.push_back((inner, depth + 1)),
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
    // Opening must not block, even if a pipe replaces the file meanwhile.
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

/// Splits a file into frontmatter and text. A file without frontmatter is all text.
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
    fn later_roots_win_and_broken_skills_do_not_hide_others() {
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
        let skills = SkillSet::read(&[low.path().to_owned(), high.path().to_owned()]);
        let names: Vec<&str> = skills.visible(None).map(|skill| skill.name.as_str()).collect();
        assert_eq!(names, ["git", "plain"]);
        let git = skills.get("git").unwrap();
        assert_eq!((git.description.as_str(), git.document.as_str()), ("new words", "# New\n"));
        let plain = skills.get("plain").unwrap();
        assert!(plain.has_schema && plain.description == "A plain one");
        assert_eq!(skills.problems().len(), 3, "{:?}", skills.problems());
        assert_eq!(skills.visible(Some(&BTreeSet::from(["git".to_owned()]))).count(), 1);
        assert_eq!(skills.visible(Some(&BTreeSet::new())).count(), 0);
    }

    // covers: LIM-33, SKILL-17, SKILL-46
    #[test]
    fn limits_are_enforced() {
        let root = tempfile::tempdir().unwrap();
        put(root.path(), "long/SKILL.md", &format!("# long\n{}", "é".repeat(30_000)));
        put(root.path(), "huge/SKILL.md", &"x".repeat(300_000));
        put(root.path(), "nul/SKILL.md", "# nul\n\0");
        std::fs::create_dir(root.path().join("pipe")).unwrap();
        let (pipe, mode) = (root.path().join("pipe/SKILL.md"), rustix::fs::Mode::RUSR);
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        let skills = SkillSet::read(&[root.path().to_owned(), root.path().join("missing")]);
        let long = skills.get("long").unwrap();
        assert!(long.truncated && long.document.chars().count() < DOCUMENT_CHARS + 60);
        assert_eq!(skills.all().len(), 1);
        assert_eq!(skills.problems().len(), 4);
    }

    proptest! {
        #[test]
        fn no_text_causes_a_panic(text in "(---\n)?[a-z:\\[\\]{}&*!#\"' \n-]{0,120}(---\n)?.{0,40}") {
            let _ = split(&text);
        }
    }
}
