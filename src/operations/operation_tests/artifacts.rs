use ghost_domain::artifact::Found;

use super::operation_world::*;
use crate::artifacts::Origin;

async fn found(world: &OperationWorld, origin: Option<Origin>, path: &str, content: Option<&str>) -> Option<Artifact> {
    let content = content.map(|text| (text.to_owned(), text.len() as u64));
    let found = Found { path: path.into(), content };
    run!(world, |w| artifacts::index(w, origin.as_ref(), found, false)).unwrap()
}

// covers: ART-01, ART-03
world_test!(a_file_keeps_its_id_until_it_is_removed, async |world| {
    let turn = world.busy("ada").await;
    let ada = Some(Origin::of(&turn));
    let path = "output/reports/a.md";
    let first = found(&world, ada.clone(), path, Some("one")).await.unwrap();
    assert_eq!((first.kind.as_str(), first.bytes, &first.agent_id), ("report", 3, &Some(id("ada"))));
    world.pass(std::time::Duration::from_secs(5));
    // The same content is no change.
    assert_eq!(found(&world, None, path, Some("one")).await, Some(first.clone()));
    assert_eq!(world.count(EventKind::ArtifactCreated).await, 1);
    let second = found(&world, None, path, Some("three")).await.unwrap();
    assert_eq!((second.artifact_id, second.created_at), (first.artifact_id, first.created_at));
    assert_eq!((second.bytes, &second.agent_id, second.updated_at), (5, &None, world.ctx.now()));
    assert_eq!(read!(world, |r| artifacts::all(r)?).into_values().collect::<Vec<_>>(), [second]);
    assert_eq!(found(&world, ada.clone(), path, None).await, None);
    assert_eq!(found(&world, ada.clone(), path, None).await, None, "a file that is gone is gone once");
    assert!(read!(world, |r| artifacts::all(r)?).is_empty());
    assert_ne!(found(&world, ada.clone(), path, Some("one")).await.unwrap().artifact_id, first.artifact_id);
    // Files elsewhere are none.
    assert_eq!(found(&world, ada, "shared/a.md", Some("one")).await, None);
    let events = world.events().await;
    let of = |kind| events.iter().filter(|event| event.kind == kind).collect::<Vec<_>>();
    let (made, gone) = (of(EventKind::ArtifactCreated), of(EventKind::ArtifactRemoved));
    assert_eq!((made.len(), gone.len()), (3, 1));
    assert_eq!(
        made.iter().map(|event| event.payload["replaced"].clone()).collect::<Vec<_>>(),
        [json!(false), json!(true), json!(false)]
    );
    assert_eq!((&made[0].agent_id, &made[1].agent_id), (&Some(id("ada")), &None));
    assert_eq!(made[0].payload["turn_id"], json!(turn.turn_id));
    assert_eq!(gone[0].payload["artifact_id"], json!(first.artifact_id));
});
