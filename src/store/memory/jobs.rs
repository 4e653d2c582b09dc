//! Jobs.

use async_trait::async_trait;
use ghost_domain::Job;

use super::session::{LIST_MAX, Session};
use crate::tables::{JobReads, JobWrites, Result};

#[async_trait]
impl JobReads for Session<'_> {
    async fn job_get(&mut self, job_id: &str) -> Result<Option<Job>> {
        Ok(self.tables.jobs.get(&job_id.to_owned()).cloned())
    }

    async fn job_newest(&mut self) -> Result<Option<Job>> {
        Ok(self.job_list().await?.into_iter().next())
    }

    async fn job_list(&mut self) -> Result<Vec<Job>> {
        let mut found: Vec<&Job> = self.tables.jobs.values().collect();
        found.sort_by(|a, b| (b.started_at, &b.job_id).cmp(&(a.started_at, &a.job_id)));
        Ok(found.into_iter().take(LIST_MAX).cloned().collect())
    }
}

#[async_trait]
impl JobWrites for Session<'_> {
    async fn job_put(&mut self, job: &Job) -> Result<()> {
        self.tables.jobs.put(job.job_id.clone(), job.clone());
        Ok(())
    }
}
