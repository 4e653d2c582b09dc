//! The catalogue of tool names: canonical names, labels, aliases, sections and profiles, and the
//! words that mean several names. A name here may have no tool in the
//! code yet; access rules accept it all the same. The tools themselves have the schemas and the
//! descriptions for models.

use crate::macros::text_enum;

text_enum! {
    /// A named preset that narrows an agent's tools.
    Profile, "profile" {
        /// The status tool only.
        Minimal = "minimal",
        /// Files, commands, memory, sessions, schedules.
        Coding = "coding",
        /// Sessions and messages.
        Messaging = "messaging",
        /// No filter.
        Full = "full",
    }
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

impl Profile {
    /// Every profile name.
    pub const NAMES: [&'static str; 4] = ["minimal", "coding", "messaging", "full"];

    /// The profile with the name `name`.
    pub fn named(name: &str) -> Option<Self> {
        name.parse().ok()
    }

    /// Whether the profile includes `tool` (a canonical name). Only `Full` includes names that are
    /// not in the catalogue, such as tools of toolboxes.
    pub fn allows(self, tool: &str) -> bool {
        match self {
            Self::Full => true,
            other => entry(tool).is_some_and(|entry| entry.profiles.contains(&other)),
        }
    }
}

/// The sections, and the words for whole sections.
macro_rules! sections {
    ($($name:literal),+) => {
        /// The sections of the catalogue.
        pub const SECTIONS: [&str; 11] = [$($name),+];
        /// The words for whole sections, in the order of [`SECTIONS`].
        const SECTION_WORDS: [&str; 11] = [$(concat!("group:", $name)),+];
    };
}

sections!["fs", "runtime", "web", "memory", "sessions", "ui", "messaging", "automation", "nodes", "agents", "media"];

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
pub fn entry(name: &str) -> Option<&'static Entry> {
    CATALOGUE.binary_search_by(|entry| entry.name.cmp(name)).ok().map(|index| &CATALOGUE[index])
}

/// The canonical name for `name`, which is a canonical name or an alias. Case matters, as in a tool
/// call.
pub fn canonical(name: &str) -> Option<&'static str> {
    entry(name).or_else(|| CATALOGUE.iter().find(|entry| entry.aliases.contains(&name))).map(|entry| entry.name)
}

/// The canonical names for a word in a list of tools. The word is a canonical name, an alias, a
/// family, `group:<section>`, [`WHOLE_PRODUCT`] or a pattern with `*`. Case does not matter.
/// Empty if nothing matches.
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
pub fn to_wire(name: &str) -> String {
    name.replace('.', "__")
}

/// The inverse of [`to_wire`].
pub fn from_wire(name: &str) -> String {
    name.replace("__", ".")
}

const COD: Profile = Profile::Coding;
const MSG: Profile = Profile::Messaging;
const MIN: Profile = Profile::Minimal;

impl Entry {
    const fn always_on(self) -> Self {
        Self { always_on: true, ..self }
    }

    const fn dangerous(self) -> Self {
        Self { dangerous: true, ..self }
    }

    /// Files and commands: `group:ghost` does not include them.
    const fn plain(self) -> Self {
        Self { of_ghost: false, ..self }
    }
}

/// One row for each tool: its name, label, section, aliases and profiles, a sentence for people, and its marks.
macro_rules! catalogue {
    ($($name:literal, $label:literal, $section:literal, $aliases:tt, $profiles:tt, $description:literal $(, $mark:ident)*;)+) => {
        &[$(Entry {
            name: $name,
            label: $label,
            description: $description,
            aliases: &$aliases,
            section: $section,
            profiles: &$profiles,
            of_ghost: true,
            always_on: false,
            dangerous: false,
        }$(.$mark())*),+]
    };
}

