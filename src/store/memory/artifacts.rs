//! Artifacts.

use std::ops::Bound;

use ghost_domain::Artifact;

use super::session::{Session, page};
use crate::tables::{ArtifactFilter, ArtifactReads, ArtifactWrites, Result};

impl ArtifactReads for Session<'_> {
    fn artifact_get(&mut self, path: &str) -> Result<Option<Artifact>> {
        Ok(self.tables.artifacts.get(&path.to_owned()).cloned())
    }

    fn artifact_list(&mut self, filter: &ArtifactFilter) -> Result<Vec<Artifact>> {
        let (prefix, after) = (filter.prefix.as_str(), filter.after.as_str());
        let from = if after < prefix { Bound::Included(prefix) } else { Bound::Excluded(after) };
        let rows = self.tables.artifacts.range((from.map(str::to_owned), Bound::Unbounded));
        let rows = rows.take_while(|(path, _)| path.starts_with(prefix)).map(|(_, artifact)| artifact);
        let rows = rows.filter(|row| filter.agent_id.is_none() || row.agent_id == filter.agent_id);
        Ok(page(rows, filter.limit))
    }
}

impl ArtifactWrites for Session<'_> {
    fn artifact_put(&mut self, artifact: &Artifact) -> Result<()> {
        self.tables.artifacts.put(artifact.path.clone(), artifact.clone());
        Ok(())
    }

    fn artifact_remove(&mut self, path: &str) -> Result<bool> {
        Ok(self.tables.artifacts.remove(&path.to_owned()))
    }
}
