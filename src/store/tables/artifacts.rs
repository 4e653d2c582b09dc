//! Rows and queries of artifacts.

use ghost_domain::{AgentId, Artifact};

use super::shared_state::end_of_prefix;
use crate::error::Result;
use crate::query::{Conditions, list_limit};
use crate::row::{Args, Keyed, ReadRow, Row, from_record, to_json};
use crate::sql::{Sql, sql};
use crate::tx::Tx;

/// Which artifacts a list contains.
#[derive(Clone, Debug, Default)]
pub struct ArtifactFilter {
    /// Only files whose path begins with this text.
    pub prefix: String,
    /// Only files that this agent changed last.
    pub agent_id: Option<AgentId>,
    /// Only paths after this one.
    pub after: String,
    /// At most this many rows.
    pub limit: u32,
}

impl Row for Artifact {
    const TABLE: &'static str = "artifacts";
    const WRITE: Sql = sql!(
        "INSERT INTO artifacts (path, artifact_id, agent_id, record) VALUES ($1, $2, $3, $4) ON CONFLICT \
        (path) DO UPDATE SET artifact_id = excluded.artifact_id, agent_id = excluded.agent_id, record = \
        excluded.record"
    );

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
    const SELECT: Sql = sql!("SELECT record FROM artifacts WHERE path = $1");

    fn bind_key(key: &String, args: &mut Args) {
        args.text(key);
    }

    fn read(row: &ReadRow<'_>) -> Result<Self> {
        from_record(Self::TABLE, row)
    }
}

impl Tx {
    /// The artifact at this path.
    pub fn artifact_get(&mut self, path: &str) -> Result<Option<Artifact>> {
        self.get(&path.to_owned())
    }

    /// Matching artifacts in order of path.
    pub fn artifact_list(&mut self, filter: &ArtifactFilter) -> Result<Vec<Artifact>> {
        let (sql, args) = Conditions::new("SELECT record FROM artifacts")
            .when(filter.agent_id.as_ref(), "agent_id = $1", |agent_id, args| {
                args.text(agent_id.as_str());
            })
            .when(Some(&filter.after), "path > $1", |after, args| {
                args.text(after);
            })
            .when(Some(&filter.prefix), "path >= $1", |prefix, args| {
                args.text(prefix);
            })
            .when(end_of_prefix(&filter.prefix), "path < $1", |end, args| {
                args.put(end);
            })
            .order("path", list_limit(filter.limit));
        self.rows(sql, args, Artifact::read)
    }
}

impl Tx {
    /// Inserts or replaces the artifact at its path.
    pub fn artifact_put(&mut self, artifact: &Artifact) -> Result<()> {
        self.put(artifact)
    }

    /// Removes the artifact at this path. Returns whether it existed.
    pub fn artifact_remove(&mut self, path: &str) -> Result<bool> {
        let mut args = Args::default();
        args.text(path);
        Ok(self.execute(sql!("DELETE FROM artifacts WHERE path = $1"), args)? > 0)
    }
}
