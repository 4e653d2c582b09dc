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

functions! {
    /// The job with this id.
    get job_get(job_id: &str) -> Option<Job>: job_id;
    /// Jobs, newest first (then by id, highest first).
    page job_list(after: Option<(Timestamp, &str)>, limit: u32) -> Vec<Job>: list(after, limit);
    /// Inserts or replaces a job.
    put job_put(job: &Job) -> (): job;
}

impl Tx {
    /// The job whose task this is.
    pub fn job_of_task(&mut self, task_id: TaskId) -> Result<Option<Job>> {
        self.first(OF_TASK, args![task_id])
    }
}
