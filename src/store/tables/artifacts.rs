//! Rows and queries of artifacts.

use ghost_domain::{AgentId, Artifact};

use super::prelude::*;
use super::shared_state::end_of_prefix;

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

record! { artifact: Artifact, "artifacts"; key path: str; artifact_id, agent_id }

impl Tx {
    /// The artifact at this path.
    pub fn artifact_get(&mut self, path: &str) -> Result<Option<Artifact>> {
        self.get(path)
    }

    /// Matching artifacts in order of path.
    pub fn artifact_list(&mut self, filter: &ArtifactFilter) -> Result<Vec<Artifact>> {
        let query = Conditions::new("SELECT record FROM artifacts")
            .when(filter.agent_id.as_ref(), "agent_id = $1")
            .when(Some(&filter.after), "path > $1")
            .when(Some(&filter.prefix), "path >= $1")
            .when(end_of_prefix(&filter.prefix), "path < $1")
            .order("path", list_limit(filter.limit));
        self.page(query)
    }

    /// Inserts or replaces the artifact at its path.
    pub fn artifact_put(&mut self, artifact: &Artifact) -> Result<()> {
        self.put(artifact)
    }

    /// Removes the artifact at this path. Returns whether it existed.
    pub fn artifact_remove(&mut self, path: &str) -> Result<bool> {
        Ok(self.execute(sql!("DELETE FROM artifacts WHERE path = $1"), args![path])? > 0)
    }
}
