//! Tasks and their history.

use std::cmp::Reverse;

use ghost_domain::{AgentId, Task, TaskEvent, TaskId, Timestamp};

use super::session::{Session, count, page};
use super::tables::next;
use crate::tables::{Result, TaskFilter, TaskReads, TaskWrites};

fn matches(filter: &TaskFilter, task: &Task) -> bool {
    filter.owner.as_ref().is_none_or(|owner| task.owner == *owner)
        && filter.status.is_none_or(|status| task.status == status)
        && filter.parent_id.is_none_or(|parent_id| task.parent_id == Some(parent_id))
        && filter.root_id.is_none_or(|root_id| task.root_id == root_id)
        && filter.after.is_none_or(|after| place(task) > (Reverse(after.0), after.1, after.2))
}

/// The place of a task in the order of lists.
fn place(task: &Task) -> (Reverse<i32>, Timestamp, TaskId) {
    (Reverse(task.priority), task.created_at, task.task_id)
}

impl TaskReads for Session<'_> {
    fn task_get(&mut self, task_id: TaskId) -> Result<Option<Task>> {
        Ok(self.tables.tasks.get(&task_id).cloned())
    }

    fn task_list(&mut self, filter: &TaskFilter) -> Result<Vec<Task>> {
        let mut found: Vec<&Task> = self.tables.tasks.values().filter(|task| matches(filter, task)).collect();
        found.sort_by_key(|task| place(task));
        Ok(page(found, filter.limit))
    }

    fn tasks_open(&mut self, owner: Option<&AgentId>, after: Option<TaskId>, limit: u32) -> Result<Vec<Task>> {
        let wanted = |task: &&Task| {
            !task.status.is_terminal()
                && owner.is_none_or(|owner| task.owner == *owner)
                && after.is_none_or(|after| task.task_id > after)
        };
        Ok(page(self.tables.tasks.values().filter(wanted), limit))
    }

    fn task_dependants(&mut self, task_id: TaskId) -> Result<Vec<Task>> {
        Ok(self.tables.tasks.values().filter(|task| task.depends_on.contains(&task_id)).cloned().collect())
    }

    fn task_count_open(&mut self) -> Result<u32> {
        Ok(count(self.tables.tasks.values().filter(|task| !task.status.is_terminal()).count()))
    }

    fn task_events(&mut self, task_id: TaskId, limit: u32) -> Result<Vec<TaskEvent>> {
        let all = (task_id, i64::MIN)..=(task_id, i64::MAX);
        let events: Vec<&TaskEvent> = self.tables.task_events.range(all).map(|(_, event)| event).collect();
        let older = events.len().saturating_sub(usize::try_from(limit).unwrap_or(usize::MAX));
        Ok(events.into_iter().skip(older).cloned().collect())
    }
}

impl TaskWrites for Session<'_> {
    fn task_put(&mut self, task: &Task) -> Result<()> {
        self.tables.tasks.put(task.task_id, task.clone());
        Ok(())
    }

    fn task_event_append(&mut self, event: &TaskEvent) -> Result<()> {
        let seq = next(&mut self.tables.counters.task_event);
        self.tables.task_events.put((event.task_id, seq), event.clone());
        Ok(())
    }
}
