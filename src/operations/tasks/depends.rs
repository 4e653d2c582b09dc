//! Reads tasks with their histories and their dependencies, and checks that no task waits for itself.
//!
//! This module must never notify a party or write a task; the caller does both.

use crate::prelude::*;

/// Maximum dependencies of one task.
const DEPENDS_MAX: usize = 64;
/// Maximum tasks that the search for a cycle visits.
const CYCLE_MAX: usize = 10_000;

/// Replaces the dependencies of a task. With `follow` also sets the status that follows from them.
/// Returns a description of the new dependencies. A cycle is refused, because its tasks
/// would wait for ever.
pub(super) fn depend(w: &mut StoreTx, task: &mut Task, depends_on: Vec<TaskId>, follow: bool) -> Result<String> {
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
pub(super) fn dependencies(w: &mut StoreTx, depends_on: Vec<TaskId>) -> Result<BTreeSet<TaskId>> {
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
pub(super) fn unfinished(w: &mut StoreTx, depends_on: &[TaskId]) -> Result<Option<TaskId>> {
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
    w.task_get(task_id)?.ok_or_else(|| {
        Refusal::not_found("task", &task_id.to_string(), None).hint("list the tasks to find its task_id")
    })
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
