//! The built-in tools, and the table that lists them all. Each file has one family of tools, each
//! tool one type. A tool is thin: it reads its arguments, calls a rule of `ghost_operations`, and
//! returns the result.
//!
//! A tool must never contain a rule that belongs in `ghost_operations` or take the actor from an
//! argument.

mod acp;
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
mod cron_options;
mod downloads;
mod droids;
mod facts;
mod inbox;
mod knowledge;
mod line_places;
mod mcp;
mod message;
mod messages;
mod patch;
mod processes;
mod promote;
mod repositories;
mod resources;
mod schedules;
mod sessions;
mod settled;
mod shared_state;
mod skills;
mod tasks;
mod toolbox;
mod tools;
mod web;
mod workspace;
mod world;
mod written;

pub use browser::absent_browser;
pub use commands::NEED_SANDBOX;
pub use facts::facts;
pub use toolbox::{PROBE, PROBE_TIME, schema_problem, tools_of};
pub use web::{NEED_WEB, absent_web_tools};

use ghost_domain::tool_catalogue::{CALL, DESCRIBE};

use self::common::WIDE_VIEW;
use crate::tool::{Run, Tool, Use};

/// The view limit of lists, in bytes. Lists end before it, so that the model gets whole JSON.
const LIST_VIEW: u32 = 64 * 1024;

/// Every built-in tool, in the order of the catalogue's families.
#[must_use]
pub fn all() -> Vec<Tool> {
    with(Vec::new())
}

/// The built-in tools, followed by `extra`.
#[must_use]
pub fn with(extra: Vec<Tool>) -> Vec<Tool> {
    let mut tools = Vec::with_capacity(32);
    tools.extend(files());
    tools.extend(agents_and_world());
    tools.extend(messages());
    tools.extend(chat());
    tools.extend(channel());
    tools.extend(tasks());
    tools.extend(knowledge_and_state());
    tools.extend(skills());
    tools.extend(schedules());
    tools.extend(commands());
    tools.extend(web());
    tools.extend(droids());
    tools.extend(deferred());
    tools.extend(extra);
    tools
}

fn files() -> [Tool; 5] {
    use workspace::{Edit, EditParams, List, ListParams, Read, ReadParams, Write, WriteParams};
    [
        Tool::new::<ReadParams>(
            "workspace.read",
            "Read a text file of the workspace, whole or from a line on, or an image. Every agent may read every file.",
            Run::read(Read),
        )
        .used(Use::Often)
        .view(WIDE_VIEW),
        Tool::new::<WriteParams>(
            "workspace.write",
            "Create or replace a file, or append to it; files under output/ become published artifacts.",
            Run::file(Write),
        )
        .used(Use::Often),
        Tool::new::<EditParams>(
            "workspace.edit",
            "Replace an exact piece of text in a file, for small changes.",
            Run::file(Edit),
        )
        .used(Use::Often),
        Tool::new::<patch::PatchParams>(
            "workspace.patch",
            "Apply a unified diff to one or several files: all of it, or nothing.",
            patch::patch(),
        )
        .used(Use::Sometimes),
        Tool::new::<ListParams>(
            "workspace.list",
            "List a directory of the workspace, with sizes; use it to find a path before reading.",
            Run::read(List),
        )
        .used(Use::Often)
        .view(LIST_VIEW),
    ]
}

