//! The catalogue of tool names: canonical names, labels, aliases, sections and profiles, and the
//! words that mean several names. A name here may have no tool in the
//! code yet; access rules accept it all the same. The tools themselves have the schemas and the
//! descriptions for models.

mod entry;
mod table;

pub use entry::{Entry, Profile};
pub use table::CATALOGUE;

impl Profile {
    /// Whether the profile includes `tool` (a canonical name). Only `Full` includes names that are
    /// not in the catalogue, such as tools of toolboxes.
    #[must_use]
    pub fn allows(self, tool: &str) -> bool {
        match self {
            Self::Full => true,
            other => entry(tool).is_some_and(|entry| entry.profiles.contains(&other)),
        }
    }
}

/// The sections of the catalogue.
pub const SECTIONS: [&str; 11] =
    ["fs", "runtime", "web", "memory", "sessions", "ui", "messaging", "automation", "nodes", "agents", "media"];

/// The words for whole sections, in the order of [`SECTIONS`].
const SECTION_WORDS: [&str; 11] = [
    "group:fs",
    "group:runtime",
    "group:web",
    "group:memory",
    "group:sessions",
    "group:ui",
    "group:messaging",
    "group:automation",
    "group:nodes",
    "group:agents",
    "group:media",
];

/// The word for all tools that are specific to Ghost ([`Entry::of_ghost`]).
pub const WHOLE_PRODUCT: &str = "group:ghost";

/// Families: a short name for several tools. It is accepted wherever a tool name is.
pub const FAMILIES: &[(&str, &[&str])] = &[("channel", &["channel.file_attach", "channel.handoff", "channel.send"])];

/// The tool that shows the parameters of a deferred tool: one that a prompt lists without them. Providers that can load
/// a tool in the middle of a conversation get its result in a form of their own.
pub const DESCRIBE: &str = "syscall.tool.describe";
/// The tool that calls a deferred tool.
pub const CALL: &str = "syscall.tool.call";

/// The entry of a canonical name.
#[must_use]
pub fn entry(name: &str) -> Option<&'static Entry> {
    CATALOGUE.binary_search_by(|entry| entry.name.cmp(name)).ok().map(|index| &CATALOGUE[index])
}

/// The canonical name for `name`, which is a canonical name or an alias. Case matters, as in a tool
/// call.
#[must_use]
pub fn canonical(name: &str) -> Option<&'static str> {
    entry(name).or_else(|| CATALOGUE.iter().find(|entry| entry.aliases.contains(&name))).map(|entry| entry.name)
}

/// The canonical names for a word in a list of tools. The word is a canonical name, an alias, a
/// family, `group:<section>`, [`WHOLE_PRODUCT`] or a pattern with `*`. Case does not matter.
/// Empty if nothing matches.
#[must_use]
pub fn expand(word: &str) -> Vec<&'static str> {
    let word = word.trim().to_ascii_lowercase();
    if let Some(name) = canonical(&word) {
        return vec![name];
    }
    if let Some((_, members)) = FAMILIES.iter().find(|(family, _)| *family == word) {
        return members.to_vec();
    }
    if word == WHOLE_PRODUCT {
        return CATALOGUE.iter().filter(|entry| entry.of_ghost).map(|entry| entry.name).collect();
    }
    if let Some(section) = word.strip_prefix("group:") {
        return CATALOGUE.iter().filter(|entry| entry.section == section).map(|entry| entry.name).collect();
    }
    if word.contains('*') {
        return CATALOGUE.iter().filter(|entry| glob(&word, entry.name)).map(|entry| entry.name).collect();
    }
    Vec::new()
}

/// Every word that [`expand`] accepts, except patterns. Hints about misspelt words use it.
pub fn words() -> impl Iterator<Item = &'static str> {
    CATALOGUE
        .iter()
        .flat_map(|entry| std::iter::once(entry.name).chain(entry.aliases.iter().copied()))
        .chain(FAMILIES.iter().map(|(family, _)| *family))
        .chain(SECTION_WORDS)
        .chain([WHOLE_PRODUCT])
}

