use super::operation_world::*;
use crate::knowledge::{Author, Listed, Wanted, WithVersions, Writing};

fn viewer(name: &str, groups: &[&str]) -> Viewer {
    let groups: BTreeSet<String> = groups.iter().map(|group| (*group).to_owned()).collect();
    Viewer::Agent { agent_id: id(name), archetype: "worker".into(), groups }
}

fn author(name: &str) -> Author {
    Author { by: party(name), viewer: viewer(name, &[]), through: None }
}

fn above() -> Author {
    Author { by: operator(), viewer: Viewer::Everything, through: None }
}

fn text(entry_id: &str, content: &str) -> Writing {
    Writing { entry_id: entry_id.into(), content: content.into(), create: true, ..Writing::default() }
}

async fn put(world: &World, author: Author, new: Writing) -> Result<KnowledgeEntry> {
    run!(world, |w| knowledge::write(w, &author, new))
}

async fn delete(world: &World, author: Author, entry_id: &str, version: Option<i64>) -> Result<KnowledgeEntry> {
    let entry_id = entry_id.to_owned();
    run!(world, |w| knowledge::delete(w, &author, &entry_id, version))
}

async fn see(world: &World, viewer: Viewer, entry_id: &str) -> Result<WithVersions> {
    let entry_id = entry_id.to_owned();
    world.store.read(move |r| knowledge::read(r, &viewer, &entry_id, true)).await
}

async fn list(world: &World, viewer: Viewer, wanted: Wanted) -> Listed {
    read!(world, |r| knowledge::list(r, &viewer, &wanted)?)
}

async fn ids(world: &World, viewer: Viewer, wanted: Wanted) -> Vec<String> {
    list(world, viewer, wanted).await.entries.into_iter().map(|entry| entry.entry_id).collect()
}

fn all() -> Wanted {
    Wanted { limit: 100, ..Wanted::default() }
}

// covers: KNOW-01
world_test!(an_entry_is_written_read_replaced_and_listed, async |world| {
    let new = Writing {
        title: Some("How we\nwrite".into()),
        tags: Some(vec!["style".into(), "house".into(), "style".into()]),
        readers: Some(vec![Grantee::Agent(id("bob"))]),
        writers: Some(vec![Grantee::Group("manager".into())]),
        ..text("style/guide", "Short.")
    };
    let first = put(&world, author("ada"), new).await.unwrap();
    assert_eq!((first.version, first.title.as_str(), &first.creator), (1, "How we write", &party("ada")));
    assert_eq!(first.tags, ["house", "style"]);
    // An omitted field stays.
    let second = put(&world, author("ada"), text("style/guide", "Shorter.")).await.unwrap();
    assert_eq!((second.version, &second.title, &second.readers), (2, &first.title, &first.readers));
    assert_eq!((&second.created_at, &second.tags), (&first.created_at, &first.tags));
    let seen = see(&world, viewer("bob", &[]), "style/guide").await.unwrap();
    assert_eq!((seen.entry, seen.versions.len()), (second, 1));
    assert_eq!((seen.versions[0].version, seen.versions[0].content.as_str()), (1, "Short."));
    // Another writer, by its group: the creator stays the creator and keeps the right to write.
    let cyd = Author { viewer: viewer("cyd", &["manager"]), ..author("cyd") };
    let taken = Writing { writers: Some(vec![Grantee::Agent(id("cyd"))]), ..text("style/guide", "Mine.") };
    let third = put(&world, cyd, taken).await.unwrap();
    assert_eq!((&third.creator, &third.updated_by), (&party("ada"), &party("cyd")));
    put(&world, author("ada"), text("style/guide", "Ours.")).await.unwrap();
    // A new entry without access lists is open to its creator only, and its title is its id.
    let own = put(&world, author("bob"), text("bobs", "b")).await.unwrap();
    assert_eq!((own.title.as_str(), own.readers.len(), own.writers.len()), ("bobs", 0, 0));
    assert_eq!(ids(&world, viewer("ada", &[]), all()).await, ["style/guide"]);
    for viewer in [viewer("bob", &[]), Viewer::Everything] {
        assert_eq!(ids(&world, viewer, all()).await, ["bobs", "style/guide"]);
    }
    for (query, tag, found) in [
        (Some("OUR"), None, vec!["style/guide"]),
        (Some("how WE"), None, vec!["style/guide"]),
        (Some("hous"), None, vec!["style/guide"]),
        (Some("bobs"), None, vec!["bobs"]),
        (None, Some("style"), vec!["style/guide"]),
        (Some("b"), Some("style"), vec![]),
        (Some(" "), None, vec!["bobs", "style/guide"]),
    ] {
        let wanted = Wanted { query: query.map(Into::into), tag: tag.map(Into::into), ..all() };
        assert_eq!(ids(&world, Viewer::Everything, wanted).await, found, "{query:?} {tag:?}");
    }
    let first = json!({ "entry_id": "style/guide", "version": 1, "by": "agent:ada", "deleted": false });
    assert_eq!(world.event(EventKind::KnowledgeChanged).await.payload, first);
});