fn agents_and_world() -> [Tool; 11] {
    use common::Nothing;
    [
        Tool::new::<Nothing>(
            "syscall.reflect",
            "Show the current state of the world: its agents and their activity, tokens and cost so far, the time.",
            Run::read(world::Reflect),
        )
        .view(LIST_VIEW)
        .passing(&["time", "uptime_seconds", "token_usage", "activity", "open_turns"]),
        Tool::new::<agents::ListParams>(
            "syscall.agent.list",
            "List the agents of the world with archetype and status; use it to find the right agent to contact.",
            Run::read(agents::List),
        )
        .view(LIST_VIEW)
        .passing(&["activity", "uptime_seconds"]),
        Tool::new::<agents::CreateParams>(
            "syscall.agent.create",
            "Create and start an agent from an archetype that this world allows, with an optional first goal.",
            Run::world(agents::Create),
        ),
        Tool::new::<agents::StartParams>(
            "syscall.agent.start",
            "Start an agent that is stopped or failed; does nothing if it runs.",
            Run::world(agents::Start),
        ),
        Tool::new::<agents::DeleteParams>(
            "syscall.agent.delete",
            "Delete an agent that you created. Its unread mail is dropped, its tasks stay open, and it no longer counts towards the limit.",
            Run::world(agents::Delete),
        ),
        Tool::new::<agents::StopParams>(
            "syscall.agent.stop",
            "Stop an agent once its current turn has ended; all its data is kept for a later start.",
            Run::world(agents::Stop),
        ),
        Tool::new::<agents::InspectParams>(
            "syscall.agent.inspect",
            "Read another agent's memory files: without a path a list of them, with a path the file's text.",
            Run::read(agents::Inspect),
        )
        .view(WIDE_VIEW),
        Tool::new::<Nothing>(
            "syscall.resource.usage",
            "Show the load of the host: processors, memory, disk, and the daemon itself.",
            Run::read(resources::Usage),
        )
        .passing(&["load_1_5_15_minutes", "available_bytes", "runtime"]),
        Tool::new::<world::StatusParams>(
            "syscall.session.status",
            "Show the current time, the model in use, tokens and cost so far, and waiting mail of an agent.",
            Run::read(world::Status),
        )
        .passing(&["time", "uptime_seconds", "usage", "activity"]),
        Tool::new::<sessions::ListParams>(
            "syscall.session.list",
            "List your sessions: your own work, and each conversation that you have answered in.",
            Run::read(sessions::List),
        )
        .view(LIST_VIEW)
        .passing(&["last_at"]),
        Tool::new::<sessions::HistoryParams>(
            "syscall.session.history",
            "Read what was said in one of your sessions, newest turns first page by page, such as the part that your prompt leaves out.",
            Run::read(sessions::History),
        )
        .view(WIDE_VIEW),
    ]
}

fn messages() -> [Tool; 4] {
    [
        Tool::new::<messages::SendParams>(
            "syscall.message.send",
            "Put a message or a file into another agent's inbox, without waiting for an answer.",
            messages::send(),
        )
        .used(Use::Often),
        Tool::new::<messages::AskParams>(
            "syscall.ask",
            "Ask another agent and wait for its answer; use it only if you cannot continue without the answer.",
            Run::ask(messages::Question),
        )
        .used(Use::Often)
        .view(LIST_VIEW),
        Tool::new::<messages::BroadcastParams>(
            "syscall.broadcast",
            "Send one message to every other agent, or to all of one archetype.",
            Run::world(messages::ToAll),
        ),
        Tool::new::<inbox::ReadParams>(
            "syscall.inbox.read",
            "Take mail that arrived since this turn began; mail that expects an answer waits for its own turn.",
            Run::world(inbox::Read),
        )
        .used(Use::Sometimes)
        .view(WIDE_VIEW)
        .looking(),
    ]
}

/// These tools are registered only in turns that came from an outside conversation (CONF-03).
fn channel() -> [Tool; 6] {
    use channel::{Attach, AttachParams, Handoff, HandoffParams, Send, SendOut, SendOutParams, SendParams, SentFiles};
    let handoff = "Give the conversation with someone outside to another agent, which answers from then on.";
    [
        Tool::new::<message::MessageParams>(
            "message",
            "Act in the conversation that this turn comes from: send, delete, react, poll, pin or thread, as far as it supports that.",
            Run::world(message::Message),
        )
        .approved_by(SentFiles { tool: "message" }),
        Tool::new::<SendParams>(
            "channel.send",
            "Send a message now in the conversation that this turn comes from, separately from your final reply.",
            Run::world(Send),
        )
        .used(Use::Sometimes),
        Tool::new::<AttachParams>(
            "channel.file_attach",
            "Attach a workspace file to the reply that this turn will end with.",
            Run::world(Attach),
        )
        .approved_by(SentFiles { tool: "channel.file_attach" }),
        Tool::new::<HandoffParams>("channel.handoff", handoff, Run::world(Handoff)),
        Tool::new::<SendOutParams>(
            "syscall.channel.send",
            "Send a message, optionally with files, to the person outside in the conversation that this turn comes from.",
            Run::world(SendOut),
        )
        .approved_by(SentFiles { tool: "syscall.channel.send" })
        .used(Use::Sometimes),
        Tool::new::<HandoffParams>("syscall.channel.handoff", handoff, Run::world(Handoff)),
    ]
}