/// Whether `text` matches `pattern`, in which `*` matches any number of characters. The cost is at
/// most the product of both lengths.
#[must_use]
pub fn glob(pattern: &str, text: &str) -> bool {
    let (pattern, text) = (pattern.as_bytes(), text.as_bytes());
    let (mut p, mut t, mut star, mut mark) = (0, 0, None, 0);
    while t < text.len() {
        if p < pattern.len() && pattern[p] == b'*' {
            star = Some(p);
            mark = t;
            p += 1;
        } else if p < pattern.len() && pattern[p] == text[t] {
            p += 1;
            t += 1;
        } else if let Some(index) = star {
            p = index + 1;
            mark += 1;
            t = mark;
        } else {
            return false;
        }
    }
    pattern[p..].iter().all(|b| *b == b'*')
}

/// A tool name for providers that forbid dots. A dot becomes two underscores. No
/// canonical name contains two underscores in a row; a test checks this.
#[must_use]
pub fn to_wire(name: &str) -> String {
    name.replace('.', "__")
}

/// The inverse of [`to_wire`].
#[must_use]
pub fn from_wire(name: &str) -> String {
    name.replace("__", ".")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    // covers: CONF-01, LIM-18
    #[test]
    fn the_table_is_sorted_and_every_word_is_unique() {
        assert!(CATALOGUE.windows(2).all(|pair| pair[0].name < pair[1].name));
        let all: Vec<&str> = words().collect();
        let unique: BTreeSet<&str> = all.iter().copied().collect();
        assert_eq!(all.len(), unique.len());
        assert_eq!(SECTION_WORDS.map(str::to_owned), SECTIONS.map(|section| format!("group:{section}")));
        assert!(all.iter().all(|word| !expand(word).is_empty()));
        let labels: BTreeSet<&str> = CATALOGUE.iter().map(|entry| entry.label).collect();
        assert_eq!(labels.len(), CATALOGUE.len());
        for entry in CATALOGUE {
            let short = !entry.label.contains('.') && (5..=30).contains(&entry.label.len());
            assert!(short && entry.label.starts_with(char::is_uppercase), "{}", entry.label);
            let sentence = entry.description.ends_with('.') && (15..=80).contains(&entry.description.len());
            assert!(sentence && entry.description.starts_with(char::is_uppercase), "{}", entry.description);
            assert!(SECTIONS.contains(&entry.section), "{}", entry.name);
            assert!(!entry.name.contains("__"), "{}", entry.name);
            assert_eq!(from_wire(&to_wire(entry.name)), entry.name);
        }
        let sections: BTreeSet<&str> = CATALOGUE.iter().map(|entry| entry.section).collect();
        let profiles: BTreeSet<Profile> = Profile::NAMES.into_iter().filter_map(Profile::named).collect();
        assert_eq!((sections.len(), profiles.len()), (11, 4));
    }

    // covers: ACC-06, ACC-14, ACC-15, CONF-01, CONF-08
    #[test]
    fn words_expand() {
        assert_eq!(expand("bash"), ["tool.cli"]);
        assert_eq!(expand("Channel"), ["channel.file_attach", "channel.handoff", "channel.send"]);
        assert_eq!(expand("syscall.task.*").len(), 4);
        assert_eq!(expand("group:web"), ["tool.fetch", "tool.google_search", "tool.web_search"]);
        assert!(expand("nonsense").is_empty());
        // Droids and sub-agents are the same.
        assert_eq!(expand("spawn_droid"), expand("sessions_spawn"));
        assert_eq!(expand("sessions_spawn"), ["syscall.droid.spawn"]);
        assert_eq!(expand("subagents"), ["syscall.droid.control"]);
        let whole_product = expand("Group:Ghost");
        for (name, of_ghost) in
            [("syscall.ask", true), ("tool.fetch", true), ("workspace.read", false), ("tool.cli", false)]
        {
            assert_eq!(whole_product.contains(&name), of_ghost, "{name}");
        }
    }

    proptest! {
        #[test]
        fn glob_agrees_with_a_recursive_definition(pattern in "[ab*]{0,6}", text in "[ab]{0,8}") {
            fn plain(p: &[u8], t: &[u8]) -> bool {
                match (p.first(), t.first()) {
                    (None, None) => true,
                    (Some(b'*'), _) => plain(&p[1..], t) || (!t.is_empty() && plain(p, &t[1..])),
                    (Some(a), Some(b)) if a == b => plain(&p[1..], &t[1..]),
                    _ => false,
                }
            }
            prop_assert_eq!(glob(&pattern, &text), plain(pattern.as_bytes(), text.as_bytes()));
        }
    }
}
