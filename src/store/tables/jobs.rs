//! Rows and queries of main jobs.

use ghost_domain::{Job, TaskId, Timestamp};

use crate::error::Result;
use crate::query::{Conditions, list_limit};
use crate::row::{Args, Keyed, ReadRow, Row, from_record, to_json};
use crate::sql::{Sql, Statement, sql};
use crate::tx::Tx;

impl Row for Job {
    const TABLE: &'static str = "jobs";
    const WRITE: Sql = sql!(
        "INSERT INTO jobs (job_id, task_id, root_id, started_at, finished_at, record) VALUES ($1, $2, $3, $4, $5, $6) \
         ON CONFLICT (job_id) DO UPDATE SET task_id = excluded.task_id, root_id = excluded.root_id, \
         started_at = excluded.started_at, finished_at = excluded.finished_at, record = excluded.record"
    );

    fn bind(&self, args: &mut Args) -> Result<()> {
        args.text(&self.job_id)
            .maybe_id(self.task_id.map(|id| id.0))
            .id(self.root_id.0)
            .int(self.started_at.0)
            .maybe_at(self.finished_at)
            .put(to_json(Self::TABLE, &self.job_id, self)?);
        Ok(())
    }
}

impl Keyed for Job {
    type Key = String;
    const SELECT: Sql = sql!("SELECT record FROM jobs WHERE job_id = $1");

    fn bind_key(key: &String, args: &mut Args) {
        args.text(key);
    }

    fn read(row: &ReadRow<'_>) -> Result<Self> {
        from_record(Self::TABLE, row)
    }
}

/// The job of a task.
const OF_TASK: Sql = sql!("SELECT record FROM jobs WHERE task_id = $1");

/// One page of the list, newest first.
fn list(after: Option<(Timestamp, &str)>, limit: u32) -> (Statement, Args) {
    Conditions::new("SELECT record FROM jobs")
        .when(after, "(started_at, job_id) < ($1, $2)", |(at, id), args| {
            args.int(at.0).text(id);
        })
        .order("started_at DESC, job_id DESC", list_limit(limit))
}

impl Tx {
    /// The job with this id.
    pub fn job_get(&mut self, job_id: &str) -> Result<Option<Job>> {
        self.get(&job_id.to_owned())
    }

    /// The job whose task this is.
    pub fn job_of_task(&mut self, task_id: TaskId) -> Result<Option<Job>> {
        let mut args = Args::default();
        args.id(task_id.0);
        Ok(self.list(OF_TASK, args)?.into_iter().next())
    }

    /// Jobs, newest first (then by id, highest first).
    pub fn job_list(&mut self, after: Option<(Timestamp, &str)>, limit: u32) -> Result<Vec<Job>> {
        let (sql, args) = list(after, limit);
        self.list(sql, args)
    }
}

impl Tx {
    /// Inserts or replaces a job.
    pub fn job_put(&mut self, job: &Job) -> Result<()> {
        self.put(job)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sqlite::tests::plans::{assert_indexed, plan};

    #[tokio::test]
    async fn jobs_are_read_from_indexes() {
        for after in [None, Some((Timestamp(1), "a"))] {
            assert_indexed(list(after, 9)).await;
        }
        let mut args = Args::default();
        args.text("x");
        assert_eq!(plan((OF_TASK, args)).await, ["SEARCH jobs USING INDEX jobs_task (task_id=?)"]);
    }
}