fn chat() -> [Tool; 6] {
    [
        Tool::new::<chat::CreateParams>(
            "syscall.chat.create",
            "Open a named channel for several agents; make it gated if three or more agents will talk there.",
            Run::world(chat::Create),
        ),
        Tool::new::<chat::HistoryParams>(
            "syscall.chat.history",
            "Read the messages of a channel; by default the newest 50.",
            Run::read(chat::History),
        )
        .used(Use::Sometimes)
        .view(WIDE_VIEW),
        Tool::new::<chat::MemberParams>(
            "syscall.chat.invite",
            "Add another agent to a channel that you created.",
            Run::world(chat::Member { invite: true }),
        ),
        Tool::new::<common::Nothing>(
            "syscall.chat.list",
            "List the channels that you are in or have created, with their members and the seq of the newest message.",
            Run::read(chat::List),
        )
        .view(LIST_VIEW),
        Tool::new::<chat::MemberParams>(
            "syscall.chat.remove",
            "Remove an agent from a channel that you created, or leave a channel yourself.",
            Run::world(chat::Member { invite: false }),
        ),
        Tool::new::<chat::SendParams>(
            "syscall.chat.send",
            "Post in a channel. In an ungated one, members see it in their next turn, and the members that you mention wake up.",
            Run::world(chat::Send),
        )
        .used(Use::Sometimes),
    ]
}

fn schedules() -> [Tool; 3] {
    [
        Tool::new::<schedules::WatchParams>(
            "util.watch",
            "Watch a file or directory of the workspace: changes are reported to your inbox, including your own writes.",
            Run::world(schedules::Watch),
        ),
        Tool::new::<schedules::TimerParams>(
            "util.timer",
            "Set a named timer that puts a reminder into your inbox at a given time; it survives restarts.",
            Run::world(schedules::Timer),
        ),
        Tool::new::<cron::CronParams>(
            "util.cron",
            "Set, list and change jobs that put a reminder into your inbox repeatedly; also lists timers and watches.",
            Run::world(cron::Cron),
        )
        .view(LIST_VIEW),
    ]
}

fn commands() -> [Tool; 3] {
    [
        Tool::new::<commands::CliParams>(
            "tool.cli",
            "Run a bash command line in the sandbox. The command policy decides which programs may run.",
            Run::outside(commands::Cli),
        )
        .approved_by(command_plan::CliApproval)
        .used(Use::Regularly)
        .within(commands::TIME_MAX),
        Tool::new::<processes::ProcessParams>(
            "tool.process",
            "Show, feed and kill your background commands.",
            processes::kind(),
        )
        .used(Use::Sometimes)
        .within(90)
        .passing(&["duration_ms"]),
        Tool::new::<commands::PythonParams>(
            "tool.python",
            "Run Python 3 code in the sandbox. Print what you want to see.",
            Run::outside(commands::Python),
        )
        .approved_by(command_plan::PythonApproval)
        .used(Use::Regularly)
        .within(commands::TIME_MAX),
    ]
}

fn web() -> [Tool; 4] {
    [
        Tool::new::<browser::BrowserParams>(
            "tool.browser",
            "Open a page in a browser that runs its scripts: its text or HTML, or a screenshot or PDF as a file. Slower than tool.fetch.",
            Run::outside(browser::Browser),
        )
        .view(WIDE_VIEW)
        .within(browser::TIME_MAX),
        Tool::new::<web::FetchParams>(
            "tool.fetch",
            "Fetch a page of the web as Markdown; what is no text, or what you want as a file, is saved to the workspace.",
            Run::outside(web::Fetch),
        )
        .used(Use::Regularly)
        .view(WIDE_VIEW)
        .within(web::TIME_MAX),
        Tool::new::<web::SearchParams>(
            "tool.web_search",
            "Search the web: titles, addresses and descriptions of pages. Fetch a page to read it.",
            Run::outside(web::WebSearch),
        )
        .used(Use::Regularly)
        .view(LIST_VIEW),
        Tool::new::<web::GoogleParams>(
            "tool.google_search",
            "Ask a question that Google's search answers in words, with its sources. Each query that it makes costs money.",
            Run::outside(web::GoogleSearch),
        )
        .charging()
        .view(LIST_VIEW)
        .within(web::TIME_MAX),
    ]
}

fn droids() -> [Tool; 4] {
    use droids::{Check, CheckParams, Control, ControlParams, Spawn, SpawnParams};
    [
        Tool::new::<SpawnParams>(
            "syscall.droid.spawn",
            "Start a droid, a helper for one piece of work. You go on; a message comes when it ends, so never wait or poll for it.",
            Run::world(Spawn),
        )
        .used(Use::Sometimes),
        Tool::new::<CheckParams>(
            "syscall.droid.check",
            "Show the state, files and output of a droid.",
            Run::read(Check),
        )
        .used(Use::Sometimes)
        .passing(&["status", "files"]),
        Tool::new::<ControlParams>(
            "syscall.droid.control",
            "List, steer and end your droids.",
            Run::world(Control),
        )
        .view(LIST_VIEW),
        Tool::new::<promote::PromoteParams>(
            "syscall.artifact.promote",
            "Copy a file of one of your droids to its place, such as output/reports/.",
            Run::file(promote::Promote),
        ),
    ]
}

