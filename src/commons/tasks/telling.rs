//! What is told of a task: to its history and the feed, to its owner, to its creator.
//!
//! Must never: decide what becomes of a task.

use ghost_domain::event::{EventKind, NewEvent};
use ghost_domain::text::clip;
use ghost_domain::{Code, Kind, Party, Task, TaskEvent};
use ghost_store::Writes;
use serde_json::json;

use crate::chain::Chain;
use crate::mail::{self, Draft};
use crate::{Cx, Result, storms};

/// Writes a task that has changed, with its history and the event.
pub(super) async fn keep(
    w: &mut dyn Writes,
    cx: &Cx,
    by: &Party,
    task: &Task,
    note: Option<&str>,
    kind: EventKind,
) -> Result<()> {
    w.task_put(task).await?;
    w.task_event_append(&TaskEvent {
        task_id: task.task_id,
        by: by.clone(),
        at: cx.now(),
        status: task.status,
        owner: task.owner.clone(),
        note: note.map(str::to_owned),
    })
    .await?;
    let event = NewEvent::new(
        kind,
        json!({
            "task_id": task.task_id, "title": task.title, "owner": task.owner, "status": task.status, "by": by,
            "note": note.map(|note| cx.excerpt(note, 200)),
            "result": task.result.as_deref().map(|text| cx.excerpt(text, 200)),
        }),
    )
    .agent(&task.owner)
    .correlation(task.root_id);
    cx.emit(w, event).await
}

/// Tells the owner of its work (TASK-03). Who gives itself a task needs no telling.
pub(super) async fn assign(w: &mut dyn Writes, cx: &Cx, by: &Party, task: &Task, chain: Chain) -> Result<()> {
    if by.agent() == Some(&task.owner) {
        return Ok(());
    }
    let body = format!("task_id: {}\ntitle: {}\n\n{}", task.task_id, task.title, task.description);
    let draft = Draft {
        subject: Some(format!("Task for you: {}", clip(&task.title, 120))),
        ..Draft::new(&task.owner, by.clone(), Kind::Task, bounded(cx, body), chain)
    };
    mail::deliver(w, cx, draft).await?;
    Ok(())
}

/// Tells the creator what became of its task, if it can be told.
pub(super) async fn tell_creator(
    w: &mut dyn Writes,
    cx: &Cx,
    by: &Party,
    task: &Task,
    note: Option<&str>,
    chain: Chain,
) -> Result<()> {
    let Some(creator) = task.creator.agent() else { return Ok(()) };
    if by.agent() == Some(creator) {
        return Ok(());
    }
    let mut body =
        format!("task_id: {}\ntitle: {}\nstatus: {}\nowner: {}", task.task_id, task.title, task.status, task.owner);
    for (field, text) in [("note", note), ("result", task.result.as_deref())] {
        if let Some(text) = text {
            body.push_str(&format!("\n{field}: {text}"));
        }
    }
    let draft = Draft {
        subject: Some(format!("Task {}: {}", task.status, clip(&task.title, 120))),
        ..Draft::new(creator, by.clone(), Kind::Task, bounded(cx, body), chain)
    };
    try_to_tell(w, cx, draft).await
}

/// Delivers what is told of a task, if that can be: the work is done, or left, whether or not anyone can be told of it. A full
/// inbox or a deleted receiver must not make a record impossible; the board and the feed have it.
pub(super) async fn try_to_tell(w: &mut dyn Writes, cx: &Cx, draft: Draft) -> Result<()> {
    let (from, chain) = (draft.from.clone(), draft.chain);
    match mail::deliver(w, cx, draft).await {
        Err(refusal)
            if !matches!(
                refusal.code,
                Code::InboxFull | Code::NotFound | Code::HopLimit | Code::RateLimited | Code::LoopGuard
            ) =>
        {
            Err(refusal)
        }
        Err(refusal) => match from.agent() {
            Some(agent_id) => storms::refused(w, cx, agent_id, chain, &refusal).await,
            None => Ok(()),
        },
        Ok(_) => Ok(()),
    }
}

/// As much of a body as mail may have.
pub(super) fn bounded(cx: &Cx, body: String) -> String {
    let limit = cx.limits().message_bytes as usize;
    if body.len() <= limit { body } else { ghost_domain::text::prefix_bytes(&body, limit).to_owned() }
}
