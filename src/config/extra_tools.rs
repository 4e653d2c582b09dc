//! The words of a world that stand for tools: those of the catalogue, and the names that toolboxes and skills bring (TBX-03).
//!
//! Must never: decide who may use what; that is the rules' business (`access`).

use std::collections::{BTreeMap, BTreeSet};

use ghost_domain::text::nearest;
use ghost_domain::tool_catalogue;

/// Tools that toolboxes and skills bring: full names, and the short names that mean exactly one of them (TBX-03).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExtraTools {
    full: BTreeSet<String>,
    short: BTreeMap<String, BTreeSet<String>>,
}

impl ExtraTools {
    /// Makes `<toolbox>.<tool>` known.
    pub fn insert(&mut self, toolbox: &str, tool: &str) {
        let full = format!("{toolbox}.{tool}");
        self.short.entry(tool.to_owned()).or_default().insert(full.clone());
        self.full.insert(full);
    }

    /// What a word in a group or tool list stands for, catalogue included. Empty if nothing is called that, or if a
    /// short name could mean several tools.
    #[must_use]
    pub fn expand(&self, word: &str) -> BTreeSet<String> {
        let mut found: BTreeSet<String> = tool_catalogue::expand(word).into_iter().map(str::to_owned).collect();
        let word = word.trim().to_ascii_lowercase();
        if word.contains('*') {
            found.extend(self.full.iter().filter(|name| tool_catalogue::glob(&word, name)).cloned());
        } else if found.is_empty() {
            if self.full.contains(&word) {
                found.insert(word);
            } else if let Some(meant) = self.short.get(&word)
                && meant.len() == 1
            {
                found.extend(meant.iter().cloned());
            }
        }
        found
    }

    /// Every word that stands for something, for hints about misspelt ones.
    pub fn words(&self) -> impl Iterator<Item = &str> {
        tool_catalogue::words()
            .map(|word| -> &str { word })
            .chain(self.full.iter().map(String::as_str))
            .chain(self.short.iter().filter(|(_, meant)| meant.len() == 1).map(|(short, _)| short.as_str()))
    }

    /// What someone may have meant who wrote a word that stands for nothing.
    #[must_use]
    pub fn hint(&self, word: &str) -> String {
        let word = word.trim().to_ascii_lowercase();
        let near = match word.find('*') {
            // Only the text before the first star is said outright: it is held against the beginnings of names.
            Some(at) => {
                let beginnings = self.words().flat_map(|name| name.match_indices('.').map(|(dot, _)| &name[..=dot]));
                nearest(&word[..at], beginnings).map(|near| format!("{near}{}", &word[at..]))
            }
            None => nearest(&word, self.words()).map(str::to_owned).or_else(|| {
                // `memory` for `memory.get` is no slip of the keyboard, yet plain enough.
                let longer = self.words().filter(|longer| word.len() >= 4 && longer.starts_with(&word)).min();
                longer.map(str::to_owned)
            }),
        };
        match near.filter(|near| !self.expand(near).is_empty()) {
            Some(near) => format!("did you mean `{near}`?"),
            None if word.starts_with("group:") => format!(
                "the sections are: {}; `{}` is everything of Ghost's own",
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
