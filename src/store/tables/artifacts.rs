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

functions! {
    /// Matching artifacts in order of path.
    page artifact_list(filter: &ArtifactFilter) -> Vec<Artifact>:
        Conditions::new("SELECT record FROM artifacts")
            .when(filter.agent_id.as_ref(), "agent_id = $1")
            .when(Some(&filter.after), "path > $1")
            .when(Some(&filter.prefix), "path >= $1")
            .when(end_of_prefix(&filter.prefix), "path < $1")
            .order("path", list_limit(filter.limit));
    /// The artifact at this path.
    get artifact_get(path: &str) -> Option<Artifact>: path;
    /// Inserts or replaces the artifact at its path.
    put artifact_put(artifact: &Artifact) -> (): artifact;
    /// Removes the artifact at this path. Returns whether it existed.
    remove artifact_remove(path: &str) -> bool: "DELETE FROM artifacts WHERE path = $1";
}
