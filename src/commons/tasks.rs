//! The task board (TASK-01..06): assigning wakes the owner, changes are told to the creator, dependencies block and
//! unblock, and every change is in the task's history.

mod waiting;

use ghost_domain::event::{EventKind, NewEvent};
use ghost_domain::text::{clip, one_line};
use ghost_domain::{AgentId, Code, Kind, Party, Refusal, Task, TaskEvent, TaskId, TaskStatus, Timestamp};
use ghost_store::Writes;
use ghost_store::tables::TaskFilter;
use serde::{Deserialize, Serialize};
use serde_json::json;

use self::waiting::{depend, dependencies, unfinished};
use crate::mail::{self, Chain, Draft};
use crate::{Cx, Result};

/// Characters of a title.
const TITLE_MAX: usize = 200;

/// A task to be created.
#[derive(Clone, Debug)]
pub struct NewTask {
    /// One line.
    pub title: String,
    /// The whole of it.
    pub description: String,
    /// Whose work it is.
    pub owner: AgentId,
    /// Higher is sooner.
    pub priority: i32,
    /// Tasks that must be done first.
    pub depends_on: Vec<TaskId>,
    /// The task it is a part of.
    pub parent_id: Option<TaskId>,
    /// When it should be done.
    pub due_at: Option<Timestamp>,
    /// The chain that it belongs to.
    pub chain: Chain,
}

/// A task with its history.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TaskWithHistory {
    /// The task.
    #[serde(flatten)]
    pub task: Task,
    /// Its changes, oldest first.
    pub history: Vec<TaskEvent>,
    /// Whether there are earlier ones, which are left out.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub history_truncated: bool,
}

/// Changes of a task that are shown at once.
const SHOWN: u32 = 500;
/// Bytes of notes that are shown at once; the newest change is shown whatever it holds.
const SHOWN_BYTES: usize = 1 << 20;

/// Creates a task and tells its owner.
pub async fn create(w: &mut dyn Writes, cx: &Cx, by: &Party, new: NewTask) -> Result<Task> {
    let limits = cx.limits();
    let title = one_line(&new.title);
    if title.is_empty() || title.chars().count() > TITLE_MAX {
        return Err(Refusal::new(Code::InvalidArguments, format!("title must have 1 to {TITLE_MAX} characters"))
            .hint("say in one line what to do, and the rest in description"));
    }
    if new.description.len() > limits.message_bytes as usize {
        return Err(Refusal::new(
            Code::TooLarge,
            format!("description has {} bytes; at most {} are taken", new.description.len(), limits.message_bytes),
        )
        .hint("write the long part to a workspace file and name its path"));
    }
    // Checked here and not only when its owner is told: a task that is blocked, or one's own, would carry a chain on
    // without end, because the word that unblocks it is the supervisor's and passes every bound.
    if new.chain.hop > limits.hops_max && *by != Party::System {
        return Err(mail::hop_limit(new.chain.hop, limits.hops_max));
    }
    mail::agent_named(w, &new.owner).await?;
    let open = w.task_count_open().await?;
    if open >= limits.tasks_open_max {
        return Err(Refusal::new(
            Code::RateLimited,
            format!("{open} tasks are open in this world, which is its bound"),
        )
        .hint("finish or cancel some first"));
    }
    crate::storms::filled(w, cx, "tasks_open_max", None, open.into(), limits.tasks_open_max.into()).await?;
    if let Some(parent) = new.parent_id {
        get(w, parent).await?;
    }
    // It is new, so nothing can depend on it yet: no cycle can come of this.
    let depends_on: Vec<TaskId> = dependencies(w, new.depends_on).await?.into_iter().collect();
    let blocked = unfinished(w, &depends_on).await?.is_some();
    let now = cx.now();
    let task = Task {
        task_id: TaskId(cx.id()),
        title,
        description: new.description,
        owner: new.owner,
        creator: by.clone(),
        status: if blocked { TaskStatus::Blocked } else { TaskStatus::Pending },
        priority: new.priority,
        depends_on,
        parent_id: new.parent_id,
        due_at: new.due_at,
        result: None,
        root_id: new.chain.root_id,
        created_at: now,
        updated_at: now,
    };
    keep(w, cx, by, &task, None, EventKind::TaskCreated).await?;
    if !blocked {
        assign(w, cx, by, &task, new.chain).await?;
    }
    Ok(task)
}

