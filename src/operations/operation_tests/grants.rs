use ghost_domain::grant::NewGrant;

use super::operation_world::*;

async fn add(world: &OperationWorld, by: Party, agent: &str, prefix: &str, seconds: u64) -> Result<Grant> {
    let new = NewGrant {
        agent_id: id(agent),
        prefix: prefix.into(),
        source: GrantSource::Manual,
        reason: None,
        lasts: Duration::from_secs(seconds),
    };
    run!(world, |w| grants::add(w, &by, new))
}

async fn revoke(world: &OperationWorld, grant_id: GrantId) -> Result<Grant> {
    run!(world, |w| grants::revoke(w, &operator(), grant_id))
}

async fn live(world: &OperationWorld, agent: &str) -> Vec<Grant> {
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
    let events = world.events().await;
    let told = |kind| events.iter().find(|event| event.kind == kind).unwrap();
    let (made, taken) = (told(EventKind::GrantCreated), told(EventKind::GrantRevoked));
    assert_eq!((&made.agent_id, &made.payload["by"]), (&Some(id("ada")), &json!(operator())));
    assert_eq!(made.payload["prefix"], "output/reports/");
    assert_eq!(made.payload["expires_at"], json!(grant.expires_at));
    assert_eq!((&taken.payload["grant_id"], &taken.payload["by"]), (&json!(grant.grant_id), &json!(operator())));
});

// covers: ACL-03, ACL-04
world_test!(a_grant_that_may_not_be_is_refused_and_leaves_nothing, async |world| {
    world.limits(|limits| limits.grants_max = 2);
    for (agent, prefix, seconds, wanted) in [
        ("nobody", "output/", 60, Code::NotFound),
        ("ada", "agents/bob/", 60, Code::InvalidArguments),
        ("ada", "../", 60, Code::PathDenied),
        ("ada", "output", 60, Code::InvalidArguments),
        ("ada", "output/", 0, Code::InvalidArguments),
    ] {
        assert_eq!(code(add(&world, operator(), agent, prefix, seconds).await), wanted, "{agent} {prefix}");
    }
    for prefix in ["a/", "b/"] {
        add(&world, operator(), "ada", prefix, 60).await.unwrap();
    }
    assert_eq!(code(add(&world, operator(), "ada", "c/", 60).await), Code::RateLimited);
    add(&world, operator(), "bob", "c/", 60).await.unwrap();
    assert_eq!(world.count(EventKind::GrantCreated).await, 3);
    // One that is over does not count.
    world.pass(Duration::from_secs(60));
    add(&world, operator(), "ada", "c/", 60).await.unwrap();
});

world_test!(a_grant_that_is_over_is_pruned_and_cannot_be_revoked, async |world| {
    let short = add(&world, operator(), "ada", "a/", 60).await.unwrap();
    let long = add(&world, operator(), "ada", "b/", 120).await.unwrap();
    world.pass(Duration::from_secs(60));
    assert_eq!(live(&world, "ada").await, std::slice::from_ref(&long));
    assert_eq!(code(revoke(&world, short.grant_id).await), Code::NotFound);
    world.pass(Duration::from_millis(1));
    retention::sweep(&world.store, &world.ctx).await.unwrap();
    assert_eq!(read!(world, |r| r.grant_list(None, 0)?), [long]);
    assert!(Family::ALL.contains(&Family::Grants));
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
