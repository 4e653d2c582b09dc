//! Tasks that agents and operators create, and the record of each change.

use serde::{Deserialize, Serialize};

use crate::envelope::text_enum;
use crate::ids::{AgentId, ConversationId, RootId, TaskId};
use crate::party::Party;
use crate::refusal::{Code, Refusal};
use crate::time::Timestamp;

text_enum! {
    /// Status of a task.
    TaskStatus, "task status" {
        /// The work has not begun.
        Pending = "pending",
        /// The owner works on it.
        InProgress = "in_progress",
        /// The task waits, for example for a task that it depends on.
        Blocked = "blocked",
        /// The work is done.
        Done = "done",
        /// The owner could not do the work.
        Failed = "failed",
        /// The task was cancelled.
        Cancelled = "cancelled",
    }
}

impl TaskStatus {
    /// Whether the task has ended.
    #[must_use]
    pub fn is_terminal(self) -> bool {
        matches!(self, Self::Done | Self::Failed | Self::Cancelled)
    }

    /// Refuses a change to status `next` that is not allowed. An ended task can change only if it
    /// is reopened with a note.
    ///
    /// # Errors
    /// `Conflict` if the task has ended and `next` is not its present status.
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

/// The record of a task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Task {
    /// Id of the task.
    pub task_id: TaskId,
    /// Title, one line.
    pub title: String,
    /// Full description of the work.
    pub description: String,
    /// Agent that does the work.
    pub owner: AgentId,
    /// Party that created the task.
    pub creator: Party,
    /// Present status.
    pub status: TaskStatus,
    /// Priority: higher is more urgent; 0 by default.
    pub priority: i32,
    /// Tasks that must be done first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub depends_on: Vec<TaskId>,
    /// The task that this one is a part of.
    pub parent_id: Option<TaskId>,
    /// When it should be done.
    pub due_at: Option<Timestamp>,
    /// Result of the work, as text.
    pub result: Option<String>,
    /// Root that the task belongs to.
    pub root_id: RootId,
    /// The conversation in which the task was created, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conversation_id: Option<ConversationId>,
    /// When the task was created.
    pub created_at: Timestamp,
    /// When the task last changed.
    pub updated_at: Timestamp,
}

impl Task {
    /// A pending task that waits for no other, without a description.
    #[must_use]
    pub fn new(
        task_id: TaskId,
        title: String,
        (owner, creator): (AgentId, Party),
        root_id: RootId,
        created_at: Timestamp,
    ) -> Self {
        Self {
            task_id,
            title,
            description: String::new(),
            owner,
            creator,
            status: TaskStatus::Pending,
            priority: 0,
            depends_on: Vec::new(),
            parent_id: None,
            due_at: None,
            result: None,
            root_id,
            conversation_id: None,
            created_at,
            updated_at: created_at,
        }
    }
}

/// One entry of a task's history. Each change of the task appends one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TaskEvent {
    /// Id of the task.
    pub task_id: TaskId,
    /// Party that made the change.
    pub by: Party,
    /// When the change was made.
    pub at: Timestamp,
    /// Status after the change.
    pub status: TaskStatus,
    /// Owner after the change.
    pub owner: AgentId,
    /// The author's reason for the change.
    pub note: Option<String>,
}