/// The tools that reach deferred tools.
fn deferred() -> [Tool; 2] {
    use tools::{Call, CallParams, Describe, DescribeParams};
    [
        Tool::new::<DescribeParams>(
            DESCRIBE,
            "Show the parameters of a tool of the briefing's list.",
            Run::read(Describe),
        )
        .view(WIDE_VIEW),
        Tool::new::<CallParams>(CALL, "Run a tool of the briefing's list.", Run::read(Call)),
    ]
}

fn tasks() -> [Tool; 4] {
    [
        Tool::new::<tasks::CreateParams>(
            "syscall.task.create",
            "Create a task for yourself or another agent; its owner is notified and wakes up.",
            Run::world(tasks::Create),
        )
        .used(Use::Regularly),
        Tool::new::<tasks::ListParams>(
            "syscall.task.list",
            "List tasks, most urgent first, by owner or status; long descriptions are shortened.",
            Run::read(tasks::List),
        )
        .used(Use::Regularly)
        .view(LIST_VIEW),
        Tool::new::<tasks::GetParams>(
            "syscall.task.get",
            "Read one task in full, with the history of its changes.",
            Run::read(tasks::Get),
        )
        .view(WIDE_VIEW),
        Tool::new::<tasks::UpdateParams>(
            "syscall.task.update",
            "Change a task's status, result or owner; its creator is notified when the status changes.",
            Run::world(tasks::Update),
        )
        .used(Use::Regularly),
    ]
}

fn knowledge_and_state() -> [Tool; 6] {
    [
        Tool::new::<knowledge::ListParams>(
            "syscall.knowledge.list",
            "List the knowledge entries that you may read; use it before you ask or search.",
            Run::read(knowledge::List),
        )
        .used(Use::Sometimes)
        .view(LIST_VIEW),
        Tool::new::<knowledge::ReadParams>(
            "syscall.knowledge.read",
            "Read one knowledge entry, with its version for a later change.",
            Run::read(knowledge::Read),
        )
        .used(Use::Sometimes)
        .view(WIDE_VIEW),
        Tool::new::<knowledge::WriteParams>(
            "syscall.knowledge.write",
            "Write a knowledge entry, or replace one that you may change; name its readers, or only you can read it.",
            Run::world(knowledge::Write),
        ),
        Tool::new::<knowledge::DeleteParams>(
            "syscall.knowledge.delete",
            "Delete a knowledge entry that you may change, with its earlier versions.",
            Run::world(knowledge::Delete),
        ),
        Tool::new::<shared_state::ReadParams>(
            "syscall.state.read",
            "Read one value of the world's shared state, or list many with their versions.",
            Run::read(shared_state::Read),
        )
        .view(WIDE_VIEW),
        Tool::new::<shared_state::WriteParams>(
            "syscall.state.write",
            "Set a value of the shared state, visible to all agents; the value null deletes the key.",
            Run::world(shared_state::Write),
        ),
    ]
}

fn skills() -> [Tool; 5] {
    use skills::{Acquire, Activate, Drop, List, ListParams, NameParams};
    [
        Tool::new::<ListParams>(
            "syscall.skill.list",
            "List the skills that you may acquire, and which of them you hold.",
            Run::read(List),
        )
        .view(LIST_VIEW),
        Tool::new::<NameParams>(
            "syscall.skill.acquire",
            "Acquire a skill; you keep it until you drop it.",
            Run::world(Acquire),
        ),
        Tool::new::<NameParams>(
            "syscall.skill.activate",
            "Read a skill's document; use it before you do work that the skill describes.",
            Run::world(Activate { load: false }),
        )
        .view(WIDE_VIEW),
        Tool::new::<NameParams>("syscall.skill.drop", "Drop a skill that you no longer need.", Run::world(Drop)),
        Tool::new::<NameParams>(
            "syscall.skill.load",
            "Acquire a skill and read its document in one step.",
            Run::world(Activate { load: true }),
        )
        .used(Use::Sometimes)
        .view(WIDE_VIEW),
    ]
}

#[cfg(test)]
mod tests;
