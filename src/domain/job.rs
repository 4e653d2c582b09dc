//! A main job: a set of input files, named by their content, that a world works on once.

use serde::{Deserialize, Serialize};

use crate::ids::RootId;
use crate::time::Timestamp;

/// The durable record of a job. The same input names the same job, so that a restart goes on with it (issue 2, 11).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Job {
    /// First 16 hexadecimal digits of the SHA-256 over names and contents of the input.
    pub job_id: String,
    /// The root that the job's work is charged to.
    pub root_id: RootId,
    /// How many files.
    pub files: u32,
    /// When it was started.
    pub started_at: Timestamp,
    /// When its result was seen.
    pub finished_at: Option<Timestamp>,
    /// The result, relative to the workspace.
    pub result_path: Option<String>,
}
