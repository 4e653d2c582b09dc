//! Knowledge entries and their earlier versions.

use super::tools::*;

pub(super) async fn entries_round_trip(store: Bench) {
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
    put!(&store, { knowledge_put: knowledge("style/guide.v1", 1), full(); });
    shows!(&store, |r| {
        r.knowledge_get("style/guide.v1")? => Some(full());
        r.knowledge_get("style")? => None;
    });
}

pub(super) async fn entries_that_are_not_deleted_are_listed(store: Bench) {
    let first = |name| knowledge(name, 1);
    put!(&store, { knowledge_put: first("b"), first("a/b"), first("a"), first("c"), first("a-b"); });
    shows!(&store, |r| { (r.knowledge_list("", 9)?.len(), r.knowledge_count()?) => (5, 5); });
    put!(&store, { knowledge_put: KnowledgeEntry { deleted: true, ..knowledge("b", 2) }; });
    let names = |entries: Vec<KnowledgeEntry>| map_rows(&entries, |entry| entry.entry_id.clone()).join(" ");
    shows!(&store, |r| {
        r.knowledge_count()? => 4;
        names(r.knowledge_list("", 99)?) => "a a-b a/b c";
        names(r.knowledge_list("", 2)?) => "a a-b";
        names(r.knowledge_list("a-b", 2)?) => "a/b c";
        names(r.knowledge_list("b", 9)?) => "c", "from after what is deleted";
        names(r.knowledge_list("c", 9)?) => "";
        names(r.knowledge_list("", 0)?) => "";
    });
    put!(&store, { knowledge_put: knowledge("b", 3); });
    shows!(&store, |r| { (names(r.knowledge_list("a/b", u32::MAX)?), r.knowledge_count()?) => ("b c".to_owned(), 5); });
}

// covers: KNOW-04
pub(super) async fn versions_are_newest_first(store: Bench) {
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
        w.knowledge_version_put(&full())?;
    });
    let numbers = |versions: Vec<KnowledgeVersion>| map_rows(&versions, |version| version.version);
    shows!(&store, |r| {
        r.knowledge_versions("a")? => [version("a", 4), full(), version("a", 2), version("a", 1)];
        r.knowledge_versions("b")? => [];
    });
    keep!(&store, |w| {
        w.knowledge_versions_prune("a", 1)?;
        w.knowledge_versions_prune("none", 9)?;
        w.knowledge_version_put(&version("a", 5))?;
        // Rows of the same command are deleted like any others.
        w.knowledge_version_put(&version("a", 0))?;
        w.knowledge_versions_prune("a", 3)?;
    });
    shows!(&store, |r| {
        r.knowledge_versions("a")? => [version("a", 5), version("a", 4), full()];
        numbers(r.knowledge_versions("a/b")?) => [4, 3, 2, 1];
    });
    keep!(&store, |w| { w.knowledge_versions_prune("a", i64::MAX)? });
    shows!(&store, |r| {
        numbers(r.knowledge_versions("a")?) => [0; 0];
        numbers(r.knowledge_versions("a/b")?) => [4, 3, 2, 1];
    });
}
