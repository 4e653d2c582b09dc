//! The few writes that `ghost-operations` has no rule for. Most combine a rule with one more record.
//!
//! A command must never change the decision of a rule.

use ghost_domain::text::clip;
use ghost_domain::{
    Envelope, Limits, Party, RequestKey, StoredAnswer, Task, TaskId, Timestamp, Turn, TurnId, TurnStatus,
};
use ghost_operations::{Tx, mail, tasks, turns};
use ghost_world::World;

use super::outcome::{Result, refused};
use super::turns::no_turn;

/// Cancels an open turn. A turn that has ended stays as it is; the flag is then false.
pub fn cancel_turn(w: &mut Tx, by: &Party, turn_id: TurnId, reason: Option<&str>) -> Result<(Turn, bool)> {
    match w.turn_get(turn_id)? {
        None => Err(no_turn(turn_id)),
        Some(turn) if turn.status != TurnStatus::Open => Ok((turn, false)),
        Some(_) => {
            let mut turn = turns::cancel(w, by, turn_id)?;
            if let Some(reason) = reason {
                turn.reason = Some(format!("by {by}: {}", w.ctx.redactor.redact(&clip(reason, 300))));
                w.turn_put(&turn)?;
            }
            Ok((turn, true))
        }
    }
}

/// Delivers messages and returns them as they are stored, with their inbox positions.
pub fn deliver(w: &mut Tx, new_message: mail::NewMessage) -> Result<Envelope> {
    let sent = mail::deliver(w, new_message)?;
    Ok(w.message_get(sent.message_id)?.unwrap_or(sent))
}

/// The fields of a task that an operator may change. `None` leaves a field as it is.
#[derive(Clone, Debug, Default)]
pub struct TaskText {
    /// Title, one line.
    pub title: Option<String>,
    /// Full text of the task.
    pub description: Option<String>,
    /// A higher number comes first.
    pub priority: Option<i32>,
    /// Due time.
    pub due_at: Option<Timestamp>,
}

/// Changes the fields and the state of a task, with one entry in its history for both.
pub fn edit_task(
    w: &mut Tx,
    by: &Party,
    task_id: TaskId,
    text: TaskText,
    mut change: tasks::TaskChange,
) -> Result<Task> {
    let mut task = tasks::get(w, task_id)?;
    let mut rewritten = Vec::new();
    if let Some(title) = text.title {
        task.title = title;
        rewritten.push("title");
    }
    if let Some(description) = text.description {
        task.description = description;
        rewritten.push("description");
    }
    if let Some(priority) = text.priority {
        task.priority = priority;
        rewritten.push("priority");
    }
    if let Some(due_at) = text.due_at {
        task.due_at = Some(due_at);
        rewritten.push("due time");
    }
    let chain = mail::Chain::of_task(&task);
    if !rewritten.is_empty() {
        w.task_put(&task)?;
        if change.note.is_none() {
            change.note = Some(format!("changed: {}", rewritten.join(", ")));
        }
    }
    tasks::update(w, by, task_id, change, chain)
}

/// Stores the answer of a request that has ended, in place of the marker that it had started.
pub async fn store_answer(world: &World, key: RequestKey, answer: String) -> Result<()> {
    let at = world.ctx().now();
    world.store().write(move |w| w.request_put(&StoredAnswer { key, answer, at })).await.map_err(refused)
}

/// The request that continues a call of an earlier daemon process, if any.
pub enum TakeOver {
    /// This request continues it.
    Ours,
    /// Another request with the same id has already taken it over.
    Others,
    /// No one: its turn may have been pruned, so its outcome is unknown.
    Lost,
}

/// Replaces `found`, the marker of an earlier daemon process, by `ours`, the marker of this one.
pub async fn take_over_call(
    world: &World,
    key: RequestKey,
    turn_id: TurnId,
    found: String,
    ours: String,
) -> Result<TakeOver> {
    world
        .write(move |w| {
            let stored = w.request_get(&key.principal, &key.request_id)?;
            let Some(stored) = stored.filter(|stored| stored.answer == found) else { return Ok(TakeOver::Others) };
            let oldest = w.ctx.now().minus(Limits::days(w.ctx.limits().journal_days));
            if stored.at <= oldest && w.turn_get(turn_id)?.is_none() {
                return Ok(TakeOver::Lost);
            }
            w.request_put(&StoredAnswer { answer: ours, ..stored })?;
            Ok(TakeOver::Ours)
        })
        .await
        .map_err(refused)
}
