//! The catalogue of tool names: canonical names, their aliases, sections and profiles, and the patterns that stand for
//! several (ACC-06, ACC-13..15, CONF-01). Names only: a name here may have no tool in the code yet, and access rules
//! must treat it as known all the same. Schemas and descriptions belong to the tools themselves.

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

    /// Whether the profile lets `tool` (a canonical name) through. Names outside the catalogue (toolbox and skill
    /// tools) pass only `Full`.
    #[must_use]
    pub fn allows(self, tool: &str) -> bool {
        match self {
            Self::Full => true,
            other => entry(tool).is_some_and(|entry| entry.profiles.contains(&other)),
        }
    }
}

/// One tool of the catalogue.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// Canonical dotted name.
    pub name: &'static str,
    /// Other names for it, resolved before any rule is applied.
    pub aliases: &'static [&'static str],
    /// One of the eleven sections, `group:<section>` standing for all of it (ACC-14).
    pub section: &'static str,
    /// The profiles that it is in, `full` aside.
    pub profiles: &'static [Profile],
    /// Registered whatever any rule says (ACC-04).
    pub always_on: bool,
    /// Dangerous when public; boot warns of it (CONF-27).
    pub dangerous: bool,
}

/// The sections of the catalogue.
pub const SECTIONS: [&str; 11] =
    ["fs", "runtime", "web", "memory", "sessions", "ui", "messaging", "automation", "nodes", "agents", "media"];

const C: Profile = Profile::Coding;
const M: Profile = Profile::Messaging;
const MIN: Profile = Profile::Minimal;

const fn e(
    name: &'static str,
    section: &'static str,
    aliases: &'static [&'static str],
    profiles: &'static [Profile],
) -> Entry {
    Entry { name, aliases, section, profiles, always_on: false, dangerous: false }
}

const fn dangerous(entry: Entry) -> Entry {
    Entry { dangerous: true, ..entry }
}

const fn always(entry: Entry) -> Entry {
    Entry { always_on: true, ..entry }
}

/// The table, sorted by name.
pub const CATALOGUE: &[Entry] = &[
    e("canvas", "ui", &[], &[]),
    e("channel.file_attach", "messaging", &[], &[]),
    e("channel.handoff", "messaging", &[], &[]),
    e("channel.send", "messaging", &[], &[]),
    e("image", "media", &[], &[C]),
    e("memory.get", "memory", &["memory_get"], &[C]),
    e("memory.scratchpad", "memory", &["scratchpad_read", "scratchpad_update"], &[C]),
    e("memory.search", "memory", &["memory_search"], &[C]),
    e("memory.write", "memory", &["memory_write"], &[C]),
    e("message", "messaging", &[], &[M]),
    e("nodes", "nodes", &[], &[]),
    e("syscall.agent.create", "agents", &[], &[]).danger(),
    e("syscall.agent.inspect", "agents", &[], &[]),
    e("syscall.agent.list", "agents", &["agents_list"], &[]),
    e("syscall.agent.start", "agents", &[], &[]),
    e("syscall.agent.stop", "agents", &[], &[]),
    e("syscall.artifact.promote", "fs", &[], &[]),
    e("syscall.ask", "sessions", &[], &[]),
    e("syscall.broadcast", "messaging", &[], &[]),
    e("syscall.channel.handoff", "messaging", &[], &[]),
    e("syscall.channel.send", "messaging", &[], &[]),
    e("syscall.chat.create", "messaging", &[], &[]),
    e("syscall.chat.history", "messaging", &[], &[]),
    e("syscall.chat.invite", "messaging", &[], &[]),
    e("syscall.chat.list", "messaging", &[], &[]),
    e("syscall.chat.remove", "messaging", &[], &[]),
    e("syscall.chat.send", "messaging", &[], &[]),
    e("syscall.control", "automation", &["gateway"], &[]),
    e("syscall.droid.check", "sessions", &["check_droid"], &[C]),
    e("syscall.droid.control", "sessions", &["subagents"], &[C]),
    e("syscall.droid.spawn", "sessions", &["spawn_droid", "sessions_spawn"], &[C]),
    e("syscall.inbox.read", "sessions", &[], &[]),
    e("syscall.knowledge.delete", "memory", &[], &[]),
    e("syscall.knowledge.list", "memory", &[], &[]),
    e("syscall.knowledge.read", "memory", &[], &[]),
    e("syscall.knowledge.write", "memory", &[], &[]),
    e("syscall.message.send", "sessions", &["send_to_agent", "sessions_send"], &[C, M]),
    e("syscall.reflect", "agents", &[], &[]),
    e("syscall.resource.usage", "agents", &[], &[]),
    e("syscall.session.history", "sessions", &["sessions_history"], &[C, M]),
    e("syscall.session.list", "sessions", &["sessions_list"], &[C, M]),
    e("syscall.session.status", "sessions", &["session_status"], &[MIN, C, M]),
    always(e("syscall.skill.acquire", "automation", &[], &[MIN, C, M])),
    always(e("syscall.skill.activate", "automation", &[], &[MIN, C, M])),
    always(e("syscall.skill.drop", "automation", &["unload_skill"], &[MIN, C, M])),
    always(e("syscall.skill.list", "automation", &[], &[MIN, C, M])),
    always(e("syscall.skill.load", "automation", &["load_skill"], &[MIN, C, M])),
    e("syscall.state.read", "memory", &[], &[]),
    e("syscall.state.write", "memory", &[], &[]).danger(),
    e("syscall.task.create", "automation", &[], &[]),
    e("syscall.task.get", "automation", &[], &[]),
    e("syscall.task.list", "automation", &[], &[]),
    e("syscall.task.update", "automation", &[], &[]),
    e("tool.browser", "ui", &["browser"], &[]),
    e("tool.cli", "runtime", &["bash", "exec"], &[C]).danger(),
    e("tool.fetch", "web", &["web_fetch"], &[]),
    e("tool.google_search", "web", &[], &[]),
    e("tool.process", "runtime", &["process"], &[C]),
    e("tool.python", "runtime", &[], &[C]).danger(),
    e("tool.web_search", "web", &["web_search"], &[]),
    e("tts", "media", &[], &[]),
    e("util.cron", "automation", &["cron"], &[C]),
    e("util.timer", "automation", &[], &[C]),
    e("util.watch", "automation", &[], &[C]),
    e("workspace.edit", "fs", &["edit"], &[C]),
    e("workspace.list", "fs", &["ls"], &[C]),
    e("workspace.patch", "fs", &["apply_patch"], &[C]),
    e("workspace.read", "fs", &["file_read", "read"], &[C]),
    e("workspace.write", "fs", &["file_write", "write"], &[C]),
];

