//! The built-in tools, and the table that lists them all. Each file has one family: the parameters of its tools, and a
//! function for each. A tool is thin: it calls a rule of `ghost_operations`, and returns the result.
//!
//! A tool must never contain a rule that belongs in `ghost_operations` or take the actor from an argument.

mod acp_host;
mod agents;
mod browser;
mod channel;
mod chat;
mod coding_agent;
mod command_plan;
mod commands;
mod common;
mod cron;
mod describing;
mod droids;
mod knowledge;
mod mcp;
mod messages;
mod places;
mod processes;
mod repositories;
mod schedules;
mod settled;
mod skills;
mod tasks;
mod toolbox;
mod web;
mod workspace;
mod world;

pub use agents::wanted_heartbeat;
pub use browser::absent_browser;
pub use commands::NEED_SANDBOX;
pub use describing::facts;
pub use toolbox::{PROBE, PROBE_TIME, schema_problem, tools_of};
pub use web::{NEED_WEB, absent_web_tools};

use ghost_domain::tool_catalogue::{CALL, DESCRIBE};

use self::common::WIDE_VIEW;
use crate::effect::{Run, Typed, ask, file, outside, read, world};
use crate::parameters::Params;
use crate::tool::{Tool, Use};

/// The view limit of lists, in bytes. Lists end before it, so that the model gets whole JSON.
const LIST_VIEW: u32 = 64 * 1024;

/// The built-in tools, followed by `extra`.
#[must_use]
pub fn with(extra: Vec<Tool>) -> Vec<Tool> {
    let mut tools = all();
    tools.extend(extra);
    tools
}

/// A tool of the table: its name, the sentence that models read, and what it does.
fn tool<P: Params>(name: &str, sentence: &str, does: Typed<P>) -> Tool {
    Tool::new::<P>(name, sentence, does.run)
}

/// What models read of the two tools that hand a conversation over.
const HANDOFF: &str = "Give the conversation with someone outside to another agent, which answers from then on.";

