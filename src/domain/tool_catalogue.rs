//! The catalogue of tool names: canonical names, their aliases, sections and profiles, and the patterns that stand for
//! several (ACC-06, ACC-13..15, CONF-01). Names and labels only: a name here may have no tool in the code yet, and access rules
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
    /// What people call it, in a few words.
    pub label: &'static str,
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

/// The words that stand for whole sections, in the order of [`SECTIONS`].
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

const C: Profile = Profile::Coding;
const M: Profile = Profile::Messaging;
const MIN: Profile = Profile::Minimal;

const fn e(
    name: &'static str,
    label: &'static str,
    section: &'static str,
    aliases: &'static [&'static str],
    profiles: &'static [Profile],
) -> Entry {
    Entry { name, label, aliases, section, profiles, always_on: false, dangerous: false }
}

const fn dangerous(entry: Entry) -> Entry {
    Entry { dangerous: true, ..entry }
}

const fn always(entry: Entry) -> Entry {
    Entry { always_on: true, ..entry }
}

/// The table, sorted by name.
pub const CATALOGUE: &[Entry] = &[
    e("canvas", "Draw on the canvas", "ui", &[], &[]),
    e("channel.file_attach", "Attach a file", "messaging", &[], &[]),
    e("channel.handoff", "Hand the conversation over", "messaging", &[], &[]),
    e("channel.send", "Say something outside", "messaging", &[], &[]),
    e("image", "Look at an image", "media", &[], &[C]),
    e("memory.get", "Read a memory", "memory", &["memory_get"], &[C]),
    e("memory.scratchpad", "Use the scratchpad", "memory", &["scratchpad_read", "scratchpad_update"], &[C]),
    e("memory.search", "Search memory", "memory", &["memory_search"], &[C]),
    e("memory.write", "Remember something", "memory", &["memory_write"], &[C]),
    e("message", "Act on a message", "messaging", &[], &[M]),
    e("nodes", "Use other nodes", "nodes", &[], &[]),
    e("syscall.agent.create", "Create an agent", "agents", &[], &[]).danger(),
    e("syscall.agent.inspect", "Look into a memory", "agents", &[], &[]),
    e("syscall.agent.list", "List agents", "agents", &["agents_list"], &[]),
    e("syscall.agent.start", "Start an agent", "agents", &[], &[]),
    e("syscall.agent.stop", "Stop an agent", "agents", &[], &[]),
    e("syscall.artifact.promote", "Promote an artifact", "fs", &[], &[]),
    e("syscall.ask", "Ask an agent", "sessions", &[], &[]),
    e("syscall.broadcast", "Tell everyone", "messaging", &[], &[]),
    e("syscall.channel.handoff", "Hand a channel over", "messaging", &[], &[]),
    e("syscall.channel.send", "Send to a channel", "messaging", &[], &[]),
    e("syscall.chat.create", "Open a chat channel", "messaging", &[], &[]),
    e("syscall.chat.history", "Read a chat", "messaging", &[], &[]),
    e("syscall.chat.invite", "Invite to a chat", "messaging", &[], &[]),
    e("syscall.chat.list", "List chats", "messaging", &[], &[]),
    e("syscall.chat.remove", "Remove from a chat", "messaging", &[], &[]),
    e("syscall.chat.send", "Post to a chat", "messaging", &[], &[]),
    e("syscall.control", "Control the world", "automation", &["gateway"], &[]),
    e("syscall.droid.check", "Check on a droid", "sessions", &["check_droid"], &[C]),
    e("syscall.droid.control", "Steer a droid", "sessions", &["subagents"], &[C]),
    e("syscall.droid.spawn", "Send out a droid", "sessions", &["spawn_droid", "sessions_spawn"], &[C]),
    e("syscall.inbox.read", "Read the inbox", "sessions", &[], &[]),
    e("syscall.knowledge.delete", "Delete knowledge", "memory", &[], &[]),
    e("syscall.knowledge.list", "List knowledge", "memory", &[], &[]),
    e("syscall.knowledge.read", "Read knowledge", "memory", &[], &[]),
    e("syscall.knowledge.write", "Write knowledge", "memory", &[], &[]),
    e("syscall.message.send", "Send a message", "sessions", &["send_to_agent", "sessions_send"], &[C, M]),
    e("syscall.reflect", "See the world", "agents", &[], &[]),
    e("syscall.resource.usage", "See the host's load", "agents", &[], &[]),
    e("syscall.session.history", "Read a session", "sessions", &["sessions_history"], &[C, M]),
    e("syscall.session.list", "List sessions", "sessions", &["sessions_list"], &[C, M]),
    e("syscall.session.status", "See an agent's standing", "sessions", &["session_status"], &[MIN, C, M]),
    always(e("syscall.skill.acquire", "Acquire a skill", "automation", &[], &[MIN, C, M])),
    always(e("syscall.skill.activate", "Activate a skill", "automation", &[], &[MIN, C, M])),
    always(e("syscall.skill.drop", "Drop a skill", "automation", &["unload_skill"], &[MIN, C, M])),
    always(e("syscall.skill.list", "List skills", "automation", &[], &[MIN, C, M])),
    always(e("syscall.skill.load", "Load a skill", "automation", &["load_skill"], &[MIN, C, M])),
    e("syscall.state.read", "Read shared state", "memory", &[], &[]),
    e("syscall.state.write", "Write shared state", "memory", &[], &[]).danger(),
    e("syscall.task.create", "Create a task", "automation", &[], &[]),
    e("syscall.task.get", "Read a task", "automation", &[], &[]),
    e("syscall.task.list", "List tasks", "automation", &[], &[]),
    e("syscall.task.update", "Update a task", "automation", &[], &[]),
    e("tool.browser", "Use a browser", "ui", &["browser"], &[]),
    e("tool.cli", "Run a command", "runtime", &["bash", "exec"], &[C]).danger(),
    e("tool.fetch", "Fetch a page", "web", &["web_fetch"], &[]),
    e("tool.google_search", "Search with Google", "web", &[], &[]),
    e("tool.process", "Manage processes", "runtime", &["process"], &[C]),
    e("tool.python", "Run Python", "runtime", &[], &[C]).danger(),
    e("tool.web_search", "Search the web", "web", &["web_search"], &[]),
    e("tts", "Speak", "media", &[], &[]),
    e("util.cron", "Set a cron job", "automation", &["cron"], &[C]),
    e("util.timer", "Set a timer", "automation", &[], &[C]),
    e("util.watch", "Watch files", "automation", &[], &[C]),
    e("workspace.edit", "Edit a file", "fs", &["edit"], &[C]),
    e("workspace.list", "List files", "fs", &["ls"], &[C]),
    e("workspace.patch", "Patch files", "fs", &["apply_patch"], &[C]),
    e("workspace.read", "Read a file", "fs", &["file_read", "read"], &[C]),
    e("workspace.write", "Write a file", "fs", &["file_write", "write"], &[C]),
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
        .chain(SECTION_WORDS)
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
        assert_eq!(SECTION_WORDS.map(str::to_owned), SECTIONS.map(|section| format!("group:{section}")));
        assert!(all.iter().all(|word| !expand(word).is_empty()));
        let labels: BTreeSet<&str> = CATALOGUE.iter().map(|entry| entry.label).collect();
        assert_eq!(labels.len(), CATALOGUE.len());
        for entry in CATALOGUE {
            let short = !entry.label.contains('.') && (5..=30).contains(&entry.label.len());
            assert!(short && entry.label.starts_with(char::is_uppercase), "{}", entry.label);
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
