//! Resolves words to tools: the words of the catalogue, and the tools of toolboxes and skills.
//!
//! This module must never decide which agent may use a tool; `access` decides it.

use std::collections::{BTreeMap, BTreeSet};

use ghost_domain::text::nearest;
use ghost_domain::tool_catalogue;

use crate::reader::Field;

/// The tools of toolboxes and skills: full names, and short names that mean exactly one of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExtraTools {
    full: BTreeSet<String>,
    short: BTreeMap<String, BTreeSet<String>>,
    /// Toolboxes whose manifest has an error.
    broken: BTreeSet<String>,
}

impl ExtraTools {
    /// Adds the tool `<toolbox>.<tool>`.
    pub fn insert(&mut self, toolbox: &str, tool: &str) {
        let full = format!("{toolbox}.{tool}");
        self.short.entry(tool.to_owned()).or_default().insert(full.clone());
        self.full.insert(full);
    }

    /// Says that the manifest of a toolbox has an error. Then a word that names one of its tools is taken as it is: the
    /// error is reported, and that the tool is missing would only follow from it. Such a world does not start.
    pub fn broken(&mut self, toolbox: &str) {
        self.broken.insert(toolbox.to_owned());
    }

    /// The tools that a word in a group or tool list stands for, catalogue included. Empty if the
    /// word is unknown, or if a short name could mean several tools.
    #[must_use]
    pub fn expand(&self, word: &str) -> BTreeSet<String> {
        let mut found: BTreeSet<String> = tool_catalogue::expand(word).into_iter().map(str::to_owned).collect();
        let word = word.trim().to_ascii_lowercase();
        if word.split_once('.').is_some_and(|(toolbox, _)| self.broken.contains(toolbox)) {
            found.insert(word);
        } else if word.contains('*') {
            found.extend(self.full.iter().filter(|name| tool_catalogue::glob(&word, name)).cloned());
        } else if found.is_empty() {
            if self.full.contains(&word) {
                found.insert(word);
            } else if let Some(tools) = self.short.get(&word)
                && tools.len() == 1
            {
                found.extend(tools.iter().cloned());
            }
        }
        found
    }

    /// The tools of all `words`. One that stands for none is reported.
    pub(crate) fn expand_all(&self, words: &[(&Field<'_>, &str)]) -> BTreeSet<String> {
        let mut tools = BTreeSet::new();
        for (field, word) in words {
            let found = self.expand(word);
            if found.is_empty() {
                field.error(format!("there is no tool `{}`", field.shown()), self.hint(word));
            }
            tools.extend(found);
        }
        tools
    }

    /// Every word that stands for a tool, for hints about misspelt words.
    pub fn words(&self) -> impl Iterator<Item = &str> {
        tool_catalogue::words()
            .map(|word| -> &str { word })
            .chain(self.full.iter().map(String::as_str))
            .chain(self.short.iter().filter(|(_, tools)| tools.len() == 1).map(|(short, _)| short.as_str()))
    }

    /// The hint for a word that stands for no tool.
    #[must_use]
    pub fn hint(&self, word: &str) -> String {
        let word = word.trim().to_ascii_lowercase();
        let near = match word.find('*') {
            // Compare only the text before the first star, with the beginnings of names.
            Some(at) => {
                let beginnings = self.words().flat_map(|name| name.match_indices('.').map(|(dot, _)| &name[..=dot]));
                nearest(&word[..at], beginnings).map(|near| format!("{near}{}", &word[at..]))
            }
            None => nearest(&word, self.words()).map(str::to_owned).or_else(|| {
                // `memory` for `memory.get` is too short to be the nearest word, but the intention
                // is clear.
                let longer = self.words().filter(|longer| word.len() >= 4 && longer.starts_with(&word)).min();
                longer.map(str::to_owned)
            }),
        };
        match near.filter(|near| !self.expand(near).is_empty()) {
            Some(near) => format!("did you mean `{near}`?"),
            None if word.starts_with("group:") => format!(
                "the sections are: {}; `{}` is all of Ghost's own tools",
                tool_catalogue::SECTIONS.join(", "),
                tool_catalogue::WHOLE_PRODUCT
            ),
            None if word.contains('*') => {
                "a pattern must match the whole of a tool's name, such as `workspace.*` or `syscall.task.*`".to_owned()
            }
            None => "name a tool (`ghostctl tool list AGENT`), a section (`group:fs`) or a pattern (`workspace.*`)"
                .to_owned(),
        }
    }
}
