//! Rows and queries of main jobs.

use async_trait::async_trait;
use ghost_domain::Job;
use sqlx::sqlite::SqliteRow;

use crate::sqlite::row::{Args, Keyed, Row, Shape, from_record, to_json};
use crate::sqlite::session::Session;
use crate::tables::{JobReads, JobWrites, Result};

impl Row for Job {
    const TABLE: &'static str = "jobs";
    const SHAPE: Shape = Shape {
        head: "INSERT INTO jobs (job_id, started_at, record) VALUES ",
        columns: 3,
        tail: " ON CONFLICT (job_id) DO UPDATE SET started_at = excluded.started_at, record = excluded.record",
    };

    fn bind(&self, args: &mut Args) -> Result<()> {
        args.text(&self.job_id).int(self.started_at.0).put(to_json(Self::TABLE, &self.job_id, self)?);
        Ok(())
    }
}

impl Keyed for Job {
    type Key = String;
    const SELECT: &'static str = "SELECT record FROM jobs WHERE job_id = ?";

    fn key(&self) -> String {
        self.job_id.clone()
    }

    fn bind_key(key: &String, args: &mut Args) {
        args.text(key);
    }

    fn read(row: &SqliteRow) -> Result<Self> {
        from_record(Self::TABLE, row)
    }
}

#[async_trait]
impl JobReads for Session {
    async fn job_get(&mut self, job_id: &str) -> Result<Option<Job>> {
        self.get(&job_id.to_owned()).await
    }

    async fn job_newest(&mut self) -> Result<Option<Job>> {
        let sql = "SELECT record FROM jobs ORDER BY started_at DESC, job_id DESC LIMIT 1";
        Ok(self.list(sql, Args::default()).await?.into_iter().next())
    }

    async fn job_list(&mut self) -> Result<Vec<Job>> {
        self.list("SELECT record FROM jobs ORDER BY started_at DESC, job_id DESC LIMIT 1000", Args::default()).await
    }
}

#[async_trait]
impl JobWrites for Session {
    async fn job_put(&mut self, job: &Job) -> Result<()> {
        self.put(job.clone())
    }
}
