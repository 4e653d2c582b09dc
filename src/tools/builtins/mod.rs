//! The tools that the code brings: a family a file, one type a tool, and the one table that lists them all. Tools are
//! thin: they read their arguments, apply a rule of the commons, and say what came of it.
//!
//! Must never: hold a rule that the commons has, or take an actor from an argument.

mod agents;
mod common;
mod inbox;
mod messages;
mod resources;
mod skills;
mod tasks;
mod when;
mod workspace;
mod world;

use crate::tool::{Run, Tool};

/// Bytes that a model sees of a file or a document: these have bounds of their own (CONF-07).
const WIDE_VIEW: u32 = 192 * 1024;
/// Bytes that a model sees of a list; lists stop before they reach it, so that what is seen is whole JSON.
const LIST_VIEW: u32 = 64 * 1024;

/// Every built-in tool, in the order of the catalogue's families.
#[must_use]
pub fn all() -> Vec<Tool> {
    let mut tools = Vec::with_capacity(32);
    tools.extend(files());
    tools.extend(agents_and_world());
    tools.extend(messages());
    tools.extend(tasks());
    tools.extend(skills());
    tools
}

fn files() -> [Tool; 4] {
    use workspace::{Edit, EditParams, List, ListParams, Read, ReadParams, Write, WriteParams};
    [
        Tool::new::<ReadParams>(
            "workspace.read",
            "Read a text file of the workspace, whole or from a line on. Everyone may read everything in it.",
            Run::read(Read),
        )
        .view(WIDE_VIEW),
        Tool::new::<WriteParams>(
            "workspace.write",
            "Create or replace a file, or append to it; files under output/ become published artifacts.",
            Run::file(Write),
        ),
        Tool::new::<EditParams>(
            "workspace.edit",
            "Replace an exact piece of text in a file; use it for small changes instead of writing the file again.",
            Run::file(Edit),
        ),
        Tool::new::<ListParams>(
            "workspace.list",
            "List what a directory of the workspace holds, with sizes; use it to find a path before reading.",
            Run::read(List),
        )
        .view(LIST_VIEW),
    ]
}

fn agents_and_world() -> [Tool; 8] {
    use common::Nothing;
    [
        Tool::new::<Nothing>(
            "syscall.reflect",
            "See the world as it is now: its agents, what they do, tokens and cost so far, the time.",
            Run::read(world::Reflect),
        )
        .view(LIST_VIEW),
        Tool::new::<agents::ListParams>(
            "syscall.agent.list",
            "List the agents of the world with archetype and status; use it to find whom to turn to.",
            Run::read(agents::List),
        )
        .view(LIST_VIEW),
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
        Tool::new::<agents::StopParams>(
            "syscall.agent.stop",
            "Stop an agent once its current turn has ended; all its data is kept for a later start.",
            Run::world(agents::Stop),
        ),
        Tool::new::<agents::InspectParams>(
            "syscall.agent.inspect",
            "Look into another agent's memory files: without a path the list of them, with one its text.",
            Run::read(agents::Inspect),
        )
        .view(WIDE_VIEW),
        Tool::new::<Nothing>(
            "syscall.resource.usage",
            "See how busy the host is: processors, memory, disk, and the daemon itself.",
            Run::read(resources::Usage),
        ),
        Tool::new::<world::StatusParams>(
            "syscall.session.status",
            "See the current time, the model in use, tokens and cost so far, and waiting mail of an agent.",
            Run::read(world::Status),
        ),
    ]
}

fn messages() -> [Tool; 4] {
    [
        Tool::new::<messages::SendParams>(
            "syscall.message.send",
            "Put a message or a file into another agent's inbox without waiting; it wakes up and deals with it.",
            messages::send(),
        ),
        Tool::new::<messages::AskParams>(
            "syscall.ask",
            "Ask another agent and wait for its answer; use it only if you cannot go on without.",
            Run::ask(messages::Question),
        )
        .view(LIST_VIEW),
        Tool::new::<messages::BroadcastParams>(
            "syscall.broadcast",
            "Send one message to every other agent, or to all of one archetype.",
            Run::world(messages::ToAll),
        ),
        Tool::new::<inbox::ReadParams>(
            "syscall.inbox.read",
            "Take mail that came in since this turn began; questions that expect an answer wait for a turn of their own.",
            Run::world(inbox::Read),
        )
        .view(WIDE_VIEW),
    ]
}

fn tasks() -> [Tool; 4] {
    [
        Tool::new::<tasks::CreateParams>(
            "syscall.task.create",
            "Put a task on the board for yourself or another agent; its owner is told and woken.",
            Run::world(tasks::Create),
        ),
        Tool::new::<tasks::ListParams>(
            "syscall.task.list",
            "List tasks, most urgent first, by owner or status; long descriptions are shortened.",
            Run::read(tasks::List),
        )
        .view(LIST_VIEW),
        Tool::new::<tasks::GetParams>(
            "syscall.task.get",
            "Read one task in full, with the history of its changes.",
            Run::read(tasks::Get),
        )
        .view(WIDE_VIEW),
        Tool::new::<tasks::UpdateParams>(
            "syscall.task.update",
            "Change a task's status, result or owner; its creator is told when the status changes.",
            Run::world(tasks::Update),
        ),
    ]
}

fn skills() -> [Tool; 5] {
    use skills::{Acquire, Activate, Drop, List, ListParams, NameParams};
    [
        Tool::new::<ListParams>(
            "syscall.skill.list",
            "List the skills that you may hold, and which of them you hold.",
            Run::read(List),
        )
        .view(LIST_VIEW),
        Tool::new::<NameParams>(
            "syscall.skill.acquire",
            "Take up a skill and the tools that it brings; it stays yours until you drop it.",
            Run::world(Acquire),
        ),
        Tool::new::<NameParams>(
            "syscall.skill.activate",
            "Read a skill's document; use it before work that the skill describes.",
            Run::world(Activate { load: false }),
        )
        .view(WIDE_VIEW),
        Tool::new::<NameParams>("syscall.skill.drop", "Let go of a skill that you no longer need.", Run::world(Drop)),
        Tool::new::<NameParams>(
            "syscall.skill.load",
            "Take up a skill and read its document in one step.",
            Run::world(Activate { load: true }),
        )
        .view(WIDE_VIEW),
    ]
}

#[cfg(test)]
mod tests;
