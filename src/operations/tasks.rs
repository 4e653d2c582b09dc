//! The task board. An assignment wakes the owner, the creator is notified of changes, dependencies block and unblock tasks,
//! and every change is in the task's history. The task of a main job names the file with the job's result.

mod owners;

use ghost_domain::write_acl::WorkspacePath;
use owners::{assign, notify_creator, notify_owner, save};

pub use owners::{handed_on, left_behind, remind};

use crate::prelude::*;
use crate::{lookup, mail};

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
    let hint = "write the long part to a workspace file and name its path";
    fits("description", new.description.len(), limits.message_bytes, hint)?;
    // Checked here and not only when the owner is notified. A blocked task, or a task that an agent
    // gives itself, sends no mail now. Its later notice comes from the system, which ignores the
    // limit on hops, so a chain could continue for ever.
    if new.chain.hop > limits.hops_max && *by != Party::System {
        return Err(mail::hop_limit(new.chain.hop, limits.hops_max));
    }
    lookup::agent_for(w, by, &new.owner)?;
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
        lookup::agent_for(w, by, &owner)?;
        task.owner = owner;
    }
    if let Some(result) = new.result {
        task.result = Some(result);
    }
    if task.status == TaskStatus::Done && before != TaskStatus::Done {
        check_result(w, &task)?;
    }
    task.updated_at = w.ctx.now();
    save(w, by, &task, note.as_deref(), EventKind::TaskUpdated)?;
    follow_job(w, &task)?;
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

/// Maximum dependencies of one task.
const DEPENDS_MAX: usize = 64;
/// Maximum tasks that the search for a cycle visits.
const CYCLE_MAX: usize = 10_000;

/// Replaces the dependencies of a task. With `follow` also sets the status that follows from them.
/// Returns a description of the new dependencies. A cycle is refused, because its tasks
/// would wait for ever.
fn depend(w: &mut StoreTx, task: &mut Task, depends_on: Vec<TaskId>, follow: bool) -> Result<String> {
    if task.status.is_terminal() && follow {
        return Err(refusal!(Conflict, "the task is {} and waits for nothing", task.status)
            .hint("to work on it again, reopen it with a note"));
    }
    let wanted = dependencies(w, depends_on)?;
    check_cycle(w, task.task_id, &wanted)?;
    let waited = unfinished(w, &task.depends_on)?.is_some();
    task.depends_on = wanted.into_iter().collect();
    let waits = unfinished(w, &task.depends_on)?.is_some();
    if follow {
        match task.status {
            TaskStatus::Pending | TaskStatus::InProgress if waits => task.status = TaskStatus::Blocked,
            TaskStatus::Blocked if waited && !waits => task.status = TaskStatus::Pending,
            _ => {}
        }
    }
    let ids: Vec<String> = task.depends_on.iter().map(ToString::to_string).collect();
    Ok(if ids.is_empty() { "depends on nothing".to_owned() } else { format!("depends on {}", ids.join(", ")) })
}

/// Checks that all tasks of a list exist and removes duplicates.
fn dependencies(w: &mut StoreTx, depends_on: Vec<TaskId>) -> Result<BTreeSet<TaskId>> {
    let count = depends_on.len();
    if count > DEPENDS_MAX {
        return Err(refusal!(InvalidArguments, "depends_on names {count} tasks; the most is {DEPENDS_MAX}")
            .hint("let some of these tasks depend on others of them instead"));
    }
    let wanted: BTreeSet<TaskId> = depends_on.into_iter().collect();
    for task_id in &wanted {
        get(w, *task_id)?;
    }
    Ok(wanted)
}

/// Returns the first of these tasks that is not done. A task that retention deleted ended long ago
/// and is ignored.
fn unfinished(w: &mut StoreTx, depends_on: &[TaskId]) -> Result<Option<TaskId>> {
    for task_id in depends_on {
        if w.task_get(*task_id)?.is_some_and(|task| task.status != TaskStatus::Done) {
            return Ok(Some(*task_id));
        }
    }
    Ok(None)
}

