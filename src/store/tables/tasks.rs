//! The `tasks` and `task_events` tables.

use ghost_domain::{AgentId, RootId, Task, TaskEvent, TaskId, TaskStatus, Timestamp};

use crate::error::Result;

/// A position in the list of tasks: priority, time of creation and id.
pub type TaskPlace = (i32, Timestamp, TaskId);

/// Which tasks a list contains. `None` means any.
#[derive(Clone, Debug, Default)]
pub struct TaskFilter {
    /// Owner of the task.
    pub owner: Option<AgentId>,
    /// Status of the task.
    pub status: Option<TaskStatus>,
    /// Only subtasks of this task.
    pub parent_id: Option<TaskId>,
    /// Only tasks of this root.
    pub root_id: Option<RootId>,
    /// Only tasks after this position.
    pub after: Option<TaskPlace>,
    /// At most this many tasks.
    pub limit: u32,
}

/// Reads of tasks.
pub trait TaskReads {
    /// The task with this id.
    fn task_get(&mut self, task_id: TaskId) -> Result<Option<Task>>;

    /// Tasks by priority (highest first), then creation, then id.
    fn task_list(&mut self, filter: &TaskFilter) -> Result<Vec<Task>>;

    /// Tasks that have not ended, in order of id; only those of this owner, if given.
    fn tasks_open(&mut self, owner: Option<&AgentId>, after: Option<TaskId>, limit: u32) -> Result<Vec<Task>>;

    /// Tasks that depend on this one, in order of id.
    fn task_dependants(&mut self, task_id: TaskId) -> Result<Vec<Task>>;

    /// Number of tasks that have not ended.
    fn task_count_open(&mut self) -> Result<u32>;

    /// The newest `limit` history rows of a task, oldest first.
    fn task_events(&mut self, task_id: TaskId, limit: u32) -> Result<Vec<TaskEvent>>;
}

/// Writes of tasks.
pub trait TaskWrites {
    /// Inserts or replaces a task and its dependencies.
    fn task_put(&mut self, task: &Task) -> Result<()>;

    /// Appends a row to a task's history.
    fn task_event_append(&mut self, event: &TaskEvent) -> Result<()>;
}
