//! The task board. An assignment wakes the owner, the creator is notified of changes,
//! dependencies block and unblock tasks, and every change is in the task's history.

mod depends;
mod notify;
mod owners;

pub use depends::{TaskWithHistory, get, get_with_history};
pub use owners::{handed_on, left_behind, remind};

use crate::prelude::*;
use crate::{agent_lookup, job_result, mail};
use depends::{depend, dependencies, unfinished};
use notify::{assign, notify_creator, notify_owner, save};

/// The longest title, in characters.
const TITLE_MAX: usize = 200;

/// The parameters of a new task.
#[derive(Clone, Debug)]
pub struct NewTask {
    /// Title, one line.
    pub title: String,
    /// Full description.
    pub description: String,
    /// Id of the agent that is to do the task.
    pub owner: AgentId,
    /// Priority; a higher number comes first.
    pub priority: i32,
    /// Tasks that must be done first.
    pub depends_on: Vec<TaskId>,
    /// The task that it is a part of.
    pub parent_id: Option<TaskId>,
    /// When it should be done.
    pub due_at: Option<Timestamp>,
    /// The chain of work that it belongs to.
    pub chain: Chain,
}

/// Creates a task and notifies its owner.
pub fn create(w: &mut Tx, by: &Party, new: NewTask) -> Result<Task> {
    let limits = w.ctx.limits();
    let title = one_line(&new.title);
    if title.is_empty() || title.chars().count() > TITLE_MAX {
        let code = if title.is_empty() { Code::InvalidArguments } else { Code::TooLarge };
        return Err(Refusal::new(code, format!("title must have 1 to {TITLE_MAX} characters"))
            .hint("say in one line what to do, and the rest in description"));
    }
    if new.description.len() > limits.message_bytes as usize {
        let (bytes, most) = (new.description.len(), limits.message_bytes);
        return Err(refusal!(TooLarge, "description has {bytes} bytes; the limit is {most}")
            .hint("write the long part to a workspace file and name its path"));
    }
    // Checked here and not only when the owner is notified. A blocked task, or a task that an agent
    // gives itself, sends no mail now. Its later notice comes from the system, which ignores the
    // limit on hops, so a chain could continue for ever.
    if new.chain.hop > limits.hops_max && *by != Party::System {
        return Err(mail::hop_limit(new.chain.hop, limits.hops_max));
    }
    agent_lookup::agent_for(w, by, &new.owner)?;
    let open = w.task_count_open()?;
    let words = ("tasks are open in this world", "finish or cancel some first");
    crate::root_limits::room(w, "tasks_open_max", open, limits.tasks_open_max, words)?;
    if let Some(parent) = new.parent_id {
        get(w, parent)?;
    }
    // Nothing can depend on a new task yet, so there can be no cycle.
    let depends_on: Vec<TaskId> = dependencies(w, new.depends_on)?.into_iter().collect();
    let blocked = unfinished(w, &depends_on)?.is_some();
    let people = (new.owner, by.clone());
    let task = Task {
        description: new.description,
        status: if blocked { TaskStatus::Blocked } else { TaskStatus::Pending },
        priority: new.priority,
        depends_on,
        parent_id: new.parent_id,
        due_at: new.due_at,
        conversation_id: new.chain.conversation_id,
        ..Task::new(TaskId(w.ctx.id()), title, people, new.chain.root_id, w.ctx.now())
    };
    save(w, by, &task, None, EventKind::TaskCreated)?;
    if !blocked {
        assign(w, by, &task, new.chain)?;
    }
    Ok(task)
}

/// A change of a task; `None` leaves a field as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TaskChange {
    /// The new status.
    pub status: Option<TaskStatus>,
    /// The new owner.
    pub owner: Option<AgentId>,
    /// The reason for the change.
    pub note: Option<String>,
    /// The result of the work.
    pub result: Option<String>,
    /// The complete list of tasks that must be done first.
    pub depends_on: Option<Vec<TaskId>>,
    /// Whether an ended task may be reopened. That needs a note.
    pub reopen: bool,
}