// covers: KNOW-05
world_test!(an_unreadable_entry_looks_like_a_missing_one, async |world| {
    put(&world, author("ada"), text("secret-plan", "x")).await.unwrap();
    let (bob, none) = (viewer("bob", &[]), "secret-plam");
    // The refusals of an existing and a missing entry are equal, and no suggestion reveals a name.
    let words = |refusal: Refusal, name: &str| {
        assert_eq!(refusal.code, Code::NotFound);
        refusal.to_string().replace(name, "NAME")
    };
    let unknown = words(see(&world, bob.clone(), none).await.unwrap_err(), none);
    let hidden = "secret-plan";
    assert_eq!(words(see(&world, bob.clone(), hidden).await.unwrap_err(), hidden), unknown);
    for expected in [None, Some(0), Some(1), Some(7)] {
        let over = Writing { expected_version: expected, ..text(hidden, "y") };
        assert_eq!(words(put(&world, author("bob"), over).await.unwrap_err(), hidden), unknown);
        assert_eq!(words(delete(&world, author("bob"), hidden, expected).await.unwrap_err(), hidden), unknown);
    }
    let only = Writing { create: false, ..text(none, "y") };
    assert_eq!(words(put(&world, author("bob"), only).await.unwrap_err(), none), unknown);
    assert_eq!(words(delete(&world, author("bob"), none, None).await.unwrap_err(), none), unknown);
    assert!(ids(&world, bob, all()).await.is_empty());
    // A reader gets a suggestion.
    assert!(see(&world, Viewer::Everything, none).await.unwrap_err().hint.unwrap().contains(hidden));
    assert_eq!(see(&world, Viewer::Everything, hidden).await.unwrap().entry.version, 1, "nothing of it was done");
});

// covers: KNOW-04
world_test!(versions_are_checked_stored_and_continue_after_a_deletion, async |world| {
    world.limits(|limits| limits.knowledge_versions = 2);
    let at = |expected, content: &str| Writing { expected_version: Some(expected), ..text("e", content) };
    assert_eq!(put(&world, author("ada"), at(0, "one")).await.unwrap().version, 1);
    for (expected, content) in [(1, "two"), (2, "three"), (3, "four")] {
        put(&world, author("ada"), at(expected, content)).await.unwrap();
    }
    assert_eq!(code(put(&world, author("ada"), at(3, "five")).await), Code::Conflict);
    let seen = see(&world, Viewer::Everything, "e").await.unwrap();
    let kept: Vec<(i64, &str)> = seen.versions.iter().map(|old| (old.version, old.content.as_str())).collect();
    assert_eq!((seen.entry.content.as_str(), kept), ("four", vec![(3, "three"), (2, "two")]));
    assert_eq!(code(delete(&world, author("ada"), "e", Some(2)).await), Code::Conflict);
    let gone = delete(&world, author("ada"), "e", Some(4)).await.unwrap();
    assert_eq!((gone.version, gone.deleted, gone.content.as_str()), (5, true, ""));
    assert_eq!(code(see(&world, Viewer::Everything, "e").await), Code::NotFound);
    assert_eq!(code(delete(&world, author("ada"), "e", None).await), Code::NotFound);
    assert_eq!(code(put(&world, author("ada"), at(5, "six")).await), Code::NotFound);
    // The next user of the id becomes its creator and does not see the old content.
    let again = put(&world, author("bob"), at(0, "new")).await.unwrap();
    assert_eq!((again.version, &again.creator, again.deleted), (6, &party("bob"), false));
    assert!(see(&world, Viewer::Everything, "e").await.unwrap().versions.is_empty());
    world.limits(|limits| limits.knowledge_versions = 0);
    put(&world, author("bob"), text("e", "newer")).await.unwrap();
    assert!(see(&world, Viewer::Everything, "e").await.unwrap().versions.is_empty());
});

