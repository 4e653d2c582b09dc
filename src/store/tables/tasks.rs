//! Tasks, their history, and main jobs.

use ghost_domain::{AgentId, Job, RootId, Task, TaskEvent, TaskId, TaskStatus, Timestamp};

use super::prelude::*;

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

/// The table of the history, for error messages.
const HISTORY: &str = "task_events";

/// The count of tasks that have not ended.
const OPEN: &str = "tasks_open";

record! {
    task: Task, "tasks"; key task_id: TaskId;
    owner, status, ended = task.status.is_terminal(), parent_id, root_id, priority, created_at, updated_at
}

/// One page of the open tasks. The index is named, because by the owner's index every page would read and sort all tasks
/// that the agent ever owned.
pub(super) fn open_tasks(owner: Option<&AgentId>, after: Option<TaskId>, limit: u32) -> (Statement, Args) {
    Conditions::new("SELECT record FROM tasks{index tasks_open}")
        .and(Some("ended = 0"))
        .when(owner, "owner = $1")
        .when(after, "task_id > $1")
        .order("task_id", list_limit(limit))
}

/// The query and index for a list. Each index has the list's order and contains no task in another
/// state.
fn list_source(filter: &TaskFilter) -> &'static str {
    match (filter.parent_id, &filter.owner, filter.status) {
        // The tasks of one root are few enough to be sorted.
        _ if filter.root_id.is_some() => "SELECT record FROM tasks{index tasks_root}",
        (Some(_), ..) => "SELECT record FROM tasks{index tasks_parent}",
        (None, Some(_), Some(_)) => "SELECT record FROM tasks{index tasks_owner_status}",
        (None, Some(_), None) => "SELECT record FROM tasks{index tasks_owner}",
        (None, None, Some(_)) => "SELECT record FROM tasks{index tasks_status}",
        (None, None, None) => "SELECT record FROM tasks{index tasks_order}",
    }
}

/// The ranges of priorities that a page reads, in order. Priorities fall and times rise in a list, so
/// no single comparison finds its rest: first come the other tasks of the priority of `after`, then
/// those of lower priorities.
#[derive(Clone, Copy)]
pub(super) enum Range {
    All,
    Rest(TaskPlace),
    Below(i32),
}

pub(super) fn ranges(after: Option<TaskPlace>) -> Vec<Range> {
    after.map_or(vec![Range::All], |after| vec![Range::Rest(after), Range::Below(after.0)])
}

/// The part of a page that lies in one range.
pub(super) fn list(filter: &TaskFilter, range: Range, left: i64) -> (Statement, Args) {
    let query = Conditions::new(list_source(filter))
        .when(filter.root_id, "root_id = $1")
        .when(filter.owner.as_ref(), "owner = $1")
        .when(filter.status, "status = $1")
        .when(filter.parent_id, "parent_id = $1");
    let query = match range {
        Range::All => query,
        Range::Rest((priority, created_at, task_id)) => query
            .when(Some(priority), "priority = $1")
            .when(Some((created_at, task_id)), "(created_at, task_id) > ($1, $2)"),
        Range::Below(priority) => query.when(Some(priority), "priority < $1"),
    };
    query.order("priority DESC, created_at, task_id", left)
}

functions! {
    /// The task with this id.
    get task_get(task_id: TaskId) -> Option<Task>: &task_id;
    /// Tasks that have not ended, in order of id; only those of this owner, if given.
    page tasks_open(owner: Option<&AgentId>, after: Option<TaskId>, limit: u32) -> Vec<Task>:
        open_tasks(owner, after, limit);
    /// Tasks that depend on this one, in order of id.
    list task_dependants(task_id: TaskId) -> Vec<Task>:
        "SELECT t.record FROM task_deps AS d JOIN tasks AS t ON t.task_id = d.task_id WHERE d.depends_on = $1 \
        ORDER BY d.task_id";
    /// Number of tasks that have not ended.
    counted task_count_open() -> u32: OPEN;
}

impl Tx {
    /// Tasks by priority (highest first), then creation, then id.
    pub fn task_list(&mut self, filter: &TaskFilter) -> Result<Vec<Task>> {
        let (mut left, mut found) = (list_limit(filter.limit), Vec::new());
        for range in ranges(filter.after) {
            let tasks = self.page::<Task>(list(filter, range, left))?;
            left -= tasks.len() as i64;
            found.extend(tasks);
            if left == 0 {
                break;
            }
        }
        Ok(found)
    }

    /// The newest `limit` history rows of a task, oldest first.
    pub fn task_events(&mut self, task_id: TaskId, limit: u32) -> Result<Vec<TaskEvent>> {
        let sql = sql!("SELECT record FROM task_events WHERE task_id = $1 ORDER BY seq DESC {limit $2}");
        let mut history = self.rows(sql, args![task_id, limit], |row| from_record(HISTORY, row))?;
        history.reverse();
        Ok(history)
    }

    /// Inserts or replaces a task and its dependencies.
    pub fn task_put(&mut self, task: &Task) -> Result<()> {
        let stored = sql!("SELECT 'tasks_open' FROM tasks WHERE task_id = $1 AND ended = 0");
        self.put_counted(task, &task.task_id, stored, (!task.status.is_terminal()).then_some(OPEN))?;
        self.execute(sql!("DELETE FROM task_deps WHERE task_id = $1"), args![task.task_id])?;
        for child in &task.depends_on {
            let sql = sql!("INSERT INTO task_deps (task_id, depends_on) VALUES ($1, $2) ON CONFLICT DO NOTHING");
            self.execute(sql, args![task.task_id, child])?;
        }
        Ok(())
    }

    /// Appends a row to a task's history.
    pub fn task_event_append(&mut self, event: &TaskEvent) -> Result<()> {
        let seq = self.next(|counters| &mut counters.task_events)?;
        let sql = sql!("INSERT INTO task_events (seq, task_id, record) VALUES ($1, $2, $3)");
        self.execute(sql, args![seq, event.task_id, to_json(HISTORY, seq, event)?]).map(drop)
    }
}

record! { job: Job, "jobs"; key job_id: str; task_id, root_id, started_at, finished_at }

/// The job of a task.
pub(super) const JOB_OF_TASK: Sql = sql!("SELECT record FROM jobs WHERE task_id = $1");

/// One page of the list of jobs, newest first.
pub(super) fn jobs(after: Option<(Timestamp, &str)>, limit: u32) -> (Statement, Args) {
    Conditions::new("SELECT record FROM jobs")
        .when(after, "(started_at, job_id) < ($1, $2)")
        .order("started_at DESC, job_id DESC", list_limit(limit))
}

functions! {
    /// The job with this id.
    get job_get(job_id: &str) -> Option<Job>: job_id;
    /// Jobs, newest first (then by id, highest first).
    page job_list(after: Option<(Timestamp, &str)>, limit: u32) -> Vec<Job>: jobs(after, limit);
    /// Inserts or replaces a job.
    put job_put(job: &Job) -> (): job;
}

impl Tx {
    /// The job whose task this is.
    pub fn job_of_task(&mut self, task_id: TaskId) -> Result<Option<Job>> {
        self.first(JOB_OF_TASK, args![task_id])
    }
}
