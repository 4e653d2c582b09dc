//! Rows and queries of main jobs.

use ghost_domain::{Job, TaskId, Timestamp};

use super::prelude::*;

record! { job: Job, "jobs"; key job_id: str; task_id, root_id, started_at, finished_at }

/// The job of a task.
pub(super) const OF_TASK: Sql = sql!("SELECT record FROM jobs WHERE task_id = $1");

/// One page of the list, newest first.
pub(super) fn list(after: Option<(Timestamp, &str)>, limit: u32) -> (Statement, Args) {
    Conditions::new("SELECT record FROM jobs")
        .when(after, "(started_at, job_id) < ($1, $2)")
        .order("started_at DESC, job_id DESC", list_limit(limit))
}

impl Tx {
    /// The job with this id.
    pub fn job_get(&mut self, job_id: &str) -> Result<Option<Job>> {
        self.get(job_id)
    }

    /// The job whose task this is.
    pub fn job_of_task(&mut self, task_id: TaskId) -> Result<Option<Job>> {
        self.first(OF_TASK, args![task_id])
    }

    /// Jobs, newest first (then by id, highest first).
    pub fn job_list(&mut self, after: Option<(Timestamp, &str)>, limit: u32) -> Result<Vec<Job>> {
        self.page(list(after, limit))
    }

    /// Inserts or replaces a job.
    pub fn job_put(&mut self, job: &Job) -> Result<()> {
        self.put(job)
    }
}