impl Entry {
    const fn danger(self) -> Self {
        dangerous(self)
    }
}

/// Families: one short name that stands for several tools wherever a tool name is accepted (ACC-06).
pub const FAMILIES: &[(&str, &[&str])] = &[("channel", &["channel.file_attach", "channel.handoff", "channel.send"])];

/// The catalogue's entry of a canonical name.
#[must_use]
pub fn entry(name: &str) -> Option<&'static Entry> {
    CATALOGUE.binary_search_by(|entry| entry.name.cmp(name)).ok().map(|at| &CATALOGUE[at])
}

/// The canonical name of `name`: itself, or what it is an alias of. Matching of aliases is exact, as on call (TOOL-22).
#[must_use]
pub fn canonical(name: &str) -> Option<&'static str> {
    entry(name).or_else(|| CATALOGUE.iter().find(|entry| entry.aliases.contains(&name))).map(|entry| entry.name)
}

/// What a word in a group or tool list stands for: canonical names of the catalogue. Understands canonical names,
/// aliases, families, `group:<section>` and `*` patterns, without regard to case (ACC-15). Empty if nothing matches.
#[must_use]
pub fn expand(word: &str) -> Vec<&'static str> {
    let word = word.trim().to_ascii_lowercase();
    if let Some(name) = canonical(&word) {
        return vec![name];
    }
    if let Some((_, members)) = FAMILIES.iter().find(|(family, _)| *family == word) {
        return members.to_vec();
    }
    if let Some(section) = word.strip_prefix("group:") {
        return CATALOGUE.iter().filter(|entry| entry.section == section).map(|entry| entry.name).collect();
    }
    if word.contains('*') {
        return CATALOGUE.iter().filter(|entry| glob(&word, entry.name)).map(|entry| entry.name).collect();
    }
    Vec::new()
}

/// Every word that [`expand`] understands exactly: for hints about misspelt ones.
pub fn words() -> impl Iterator<Item = &'static str> {
    CATALOGUE
        .iter()
        .flat_map(|entry| std::iter::once(entry.name).chain(entry.aliases.iter().copied()))
        .chain(FAMILIES.iter().map(|(family, _)| *family))
}

/// Whether `text` matches `pattern`, in which `*` stands for any run of characters. Linear in practice and bounded by
/// the product of the lengths.
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
        } else if let Some(at) = star {
            p = at + 1;
            mark += 1;
            t = mark;
        } else {
            return false;
        }
    }
    pattern[p..].iter().all(|b| *b == b'*')
}

/// A tool name as providers that forbid dots take it, and back (CONF-01). Underscores are common in names, so the dot
/// becomes two of them; no canonical name holds two in a row, which a test asserts.
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

    #[test]
    fn the_table_is_sorted_and_no_word_means_two_things() {
        assert!(CATALOGUE.windows(2).all(|pair| pair[0].name < pair[1].name));
        let all: Vec<&str> = words().collect();
        let unique: BTreeSet<&str> = all.iter().copied().collect();
        assert_eq!(all.len(), unique.len());
        for entry in CATALOGUE {
            assert!(SECTIONS.contains(&entry.section), "{}", entry.name);
            assert!(!entry.name.contains("__"), "{}", entry.name);
            assert_eq!(from_wire(&to_wire(entry.name)), entry.name);
        }
    }

    #[test]
    fn words_expand() {
        assert_eq!(expand("bash"), ["tool.cli"]);
        assert_eq!(expand("Channel"), ["channel.file_attach", "channel.handoff", "channel.send"]);
        assert_eq!(expand("syscall.task.*").len(), 4);
        assert_eq!(expand("group:web"), ["tool.fetch", "tool.google_search", "tool.web_search"]);
        assert!(expand("nonsense").is_empty());
    }

    proptest! {
        #[test]
        fn globs_agree_with_a_plain_definition(pattern in "[ab*]{0,6}", text in "[ab]{0,8}") {
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
