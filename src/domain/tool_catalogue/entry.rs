//! What the catalogue says of one name, and the profiles that it may be in.

/// A named preset that narrows an agent's tools (ACC-13).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
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
    /// The profile of that name.
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
    /// What people call it, in a few words.
    pub label: &'static str,
    /// What it does, in one sentence for people who choose tools; a model reads the tool's own words.
    pub description: &'static str,
    /// Other names for it, resolved before any rule is applied.
    pub aliases: &'static [&'static str],
    /// One of the eleven sections, `group:<section>` standing for all of it (ACC-14).
    pub section: &'static str,
    /// The profiles that it is in, `full` aside.
    pub profiles: &'static [Profile],
    /// Whether `group:ghost`, the group of the whole product, stands for it among others (ACC-14): all that agents have because
    /// they live in Ghost, and not the plain files and commands of any host.
    pub of_ghost: bool,
    /// Registered whatever any rule says (ACC-04).
    pub always_on: bool,
    /// Dangerous when public; boot warns of it (CONF-27).
    pub dangerous: bool,
}
