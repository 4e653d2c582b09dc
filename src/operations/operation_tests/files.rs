//! Files: grants to write them, and the index of those under `output`.

use ghost_domain::artifact::Found;
use ghost_domain::grant::NewGrant;

use super::operation_world::*;
use crate::artifacts::Origin;

async fn add(world: &World, by: Party, agent: &str, prefix: &str, seconds: u64) -> Result<Grant> {
    let new = NewGrant {
        agent_id: id(agent),
        prefix: prefix.into(),
        source: GrantSource::Manual,
        reason: None,
        lasts: Duration::from_secs(seconds),
    };
    run!(world, |w| grants::add(w, &by, new))
}

async fn revoke(world: &World, grant_id: GrantId) -> Result<Grant> {
    run!(world, |w| grants::revoke(w, &operator(), grant_id))
}

async fn live(world: &World, agent: &str) -> Vec<Grant> {
    let (agent_id, now) = (id(agent), world.ctx.now());
    read!(world, |r| r.grants_live(&agent_id, now)?)
}

// covers: ACL-04, ACL-10, TEST-10
world_test!(grants_are_made_and_revoked_with_events_and_signals, async |world| {
    world.signals();
    let grant = add(&world, operator(), "ada", "output/reports/", 60).await.unwrap();
    assert_eq!(world.signals(), [Signal::Grants(id("ada"))]);
    assert_eq!(live(&world, "ada").await, std::slice::from_ref(&grant));
    assert_eq!(live(&world, "bob").await, []);
    assert_eq!(revoke(&world, grant.grant_id).await.unwrap(), grant);
    assert_eq!(world.signals(), [Signal::Grants(id("ada"))]);
    assert_eq!(code(revoke(&world, grant.grant_id).await), Code::NotFound);
    assert_eq!(code(revoke(&world, GrantId(Uuid::nil())).await), Code::NotFound);
    let (made, taken) = (world.event(EventKind::GrantCreated).await, world.event(EventKind::GrantRevoked).await);
    assert_eq!((&made.agent_id, &made.payload["by"]), (&Some(id("ada")), &json!(operator())));
    assert_eq!(made.payload["prefix"], "output/reports/");
    assert_eq!(made.payload["expires_at"], json!(grant.expires_at));
    assert_eq!((&taken.payload["grant_id"], &taken.payload["by"]), (&json!(grant.grant_id), &json!(operator())));
});

world_test!(an_agent_has_only_so_many_grants, async |world| {
    world.limits(|limits| limits.grants_max = 2);
    for prefix in ["a/", "b/"] {
        add(&world, operator(), "ada", prefix, 60).await.unwrap();
    }
    assert_eq!(code(add(&world, operator(), "ada", "c/", 60).await), Code::RateLimited);
    add(&world, operator(), "bob", "c/", 60).await.unwrap();
    assert_eq!(world.count(EventKind::GrantCreated).await, 3);
    // One that is over does not count.
    world.pass(MINUTE);
    add(&world, operator(), "ada", "c/", 60).await.unwrap();
});

world_test!(a_grant_that_is_over_is_pruned_and_cannot_be_revoked, async |world| {
    let short = add(&world, operator(), "ada", "a/", 60).await.unwrap();
    let long = add(&world, operator(), "ada", "b/", 120).await.unwrap();
    world.pass(MINUTE);
    assert_eq!(live(&world, "ada").await, std::slice::from_ref(&long));
    assert_eq!(code(revoke(&world, short.grant_id).await), Code::NotFound);
    world.sweep_after(Duration::from_millis(1)).await;
    assert_eq!(read!(world, |r| r.grant_list(None, 0)?), std::slice::from_ref(&long));
    assert!(Family::ALL.contains(&Family::Grants));
    // It stays over when the clock goes back.
    world.pass(MINUTE * 2);
    super::retention::jump(&world, -4_000).await;
    let grant = read!(world, |r| r.grant_get(long.grant_id)?).unwrap();
    assert!(!grant.is_live(world.ctx.now()), "{grant:?}");
});

world_test!(an_agent_made_again_has_none_of_the_grants_of_the_deleted_one, async |world| {
    for prefix in ["a/", "b/"] {
        add(&world, party("bob"), "ada", prefix, 60).await.unwrap();
    }
    add(&world, operator(), "bob", "a/", 60).await.unwrap();
    world.signals();
    delete(&world, "ada").await;
    assert!(world.signals().contains(&Signal::Grants(id("ada"))));
    assert_eq!((live(&world, "ada").await.len(), live(&world, "bob").await.len()), (0, 1));
    assert_eq!(world.count(EventKind::GrantRevoked).await, 2);
    assert_eq!(code(add(&world, operator(), "ada", "a/", 60).await), Code::NotFound);
});

async fn found(world: &World, origin: Option<&Origin>, path: &str, content: Option<&str>) -> Option<Artifact> {
    let content = content.map(|text| (text.to_owned(), text.len() as u64));
    let (origin, found) = (origin.cloned(), Found { path: path.into(), content });
    run!(world, |w| artifacts::index(w, origin.as_ref(), found, false)).unwrap()
}

// covers: ART-01, ART-03
world_test!(a_file_keeps_its_id_until_it_is_removed, async |world| {
    let turn = world.busy("ada").await;
    let origin = Origin::of(&turn);
    let ada = Some(&origin);
    let path = "output/reports/a.md";
    let first = found(&world, ada, path, Some("one")).await.unwrap();
    assert_eq!((first.kind.as_str(), first.bytes, &first.agent_id), ("report", 3, &Some(id("ada"))));
    world.pass(std::time::Duration::from_secs(5));
    // The same content is no change.
    assert_eq!(found(&world, None, path, Some("one")).await, Some(first.clone()));
    assert_eq!(world.count(EventKind::ArtifactCreated).await, 1);
    let second = found(&world, None, path, Some("three")).await.unwrap();
    assert_eq!((second.artifact_id, second.created_at), (first.artifact_id, first.created_at));
    assert_eq!((second.bytes, &second.agent_id, second.updated_at), (5, &None, world.ctx.now()));
    assert_eq!(read!(world, |r| artifacts::all(r)?).into_values().collect::<Vec<_>>(), [second]);
    assert_eq!(found(&world, ada, path, None).await, None);
    assert_eq!(found(&world, ada, path, None).await, None, "a file that is gone is gone once");
    assert!(read!(world, |r| artifacts::all(r)?).is_empty());
    assert_ne!(found(&world, ada, path, Some("one")).await.unwrap().artifact_id, first.artifact_id);
    // Files elsewhere are none.
    assert_eq!(found(&world, ada, "shared/a.md", Some("one")).await, None);
    assert_eq!(world.told(EventKind::ArtifactCreated, "replaced").await, [false, true, false]);
    let made = world.events_of(EventKind::ArtifactCreated).await;
    assert_eq!((&made[0].agent_id, &made[1].agent_id), (&Some(id("ada")), &None));
    assert_eq!(made[0].payload["turn_id"], json!(turn.turn_id));
    assert_eq!(world.told(EventKind::ArtifactRemoved, "artifact_id").await, [json!(first.artifact_id)]);
});