/// A change of a task; `None` leaves a field as it is.
#[derive(Clone, Debug, Default)]
pub struct TaskChange {
    /// The status.
    pub status: Option<TaskStatus>,
    /// The owner.
    pub owner: Option<AgentId>,
    /// Why, in the words of who changes it.
    pub note: Option<String>,
    /// What came of it.
    pub result: Option<String>,
    /// Tasks that must be done first, all of them.
    pub depends_on: Option<Vec<TaskId>>,
    /// Whether an ended task may be opened again; needs a note (TASK-02).
    pub reopen: bool,
}

/// Changes a task, and tells whom it concerns.
pub async fn update(
    w: &mut dyn Writes,
    cx: &Cx,
    by: &Party,
    task_id: TaskId,
    change: TaskChange,
    chain: Chain,
) -> Result<Task> {
    let mut task = get(w, task_id).await?;
    let limit = cx.limits().message_bytes as usize;
    for (field, text) in [("note", &change.note), ("result", &change.result)] {
        if text.as_ref().is_some_and(|text| text.len() > limit) {
            return Err(Refusal::new(Code::TooLarge, format!("{field} is longer than {limit} bytes"))
                .hint("write it to a workspace file and name its path"));
        }
    }
    let says_nothing = change.status.is_none() && change.note.is_none() && change.result.is_none();
    if says_nothing && change.owner.is_none() && change.depends_on.is_none() {
        return Err(Refusal::new(Code::InvalidArguments, "nothing to change")
            .hint("give status, owner, note, result or depends_on"));
    }
    let before = task.status;
    let mut note = change.note.clone();
    if let Some(depends_on) = change.depends_on {
        let words = depend(w, &mut task, depends_on, change.status.is_none()).await?;
        note.get_or_insert(words);
    }
    // Naming the owner that it has is a way to remind it: whatever had told it may have come to nothing.
    let given = change.owner.is_some();
    if let Some(status) = change.status {
        let noted = change.reopen && change.note.as_ref().is_some_and(|note| !note.trim().is_empty());
        task.status.check_change(status, noted)?;
        if matches!(status, TaskStatus::Pending | TaskStatus::InProgress | TaskStatus::Done)
            && let Some(dependency) = unfinished(w, &task.depends_on).await?
        {
            return Err(Refusal::new(Code::Conflict, format!("task {task_id} waits for task {dependency}"))
                .hint("finish that one first"));
        }
        task.status = status;
    }
    if let Some(owner) = change.owner {
        mail::agent_named(w, &owner).await?;
        task.owner = owner;
    }
    if let Some(result) = change.result {
        task.result = Some(result);
    }
    task.updated_at = cx.now();
    keep(w, cx, by, &task, note.as_deref(), EventKind::TaskUpdated).await?;
    // Work that is to be done again, or that can be done at last, is news to its owner (TASK-03).
    let freed = before.is_terminal() || before == TaskStatus::Blocked;
    let ready = matches!(task.status, TaskStatus::Pending | TaskStatus::InProgress);
    if (given && !task.status.is_terminal()) || (freed && ready) {
        assign(w, cx, by, &task, chain).await?;
    }
    if task.status != before {
        tell_creator(w, cx, by, &task, note.as_deref(), chain).await?;
        if task.status == TaskStatus::Done {
            unblock(w, cx, &task, chain).await?;
        } else if before == TaskStatus::Done {
            block(w, cx, &task, chain).await?;
        }
    }
    Ok(task)
}

/// Tells the owners of a root's open tasks of them again. For work that came to a stand: mail that a failed turn had
/// taken is not tried again by itself.
pub async fn remind(w: &mut dyn Writes, cx: &Cx, chain: Chain, except: &AgentId) -> Result<u32> {
    let mut told = 0;
    for status in [TaskStatus::Pending, TaskStatus::InProgress] {
        let filter = TaskFilter { status: Some(status), limit: 1_000, ..TaskFilter::default() };
        for task in w.task_list(&filter).await? {
            if task.root_id == chain.root_id && task.owner != *except {
                assign(w, cx, &Party::System, &task, chain).await?;
                told += 1;
            }
        }
    }
    Ok(told)
}

