//! The few small commands that commons has no rule for: each is a rule of commons with a note beside it.
//!
//! Must never: change what a rule of commons decides.

use ghost_domain::text::clip;
use ghost_domain::{
    Envelope, Limits, Party, RequestKey, StoredAnswer, Task, TaskId, Timestamp, Turn, TurnId, TurnStatus,
};
use ghost_rules::{RuleContext, mail, tasks, turns};
use ghost_store::Writes;
use ghost_world::World;

use super::outcome::{Result, refused};
use super::turns::no_turn;

/// Cancels an open turn; one that has ended stays as it is.
pub async fn cancel_turn(
    w: &mut dyn Writes,
    ctx: &RuleContext,
    by: &Party,
    turn_id: TurnId,
    reason: Option<&str>,
) -> Result<(Turn, bool)> {
    match w.turn_get(turn_id).await? {
        None => Err(no_turn(turn_id)),
        Some(turn) if turn.status != TurnStatus::Open => Ok((turn, false)),
        Some(_) => {
            let mut turn = turns::cancel(w, ctx, by, turn_id).await?;
            if let Some(reason) = reason {
                turn.reason = Some(format!("by {by}: {}", ctx.redactor.redact(&clip(reason, 300))));
                w.turn_put(&turn).await?;
            }
            Ok((turn, true))
        }
    }
}

/// Delivers mail, and gives it as the store keeps it: with its place.
pub async fn deliver(w: &mut dyn Writes, ctx: &RuleContext, new_message: mail::NewMessage) -> Result<Envelope> {
    let sent = mail::deliver(w, ctx, new_message).await?;
    Ok(w.message_get(sent.message_id).await?.unwrap_or(sent))
}

/// What an operator may rewrite of a task; `None` leaves a field as it is.
#[derive(Clone, Debug, Default)]
pub struct TaskText {
    /// One line.
    pub title: Option<String>,
    /// The whole of it.
    pub description: Option<String>,
    /// Higher is sooner.
    pub priority: Option<i32>,
    /// When it should be done.
    pub due_at: Option<Timestamp>,
}

/// Rewrites a task and changes it, with one entry in its history that says both.
pub async fn edit_task(
    w: &mut dyn Writes,
    ctx: &RuleContext,
    by: &Party,
    task_id: TaskId,
    text: TaskText,
    mut change: tasks::TaskChange,
) -> Result<Task> {
    let mut task = tasks::get(w, task_id).await?;
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
    let chain = mail::Chain { root_id: task.root_id, hop: 0 };
    if !rewritten.is_empty() {
        w.task_put(&task).await?;
        if change.note.is_none() {
            change.note = Some(format!("changed: {}", rewritten.join(", ")));
        }
    }
    tasks::update(w, ctx, by, task_id, change, chain).await
}

/// Puts the answer of a request that has ended in the place of the mark that it had begun.
pub async fn keep_answer(world: &World, key: RequestKey, answer: String) -> Result<()> {
    let at = world.ctx().now();
    world
        .store()
        .write(move |w| Box::pin(async move { w.request_put(&StoredAnswer { key, answer, at }).await }))
        .await
        .map_err(refused)
}

/// Whose a call is that a daemon began which is gone.
pub enum CutOff {
    /// This request's, which goes on with it.
    Ours,
    /// Another request's with the same id, which has begun to go on with it.
    Others,
    /// Nobody's: its turn may have been pruned, so nobody can tell what came of it.
    Lost,
}

/// Puts `ours`, the mark of this daemon, in the place of `found`, that of the daemon that is gone.
pub async fn take_over_call(
    world: &World,
    key: RequestKey,
    turn_id: TurnId,
    found: String,
    ours: String,
) -> Result<CutOff> {
    let ctx = world.ctx().clone();
    world
        .store()
        .write(move |w| {
            Box::pin(async move {
                let kept = w.request_get(&key.principal, &key.request_id).await?;
                let Some(kept) = kept.filter(|kept| kept.answer == found) else { return Ok(CutOff::Others) };
                let oldest = ctx.now().minus(Limits::days(ctx.limits().journal_days));
                if kept.at <= oldest && w.turn_get(turn_id).await?.is_none() {
                    return Ok(CutOff::Lost);
                }
                w.request_put(&StoredAnswer { answer: ours, ..kept }).await?;
                Ok(CutOff::Ours)
            })
        })
        .await
        .map_err(refused)
}
