//! The `artifacts` table: the files under `output/`, by path.

use ghost_domain::{AgentId, Artifact};

use crate::error::Result;

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

/// Reads of artifacts.
pub trait ArtifactReads {
    /// The artifact at this path.
    fn artifact_get(&mut self, path: &str) -> Result<Option<Artifact>>;

    /// Matching artifacts in order of path.
    fn artifact_list(&mut self, filter: &ArtifactFilter) -> Result<Vec<Artifact>>;
}

/// Writes of artifacts.
pub trait ArtifactWrites {
    /// Inserts or replaces the artifact at its path.
    fn artifact_put(&mut self, artifact: &Artifact) -> Result<()>;

    /// Removes the artifact at this path. Returns whether it existed.
    fn artifact_remove(&mut self, path: &str) -> Result<bool>;
}
