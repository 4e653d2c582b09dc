//! Saves a changed task with its history and event, and notifies its owner and its creator.
//!
//! This module must never decide about a task.

use crate::mail::{self, NewMessage};
use crate::prelude::*;
use crate::root_limits;

/// Writes a changed task, its history entry and its event.
pub(super) fn save(w: &mut Tx, by: &Party, task: &Task, note: Option<&str>, kind: EventKind) -> Result<()> {
    let ctx = w.ctx;
    w.task_put(task)?;
    w.task_event_append(&TaskEvent {
        task_id: task.task_id,
        by: by.clone(),
        at: ctx.now(),
        status: task.status,
        owner: task.owner.clone(),
        note: note.map(str::to_owned),
    })?;
    let payload = json!({
        "task_id": task.task_id, "title": task.title, "owner": task.owner, "status": task.status, "by": by,
        "note": note.map(|note| ctx.excerpt(note, 200)),
        "result": task.result.as_deref().map(|text| ctx.excerpt(text, 200)),
    });
    w.emit(NewEvent::new(kind, payload).agent(&task.owner).correlation(task.root_id))
}

/// A task's mail belongs to the session in which it was created, whoever changes it from where.
fn in_session_of(task: &Task, chain: Chain) -> Chain {
    Chain { conversation_id: task.conversation_id, ..chain }
}

/// Sends the task to its owner. An agent that assigns a task to itself gets no mail.
pub(super) fn assign(w: &mut Tx, by: &Party, task: &Task, chain: Chain) -> Result<()> {
    if by.agent() == Some(&task.owner) {
        return Ok(());
    }
    let body = format!("task_id: {}\ntitle: {}\n\n{}", task.task_id, task.title, task.description);
    let new_message = notice(w.ctx, by, &task.owner, body, in_session_of(task, chain))
        .subject(format!("Task for you: {}", clip(&task.title, 120)));
    mail::deliver(w, new_message).map(drop)
}

/// Notifies the creator of a task's new state, if possible.
pub(super) fn notify_creator(w: &mut Tx, by: &Party, task: &Task, note: Option<&str>, chain: Chain) -> Result<()> {
    let Some(creator) = task.creator.agent() else { return Ok(()) };
    if by.agent() == Some(creator) {
        return Ok(());
    }
    tell(w, by, creator, task, note, chain)
}

/// Notifies the owner of a task that something happened to what it waits for, if possible.
pub(super) fn notify_owner(w: &mut Tx, task: &Task, note: &str, chain: Chain) -> Result<()> {
    tell(w, &Party::System, &task.owner, task, Some(note), chain)
}

/// Sends a task's state to one agent, if possible.
fn tell(w: &mut Tx, by: &Party, to: &AgentId, task: &Task, note: Option<&str>, chain: Chain) -> Result<()> {
    let mut body =
        format!("task_id: {}\ntitle: {}\nstatus: {}\nowner: {}", task.task_id, task.title, task.status, task.owner);
    for (field, text) in [("note", note), ("result", task.result.as_deref())] {
        if let Some(text) = text {
            body.push_str(&format!("\n{field}: {text}"));
        }
    }
    let new_message = notice(w.ctx, by, to, body, in_session_of(task, chain)).subject(format!(
        "Task {}: {}",
        task.status,
        clip(&task.title, 120)
    ));
    try_to_notify(w, new_message)
}

/// Delivers a notice about a task, if possible. A full inbox or a deleted receiver must not prevent
/// the change; lists of tasks and the feed show it.
pub(super) fn try_to_notify(w: &mut Tx, new_message: NewMessage) -> Result<()> {
    let (from, chain) = (new_message.from.clone(), new_message.chain);
    match mail::deliver(w, new_message) {
        Ok(_) => Ok(()),
        Err(refusal) => match (refusal.code, from.agent()) {
            (Code::InboxFull | Code::NotFound | Code::HopLimit | Code::RateLimited | Code::LoopGuard, from) => {
                from.map_or(Ok(()), |agent_id| root_limits::refused(w, agent_id, chain, &refusal))
            }
            _ => Err(refusal),
        },
    }
}

/// A message about tasks. Its body is truncated to the maximum size.
pub(super) fn notice(ctx: &Context, by: &Party, to: &AgentId, body: String, chain: Chain) -> NewMessage {
    let body = prefix_bytes(&body, ctx.limits().message_bytes as usize);
    NewMessage::new(to, by.clone(), Kind::Task, body, chain)
}
