//! The `jobs` table.

use async_trait::async_trait;
use ghost_domain::{Job, TaskId, Timestamp};

use crate::error::Result;

/// Reads of jobs.
#[async_trait]
pub trait JobReads {
    /// The job with this id.
    async fn job_get(&mut self, job_id: &str) -> Result<Option<Job>>;

    /// The job whose task this is.
    async fn job_of_task(&mut self, task_id: TaskId) -> Result<Option<Job>>;

    /// Jobs, newest first (then by id, highest first).
    async fn job_list(&mut self, after: Option<(Timestamp, &str)>, limit: u32) -> Result<Vec<Job>>;
}

/// Writes of jobs.
#[async_trait]
pub trait JobWrites {
    /// Inserts or replaces a job.
    async fn job_put(&mut self, job: &Job) -> Result<()>;
}
