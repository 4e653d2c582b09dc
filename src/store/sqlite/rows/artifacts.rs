//! Rows and queries of artifacts.

use ghost_domain::Artifact;

use super::shared_state::end_of_prefix;
use crate::sqlite::query::{Conditions, list_limit};
use crate::sqlite::row::{Args, Keyed, Row, SqliteRow, from_record, to_json};
use crate::sqlite::session::Session;
use crate::tables::{ArtifactFilter, ArtifactReads, ArtifactWrites, Result};

impl Row for Artifact {
    const TABLE: &'static str = "artifacts";
    const WRITE: &str = "INSERT INTO artifacts (path, artifact_id, agent_id, record) VALUES (?, ?, ?, ?) ON CONFLICT \
        (path) DO UPDATE SET artifact_id = excluded.artifact_id, agent_id = excluded.agent_id, record = \
        excluded.record";

    fn bind(&self, args: &mut Args) -> Result<()> {
        args.text(&self.path)
            .id(self.artifact_id.0)
            .maybe_text(self.agent_id.as_ref().map(ghost_domain::AgentId::as_str))
            .put(to_json(Self::TABLE, &self.path, self)?);
        Ok(())
    }
}

impl Keyed for Artifact {
    type Key = String;
    const SELECT: &'static str = "SELECT record FROM artifacts WHERE path = ?";

    fn bind_key(key: &String, args: &mut Args) {
        args.text(key);
    }

    fn read(row: &SqliteRow) -> Result<Self> {
        from_record(Self::TABLE, row)
    }
}

impl ArtifactReads for Session {
    fn artifact_get(&mut self, path: &str) -> Result<Option<Artifact>> {
        self.get(&path.to_owned())
    }

    fn artifact_list(&mut self, filter: &ArtifactFilter) -> Result<Vec<Artifact>> {
        let (sql, args) = Conditions::new("SELECT record FROM artifacts")
            .when(filter.agent_id.as_ref(), "agent_id = ?", |agent_id, args| {
                args.text(agent_id.as_str());
            })
            .when(Some(&filter.after), "path > ?", |after, args| {
                args.text(after);
            })
            .when(Some(&filter.prefix), "path >= ?", |prefix, args| {
                args.text(prefix);
            })
            .when(end_of_prefix(&filter.prefix), "path < ?", |end, args| {
                args.put(end);
            })
            .order("path", list_limit(filter.limit));
        self.rows(sql, args)?.iter().map(Artifact::read).collect()
    }
}

impl ArtifactWrites for Session {
    fn artifact_put(&mut self, artifact: &Artifact) -> Result<()> {
        self.put(artifact)
    }

    fn artifact_remove(&mut self, path: &str) -> Result<bool> {
        let mut args = Args::default();
        args.text(path);
        Ok(self.execute("DELETE FROM artifacts WHERE path = ?", args)? > 0)
    }
}
