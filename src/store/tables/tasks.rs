//! Rows and queries of tasks and their history.

use ghost_domain::{AgentId, RootId, Task, TaskEvent, TaskId, TaskStatus, Timestamp};

use crate::batch::Sequence;
use crate::error::Result;
use crate::internal_rows::TaskHistory;
use crate::query::{Conditions, list_limit};
use crate::row::{Args, Keyed, ReadRow, Row, from_record, to_json};
use crate::sql::{Sql, Statement, sql};
use crate::tx::Tx;

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

/// The count of tasks that have not ended.
const OPEN: &str = "tasks_open";

impl Row for Task {
    const TABLE: &'static str = "tasks";
    const WRITE: Sql = sql!(
        "INSERT INTO tasks (task_id, owner, status, ended, parent_id, root_id, priority, created_at, updated_at, \
        record) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) ON CONFLICT (task_id) DO UPDATE SET owner = \
        excluded.owner, status = excluded.status, ended = excluded.ended, parent_id = \
        excluded.parent_id, root_id = excluded.root_id, priority = excluded.priority, created_at = excluded.created_at, updated_at = \
        excluded.updated_at, record = excluded.record"
    );

    fn bind(&self, args: &mut Args) -> Result<()> {
        args.id(self.task_id.0)
            .text(self.owner.as_str())
            .text(self.status.as_str())
            .put(self.status.is_terminal())
            .maybe_id(self.parent_id.map(|id| id.0))
            .id(self.root_id.0)
            .int(i64::from(self.priority))
            .int(self.created_at.0)
            .int(self.updated_at.0)
            .put(to_json(Self::TABLE, self.task_id, self)?);
        Ok(())
    }
}

impl Keyed for Task {
    type Key = TaskId;
    const SELECT: Sql = sql!("SELECT record FROM tasks WHERE task_id = $1");

    fn bind_key(key: &TaskId, args: &mut Args) {
        args.id(key.0);
    }

    fn read(row: &ReadRow<'_>) -> Result<Self> {
        from_record(Self::TABLE, row)
    }
}

