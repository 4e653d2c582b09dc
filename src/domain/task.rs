//! Tasks on the board (TASK-01..06).

use serde::{Deserialize, Serialize};

use crate::envelope::text_enum;
use crate::ids::{AgentId, RootId, TaskId};
use crate::party::Party;
use crate::refusal::{Code, Refusal};
use crate::time::Timestamp;

text_enum! {
    /// How a task stands.
    TaskStatus, "task status" {
        /// Nobody has begun.
        Pending = "pending",
        /// Under way.
        InProgress = "in_progress",
        /// Waits for something, such as a task that it depends on.
        Blocked = "blocked",
        /// Done.
        Done = "done",
        /// Given up.
        Failed = "failed",
        /// Called off.
        Cancelled = "cancelled",
    }
}

impl TaskStatus {
    /// Whether the task has ended.
    #[must_use]
    pub fn is_terminal(self) -> bool {
        matches!(self, Self::Done | Self::Failed | Self::Cancelled)
    }

    /// Whether a task may go from this status to `next`. An ended task is reopened only with an explicit note
    /// (TASK-02).
    pub fn check_change(self, next: Self, reopen_note: bool) -> Result<(), Refusal> {
        if self.is_terminal() && !next.is_terminal() && !reopen_note {
            return Err(Refusal::new(Code::Conflict, format!("the task is {self} and cannot become {next}"))
                .hint("to reopen it, give a note that says why and set reopen"));
        }
        if self.is_terminal() && next.is_terminal() && self != next {
            return Err(Refusal::new(Code::Conflict, format!("the task is already {self}"))
                .hint("leave it as it is, or reopen it first, with a note that says why"));
        }
        Ok(())
    }
}

/// A task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Task {
    /// Its id.
    pub task_id: TaskId,
    /// One line.
    pub title: String,
    /// The whole of it.
    pub description: String,
    /// Whose work it is.
    pub owner: AgentId,
    /// Who created it.
    pub creator: Party,
    /// How it stands.
    pub status: TaskStatus,
    /// Higher is sooner; 0 by default.
    pub priority: i32,
    /// Tasks that must be done first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub depends_on: Vec<TaskId>,
    /// The task it is a part of.
    pub parent_id: Option<TaskId>,
    /// When it should be done.
    pub due_at: Option<Timestamp>,
    /// What came of it.
    pub result: Option<String>,
    /// The root it belongs to.
    pub root_id: RootId,
    /// When it was created.
    pub created_at: Timestamp,
    /// When it last changed.
    pub updated_at: Timestamp,
}

/// One change of a task; every change appends one (TASK-04).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TaskEvent {
    /// The task.
    pub task_id: TaskId,
    /// Who changed it.
    pub by: Party,
    /// When.
    pub at: Timestamp,
    /// The status after it.
    pub status: TaskStatus,
    /// The owner after it.
    pub owner: AgentId,
    /// Why, in the words of who did it.
    pub note: Option<String>,
}
