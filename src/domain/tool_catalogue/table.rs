//! The table of all tools, sorted by name. Only data: [`Entry`] explains the columns.
//! `docs/tools.md` repeats the table.

use super::entry::{Entry, Profile};

const COD: Profile = Profile::Coding;
const MSG: Profile = Profile::Messaging;
const MIN: Profile = Profile::Minimal;

const fn entry(
    name: &'static str,
    label: &'static str,
    section: &'static str,
    aliases: &'static [&'static str],
    profiles: &'static [Profile],
) -> Entry {
    let (description, of_ghost, always_on, dangerous) = ("", true, false, false);
    Entry { name, label, description, aliases, section, profiles, of_ghost, always_on, dangerous }
}

impl Entry {
    const fn description(self, description: &'static str) -> Self {
        Self { description, ..self }
    }

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

/// Every tool name that Ghost knows, sorted.
pub const CATALOGUE: &[Entry] = &[
    entry("canvas", "Draw on the canvas", "ui", &[], &[])
        .description("Draws on a shared canvas, shows it and describes it."),
    entry("channel.file_attach", "Attach a file", "messaging", &[], &[])
        .description("Attaches a workspace file to the reply in a conversation."),
    entry("channel.handoff", "Hand the conversation over", "messaging", &[], &[])
        .description("Hands the turn's conversation over to another agent."),
    entry("channel.send", "Send a message outside", "messaging", &[], &[])
        .description("Sends a message in a conversation, apart from the reply."),
    entry("image", "Look at an image", "media", &[], &[COD]).description("Describes an image, with the image model."),
    entry("memory.get", "Read a memory", "memory", &["memory_get"], &[COD])
        .description("Reads a part of a memory, by its position."),
    entry("memory.scratchpad", "Use the scratchpad", "memory", &["scratchpad_read", "scratchpad_update"], &[COD])
        .description("Reads and changes the agent's short notes to itself."),
    entry("memory.search", "Search memory", "memory", &["memory_search"], &[COD])
        .description("Finds memories by meaning."),
    entry("memory.write", "Remember something", "memory", &["memory_write"], &[COD])
        .description("Stores a memory beyond this turn."),
    entry("message", "Act on a message", "messaging", &[], &[MSG])
        .description("Sends, deletes, reacts to and pins messages; makes polls and threads."),
    entry("nodes", "Use other nodes", "nodes", &[], &[]).description("Lists and uses paired devices and other nodes."),
    entry("syscall.agent.create", "Create an agent", "agents", &[], &[])
        .description("Creates an agent from an archetype, with an optional goal.")
        .dangerous(),
    // Not marked as dangerous itself: it comes with `syscall.agent.create`, which is.
    entry("syscall.agent.delete", "Delete an agent", "agents", &[], &[])
        .description("Deletes an agent that the caller created."),
    entry("syscall.agent.inspect", "Inspect a memory", "agents", &[], &[])
        .description("Lists or reads another agent's memory files."),
    entry("syscall.agent.list", "List agents", "agents", &["agents_list"], &[])
        .description("Lists the agents of the world with their status."),
    entry("syscall.agent.start", "Start an agent", "agents", &[], &[]).description("Starts a stopped or failed agent."),
    entry("syscall.agent.stop", "Stop an agent", "agents", &[], &[])
        .description("Stops an agent after its current turn."),
    entry("syscall.artifact.promote", "Promote an artifact", "fs", &[], &[])
        .description("Copies the work of a droid to its place."),
    entry("syscall.ask", "Ask an agent", "sessions", &[], &[])
        .description("Asks an agent a question and waits for the answer."),
    entry("syscall.broadcast", "Broadcast a message", "messaging", &[], &[])
        .description("Sends one message to all other agents, or to those of one archetype."),
    entry("syscall.channel.handoff", "Hand a channel over", "messaging", &[], &[])
        .description("Hands the conversation that the turn comes from over to another agent."),
    entry("syscall.channel.send", "Send to a channel", "messaging", &[], &[])
        .description("Sends a message with files in the conversation that the turn comes from."),
    entry("syscall.chat.create", "Open a chat channel", "messaging", &[], &[])
        .description("Creates a chat channel for agents."),
    entry("syscall.chat.history", "Read a chat", "messaging", &[], &[])
        .description("Reads the posts of a chat channel."),
    entry("syscall.chat.invite", "Invite to a chat", "messaging", &[], &[])
        .description("Adds an agent to a chat channel."),
    entry("syscall.chat.list", "List chats", "messaging", &[], &[])
        .description("Lists the chat channels that the agent is in."),
    entry("syscall.chat.remove", "Remove from a chat", "messaging", &[], &[])
        .description("Removes an agent from a chat channel."),
    entry("syscall.chat.send", "Post to a chat", "messaging", &[], &[]).description("Posts to a chat channel."),
    entry("syscall.control", "Control the world", "automation", &["gateway"], &[])
        .description("Reloads, pauses and resumes the world."),
    entry("syscall.droid.check", "Check on a droid", "sessions", &["check_droid"], &[COD])
        .description("Shows the state of a droid."),
    entry("syscall.droid.control", "Steer a droid", "sessions", &["subagents"], &[COD])
        .description("Lists, steers and ends the agent's droids."),
    entry("syscall.droid.spawn", "Start a droid", "sessions", &["spawn_droid", "sessions_spawn"], &[COD])
        .description("Starts a droid, a helper for one piece of work.")
        .dangerous(),
    entry("syscall.inbox.read", "Read the inbox", "sessions", &[], &[])
        .description("Takes the mail that arrived since the turn began."),
    entry("syscall.knowledge.delete", "Delete knowledge", "memory", &[], &[])
        .description("Deletes an entry of the shared knowledge."),
    entry("syscall.knowledge.list", "List knowledge", "memory", &[], &[])
        .description("Lists the entries of the shared knowledge."),
    entry("syscall.knowledge.read", "Read knowledge", "memory", &[], &[])
        .description("Reads an entry of the shared knowledge."),
    entry("syscall.knowledge.write", "Write knowledge", "memory", &[], &[])
        .description("Writes an entry of the shared knowledge."),
    entry("syscall.message.send", "Send a message", "sessions", &["send_to_agent", "sessions_send"], &[COD, MSG])
        .description("Sends a message or a file to an agent."),
    entry("syscall.reflect", "See the world", "agents", &[], &[])
        .description("Shows the world, its agents and the agent itself."),
    entry("syscall.resource.usage", "See the host's load", "agents", &[], &[])
        .description("Shows the load of the host and of the daemon's process."),
    entry("syscall.session.history", "Read a session", "sessions", &["sessions_history"], &[COD, MSG])
        .description("Reads what was said in one of the agent's own sessions."),
    entry("syscall.session.list", "List sessions", "sessions", &["sessions_list"], &[COD, MSG])
        .description("Lists the agent's own sessions."),
    entry("syscall.session.status", "See an agent's status", "sessions", &["session_status"], &[MIN, COD, MSG])
        .description("Shows an agent's status, model, pending mail and usage."),
    entry("syscall.skill.acquire", "Acquire a skill", "automation", &[], &[MIN, COD, MSG])
        .description("Acquires a skill until it is dropped.")
        .always_on(),
    entry("syscall.skill.activate", "Activate a skill", "automation", &[], &[MIN, COD, MSG])
        .description("Reads the text of a held skill.")
        .always_on(),
    entry("syscall.skill.drop", "Drop a skill", "automation", &["unload_skill"], &[MIN, COD, MSG])
        .description("Drops a held skill.")
        .always_on(),
    entry("syscall.skill.list", "List skills", "automation", &[], &[MIN, COD, MSG])
        .description("Lists the skills that the agent may hold.")
        .always_on(),
    entry("syscall.skill.load", "Load a skill", "automation", &["load_skill"], &[MIN, COD, MSG])
        .description("Acquires a skill and reads its text.")
        .always_on(),
    entry("syscall.state.read", "Read shared state", "memory", &[], &[])
        .description("Reads values of the shared state."),
    entry("syscall.state.write", "Write shared state", "memory", &[], &[])
        .description("Writes a value of the shared state.")
        .dangerous(),
    entry("syscall.task.create", "Create a task", "automation", &[], &[]).description("Creates a task for an agent."),
    entry("syscall.task.get", "Read a task", "automation", &[], &[]).description("Reads a task and its history."),
    entry("syscall.task.list", "List tasks", "automation", &[], &[]).description("Lists tasks, by owner and status."),
    entry("syscall.task.update", "Update a task", "automation", &[], &[])
        .description("Changes a task, such as its status, owner or result."),
    entry("syscall.tool.call", "Call a listed tool", "automation", &[], &[MIN, COD, MSG])
        .description("Calls a tool that a prompt lists without its parameters.")
        .always_on(),
    entry("syscall.tool.describe", "Describe a listed tool", "automation", &[], &[MIN, COD, MSG])
        .description("Shows the parameters of a tool that a prompt only lists.")
        .always_on(),
    entry("tool.browser", "Use a browser", "ui", &["browser"], &[])
        .description("Opens a page in a browser: its text, a screenshot or a PDF."),
    entry("tool.cli", "Run a command", "runtime", &["bash", "exec"], &[COD])
        .description("Runs a command in the sandbox.")
        .dangerous()
        .plain(),
    entry("tool.fetch", "Fetch a page", "web", &["web_fetch"], &[]).description("Fetches a page and returns its text."),
    entry("tool.google_search", "Search with Google", "web", &[], &[]).description("Searches the web with Google."),
    entry("tool.process", "Manage processes", "runtime", &["process"], &[COD])
        .description("Lists, reads and ends commands in the background.")
        .plain(),
    entry("tool.python", "Run Python", "runtime", &[], &[COD])
        .description("Runs Python code in the sandbox.")
        .dangerous()
        .plain(),
    entry("tool.web_search", "Search the web", "web", &["web_search"], &[]).description("Searches the web."),
    entry("tts", "Speak", "media", &[], &[]).description("Turns text into speech."),
    entry("util.cron", "Set a cron job", "automation", &["cron"], &[COD])
        .description("Sets, changes and runs cron jobs."),
    entry("util.timer", "Set a timer", "automation", &[], &[COD])
        .description("Reminds the agent after a duration or at a time."),
    entry("util.watch", "Watch files", "automation", &[], &[COD]).description("Notifies the agent when files change."),
    entry("workspace.edit", "Edit a file", "fs", &["edit"], &[COD])
        .description("Replaces an exact piece of a file's text.")
        .plain(),
    entry("workspace.list", "List files", "fs", &["ls"], &[COD]).description("Lists the files of a directory.").plain(),
    entry("workspace.patch", "Patch files", "fs", &["apply_patch"], &[COD])
        .description("Applies a patch to several files.")
        .plain(),
    entry("workspace.read", "Read a file", "fs", &["file_read", "read"], &[COD])
        .description("Reads a text file, whole or from a given line on.")
        .plain(),
    entry("workspace.write", "Write a file", "fs", &["file_write", "write"], &[COD])
        .description("Creates, replaces or extends a file.")
        .plain(),
];