world_test!(exceeded_limits_are_refused_by_name, async |world| {
    world.limits(|limits| (limits.knowledge_bytes, limits.knowledge_entries_max) = (4, 2));
    assert_eq!(code(put(&world, author("ada"), text("e", "12345")).await), Code::TooLarge);
    let title = Writing { title: Some(" ".into()), ..text("e", "1") };
    let readers = Writing { readers: Some(vec![Grantee::Everyone; 257]), ..text("e", "1") };
    for bad in [text("", "1"), title, readers] {
        assert_eq!(code(put(&world, author("ada"), bad).await), Code::InvalidArguments);
    }
    let nobody = Writing { readers: Some(vec![Grantee::Agent(id("bop"))]), ..text("e", "1") };
    let refusal = refused(put(&world, author("ada"), nobody).await, Code::NotFound, "readers: ");
    assert!(world.with_suggestion(refusal).await.hint.unwrap().contains("`bob`"));
    for entry in ["a", "b"] {
        put(&world, author("ada"), text(entry, "1")).await.unwrap();
    }
    assert_eq!(code(put(&world, author("ada"), text("c", "1")).await), Code::RateLimited);
    put(&world, author("ada"), text("b", "2")).await.unwrap();
    delete(&world, author("ada"), "a", None).await.unwrap();
    put(&world, author("ada"), text("c", "1")).await.unwrap();
});

world_test!(a_long_list_is_paged_without_gaps_or_duplicates, async |world| {
    for n in 0..150 {
        let readers = (n % 2 == 0).then(|| vec![Grantee::Agent(id("bob"))]);
        put(&world, author("ada"), Writing { readers, ..text(&format!("e{n:03}"), "x") }).await.unwrap();
    }
    let bob = || viewer("bob", &[]);
    let (mut found, mut after) = (Vec::new(), String::new());
    loop {
        let part = list(&world, bob(), Wanted { after: after.clone(), limit: 20, ..Wanted::default() }).await;
        after = part.entries.last().map(|entry| entry.entry_id.clone()).unwrap_or_default();
        found.extend(part.entries.into_iter().map(|entry| entry.entry_id));
        if !part.more {
            break;
        }
    }
    let expected: Vec<String> = (0..150).step_by(2).map(|n| format!("e{n:03}")).collect();
    assert_eq!(found, expected);
    assert!(!list(&world, bob(), Wanted { limit: 75, ..Wanted::default() }).await.more, "75 are all that there are");
});

// covers: KNOW-06
world_test!(seeds_are_created_once, async |world| {
    let seed = |entry_id: &str| KnowledgeSeed {
        entry_id: entry_id.into(),
        title: "T".into(),
        content: "from the files".into(),
        tags: vec!["seed".into()],
        readers: vec![Grantee::Everyone],
        writers: vec![Grantee::Agent(id("ada"))],
    };
    let put_seeds = async |ids: &[&str]| {
        let seeds: Vec<KnowledgeSeed> = ids.iter().map(|id| seed(id)).collect();
        run!(world, |w| knowledge::seed(w, &seeds)).unwrap()
    };
    assert_eq!(put_seeds(&["a", "b"]).await, ["a", "b"]);
    put(&world, author("ada"), text("a", "changed")).await.unwrap();
    delete(&world, above(), "b", None).await.unwrap();
    assert_eq!(put_seeds(&["a", "b", "c"]).await, ["c"], "what is new alone");
    let seen = see(&world, viewer("bob", &[]), "a").await.unwrap().entry;
    assert_eq!((seen.content.as_str(), &seen.creator), ("changed", &Party::System));
    assert_eq!(code(put(&world, author("bob"), text("a", "x")).await), Code::AccessDenied);
    assert_eq!(code(see(&world, Viewer::Everything, "b").await), Code::NotFound);
});

// covers: KNOW-02
world_test!(a_reader_without_write_access_is_denied_and_an_operator_as_an_agent_has_no_more, async |world| {
    let open = Writing { readers: Some(vec![Grantee::Archetype("worker".into())]), ..text("open", "x") };
    put(&world, author("ada"), open).await.unwrap();
    // Denied before the version is checked.
    for expected_version in [None, Some(9)] {
        let over = Writing { expected_version, ..text("open", "y") };
        assert_eq!(code(put(&world, author("bob"), over).await), Code::AccessDenied);
    }
    assert_eq!(code(delete(&world, author("bob"), "open", None).await), Code::AccessDenied);
    put(&world, above(), text("open", "z")).await.unwrap();
    delete(&world, above(), "open", None).await.unwrap();
    put(&world, above(), text("ours", "x")).await.unwrap();
    let through = Author { through: Some(operator()), ..author("ada") };
    assert_eq!(code(put(&world, through.clone(), text("ours", "y")).await), Code::NotFound);
    put(&world, through, text("hers", "y")).await.unwrap();
    let last = world.events().await.pop().unwrap();
    assert_eq!((&last.payload["by"], &last.payload["through"]), (&json!("agent:ada"), &json!("operator:test")));
    assert_eq!(last.agent_id, Some(id("ada")));
});
