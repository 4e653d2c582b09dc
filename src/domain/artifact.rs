//! Artifacts: the files under `output/`, each with an id, its type, and who last changed it.

use serde::{Deserialize, Serialize};

use crate::ids::{AgentId, ArtifactId, TurnId};
use crate::macros::text_enum;
use crate::time::Timestamp;

/// The directory whose files are artifacts.
pub const OUTPUT: &str = "output/";

text_enum! {
    /// Type of an artifact, by its directory.
    ArtifactType, "type of an artifact" {
        /// Under `output/briefings/`.
        Briefing = "briefing",
        /// Under `output/reports/`.
        Report = "report",
        /// Under `output/reviews/`.
        Review = "review",
        /// Under `output/digests/`.
        Digest = "digest",
        /// Anywhere else under `output/`.
        Artifact = "artifact",
    }
}

impl ArtifactType {
    /// The type of the file at `path`, which is relative to the workspace; `None` if it is no artifact.
    pub fn of(path: &str) -> Option<Self> {
        let rest = path.strip_prefix(OUTPUT)?;
        Some(match rest.split_once('/').map(|(dir, _)| dir) {
            Some("briefings") => Self::Briefing,
            Some("reports") => Self::Report,
            Some("reviews") => Self::Review,
            Some("digests") => Self::Digest,
            _ => Self::Artifact,
        })
    }
}

/// A file under `output/`. It keeps its id until the file is removed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Artifact {
    /// Id of the artifact.
    pub artifact_id: ArtifactId,
    /// Path relative to the workspace.
    pub path: String,
    /// Its type.
    #[serde(rename = "type")]
    pub kind: ArtifactType,
    /// Agent that last changed it; `None` if that is not known.
    pub agent_id: Option<AgentId>,
    /// Turn that last changed it, if an agent did.
    pub turn_id: Option<TurnId>,
    /// Droid whose work it is, if an agent promoted it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub droid_id: Option<AgentId>,
    /// Size in bytes.
    pub bytes: u64,
    /// SHA-256 of the content, in lower-case hexadecimal.
    pub sha256: String,
    /// When it was first indexed.
    pub created_at: Timestamp,
    /// When it was last changed.
    pub updated_at: Timestamp,
}

/// What a file under `output/` was found to be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Found {
    /// Path relative to the workspace.
    pub path: String,
    /// Its SHA-256 and its size in bytes; `None` if the file is gone.
    pub content: Option<(String, u64)>,
}

#[cfg(test)]
mod tests {
    use super::*;

    // covers: ART-01
    #[test]
    fn the_type_follows_from_the_directory() {
        for (path, kind) in [
            ("output/briefings/a.md", Some("briefing")),
            ("output/reports/x/a.md", Some("report")),
            ("output/reviews/a", Some("review")),
            ("output/digests/a", Some("digest")),
            ("output/digests", Some("artifact")),
            ("output/a.md", Some("artifact")),
            ("outputs/a.md", None),
            ("agents/ada/output/a.md", None),
            ("shared/a.md", None),
        ] {
            assert_eq!(ArtifactType::of(path).map(ArtifactType::as_str), kind, "{path}");
        }
    }
}
