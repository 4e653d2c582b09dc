//! The table of the catalogue, sorted by name. Data alone: what the columns mean stands at [`Entry`], and what the words stand
//! for is found beside it.

use super::entry::{Entry, Profile};

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
    let (description, of_ghost, always_on, dangerous) = ("", true, false, false);
    Entry { name, label, description, aliases, section, profiles, of_ghost, always_on, dangerous }
}

impl Entry {
    const fn says(self, description: &'static str) -> Self {
        Self { description, ..self }
    }

    const fn always_on(self) -> Self {
        Self { always_on: true, ..self }
    }

    const fn dangerous(self) -> Self {
        Self { dangerous: true, ..self }
    }

    /// Files and commands: what every host of agents has, so that no `group:ghost` stands for it.
    const fn plain(self) -> Self {
        Self { of_ghost: false, ..self }
    }
}

/// Every tool name that Ghost knows, sorted.
pub const CATALOGUE: &[Entry] = &[
    e("canvas", "Draw on the canvas", "ui", &[], &[])
        .says("Shows and draws on a shared canvas, and says what is on it."),
    e("channel.file_attach", "Attach a file", "messaging", &[], &[])
        .says("Attaches a file of the workspace to a conversation outside."),
    e("channel.handoff", "Hand the conversation over", "messaging", &[], &[])
        .says("Gives a conversation outside to another agent or to a person."),
    e("channel.send", "Say something outside", "messaging", &[], &[]).says("Says something in a conversation outside."),
    e("image", "Look at an image", "media", &[], &[C]).says("Says what can be seen in an image, with the image model."),
    e("memory.get", "Read a memory", "memory", &["memory_get"], &[C]).says("Reads a piece of a memory by its place."),
    e("memory.scratchpad", "Use the scratchpad", "memory", &["scratchpad_read", "scratchpad_update"], &[C])
        .says("Reads and changes the agent's short notes to itself."),
    e("memory.search", "Search memory", "memory", &["memory_search"], &[C]).says("Finds memories by meaning."),
    e("memory.write", "Remember something", "memory", &["memory_write"], &[C])
        .says("Keeps something beyond this turn."),
    e("message", "Act on a message", "messaging", &[], &[M])
        .says("Sends, changes, answers and reacts to messages outside."),
    e("nodes", "Use other nodes", "nodes", &[], &[]).says("Lists and uses paired devices and other nodes."),
    e("syscall.agent.create", "Create an agent", "agents", &[], &[])
        .says("Creates an agent of an archetype, and tells it its goal.")
        .dangerous(),
    // As dangerous as creating, with which it goes.
    e("syscall.agent.delete", "Delete an agent", "agents", &[], &[]).says("Deletes an agent that the caller created."),
    e("syscall.agent.inspect", "Look into a memory", "agents", &[], &[])
        .says("Reads what another agent has in its memory."),
    e("syscall.agent.list", "List agents", "agents", &["agents_list"], &[])
        .says("Lists the agents of the world and how they are."),
    e("syscall.agent.start", "Start an agent", "agents", &[], &[]).says("Starts an agent that stands still."),
    e("syscall.agent.stop", "Stop an agent", "agents", &[], &[]).says("Stops an agent when its turn is over."),
    e("syscall.artifact.promote", "Promote an artifact", "fs", &[], &[])
        .says("Publishes a file of the workspace as a result of the world."),
    e("syscall.ask", "Ask an agent", "sessions", &[], &[]).says("Asks an agent a question, and waits for the answer."),
    e("syscall.broadcast", "Tell everyone", "messaging", &[], &[]).says("Sends one message to a team or to everyone."),
    e("syscall.channel.handoff", "Hand a channel over", "messaging", &[], &[])
        .says("Gives the conversation of this turn to another agent or to a person."),
    e("syscall.channel.send", "Send to a channel", "messaging", &[], &[])
        .says("Answers in the conversation outside that this turn comes from."),
    e("syscall.chat.create", "Open a chat channel", "messaging", &[], &[]).says("Opens a chat channel among agents."),
    e("syscall.chat.history", "Read a chat", "messaging", &[], &[]).says("Reads what was said in a chat channel."),
    e("syscall.chat.invite", "Invite to a chat", "messaging", &[], &[]).says("Takes an agent into a chat channel."),
    e("syscall.chat.list", "List chats", "messaging", &[], &[]).says("Lists the chat channels that the agent is in."),
    e("syscall.chat.remove", "Remove from a chat", "messaging", &[], &[]).says("Takes an agent out of a chat channel."),
    e("syscall.chat.send", "Post to a chat", "messaging", &[], &[]).says("Posts to a chat channel."),
    e("syscall.control", "Control the world", "automation", &["gateway"], &[])
        .says("Reloads, pauses and resumes the world."),
    e("syscall.droid.check", "Check on a droid", "sessions", &["check_droid"], &[C])
        .says("Says how a droid is getting on."),
    e("syscall.droid.control", "Steer a droid", "sessions", &["subagents"], &[C])
        .says("Lists, steers and ends the agent's droids."),
    e("syscall.droid.spawn", "Send out a droid", "sessions", &["spawn_droid", "sessions_spawn"], &[C])
        .says("Sends out a helper for one piece of work."),
    e("syscall.inbox.read", "Read the inbox", "sessions", &[], &[]).says("Reads the mail that waits for the agent."),
    e("syscall.knowledge.delete", "Delete knowledge", "memory", &[], &[])
        .says("Deletes an entry of the shared knowledge."),
    e("syscall.knowledge.list", "List knowledge", "memory", &[], &[])
        .says("Lists the entries of the shared knowledge."),
    e("syscall.knowledge.read", "Read knowledge", "memory", &[], &[]).says("Reads an entry of the shared knowledge."),
    e("syscall.knowledge.write", "Write knowledge", "memory", &[], &[])
        .says("Writes an entry of the shared knowledge."),
    e("syscall.message.send", "Send a message", "sessions", &["send_to_agent", "sessions_send"], &[C, M])
        .says("Sends an agent a message, and goes on."),
    e("syscall.reflect", "See the world", "agents", &[], &[])
        .says("Shows the agent itself, the world and who is in it."),
    e("syscall.resource.usage", "See the host's load", "agents", &[], &[])
        .says("Shows the load of the host and what was spent."),
    e("syscall.session.history", "Read a session", "sessions", &["sessions_history"], &[C, M])
        .says("Reads what was said in another agent's session."),
    e("syscall.session.list", "List sessions", "sessions", &["sessions_list"], &[C, M])
        .says("Lists the sessions of the world's agents."),
    e("syscall.session.status", "See an agent's standing", "sessions", &["session_status"], &[MIN, C, M])
        .says("Shows an agent's state, its turn, its limits and its costs."),
    e("syscall.skill.acquire", "Acquire a skill", "automation", &[], &[MIN, C, M])
        .says("Takes up a skill, and with it the tools that it brings.")
        .always_on(),
    e("syscall.skill.activate", "Activate a skill", "automation", &[], &[MIN, C, M])
        .says("Reads the whole text of a skill that is held.")
        .always_on(),
    e("syscall.skill.drop", "Drop a skill", "automation", &["unload_skill"], &[MIN, C, M])
        .says("Gives a skill back.")
        .always_on(),
    e("syscall.skill.list", "List skills", "automation", &[], &[MIN, C, M])
        .says("Finds the skills that there are.")
        .always_on(),
    e("syscall.skill.load", "Load a skill", "automation", &["load_skill"], &[MIN, C, M])
        .says("Takes up a skill and reads its text, in one.")
        .always_on(),
    e("syscall.state.read", "Read shared state", "memory", &[], &[]).says("Reads values that the agents share."),
    e("syscall.state.write", "Write shared state", "memory", &[], &[])
        .says("Writes a value that the agents share.")
        .dangerous(),
    e("syscall.task.create", "Create a task", "automation", &[], &[]).says("Creates a task for an agent."),
    e("syscall.task.get", "Read a task", "automation", &[], &[]).says("Reads a task and its history."),
    e("syscall.task.list", "List tasks", "automation", &[], &[]).says("Lists the tasks, by owner and by status."),
    e("syscall.task.update", "Update a task", "automation", &[], &[])
        .says("Changes a task: its status, its owner, its result."),
    e("tool.browser", "Use a browser", "ui", &["browser"], &[]).says("Opens pages in a browser, and works in them."),
    e("tool.cli", "Run a command", "runtime", &["bash", "exec"], &[C])
        .says("Runs a command in the sandbox.")
        .dangerous()
        .plain(),
    e("tool.fetch", "Fetch a page", "web", &["web_fetch"], &[]).says("Fetches a page and gives its text."),
    e("tool.google_search", "Search with Google", "web", &[], &[]).says("Searches the web with Google."),
    e("tool.process", "Manage processes", "runtime", &["process"], &[C])
        .says("Lists, reads and ends the commands that run in the background.")
        .plain(),
    e("tool.python", "Run Python", "runtime", &[], &[C]).says("Runs Python code in the sandbox.").dangerous().plain(),
    e("tool.web_search", "Search the web", "web", &["web_search"], &[]).says("Searches the web."),
    e("tts", "Speak", "media", &[], &[]).says("Turns text into speech."),
    e("util.cron", "Set a cron job", "automation", &["cron"], &[C]).says("Sets, changes and runs cron jobs."),
    e("util.timer", "Set a timer", "automation", &[], &[C]).says("Reminds the agent after a while or at a time."),
    e("util.watch", "Watch files", "automation", &[], &[C]).says("Tells the agent when files change."),
    e("workspace.edit", "Edit a file", "fs", &["edit"], &[C]).says("Replaces an exact piece of a file's text.").plain(),
    e("workspace.list", "List files", "fs", &["ls"], &[C]).says("Lists the files of a directory.").plain(),
    e("workspace.patch", "Patch files", "fs", &["apply_patch"], &[C]).says("Applies a patch to several files.").plain(),
    e("workspace.read", "Read a file", "fs", &["file_read", "read"], &[C])
        .says("Reads a text file, whole or from a line on.")
        .plain(),
    e("workspace.write", "Write a file", "fs", &["file_write", "write"], &[C])
        .says("Creates, replaces or extends a file.")
        .plain(),
];