/// Every tool name that Ghost knows, sorted. `docs/tools.md` repeats the table.
pub const CATALOGUE: &[Entry] = catalogue! {
    "canvas", "Draw on the canvas", "ui", [], [], "Draws on a shared canvas, shows it and describes it.";
    "channel.file_attach", "Attach a file", "messaging", [], [],
        "Attaches a workspace file to the reply in a conversation.";
    "channel.handoff", "Hand the conversation over", "messaging", [], [],
        "Hands the turn's conversation over to another agent.";
    "channel.send", "Send a message outside", "messaging", [], [],
        "Sends a message in a conversation, apart from the reply.";
    "image", "Look at an image", "media", [], [COD], "Describes an image, with the image model.";
    "memory.get", "Read a memory", "memory", ["memory_get"], [COD], "Reads a part of a memory, by its position.";
    "memory.scratchpad", "Use the scratchpad", "memory", ["scratchpad_read", "scratchpad_update"], [COD],
        "Reads and changes the agent's short notes to itself.";
    "memory.search", "Search memory", "memory", ["memory_search"], [COD], "Finds memories by meaning.";
    "memory.write", "Remember something", "memory", ["memory_write"], [COD], "Stores a memory beyond this turn.";
    "message", "Act on a message", "messaging", [], [MSG],
        "Sends, deletes, reacts to and pins messages; makes polls and threads.";
    "nodes", "Use other nodes", "nodes", [], [], "Lists and uses paired devices and other nodes.";
    "syscall.agent.create", "Create an agent", "agents", [], [],
        "Creates an agent from an archetype, with an optional goal.", dangerous;
    // Not marked as dangerous itself: it comes with `syscall.agent.create`, which is.
    "syscall.agent.delete", "Delete an agent", "agents", [], [], "Deletes an agent that the caller created.";
    "syscall.agent.inspect", "Inspect a memory", "agents", [], [], "Lists or reads another agent's memory files.";
    "syscall.agent.list", "List agents", "agents", ["agents_list"], [],
        "Lists the agents of the world with their status.";
    "syscall.agent.start", "Start an agent", "agents", [], [], "Starts a stopped or failed agent.";
    "syscall.agent.stop", "Stop an agent", "agents", [], [], "Stops an agent after its current turn.";
    "syscall.artifact.promote", "Promote an artifact", "fs", [], [], "Copies the work of a droid to its place.";
    "syscall.ask", "Ask an agent", "sessions", [], [], "Asks an agent a question and waits for the answer.";
    "syscall.broadcast", "Broadcast a message", "messaging", [], [],
        "Sends one message to all other agents, or to those of one archetype.";
    "syscall.channel.handoff", "Hand a channel over", "messaging", [], [],
        "Hands the conversation that the turn comes from over to another agent.";
    "syscall.channel.send", "Send to a channel", "messaging", [], [],
        "Sends a message with files in the conversation that the turn comes from.";
    "syscall.chat.create", "Open a chat channel", "messaging", [], [], "Creates a chat channel for agents.";
    "syscall.chat.history", "Read a chat", "messaging", [], [], "Reads the posts of a chat channel.";
    "syscall.chat.invite", "Invite to a chat", "messaging", [], [], "Adds an agent to a chat channel.";
    "syscall.chat.list", "List chats", "messaging", [], [], "Lists the chat channels that the agent is in.";
    "syscall.chat.remove", "Remove from a chat", "messaging", [], [], "Removes an agent from a chat channel.";
    "syscall.chat.send", "Post to a chat", "messaging", [], [], "Posts to a chat channel.";
    "syscall.control", "Control the world", "automation", ["gateway"], [], "Reloads, pauses and resumes the world.";
    "syscall.droid.check", "Check on a droid", "sessions", ["check_droid"], [COD], "Shows the state of a droid.";
    "syscall.droid.control", "Steer a droid", "sessions", ["subagents"], [COD],
        "Lists, steers and ends the agent's droids.";
    "syscall.droid.spawn", "Start a droid", "sessions", ["spawn_droid", "sessions_spawn"], [COD],
        "Starts a droid, a helper for one piece of work.", dangerous;
    "syscall.inbox.read", "Read the inbox", "sessions", [], [], "Takes the mail that arrived since the turn began.";
    "syscall.knowledge.delete", "Delete knowledge", "memory", [], [], "Deletes an entry of the shared knowledge.";
    "syscall.knowledge.list", "List knowledge", "memory", [], [], "Lists the entries of the shared knowledge.";
    "syscall.knowledge.read", "Read knowledge", "memory", [], [], "Reads an entry of the shared knowledge.";
    "syscall.knowledge.write", "Write knowledge", "memory", [], [], "Writes an entry of the shared knowledge.";
    "syscall.message.send", "Send a message", "sessions", ["send_to_agent", "sessions_send"], [COD, MSG],
        "Sends a message or a file to an agent.";
    "syscall.reflect", "See the world", "agents", [], [], "Shows the world, its agents and the agent itself.";
    "syscall.resource.usage", "See the host's load", "agents", [], [],
        "Shows the load of the host and of the daemon's process.";
    "syscall.session.history", "Read a session", "sessions", ["sessions_history"], [COD, MSG],
        "Reads what was said in one of the agent's own sessions.";
    "syscall.session.list", "List sessions", "sessions", ["sessions_list"], [COD, MSG],
        "Lists the agent's own sessions.";
    "syscall.session.status", "See an agent's status", "sessions", ["session_status"], [MIN, COD, MSG],
        "Shows an agent's status, model, pending mail and usage.";
    "syscall.skill.acquire", "Acquire a skill", "automation", [], [MIN, COD, MSG],
        "Acquires a skill until it is dropped.", always_on;
    "syscall.skill.activate", "Activate a skill", "automation", [], [MIN, COD, MSG],
        "Reads the text of a held skill.", always_on;
    "syscall.skill.drop", "Drop a skill", "automation", ["unload_skill"], [MIN, COD, MSG],
        "Drops a held skill.", always_on;
    "syscall.skill.list", "List skills", "automation", [], [MIN, COD, MSG],
        "Lists the skills that the agent may hold.", always_on;
    "syscall.skill.load", "Load a skill", "automation", ["load_skill"], [MIN, COD, MSG],
        "Acquires a skill and reads its text.", always_on;
    "syscall.state.read", "Read shared state", "memory", [], [], "Reads values of the shared state.";
    "syscall.state.write", "Write shared state", "memory", [], [], "Writes a value of the shared state.", dangerous;
    "syscall.task.create", "Create a task", "automation", [], [], "Creates a task for an agent.";
    "syscall.task.get", "Read a task", "automation", [], [], "Reads a task and its history.";
    "syscall.task.list", "List tasks", "automation", [], [], "Lists tasks, by owner and status.";
    "syscall.task.update", "Update a task", "automation", [], [],
        "Changes a task, such as its status, owner or result.";
    "syscall.tool.call", "Call a listed tool", "automation", [], [MIN, COD, MSG],
        "Calls a tool that a prompt lists without its parameters.", always_on;
    "syscall.tool.describe", "Describe a listed tool", "automation", [], [MIN, COD, MSG],
        "Shows the parameters of a tool that a prompt only lists.", always_on;
    "tool.browser", "Use a browser", "ui", ["browser"], [],
        "Opens a page in a browser: its text, a screenshot or a PDF.";
    "tool.cli", "Run a command", "runtime", ["bash", "exec"], [COD], "Runs a command in the sandbox.", dangerous, plain;
    "tool.fetch", "Fetch a page", "web", ["web_fetch"], [], "Fetches a page and returns its text.";
    "tool.google_search", "Search with Google", "web", [], [], "Searches the web with Google.";
    "tool.process", "Manage processes", "runtime", ["process"], [COD],
        "Lists, reads and ends commands in the background.", plain;
    "tool.python", "Run Python", "runtime", [], [COD], "Runs Python code in the sandbox.", dangerous, plain;
    "tool.web_search", "Search the web", "web", ["web_search"], [], "Searches the web.";
    "tts", "Speak", "media", [], [], "Turns text into speech.";
    "util.cron", "Set a cron job", "automation", ["cron"], [COD], "Sets, changes and runs cron jobs.";
    "util.timer", "Set a timer", "automation", [], [COD], "Reminds the agent after a duration or at a time.";
    "util.watch", "Watch files", "automation", [], [COD], "Notifies the agent when files change.";
    "workspace.edit", "Edit a file", "fs", ["edit"], [COD], "Replaces an exact piece of a file's text.", plain;
    "workspace.list", "List files", "fs", ["ls"], [COD], "Lists the files of a directory.", plain;
    "workspace.patch", "Patch files", "fs", ["apply_patch"], [COD], "Applies a patch to several files.", plain;
    "workspace.read", "Read a file", "fs", ["file_read", "read"], [COD],
        "Reads a text file, whole or from a given line on.", plain;
    "workspace.write", "Write a file", "fs", ["file_write", "write"], [COD],
        "Creates, replaces or extends a file.", plain;
};

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
