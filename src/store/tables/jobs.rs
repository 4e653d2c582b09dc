//! The `jobs` table.

use async_trait::async_trait;
use ghost_domain::Job;

use crate::error::Result;

/// Reads of jobs.
#[async_trait]
pub trait JobReads {
    /// The job with this id.
    async fn job_get(&mut self, job_id: &str) -> Result<Option<Job>>;

    /// The newest job.
    async fn job_newest(&mut self) -> Result<Option<Job>>;

    /// All jobs, newest first, at most 1,000.
    async fn job_list(&mut self) -> Result<Vec<Job>>;
}

/// Writes of jobs.
#[async_trait]
pub trait JobWrites {
    /// Inserts or replaces a job.
    async fn job_put(&mut self, job: &Job) -> Result<()>;
}
