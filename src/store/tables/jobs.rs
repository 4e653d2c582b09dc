//! The `jobs` table.

use async_trait::async_trait;
use ghost_domain::Job;

use crate::error::Result;

/// Reading jobs.
#[async_trait]
pub trait JobReads {
    /// One job.
    async fn job_get(&mut self, job_id: &str) -> Result<Option<Job>>;

    /// The newest job.
    async fn job_newest(&mut self) -> Result<Option<Job>>;

    /// All jobs, newest first, at most 1,000.
    async fn job_list(&mut self) -> Result<Vec<Job>>;
}

/// Writing jobs.
#[async_trait]
pub trait JobWrites {
    /// Inserts or replaces a job.
    async fn job_put(&mut self, job: &Job) -> Result<()>;
}
