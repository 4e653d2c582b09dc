//! Artifacts.

use super::tools::*;

// covers: ART-03
pub(super) async fn artifacts_are_kept_by_path(store: Bench) {
    let full = || Artifact { bytes: LARGE, sha256: AWKWARD.to_owned(), updated_at: at(9), ..artifact("output/b", 2) };
    let unknown = || Artifact { agent_id: None, turn_id: None, ..artifact("output/a", 1) };
    put!(&store, { artifact_put: artifact("output/b", 2), full(), unknown(), artifact("output/c", 3); });
    keep!(&store, |w| { assert!(w.artifact_remove("output/c")? && !w.artifact_remove("output/c")?) });
    shows!(&store, |r| {
        r.artifact_get("output/b")? => Some(full());
        r.artifact_get("output/a")? => Some(unknown());
        r.artifact_get("output/c")? => None;
        r.artifact_list(&ArtifactFilter::default())?.len() => 2;
    });
}

pub(super) async fn artifacts_are_listed_by_prefix_and_agent(store: Bench) {
    let paths = ["output/a/1", "output/a/2", "output/a_", "output/b/1", "output/é/1"];
    keep!(&store, |w| {
        for (n, path) in (0..).zip(paths) {
            w.artifact_put(&artifact(path, n))?;
        }
        w.artifact_put(&Artifact { agent_id: Some(id_of("b")), ..artifact("output/a/3", 9) })?;
    });
    let listed = async |prefix: &str, agent: Option<&str>, after: &str, limit| {
        let (prefix, agent_id, after) = (prefix.to_owned(), agent.map(id_of), after.to_owned());
        let filter = ArtifactFilter { prefix, agent_id, after, limit };
        map_rows(&reading!(&store, |r| { r.artifact_list(&filter)? }), |row| row.path.clone())
    };
    assert_eq!(listed("output/a/", None, "", 0).await, ["output/a/1", "output/a/2", "output/a/3"]);
    assert_eq!(listed("output/a/", Some("b"), "", 0).await, ["output/a/3"]);
    assert_eq!(listed("", Some("a"), "output/a/2", 0).await, ["output/a_", "output/b/1", "output/é/1"]);
    assert_eq!(listed("output/", None, "output/a/1", 2).await, ["output/a/2", "output/a/3"]);
    assert_eq!(listed("output/é", None, "output/b/1", 9).await, ["output/é/1"]);
    assert!(listed("output/c", None, "", 9).await.is_empty());
}
