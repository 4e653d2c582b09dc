//! Looking at one task, alone or with what became of it.
//!
//! Must never: change anything.

use ghost_domain::{Refusal, Task, TaskEvent, TaskId};
use ghost_store::{Reads, Writes};
use serde::{Deserialize, Serialize};

use crate::Result;

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

/// A task, or a refusal.
pub async fn get(w: &mut dyn Writes, task_id: TaskId) -> Result<Task> {
    let task = w.task_get(task_id).await?;
    task.ok_or_else(|| {
        Refusal::not_found("task", &task_id.to_string(), None).hint("list the tasks to find its task_id")
    })
}

/// A task with the newest part of its history, or a refusal.
pub async fn get_with_history(r: &mut dyn Reads, task_id: TaskId) -> Result<TaskWithHistory> {
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
