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
use crate::effect::{Typed, ask, file, outside, read, world};
use crate::parameters::Params;
use crate::tool::Tool;
use crate::tool::Use::{Often, Regularly, Sometimes};

/// The view limit of lists, in bytes. Lists end before it, so that the model gets whole JSON.
const LIST_VIEW: u32 = 64 * 1024;

/// The built-in tools, followed by `extra`.
pub fn with(extra: Vec<Tool>) -> Vec<Tool> {
    let mut tools = all();
    tools.extend(extra);
    tools
}

/// A tool of the table.
fn tool<P: Params>(name: &str, sentence: &str, does: Typed<P>) -> Tool {
    Tool::new::<P>(name, sentence, does.run)
}

/// For each tool: its name, what it does, its options as the methods of [`Tool`], and the sentence that models read.
macro_rules! table {
    ($($name:expr => $does:expr $(, $option:ident($($value:expr)?))*; $sentence:expr;)+) => {
        vec![$(tool($name, $sentence, $does)$(.$option($($value)?))*),+]
    };
}

/// What models read of the two tools that hand a conversation over.
const HANDOFF: &str = "Give the conversation with someone outside to another agent, which answers from then on.";

/// Every built-in tool, in the order of the catalogue's families.
pub fn all() -> Vec<Tool> {
    table! {
        // Files.
        "workspace.read" => read(workspace::read), used(Often), view(WIDE_VIEW);
            "Read a text file of the workspace, whole or from a line on, or an image. Every agent may read every file.";
        "workspace.write" => file(workspace::prepare_write, workspace::record_write), used(Often);
            "Create or replace a file, or append to it; files under output/ become published artifacts.";
        "workspace.edit" => file(workspace::prepare_edit, workspace::record_edit), used(Often);
            "Replace an exact piece of text in a file, for small changes.";
        "workspace.patch" => workspace::patch(), used(Sometimes);
            "Apply a unified diff to one or several files: all of it, or nothing.";
        "workspace.list" => read(workspace::list), used(Often), view(LIST_VIEW);
            "List a directory of the workspace, with sizes; use it to find a path before reading.";

        // Agents, the world and sessions.
        "syscall.reflect" => read(world::reflect), view(LIST_VIEW),
            passing(&["time", "uptime_seconds", "token_usage", "activity", "open_turns"]);
            "Show the current state of the world: its agents and their activity, tokens and cost so far, the time.";
        "syscall.agent.list" => read(agents::list), view(LIST_VIEW), passing(&["activity", "uptime_seconds"]);
            "List the agents of the world with archetype and status; use it to find the right agent to contact.";
        "syscall.agent.create" => world(agents::create);
            "Create and start an agent from an archetype that this world allows, with an optional first goal.";
        "syscall.agent.start" => world(agents::start);
            "Start an agent that is stopped or failed; does nothing if it runs.";
        "syscall.agent.delete" => world(agents::delete);
            "Delete an agent that you created. Its unread mail is dropped, its tasks stay open, and it no longer counts towards the limit.";
        "syscall.agent.stop" => world(agents::stop);
            "Stop an agent once its current turn has ended; all its data is kept for a later start.";
        "syscall.agent.inspect" => read(agents::inspect), view(WIDE_VIEW);
            "Read another agent's memory files: without a path a list of them, with a path the file's text.";
        "syscall.resource.usage" => read(world::usage), passing(&["load_1_5_15_minutes", "available_bytes", "runtime"]);
            "Show the load of the host: processors, memory, disk, and the daemon itself.";
        "syscall.session.status" => read(world::status), passing(&["time", "uptime_seconds", "usage", "activity"]);
            "Show the current time, the model in use, tokens and cost so far, and waiting mail of an agent.";
        "syscall.session.list" => read(world::list_sessions), view(LIST_VIEW), passing(&["last_at"]);
            "List your sessions: your own work, and each conversation that you have answered in.";
        "syscall.session.history" => read(world::history), view(WIDE_VIEW);
            "Read what was said in one of your sessions, newest turns first page by page, such as the part that your prompt leaves out.";

        // Mail.
        "syscall.message.send" => messages::send(), used(Often);
            "Put a message or a file into another agent's inbox, without waiting for an answer.";
        "syscall.ask" => ask(messages::ask_agent), used(Often), view(LIST_VIEW);
            "Ask another agent and wait for its answer; use it only if you cannot continue without the answer.";
        "syscall.broadcast" => world(messages::broadcast);
            "Send one message to every other agent, or to all of one archetype.";
        "syscall.inbox.read" => world(messages::read_inbox), used(Sometimes), view(WIDE_VIEW), looking();
            "Take mail that arrived since this turn began; mail that expects an answer waits for its own turn.";

        // Chat channels.
        "syscall.chat.create" => world(chat::create);
            "Open a named channel for several agents; make it gated if three or more agents will talk there.";
        "syscall.chat.history" => read(chat::history), used(Sometimes), view(WIDE_VIEW);
            "Read the messages of a channel; by default the newest 50.";
        "syscall.chat.invite" => world(chat::invite);
            "Add another agent to a channel that you created.";
        "syscall.chat.list" => read(chat::list), view(LIST_VIEW);
            "List the channels that you are in or have created, with their members and the seq of the newest message.";
        "syscall.chat.remove" => world(chat::remove);
            "Remove an agent from a channel that you created, or leave a channel yourself.";
        "syscall.chat.send" => world(chat::send), used(Sometimes);
            "Post in a channel. In an ungated one, members see it in their next turn, and the members that you mention wake up.";

        // The conversation outside. Registered only in turns that came from one.
        "message" => world(channel::message), approved_by(channel::SentFiles { tool: "message" });
            "Act in the conversation that this turn comes from: send, delete, react, poll, pin or thread, as far as it supports that.";
        "channel.send" => world(channel::send), used(Sometimes);
            "Send a message now in the conversation that this turn comes from, separately from your final reply.";
        "channel.file_attach" => world(channel::attach),
            approved_by(channel::SentFiles { tool: "channel.file_attach" });
            "Attach a workspace file to the reply that this turn will end with.";
        "channel.handoff" => world(channel::handoff);
            HANDOFF;
        "syscall.channel.send" => world(channel::send_out), used(Sometimes),
            approved_by(channel::SentFiles { tool: "syscall.channel.send" });
            "Send a message, optionally with files, to the person outside in the conversation that this turn comes from.";
        "syscall.channel.handoff" => world(channel::handoff);
            HANDOFF;

        // Tasks.
        "syscall.task.create" => world(tasks::create), used(Regularly);
            "Create a task for yourself or another agent; its owner is notified and wakes up.";
        "syscall.task.list" => read(tasks::list), used(Regularly), view(LIST_VIEW);
            "List tasks, most urgent first, by owner or status; long descriptions are shortened.";
        "syscall.task.get" => read(tasks::get), view(WIDE_VIEW);
            "Read one task in full, with the history of its changes.";
        "syscall.task.update" => world(tasks::update), used(Regularly);
            "Change a task's status, result or owner; its creator is notified when the status changes.";

        // Knowledge and the shared state.
        "syscall.knowledge.list" => read(knowledge::list), used(Sometimes), view(LIST_VIEW);
            "List the knowledge entries that you may read; use it before you ask or search.";
        "syscall.knowledge.read" => read(knowledge::read), used(Sometimes), view(WIDE_VIEW);
            "Read one knowledge entry, with its version for a later change.";
        "syscall.knowledge.write" => world(knowledge::write);
            "Write a knowledge entry, or replace one that you may change; name its readers, or only you can read it.";
        "syscall.knowledge.delete" => world(knowledge::delete);
            "Delete a knowledge entry that you may change, with its earlier versions.";
        "syscall.state.read" => read(knowledge::read_state), view(WIDE_VIEW);
            "Read one value of the world's shared state, or list many with their versions.";
        "syscall.state.write" => world(knowledge::write_state);
            "Set a value of the shared state, visible to all agents; the value null deletes the key.";

        // Skills.
        "syscall.skill.list" => read(skills::list), view(LIST_VIEW);
            "List the skills that you may acquire, and which of them you hold.";
        "syscall.skill.acquire" => world(skills::acquire);
            "Acquire a skill; you keep it until you drop it.";
        "syscall.skill.activate" => world(skills::activate), view(WIDE_VIEW);
            "Read a skill's document; use it before you do work that the skill describes.";
        "syscall.skill.drop" => world(skills::drop_skill);
            "Drop a skill that you no longer need.";
        "syscall.skill.load" => world(skills::load), used(Sometimes), view(WIDE_VIEW);
            "Acquire a skill and read its document in one step.";

        // Timers, jobs and watches.
        "util.watch" => schedules::watch();
            "Watch a file or directory of the workspace: changes are reported to your inbox, including your own writes.";
        "util.timer" => world(schedules::timer);
            "Set a named timer that puts a reminder into your inbox at a given time; it survives restarts.";
        "util.cron" => world(cron::cron), view(LIST_VIEW);
            "Set, list and change jobs that put a reminder into your inbox repeatedly; also lists timers and watches.";

        // Commands.
        "tool.cli" => outside(commands::cli), used(Regularly), within(commands::TIME_MAX),
            approved_by(command_plan::CliApproval);
            "Run a bash command line in the sandbox. The command policy decides which programs may run.";
        "tool.process" => processes::process(), used(Sometimes), within(90), passing(&["duration_ms"]);
            "Show, feed and kill your background commands.";
        "tool.python" => outside(commands::python), used(Regularly), within(commands::TIME_MAX),
            approved_by(command_plan::PythonApproval);
            "Run Python 3 code in the sandbox. Print what you want to see.";

        // The web.
        "tool.browser" => outside(browser::browser), view(WIDE_VIEW), within(browser::TIME_MAX);
            "Open a page in a browser that runs its scripts: its text or HTML, or a screenshot or PDF as a file. Slower than tool.fetch.";
        "tool.fetch" => outside(web::fetch), used(Regularly), view(WIDE_VIEW), within(web::TIME_MAX);
            "Fetch a page of the web as Markdown; what is no text, or what you want as a file, is saved to the workspace.";
        "tool.web_search" => outside(web::web_search), used(Regularly), view(LIST_VIEW);
            "Search the web: titles, addresses and descriptions of pages. Fetch a page to read it.";
        "tool.google_search" => outside(web::google_search), charging(), view(LIST_VIEW), within(web::TIME_MAX);
            "Ask a question that Google's search answers in words, with its sources. Each query that it makes costs money.";

        // Droids.
        "syscall.droid.spawn" => world(droids::spawn), used(Sometimes);
            "Start a droid, a helper for one piece of work. You go on; a message comes when it ends, so never wait or poll for it.";
        "syscall.droid.check" => read(droids::check), used(Sometimes), passing(&["status", "files"]);
            "Show the state, files and output of a droid.";
        "syscall.droid.control" => world(droids::control), view(LIST_VIEW);
            "List, steer and end your droids.";
        "syscall.artifact.promote" => file(droids::prepare_promotion, droids::record_promotion);
            "Copy a file of one of your droids to its place, such as output/reports/.";

        // The tools that reach deferred tools.
        DESCRIBE => read(describing::describe), view(WIDE_VIEW);
            "Show the parameters of a tool of the briefing's list.";
        CALL => read(describing::call_tool);
            "Run a tool of the briefing's list.";
    }
}

#[cfg(test)]
mod tests;
