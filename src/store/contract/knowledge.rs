//! Knowledge entries and their earlier versions.

use ghost_domain::{Grantee, KnowledgeEntry, KnowledgeVersion, Party};
use serde_json::json;

use super::tools::*;
use crate::Store;

pub(super) async fn entries_round_trip(mut store: Bench) {
    let full = || {
        with(
            knowledge("style/guide.v1", i64::MAX),
            json!({
                "title": AWKWARD, "content": AWKWARD, "tags": [AWKWARD, "b", "a"],
                "readers": [Grantee::Agent(id_of("b")), Grantee::Everyone, Grantee::Group("g".to_owned())],
                "writers": [Grantee::Archetype("scribe".to_owned())], "creator": Party::Agent(id_of("a")),
                "updated_by": Party::Operator("me".to_owned()), "created_at": at(3), "updated_at": at(4), "deleted": true,
            }),
        )
    };
    keep!(&store, |w| {
        w.knowledge_put(&knowledge("style/guide.v1", 1))?;
        assert_eq!(w.knowledge_get("style/guide.v1")?, Some(knowledge("style/guide.v1", 1)));
        w.knowledge_put(&full())?;
        assert_eq!(w.knowledge_get("style/guide.v1")?.as_ref(), Some(&full()));
    });
    refuse!(&store, |w| {
        w.knowledge_put(&knowledge("style/guide.v1", 2))?;
        w.knowledge_put(&knowledge("new", 1))?;
        assert_eq!(w.knowledge_count()?, 2);
    });
    keep!(&store, |w| {
        assert_eq!(w.knowledge_get("style/guide.v1")?, Some(full()));
        assert_eq!(w.knowledge_get("new")?, None);
    });
    store.reopen().await;
    shows!(&store, |r| {
        r.knowledge_get("style/guide.v1")? => Some(full());
        r.knowledge_get("style")? => None;
    });
}

async fn listed(store: &Store, after: &'static str, limit: u32) -> Vec<String> {
    map_rows(&reading!(store, |r| { r.knowledge_list(after, limit)? }), |entry| entry.entry_id.clone())
}

pub(super) async fn entries_that_are_not_deleted_are_listed(store: Bench) {
    keep!(&store, |w| {
        for entry_id in ["b", "a/b", "a", "c", "a-b"] {
            w.knowledge_put(&knowledge(entry_id, 1))?;
        }
        assert_eq!((w.knowledge_list("", 9)?.len(), w.knowledge_count()?), (5, 5));
        w.knowledge_put(&KnowledgeEntry { deleted: true, ..knowledge("b", 2) })?;
        let inside = w.knowledge_list("", 9)?;
        assert_eq!(map_rows(&inside, |entry| entry.entry_id.clone()), ["a", "a-b", "a/b", "c"]);
        assert_eq!(w.knowledge_count()?, 4);
    });
    assert_eq!(listed(&store, "", 99).await, ["a", "a-b", "a/b", "c"]);
    assert_eq!(listed(&store, "", 2).await, ["a", "a-b"]);
    assert_eq!(listed(&store, "a-b", 2).await, ["a/b", "c"]);
    assert_eq!(listed(&store, "b", 9).await, ["c"], "from after what is deleted");
    assert_eq!((listed(&store, "c", 9).await, listed(&store, "", 0).await), (vec![], vec![]));
    keep!(&store, |w| { w.knowledge_put(&knowledge("b", 3))? });
    assert_eq!(listed(&store, "a/b", u32::MAX).await, ["b", "c"]);
    assert_eq!(reading!(&store, |r| { r.knowledge_count()? }), 5);
}

// covers: KNOW-04
pub(super) async fn versions_are_newest_first(mut store: Bench) {
    let full = || KnowledgeVersion {
        title: AWKWARD.to_owned(),
        content: AWKWARD.to_owned(),
        by: Party::Agent(id_of("b")),
        at: at(7),
        ..version("a", 3)
    };
    keep!(&store, |w| {
        for n in [2, 4, 1, 3] {
            w.knowledge_version_put(&version("a", n))?;
            w.knowledge_version_put(&version("a/b", n))?;
        }
        assert_eq!(w.knowledge_versions("a")?.len(), 4);
        w.knowledge_version_put(&full())?;
        assert_eq!(w.knowledge_versions("a")?, [version("a", 4), full(), version("a", 2), version("a", 1)]);
    });
    refuse!(&store, |w| {
        w.knowledge_version_put(&version("a", 5))?;
        w.knowledge_versions_prune("a", 4)?;
        assert_eq!(w.knowledge_versions("a")?, [version("a", 5), version("a", 4)]);
    });
    let versions = async |entry_id: &'static str| reading!(&store, |r| { r.knowledge_versions(entry_id)? });
    assert_eq!(map_rows(&versions("a").await, |version| version.version), [4, 3, 2, 1]);
    keep!(&store, |w| {
        w.knowledge_versions_prune("a", 1)?;
        w.knowledge_versions_prune("none", 9)?;
        w.knowledge_version_put(&version("a", 5))?;
        // Rows of the same command are deleted like any others.
        w.knowledge_version_put(&version("a", 0))?;
        w.knowledge_versions_prune("a", 3)?;
    });
    assert_eq!(versions("a").await, [version("a", 5), version("a", 4), full()]);
    assert_eq!(map_rows(&versions("a/b").await, |version| version.version), [4, 3, 2, 1]);
    assert_eq!(versions("b").await, []);
    keep!(&store, |w| { w.knowledge_versions_prune("a", i64::MAX)? });
    store.reopen().await;
    shows!(&store, |r| {
        r.knowledge_versions("a")?.len() => 0;
        r.knowledge_versions("a/b")?.len() => 4;
    });
}
