//! The tasks that have not ended, page by page, however many there are.
//!
//! Must never: hold more of them at once than one page.

use ghost_domain::{AgentId, Task, TaskId};
use ghost_store::Reads;

use crate::Result;

/// Tasks of one page. Each may be as large as a message.
const PAGE: u32 = 250;

/// A walk over the open tasks in order of id. What is done to those of one page changes nothing of the next.
pub(super) struct Open {
    owner: Option<AgentId>,
    after: Option<TaskId>,
}

impl Open {
    /// Over those of the whole world.
    pub(super) fn all() -> Self {
        Self { owner: None, after: None }
    }

    /// Over those of one agent.
    pub(super) fn of(owner: &AgentId) -> Self {
        Self { owner: Some(owner.clone()), after: None }
    }

    /// The next page; `None` when there is none.
    pub(super) async fn page(&mut self, r: &mut dyn Reads) -> Result<Option<Vec<Task>>> {
        let page = r.tasks_open(self.owner.as_ref(), self.after, PAGE).await?;
        let Some(last) = page.last() else { return Ok(None) };
        self.after = Some(last.task_id);
        Ok(Some(page))
    }
}
