//! The `tasks` and `task_events` tables.

use async_trait::async_trait;
use ghost_domain::{AgentId, Task, TaskEvent, TaskId, TaskStatus};

use crate::error::Result;

/// Which tasks a list wants; `None` is any.
#[derive(Clone, Debug, Default)]
pub struct TaskFilter {
    /// Whose.
    pub owner: Option<AgentId>,
    /// How they stand.
    pub status: Option<TaskStatus>,
    /// Parts of this task.
    pub parent_id: Option<TaskId>,
    /// At most this many; 0 means 100; never more than 1,000.
    pub limit: u32,
}

/// Reading tasks.
#[async_trait]
pub trait TaskReads {
    /// One task.
    async fn task_get(&mut self, task_id: TaskId) -> Result<Option<Task>>;

    /// Tasks by priority (highest first), then by creation, then by id.
    async fn task_list(&mut self, filter: &TaskFilter) -> Result<Vec<Task>>;

    /// Tasks that have not ended, in order of id, from after `after`, at most `limit` (never more than 1,000); of this owner
    /// if given. What comes after the last of a full list is read with its id.
    async fn tasks_open(&mut self, owner: Option<&AgentId>, after: Option<TaskId>, limit: u32) -> Result<Vec<Task>>;

    /// Tasks that depend on this one, in order of id.
    async fn task_dependants(&mut self, task_id: TaskId) -> Result<Vec<Task>>;

    /// How many tasks have not ended.
    async fn task_count_open(&mut self) -> Result<u32>;

    /// The newest `limit` changes of a task, oldest first.
    async fn task_events(&mut self, task_id: TaskId, limit: u32) -> Result<Vec<TaskEvent>>;
}

/// Writing tasks.
#[async_trait]
pub trait TaskWrites {
    /// Inserts or replaces a task, its dependencies included.
    async fn task_put(&mut self, task: &Task) -> Result<()>;

    /// Appends to a task's history.
    async fn task_event_append(&mut self, event: &TaskEvent) -> Result<()>;
}
