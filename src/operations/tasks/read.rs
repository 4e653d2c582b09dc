//! Reads one task, with or without its history.
//!
//! This module must never change a task.

use crate::prelude::*;

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
    let task = w.task_get(task_id)?;
    task.ok_or_else(|| {
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
