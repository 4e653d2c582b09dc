//! Jobs.

use ghost_domain::{Job, TaskId, Timestamp};

use super::session::{Session, page};
use crate::tables::{JobReads, JobWrites, Result};

impl JobReads for Session<'_> {
    fn job_get(&mut self, job_id: &str) -> Result<Option<Job>> {
        Ok(self.tables.jobs.get(&job_id.to_owned()).cloned())
    }

    fn job_of_task(&mut self, task_id: TaskId) -> Result<Option<Job>> {
        Ok(self.tables.jobs.values().find(|job| job.task_id == Some(task_id)).cloned())
    }

    fn job_list(&mut self, after: Option<(Timestamp, &str)>, limit: u32) -> Result<Vec<Job>> {
        let mut found: Vec<&Job> = self.tables.jobs.values().collect();
        found.retain(|job| after.is_none_or(|after| (job.started_at, job.job_id.as_str()) < after));
        found.sort_by(|a, b| (b.started_at, &b.job_id).cmp(&(a.started_at, &a.job_id)));
        Ok(page(found, limit))
    }
}

impl JobWrites for Session<'_> {
    fn job_put(&mut self, job: &Job) -> Result<()> {
        self.tables.jobs.put(job.job_id.clone(), job.clone());
        Ok(())
    }
}