/// Every built-in tool, in the order of the catalogue's families.
#[must_use]
pub fn all() -> Vec<Tool> {
    vec![
        // Files.
        tool(
            "workspace.read",
            "Read a text file of the workspace, whole or from a line on, or an image. Every agent may read every file.",
            read(workspace::read),
        )
        .used(Use::Often)
        .view(WIDE_VIEW),
        tool(
            "workspace.write",
            "Create or replace a file, or append to it; files under output/ become published artifacts.",
            file(workspace::prepare_write, workspace::record_write),
        )
        .used(Use::Often),
        tool(
            "workspace.edit",
            "Replace an exact piece of text in a file, for small changes.",
            file(workspace::prepare_edit, workspace::record_edit),
        )
        .used(Use::Often),
        tool("workspace.patch", "Apply a unified diff to one or several files: all of it, or nothing.", workspace::patch())
            .used(Use::Sometimes),
        tool(
            "workspace.list",
            "List a directory of the workspace, with sizes; use it to find a path before reading.",
            read(workspace::list),
        )
        .used(Use::Often)
        .view(LIST_VIEW),
        // Agents, the world and sessions.
        tool(
            "syscall.reflect",
            "Show the current state of the world: its agents and their activity, tokens and cost so far, the time.",
            read(world::reflect),
        )
        .view(LIST_VIEW)
        .passing(&["time", "uptime_seconds", "token_usage", "activity", "open_turns"]),
        tool(
            "syscall.agent.list",
            "List the agents of the world with archetype and status; use it to find the right agent to contact.",
            read(agents::list),
        )
        .view(LIST_VIEW)
        .passing(&["activity", "uptime_seconds"]),
        tool(
            "syscall.agent.create",
            "Create and start an agent from an archetype that this world allows, with an optional first goal.",
            world(agents::create),
        ),
        tool(
            "syscall.agent.start",
            "Start an agent that is stopped or failed; does nothing if it runs.",
            world(agents::start),
        ),
        tool(
            "syscall.agent.delete",
            "Delete an agent that you created. Its unread mail is dropped, its tasks stay open, and it no longer counts towards the limit.",
            world(agents::delete),
        ),
        tool(
            "syscall.agent.stop",
            "Stop an agent once its current turn has ended; all its data is kept for a later start.",
            world(agents::stop),
        ),
        tool(
            "syscall.agent.inspect",
            "Read another agent's memory files: without a path a list of them, with a path the file's text.",
            read(agents::inspect),
        )
        .view(WIDE_VIEW),
        tool(
            "syscall.resource.usage",
            "Show the load of the host: processors, memory, disk, and the daemon itself.",
            read(world::usage),
        )
        .passing(&["load_1_5_15_minutes", "available_bytes", "runtime"]),
        tool(
            "syscall.session.status",
            "Show the current time, the model in use, tokens and cost so far, and waiting mail of an agent.",
            read(world::status),
        )
        .passing(&["time", "uptime_seconds", "usage", "activity"]),
        tool(
            "syscall.session.list",
            "List your sessions: your own work, and each conversation that you have answered in.",
            read(world::list_sessions),
        )
        .view(LIST_VIEW)
        .passing(&["last_at"]),
        tool(
            "syscall.session.history",
            "Read what was said in one of your sessions, newest turns first page by page, such as the part that your prompt leaves out.",
            read(world::history),
        )
        .view(WIDE_VIEW),
        // Mail.
        tool(
            "syscall.message.send",
            "Put a message or a file into another agent's inbox, without waiting for an answer.",
            messages::send(),
        )
        .used(Use::Often),
        tool(
            "syscall.ask",
            "Ask another agent and wait for its answer; use it only if you cannot continue without the answer.",
            ask(messages::ask_agent),
        )
        .used(Use::Often)
        .view(LIST_VIEW),
        tool(
            "syscall.broadcast",
            "Send one message to every other agent, or to all of one archetype.",
            world(messages::broadcast),
        ),
        tool(
            "syscall.inbox.read",
            "Take mail that arrived since this turn began; mail that expects an answer waits for its own turn.",
            world(messages::read_inbox),
        )
        .used(Use::Sometimes)
        .view(WIDE_VIEW)
        .looking(),
        // Chat channels.
        tool(
            "syscall.chat.create",
            "Open a named channel for several agents; make it gated if three or more agents will talk there.",
            world(chat::create),
        ),
        tool(
            "syscall.chat.history",
            "Read the messages of a channel; by default the newest 50.",
            read(chat::history),
        )
        .used(Use::Sometimes)
        .view(WIDE_VIEW),
        tool(
            "syscall.chat.invite",
            "Add another agent to a channel that you created.",
            world(chat::invite),
        ),
        tool(
            "syscall.chat.list",
            "List the channels that you are in or have created, with their members and the seq of the newest message.",
            read(chat::list),
        )
        .view(LIST_VIEW),
        tool(
            "syscall.chat.remove",
            "Remove an agent from a channel that you created, or leave a channel yourself.",
            world(chat::remove),
        ),
        tool(
            "syscall.chat.send",
            "Post in a channel. In an ungated one, members see it in their next turn, and the members that you mention wake up.",
            world(chat::send),
        )
        .used(Use::Sometimes),
        // The conversation outside. Registered only in turns that came from one.
        tool(
            "message",
            "Act in the conversation that this turn comes from: send, delete, react, poll, pin or thread, as far as it supports that.",
            world(channel::message),
        )
        .approved_by(channel::SentFiles { tool: "message" }),
        tool(
            "channel.send",
            "Send a message now in the conversation that this turn comes from, separately from your final reply.",
            world(channel::send),
        )
        .used(Use::Sometimes),
        tool(
            "channel.file_attach",
            "Attach a workspace file to the reply that this turn will end with.",
            world(channel::attach),
        )
        .approved_by(channel::SentFiles { tool: "channel.file_attach" }),
        tool("channel.handoff", HANDOFF, world(channel::handoff)),
        tool(
            "syscall.channel.send",
            "Send a message, optionally with files, to the person outside in the conversation that this turn comes from.",
            world(channel::send_out),
        )
        .approved_by(channel::SentFiles { tool: "syscall.channel.send" })
        .used(Use::Sometimes),
        tool("syscall.channel.handoff", HANDOFF, world(channel::handoff)),
        // Tasks.
        tool(
            "syscall.task.create",
            "Create a task for yourself or another agent; its owner is notified and wakes up.",
            world(tasks::create),
        )
        .used(Use::Regularly),
        tool(
            "syscall.task.list",
            "List tasks, most urgent first, by owner or status; long descriptions are shortened.",
            read(tasks::list),
        )
        .used(Use::Regularly)
        .view(LIST_VIEW),
        tool("syscall.task.get", "Read one task in full, with the history of its changes.", read(tasks::get))
            .view(WIDE_VIEW),
        tool(
            "syscall.task.update",
            "Change a task's status, result or owner; its creator is notified when the status changes.",
            world(tasks::update),
        )
        .used(Use::Regularly),
        // Knowledge and the shared state.
        tool(
            "syscall.knowledge.list",
            "List the knowledge entries that you may read; use it before you ask or search.",
            read(knowledge::list),
        )
        .used(Use::Sometimes)
        .view(LIST_VIEW),
        tool(
            "syscall.knowledge.read",
            "Read one knowledge entry, with its version for a later change.",
            read(knowledge::read),
        )
        .used(Use::Sometimes)
        .view(WIDE_VIEW),
        tool(
            "syscall.knowledge.write",
            "Write a knowledge entry, or replace one that you may change; name its readers, or only you can read it.",
            world(knowledge::write),
        ),
        tool(
            "syscall.knowledge.delete",
            "Delete a knowledge entry that you may change, with its earlier versions.",
            world(knowledge::delete),
        ),
        tool(
            "syscall.state.read",
            "Read one value of the world's shared state, or list many with their versions.",
            read(knowledge::read_state),
        )
        .view(WIDE_VIEW),
        tool(
            "syscall.state.write",
            "Set a value of the shared state, visible to all agents; the value null deletes the key.",
            world(knowledge::write_state),
        ),
        // Skills.
        tool(
            "syscall.skill.list",
            "List the skills that you may acquire, and which of them you hold.",
            read(skills::list),
        )
        .view(LIST_VIEW),
        tool("syscall.skill.acquire", "Acquire a skill; you keep it until you drop it.", world(skills::acquire)),
        tool(
            "syscall.skill.activate",
            "Read a skill's document; use it before you do work that the skill describes.",
            world(skills::activate),
        )
        .view(WIDE_VIEW),
        tool("syscall.skill.drop", "Drop a skill that you no longer need.", world(skills::drop_skill)),
        tool("syscall.skill.load", "Acquire a skill and read its document in one step.", world(skills::load))
            .used(Use::Sometimes)
            .view(WIDE_VIEW),
        // Timers, jobs and watches.
        Tool::new::<schedules::WatchParams>(
            "util.watch",
            "Watch a file or directory of the workspace: changes are reported to your inbox, including your own writes.",
            Run::world(schedules::Watch),
        ),
        tool(
            "util.timer",
            "Set a named timer that puts a reminder into your inbox at a given time; it survives restarts.",
            world(schedules::timer),
        ),
        tool(
            "util.cron",
            "Set, list and change jobs that put a reminder into your inbox repeatedly; also lists timers and watches.",
            world(cron::cron),
        )
        .view(LIST_VIEW),
        // Commands.
        tool(
            "tool.cli",
            "Run a bash command line in the sandbox. The command policy decides which programs may run.",
            outside(commands::cli),
        )
        .approved_by(command_plan::CliApproval)
        .used(Use::Regularly)
        .within(commands::TIME_MAX),
        tool("tool.process", "Show, feed and kill your background commands.", processes::process())
            .used(Use::Sometimes)
            .within(90)
            .passing(&["duration_ms"]),
        tool("tool.python", "Run Python 3 code in the sandbox. Print what you want to see.", outside(commands::python))
            .approved_by(command_plan::PythonApproval)
            .used(Use::Regularly)
            .within(commands::TIME_MAX),
        // The web.
        tool(
            "tool.browser",
            "Open a page in a browser that runs its scripts: its text or HTML, or a screenshot or PDF as a file. Slower than tool.fetch.",
            outside(browser::browser),
        )
        .view(WIDE_VIEW)
        .within(browser::TIME_MAX),
        tool(
            "tool.fetch",
            "Fetch a page of the web as Markdown; what is no text, or what you want as a file, is saved to the workspace.",
            outside(web::fetch),
        )
        .used(Use::Regularly)
        .view(WIDE_VIEW)
        .within(web::TIME_MAX),
        tool(
            "tool.web_search",
            "Search the web: titles, addresses and descriptions of pages. Fetch a page to read it.",
            outside(web::web_search),
        )
        .used(Use::Regularly)
        .view(LIST_VIEW),
        tool(
            "tool.google_search",
            "Ask a question that Google's search answers in words, with its sources. Each query that it makes costs money.",
            outside(web::google_search),
        )
        .charging()
        .view(LIST_VIEW)
        .within(web::TIME_MAX),
        // Droids.
        tool(
            "syscall.droid.spawn",
            "Start a droid, a helper for one piece of work. You go on; a message comes when it ends, so never wait or poll for it.",
            world(droids::spawn),
        )
        .used(Use::Sometimes),
        tool(
            "syscall.droid.check",
            "Show the state, files and output of a droid.",
            read(droids::check),
        )
        .used(Use::Sometimes)
        .passing(&["status", "files"]),
        tool(
            "syscall.droid.control",
            "List, steer and end your droids.",
            world(droids::control),
        )
        .view(LIST_VIEW),
        tool(
            "syscall.artifact.promote",
            "Copy a file of one of your droids to its place, such as output/reports/.",
            file(droids::prepare_promotion, droids::record_promotion),
        ),
        // The tools that reach deferred tools.
        tool(DESCRIBE, "Show the parameters of a tool of the briefing's list.", read(describing::describe)).view(WIDE_VIEW),
        tool(CALL, "Run a tool of the briefing's list.", read(describing::call_tool)),
    ]
}

#[cfg(test)]
mod tests;
