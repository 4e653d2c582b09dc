//! A skill, and the skills of a world by name.
//!
//! This module must never read a file; `discover` does.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use super::head::Fault;
use crate::substitute::Env;

/// Maximum characters of a document in a prompt.
pub const DOCUMENT_CHARS: usize = 20_000;

/// Maximum bytes of all documents in one prompt.
const ACTIVE_BYTES: usize = 3 * DOCUMENT_CHARS;

/// Maximum bytes of all documents in a prompt of an agent whose conversation may have `context_bytes`. Nothing truncates
/// documents, so they must leave room for the mail, the log and the work.
#[must_use]
pub fn active_room(context_bytes: u32) -> usize {
    ACTIVE_BYTES.min(context_bytes as usize / 8)
}

/// A skill.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skill {
    /// The name of the skill.
    pub name: String,
    /// The description, on one line.
    pub description: String,
    /// The text of SKILL.md after its head: at most [`DOCUMENT_CHARS`] characters, in whole lines if possible.
    pub document: String,
    /// The line of SKILL.md at which the rest of a longer text begins.
    pub continues_at: Option<usize>,
    /// Whether it describes tools of its own.
    pub has_tools: bool,
    /// Whether models may load it on their own: not `disable-model-invocation`.
    pub for_models: bool,
    /// What this machine lacks for it; empty if it can be used.
    pub missing: Vec<String>,
    /// The manifest of its toolbox, in its directory.
    pub toolbox: Option<String>,
    /// The root in which it was found.
    pub root: PathBuf,
    /// Its directory below the root.
    pub path: PathBuf,
    /// What is wrong with its SKILL.md.
    pub faults: Vec<Fault>,
}

impl Skill {
    /// The document as agents get it: if it is cut, with a mark that says how to read on.
    #[must_use]
    pub fn text(&self) -> String {
        let text = self.document.trim_end();
        match self.continues_at {
            None => text.to_owned(),
            Some(line) => format!(
                "{text}\n[Cut here. Read on with workspace.read {{\"scope\": \"skill\", \"path\": \"{}/SKILL.md\", \"offset\": \
                 {line}}}]",
                self.name
            ),
        }
    }
}

/// Something in a skill root that is not a skill.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skipped {
    /// The path.
    pub path: PathBuf,
    /// Why.
    pub reason: String,
}

/// The skills of a world by name. A skill in a later root replaces one of the same name in an earlier root.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SkillSet {
    pub(super) roots: Vec<PathBuf>,
    pub(super) skills: BTreeMap<String, Arc<Skill>>,
    pub(super) skipped: Vec<Skipped>,
}

impl SkillSet {
    /// Reads every skill under `roots`, lowest precedence first. Blocks.
    #[must_use]
    pub fn read(roots: &[PathBuf], env: Env<'_>) -> Self {
        let mut skills = Self::default();
        for root in roots {
            skills.read_root(root, None, env);
        }
        skills
    }

    /// Every skill by name, including those that agents do not get.
    #[must_use]
    pub fn all(&self) -> &BTreeMap<String, Arc<Skill>> {
        &self.skills
    }

    /// The skill with that name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Arc<Skill>> {
        self.skills.get(name)
    }

    /// The skills that an agent with this filter may hold, sorted by name. `None` allows all.
    pub fn visible<'s>(&'s self, filter: Option<&'s BTreeSet<String>>) -> impl Iterator<Item = &'s Arc<Skill>> {
        self.skills
            .values()
            .filter(move |skill| skill.for_models && filter.is_none_or(|filter| filter.contains(&skill.name)))
    }

    /// The roots, lowest precedence first.
    #[must_use]
    pub fn roots(&self) -> &[PathBuf] {
        &self.roots
    }

    /// What was skipped, with the reason.
    #[must_use]
    pub fn skipped(&self) -> &[Skipped] {
        &self.skipped
    }
}