/// Refuses dependencies that lead back to `task_id`.
fn check_cycle(w: &mut StoreTx, task_id: TaskId, wanted: &BTreeSet<TaskId>) -> Result<()> {
    // Maps each visited task to the task that led to it, to report the path.
    let mut reached_from: BTreeMap<TaskId, TaskId> = BTreeMap::new();
    let mut open: Vec<(TaskId, TaskId)> = wanted.iter().map(|first| (task_id, *first)).collect();
    while let Some((from, to)) = open.pop() {
        if to == task_id {
            let mut cycle = vec![task_id];
            let mut at = from;
            while at != task_id {
                cycle.push(at);
                at = reached_from.get(&at).copied().unwrap_or(task_id);
            }
            cycle.push(task_id);
            cycle.reverse();
            return Err(refusal!(Conflict, "task {task_id} would wait for itself")
                .hint("leave out the dependency that leads back to it")
                .details(json!({ "cycle": cycle })));
        }
        if reached_from.contains_key(&to) {
            continue;
        }
        reached_from.insert(to, from);
        if reached_from.len() > CYCLE_MAX {
            return Err(refusal!(TooLarge, "the search for a cycle would have to visit more than {CYCLE_MAX} tasks")
                .hint("let the task depend on fewer others"));
        }
        let next = w.task_get(to)?.map(|task| task.depends_on).unwrap_or_default();
        open.extend(next.into_iter().map(|next| (to, next)));
    }
    Ok(())
}

/// A task with its history.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TaskWithHistory {
    /// The task.
    #[serde(flatten)]
    pub task: Task,
    /// Its changes, oldest first.
    pub history: Vec<TaskEvent>,
    /// Whether earlier changes are missing.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub history_truncated: bool,
}

/// Maximum changes that are shown at once.
const SHOWN: u32 = 500;
/// Maximum bytes of notes that are shown at once. The newest change is always shown.
const SHOWN_BYTES: usize = 1 << 20;

/// Returns a task.
///
/// # Errors
/// `NotFound`.
pub fn get(w: &mut StoreTx, task_id: TaskId) -> Result<Task> {
    found(w.task_get(task_id)?, "task", task_id, "list the tasks to find its task_id")
}

/// Returns a task with the newest part of its history.
///
/// # Errors
/// `NotFound`.
pub fn get_with_history(r: &mut StoreTx, task_id: TaskId) -> Result<TaskWithHistory> {
    let task = get(r, task_id)?;
    let mut history = r.task_events(task_id, SHOWN + 1)?;
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

/// The job whose task this is.
fn job_of(r: &mut Tx, task: &Task) -> Result<Option<Job>> {
    if !r.ctx.jobs().contains(&task.root_id) {
        return Ok(None);
    }
    Ok(r.job_of_task(task.task_id)?)
}

/// Refuses to set the task of a job to done unless its result is a file in the job's directory for results.
///
/// # Errors
/// `InvalidArguments` with the directory in the hint.
fn check_result(r: &mut Tx, task: &Task) -> Result<()> {
    let Some(job) = job_of(r, task)? else { return Ok(()) };
    let path = WorkspacePath::parse(task.result.as_deref().unwrap_or_default().trim(), false);
    let dir = format!("{}/", job.result_dir.trim_end_matches('/'));
    if path.is_ok_and(|path| path.as_str().starts_with(&dir)) {
        return Ok(());
    }
    Err(refusal!(InvalidArguments, "the result of job {} is not a path under {dir}", job.job_id)
        .hint("set `result` to the path of the file that you wrote, in the same call that sets the status to done"))
}

/// Records the end of a job when its task ends, and that the job runs again when its task is reopened.
fn follow_job(w: &mut Tx, task: &Task) -> Result<()> {
    let Some(mut job) = job_of(w, task)? else { return Ok(()) };
    if task.status.is_terminal() == job.finished_at.is_some() {
        return Ok(());
    }
    job.finished_at = task.status.is_terminal().then(|| w.ctx.now());
    job.result_path =
        task.result.clone().filter(|_| task.status == TaskStatus::Done).map(|path| path.trim().to_owned());
    w.job_put(&job)?;
    if job.finished_at.is_none() {
        return Ok(());
    }
    let facts = json!({ "job_id": job.job_id, "status": task.status, "result_path": job.result_path });
    w.emit(NewEvent::new(EventKind::JobFinished, facts).correlation(job.root_id))
}
