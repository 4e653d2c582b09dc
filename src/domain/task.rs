//! Tasks that agents and operators create, with the record of each change; and main jobs: sets of input files, identified
//! by their content, that a world processes once.

use serde::{Deserialize, Serialize};

use crate::ids::{AgentId, ConversationId, RootId, TaskId};
use crate::macros::{record, text_enum};
use crate::party::Party;
use crate::refusal::{Refusal, refusal};
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
            return Err(refusal!(Conflict, "the task is {self} and cannot become {next}")
                .hint("to reopen it, give a note that says why and set reopen"));
        }
        if self.is_terminal() && next.is_terminal() && self != next {
            return Err(refusal!(Conflict, "the task is already {self}")
                .hint("leave it as it is, or reopen it first, with a note that says why"));
        }
        Ok(())
    }
}

record! {
    /// The record of a task.
    pub struct Task {
        /// Id of the task.
        pub task_id: TaskId,
        /// Title, one line.
        pub title: String,
        /// Full description of the work.
        pub description: String = String::new(),
        /// Agent that does the work.
        pub owner: AgentId,
        /// Party that created the task.
        pub creator: Party,
        /// Present status.
        pub status: TaskStatus = TaskStatus::Pending,
        /// Priority: higher is more urgent; 0 by default.
        pub priority: i32 = 0,
        /// Tasks that must be done first.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub depends_on: Vec<TaskId> = Vec::new(),
        /// The task that this one is a part of.
        pub parent_id: Option<TaskId> = None,
        /// When it should be done.
        pub due_at: Option<Timestamp> = None,
        /// Result of the work, as text.
        pub result: Option<String> = None,
        /// Root that the task belongs to.
        pub root_id: RootId,
        /// The conversation in which the task was created, if there is one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub conversation_id: Option<ConversationId> = None,
        /// When the task was created.
        pub created_at: Timestamp,
        /// When the task last changed.
        pub updated_at: Timestamp = created_at,
    }

    /// A pending task that waits for no other, without a description.
    pub fn new(
        task_id: TaskId,
        title: String,
        (owner, creator): (AgentId, Party),
        root_id: RootId,
        created_at: Timestamp,
    )
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

/// The durable record of a job. The same input gives the same job, so a restart continues it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Job {
    /// First 16 hexadecimal digits of the SHA-256 over the names and contents of the input.
    pub job_id: String,
    /// The task of the lead. The job is done when the lead closes it. `None` in the record of an older version.
    pub task_id: Option<TaskId>,
    /// The root whose budget and usage the job is charged to.
    pub root_id: RootId,
    /// The number of input files.
    pub files: u32,
    /// When the job was started.
    pub started_at: Timestamp,
    /// When the lead closed the task.
    pub finished_at: Option<Timestamp>,
    /// The directory in the workspace for the result.
    #[serde(default)]
    pub result_dir: String,
    /// The file with the result, relative to the workspace. `None` while the job runs, and if its task failed or was cancelled.
    pub result_path: Option<String>,
}