/// Changes a task and notifies its owner and its creator.
pub fn update(w: &mut Tx, by: &Party, task_id: TaskId, new: TaskChange, chain: Chain) -> Result<Task> {
    let mut task = get(w, task_id)?;
    let limit = w.ctx.limits().message_bytes as usize;
    for (field, text) in [("note", &new.note), ("result", &new.result)] {
        if text.as_ref().is_some_and(|text| text.len() > limit) {
            return Err(refusal!(TooLarge, "{field} is longer than {limit} bytes")
                .hint("write it to a workspace file and name its path"));
        }
    }
    if (TaskChange { reopen: new.reopen, ..TaskChange::default() }) == new {
        let refusal = refusal!(InvalidArguments, "nothing to change");
        return Err(refusal.hint("give status, owner, note, result or depends_on"));
    }
    let before = task.status;
    let mut note = new.note.clone();
    if let Some(depends_on) = new.depends_on {
        let description = depend(w, &mut task, depends_on, new.status.is_none())?;
        note.get_or_insert(description);
    }
    // Naming the same owner again reminds it, because the first notice may have been lost with a
    // failed turn.
    let given = new.owner.is_some();
    if let Some(status) = new.status {
        let noted = new.reopen && new.note.as_ref().is_some_and(|note| !note.trim().is_empty());
        task.status.check_change(status, noted)?;
        if matches!(status, TaskStatus::Pending | TaskStatus::InProgress | TaskStatus::Done)
            && let Some(dependency) = unfinished(w, &task.depends_on)?
        {
            return Err(refusal!(Conflict, "task {task_id} waits for task {dependency}").hint("finish that one first"));
        }
        task.status = status;
    }
    if let Some(owner) = new.owner {
        agent_lookup::agent_for(w, by, &owner)?;
        task.owner = owner;
    }
    if let Some(result) = new.result {
        task.result = Some(result);
    }
    if task.status == TaskStatus::Done && before != TaskStatus::Done {
        job_result::check(w, &task)?;
    }
    task.updated_at = w.ctx.now();
    save(w, by, &task, note.as_deref(), EventKind::TaskUpdated)?;
    job_result::follow(w, &task)?;
    // The owner is notified of work that was reopened or unblocked.
    let freed = before.is_terminal() || before == TaskStatus::Blocked;
    let ready = matches!(task.status, TaskStatus::Pending | TaskStatus::InProgress);
    if (given && !task.status.is_terminal()) || (freed && ready) {
        assign(w, by, &task, chain)?;
    }
    if task.status != before {
        notify_creator(w, by, &task, note.as_deref(), chain)?;
        if task.status == TaskStatus::Done {
            unblock(w, &task, chain)?;
        } else if before == TaskStatus::Done {
            block(w, &task, chain)?;
        }
        if matches!(task.status, TaskStatus::Failed | TaskStatus::Cancelled) {
            warn_dependants(w, &task, chain)?;
        }
    }
    Ok(task)
}

/// Unblocks the tasks that waited only for `done`.
fn unblock(w: &mut Tx, done: &Task, chain: Chain) -> Result<()> {
    let note = format!("task {} is done", done.task_id);
    for mut task in dependants(w, done, TaskStatus::Blocked)? {
        if unfinished(w, &task.depends_on)?.is_some() {
            continue;
        }
        follow(w, &mut task, TaskStatus::Pending, &note)?;
        match assign(w, &Party::System, &task, chain) {
            Ok(()) => {}
            // If an owner cannot be notified, the agent that finished the other task must not be
            // stopped. Lists of tasks show the change.
            Err(refusal) if matches!(refusal.code, Code::InboxFull | Code::NotFound | Code::HopLimit) => {}
            Err(refusal) => return Err(refusal),
        }
        notify_of_change(w, &task, &note, chain)?;
    }
    Ok(())
}

/// Blocks the pending tasks that depend on `reopened`. Tasks in progress continue, because their
/// owner decides which part of the work is still valid.
fn block(w: &mut Tx, reopened: &Task, chain: Chain) -> Result<()> {
    let note = format!("task {} is open again", reopened.task_id);
    for mut task in dependants(w, reopened, TaskStatus::Pending)? {
        follow(w, &mut task, TaskStatus::Blocked, &note)?;
        notify_of_change(w, &task, &note, chain)?;
    }
    Ok(())
}

/// Tells the owners and creators of the tasks that wait for `ended` that it will not be done. The tasks stay
/// blocked: whether they make sense without it, only their people know. A new list `depends_on` without `ended` releases
/// them.
fn warn_dependants(w: &mut Tx, ended: &Task, chain: Chain) -> Result<()> {
    let note = format!(
        "task {} is {} and will not be done; set depends_on without it to release this task, or cancel this one",
        ended.task_id, ended.status
    );
    for task in dependants(w, ended, TaskStatus::Blocked)? {
        save(w, &Party::System, &task, Some(&note), EventKind::TaskUpdated)?;
        notify_owner(w, &task, &note, chain)?;
        notify_of_change(w, &task, &note, chain)?;
    }
    Ok(())
}

/// The tasks of this status that depend on `task`.
fn dependants(r: &mut StoreTx, task: &Task, status: TaskStatus) -> Result<Vec<Task>> {
    let dependants = r.task_dependants(task.task_id)?;
    Ok(dependants.into_iter().filter(|task| task.status == status).collect())
}

/// Sets the status that follows from a change of another task.
fn follow(w: &mut Tx, task: &mut Task, status: TaskStatus, note: &str) -> Result<()> {
    task.status = status;
    task.updated_at = w.ctx.now();
    save(w, &Party::System, task, Some(note), EventKind::TaskUpdated)
}

/// Notifies the creator of a change that followed from another task. A creator that is also the
/// owner was notified already.
fn notify_of_change(w: &mut Tx, task: &Task, note: &str, chain: Chain) -> Result<()> {
    if task.creator.agent() == Some(&task.owner) {
        return Ok(());
    }
    notify_creator(w, &Party::System, task, Some(note), chain)
}
