//! The `jobs` table.

use ghost_domain::{Job, TaskId, Timestamp};

use crate::error::Result;

/// Reads of jobs.
pub trait JobReads {
    /// The job with this id.
    fn job_get(&mut self, job_id: &str) -> Result<Option<Job>>;

    /// The job whose task this is.
    fn job_of_task(&mut self, task_id: TaskId) -> Result<Option<Job>>;

    /// Jobs, newest first (then by id, highest first).
    fn job_list(&mut self, after: Option<(Timestamp, &str)>, limit: u32) -> Result<Vec<Job>>;
}

/// Writes of jobs.
pub trait JobWrites {
    /// Inserts or replaces a job.
    fn job_put(&mut self, job: &Job) -> Result<()>;
}