/// A task, or a refusal.
pub async fn get(w: &mut dyn Writes, task_id: TaskId) -> Result<Task> {
    let task = w.task_get(task_id).await?;
    task.ok_or_else(|| {
        Refusal::not_found("task", &task_id.to_string(), None).hint("list the tasks to find its task_id")
    })
}

/// A task with the newest part of its history, or a refusal.
pub async fn get_with_history(r: &mut dyn ghost_store::Reads, task_id: TaskId) -> Result<TaskWithHistory> {
    let Some(task) = r.task_get(task_id).await? else {
        return Err(Refusal::not_found("task", &task_id.to_string(), None).hint("list the tasks to find its task_id"));
    };
    let mut history = r.task_events(task_id, SHOWN + 1).await?;
    let mut bytes = 0_usize;
    let fits = |event: &&TaskEvent| {
        bytes = bytes.saturating_add(event.note.as_ref().map_or(0, String::len));
        bytes <= SHOWN_BYTES
    };
    let shown = history.iter().rev().take(SHOWN as usize).take_while(fits).count().max(1);
    let older = history.len().saturating_sub(shown);
    history.drain(..older);
    Ok(TaskWithHistory { task, history, history_truncated: older > 0 })
}

async fn keep(w: &mut dyn Writes, cx: &Cx, by: &Party, task: &Task, note: Option<&str>, kind: EventKind) -> Result<()> {
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
async fn assign(w: &mut dyn Writes, cx: &Cx, by: &Party, task: &Task, chain: Chain) -> Result<()> {
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

async fn tell_creator(
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
    match mail::deliver(w, cx, draft).await {
        Ok(_) => Ok(()),
        // The work is done whether or not its creator can still be told: a full inbox or a deleted creator must not
        // make the owner's own record impossible. The board and the feed have it.
        Err(refusal)
            if matches!(
                refusal.code,
                Code::InboxFull | Code::NotFound | Code::HopLimit | Code::RateLimited | Code::LoopGuard
            ) =>
        {
            Ok(())
        }
        Err(refusal) => Err(refusal),
    }
}

/// Frees the tasks that waited for `done` alone (TASK-06).
async fn unblock(w: &mut dyn Writes, cx: &Cx, done: &Task, chain: Chain) -> Result<()> {
    for mut task in w.task_dependants(done.task_id).await? {
        if task.status != TaskStatus::Blocked {
            continue;
        }
        if unfinished(w, &task.depends_on).await?.is_some() {
            continue;
        }
        task.status = TaskStatus::Pending;
        task.updated_at = cx.now();
        let note = format!("task {} is done", done.task_id);
        keep(w, cx, &Party::System, &task, Some(&note), EventKind::TaskUpdated).await?;
        match assign(w, cx, &Party::System, &task, chain).await {
            Ok(()) => {}
            // Who finished the other task must not be held up by an owner that cannot be told: the board shows it.
            Err(refusal) if matches!(refusal.code, Code::InboxFull | Code::NotFound | Code::HopLimit) => {}
            Err(refusal) => return Err(refusal),
        }
        tell_of_change(w, cx, &task, &note, chain).await?;
    }
    Ok(())
}

/// Holds up the tasks that were ready because `reopened` had been done. Work that is under way goes on: whoever does it
/// knows best what of it still holds.
async fn block(w: &mut dyn Writes, cx: &Cx, reopened: &Task, chain: Chain) -> Result<()> {
    for mut task in w.task_dependants(reopened.task_id).await? {
        if task.status != TaskStatus::Pending {
            continue;
        }
        task.status = TaskStatus::Blocked;
        task.updated_at = cx.now();
        let note = format!("task {} is open again", reopened.task_id);
        keep(w, cx, &Party::System, &task, Some(&note), EventKind::TaskUpdated).await?;
        tell_of_change(w, cx, &task, &note, chain).await?;
    }
    Ok(())
}

/// Tells the creator of a change that followed from another task's. A creator that is the owner has been told as that.
async fn tell_of_change(w: &mut dyn Writes, cx: &Cx, task: &Task, note: &str, chain: Chain) -> Result<()> {
    if task.creator.agent() == Some(&task.owner) {
        return Ok(());
    }
    tell_creator(w, cx, &Party::System, task, Some(note), chain).await
}

fn bounded(cx: &Cx, body: String) -> String {
    let limit = cx.limits().message_bytes as usize;
    if body.len() <= limit { body } else { ghost_domain::text::prefix_bytes(&body, limit).to_owned() }
}
