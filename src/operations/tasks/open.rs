//! Walks over the open tasks page by page.
//!
//! A walk must never hold more than one page in memory.

use crate::prelude::*;

/// The number of tasks in one page. Each may be as large as a message.
const PAGE: u32 = 250;

/// A walk over the open tasks, ordered by id. Changes to the tasks of one page do not affect the
/// next page.
pub(super) struct Open {
    owner: Option<AgentId>,
    after: Option<TaskId>,
}

impl Open {
    /// All open tasks of the world.
    pub(super) fn all() -> Self {
        Self { owner: None, after: None }
    }

    /// All open tasks of one agent.
    pub(super) fn of(owner: &AgentId) -> Self {
        Self { owner: Some(owner.clone()), after: None }
    }

    /// Returns the next page, or `None` at the end.
    pub(super) fn page(&mut self, r: &mut Tx) -> Result<Option<Vec<Task>>> {
        let page = r.tasks_open(self.owner.as_ref(), self.after, PAGE)?;
        let Some(last) = page.last() else { return Ok(None) };
        self.after = Some(last.task_id);
        Ok(Some(page))
    }
}
