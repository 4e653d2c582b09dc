//! One entry of the catalogue of tools, and the profiles.

/// A named preset that narrows an agent's tools.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Profile {
    /// The status tool only.
    Minimal,
    /// Files, commands, memory, sessions, schedules.
    Coding,
    /// Sessions and messages.
    Messaging,
    /// No filter.
    Full,
}

impl Profile {
    /// The profile with the name `name`.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "minimal" => Some(Self::Minimal),
            "coding" => Some(Self::Coding),
            "messaging" => Some(Self::Messaging),
            "full" => Some(Self::Full),
            _ => None,
        }
    }

    /// Every profile name.
    pub const NAMES: [&'static str; 4] = ["minimal", "coding", "messaging", "full"];
}

/// One tool of the catalogue.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// Canonical dotted name.
    pub name: &'static str,
    /// Label for people, a few words.
    pub label: &'static str,
    /// One sentence for people who choose tools. A model reads the tool's own description instead.
    pub description: &'static str,
    /// Other names, resolved before any access rule applies.
    pub aliases: &'static [&'static str],
    /// One of the eleven sections. `group:<section>` means the whole section.
    pub section: &'static str,
    /// Profiles that include the tool, besides `full`.
    pub profiles: &'static [Profile],
    /// Whether `group:ghost` includes the tool. It includes the tools that are specific to
    /// Ghost, not plain files and commands.
    pub of_ghost: bool,
    /// Every agent has the tool, independent of access rules.
    pub always_on: bool,
    /// Dangerous if every agent may use it: by default it needs a grant.
    pub dangerous: bool,
}
