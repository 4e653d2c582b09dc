//! A main job: a set of input files, identified by its content, that a world processes once.

use serde::{Deserialize, Serialize};

use crate::ids::{RootId, TaskId};
use crate::time::Timestamp;

/// The durable record of a job. The same input gives the same job, so a restart continues it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Job {
    /// First 16 hexadecimal digits of the SHA-256 over the names and contents of the input.
    pub job_id: String,
    /// The task of the lead. The job is done when the lead closes it. `None` in the record of an older version.
    #[serde(default)]
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