/// One page of the open tasks. The index is named, because by the owner's index every page would read and sort all tasks
/// that the agent ever owned.
fn open_tasks(owner: Option<&AgentId>, after: Option<TaskId>, limit: u32) -> (Statement, Args) {
    Conditions::new("SELECT record FROM tasks{index tasks_open}")
        .when(Some(()), "ended = 0", |(), _| {})
        .when(owner, "owner = $1", |id, args| {
            args.text(id.as_str());
        })
        .when(after, "task_id > $1", |id, args| {
            args.id(id.0);
        })
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
enum Range {
    All,
    Rest(TaskPlace),
    Below(i32),
}

fn ranges(after: Option<TaskPlace>) -> Vec<Range> {
    after.map_or(vec![Range::All], |after| vec![Range::Rest(after), Range::Below(after.0)])
}

/// The part of a page that lies in one range.
fn list(filter: &TaskFilter, range: Range, left: i64) -> (Statement, Args) {
    let query = Conditions::new(list_source(filter))
        .when(filter.root_id, "root_id = $1", |id, args| {
            args.id(id.0);
        })
        .when(filter.owner.as_ref(), "owner = $1", |id, args| {
            args.text(id.as_str());
        })
        .when(filter.status, "status = $1", |status, args| {
            args.text(status.as_str());
        })
        .when(filter.parent_id, "parent_id = $1", |id, args| {
            args.id(id.0);
        });
    let query = match range {
        Range::All => query,
        Range::Rest((priority, created_at, task_id)) => query
            .when(Some(priority), "priority = $1", |priority, args| {
                args.int(i64::from(priority));
            })
            .when(Some((created_at, task_id)), "(created_at, task_id) > ($1, $2)", |(at, id), args| {
                args.int(at.0).id(id.0);
            }),
        Range::Below(priority) => query.when(Some(priority), "priority < $1", |priority, args| {
            args.int(i64::from(priority));
        }),
    };
    query.order("priority DESC, created_at, task_id", left)
}

impl Row for TaskHistory {
    const TABLE: &'static str = "task_events";
    const WRITE: Sql = sql!("INSERT INTO task_events (seq, task_id, record) VALUES ($1, $2, $3)");

    fn bind(&self, args: &mut Args) -> Result<()> {
        args.int(self.seq).id(self.event.task_id.0).put(to_json(Self::TABLE, self.seq, &self.event)?);
        Ok(())
    }
}

impl Tx {
    /// The task with this id.
    pub fn task_get(&mut self, task_id: TaskId) -> Result<Option<Task>> {
        self.get(&task_id)
    }

    /// Tasks by priority (highest first), then creation, then id.
    pub fn task_list(&mut self, filter: &TaskFilter) -> Result<Vec<Task>> {
        let (mut left, mut found) = (list_limit(filter.limit), Vec::new());
        for range in ranges(filter.after) {
            let (sql, args) = list(filter, range, left);
            let tasks = self.list::<Task>(sql, args)?;
            left -= tasks.len() as i64;
            found.extend(tasks);
            if left == 0 {
                break;
            }
        }
        Ok(found)
    }

    /// Tasks that have not ended, in order of id; only those of this owner, if given.
    pub fn tasks_open(&mut self, owner: Option<&AgentId>, after: Option<TaskId>, limit: u32) -> Result<Vec<Task>> {
        let (sql, args) = open_tasks(owner, after, limit);
        self.rows(sql, args, Task::read)
    }

    /// Tasks that depend on this one, in order of id.
    pub fn task_dependants(&mut self, task_id: TaskId) -> Result<Vec<Task>> {
        let mut args = Args::default();
        args.id(task_id.0);
        let sql = sql!(
            "SELECT t.record FROM task_deps AS d JOIN tasks AS t ON t.task_id = d.task_id \
                   WHERE d.depends_on = $1 ORDER BY d.task_id"
        );
        self.list(sql, args)
    }

    /// Number of tasks that have not ended.
    pub fn task_count_open(&mut self) -> Result<u32> {
        self.counted(OPEN)
    }

    /// The newest `limit` history rows of a task, oldest first.
    pub fn task_events(&mut self, task_id: TaskId, limit: u32) -> Result<Vec<TaskEvent>> {
        const SQL: Sql = sql!("SELECT record FROM task_events WHERE task_id = $1 ORDER BY seq DESC {limit $2}");
        let mut args = Args::default();
        args.id(task_id.0).int(i64::from(limit));
        let mut history = self.rows(SQL, args, |row| from_record(TaskHistory::TABLE, row))?;
        history.reverse();
        Ok(history)
    }
}

impl Tx {
    /// Inserts or replaces a task and its dependencies.
    pub fn task_put(&mut self, task: &Task) -> Result<()> {
        let stored = sql!("SELECT 'tasks_open' FROM tasks WHERE task_id = $1 AND ended = 0");
        self.put_counted(task, &task.task_id, stored, (!task.status.is_terminal()).then_some(OPEN))?;
        let mut parent = Args::default();
        parent.id(task.task_id.0);
        self.execute(sql!("DELETE FROM task_deps WHERE task_id = $1"), parent)?;
        for child in &task.depends_on {
            let mut args = Args::default();
            args.id(task.task_id.0).id(child.0);
            let sql = sql!("INSERT INTO task_deps (task_id, depends_on) VALUES ($1, $2) ON CONFLICT DO NOTHING");
            self.execute(sql, args)?;
        }
        Ok(())
    }

    /// Appends a row to a task's history.
    pub fn task_event_append(&mut self, event: &TaskEvent) -> Result<()> {
        let seq = self.next(Sequence::TaskEvents)?;
        self.put(&TaskHistory { seq, event: event.clone() })
    }
}

#[cfg(test)]
mod tests {
    use ghost_domain::{RootId, TaskStatus, Timestamp};
    use uuid::Uuid;

    use super::*;
    use crate::sqlite::tests::plans::{assert_indexed, plan};

    #[tokio::test]
    async fn a_page_of_open_tasks_reads_no_ended_ones_and_sorts_nothing() {
        let bob: AgentId = "bob".parse().unwrap();
        for owner in [None, Some(&bob)] {
            for (after, wanted) in [
                (None, "SCAN tasks USING INDEX tasks_open"),
                (Some(TaskId(Uuid::from_u128(7))), "SEARCH tasks USING INDEX tasks_open (task_id>?)"),
            ] {
                assert_eq!(plan(open_tasks(owner, after, 250)).await, [wanted]);
            }
        }
    }

    #[tokio::test]
    async fn tasks_are_read_from_indexes() {
        for owner in [None, Some("bob".parse().unwrap())] {
            for status in [None, Some(TaskStatus::Pending)] {
                for parent_id in [None, Some(TaskId(Uuid::nil()))] {
                    for after in [None, Some((0, Timestamp(1), TaskId(Uuid::nil())))] {
                        let filter =
                            TaskFilter { owner: owner.clone(), status, parent_id, after, ..TaskFilter::default() };
                        for range in ranges(after) {
                            assert_indexed(list(&filter, range, 9)).await;
                        }
                    }
                }
            }
        }
        let of_root = TaskFilter { root_id: Some(RootId(Uuid::nil())), ..TaskFilter::default() };
        let plan = plan(list(&of_root, Range::All, 9)).await;
        assert_eq!(plan[0], "SEARCH tasks USING INDEX tasks_root (root_id=?)");
    }
}
