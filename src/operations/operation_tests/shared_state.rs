use super::operation_world::*;
use crate::shared_state::{Listed, Setting};

async fn set(world: &OperationWorld, by: Party, key: &str, value: Value, expected: Option<i64>) -> Result<StateEntry> {
    let new = Setting { key: key.into(), value: value.into(), expected_version: expected };
    run!(world, |w| shared_state::set(w, &by, None, new))
}

async fn get(world: &OperationWorld, key: &str) -> Result<StateEntry> {
    let key = key.to_owned();
    world.store.read(move |r| shared_state::get(r, &key)).await
}

async fn list(world: &OperationWorld, prefix: &str, after: &str, limit: u32) -> Result<Listed> {
    let (prefix, after) = (prefix.to_owned(), after.to_owned());
    world.store.read(move |r| shared_state::list(r, &prefix, &after, limit)).await
}

fn keys(listed: &Listed) -> Vec<&str> {
    listed.entries.iter().map(|entry| entry.key.as_str()).collect()
}

// covers: STATE-01, STATE-03
world_test!(values_are_set_read_and_listed_by_prefix, async |world| {
    let first = set(&world, party("ada"), "plan.step", json!({ "n": 1 }), None).await.unwrap();
    assert_eq!((first.version, &first.writer), (1, &party("ada")));
    set(&world, operator(), "plan.step", json!([2]), None).await.unwrap();
    let seen = get(&world, "plan.step").await.unwrap();
    assert_eq!((seen.version, seen.value.value(), seen.writer), (2, json!([2]), operator()));
    for key in ["plan.a", "plan", "planet", "other"] {
        set(&world, party("bob"), key, json!(true), None).await.unwrap();
    }
    let plan = list(&world, "plan.", "", 10).await.unwrap();
    assert_eq!((keys(&plan), plan.more), (vec!["plan.a", "plan.step"], false));
    let part = list(&world, "", "", 2).await.unwrap();
    assert_eq!((keys(&part), part.more), (vec!["other", "plan"], true));
    let rest = list(&world, "", "plan", 3).await.unwrap();
    assert_eq!((keys(&rest), rest.more), (vec!["plan.a", "plan.step", "planet"], false));
    assert_eq!(code(list(&world, "a b", "", 2).await), Code::InvalidArguments);
    assert!(hint_of(get(&world, "plan.stpe").await.unwrap_err(), Code::NotFound).contains("`plan.step`"));
    let events = world.events().await;
    let told: Vec<&Value> =
        events.iter().filter(|event| event.kind == EventKind::StateChanged).map(|event| &*event.payload).collect();
    let first = json!({ "key": "plan.step", "version": 1, "writer": "agent:ada", "deleted": false });
    assert_eq!((told.len(), told[0]), (6, &first));
});

// covers: STATE-02
world_test!(one_of_two_compare_and_set_writes_wins, async |world| {
    assert_eq!(set(&world, party("ada"), "k", json!(1), Some(0)).await.unwrap().version, 1);
    let late = set(&world, party("bob"), "k", json!(2), Some(0)).await.unwrap_err();
    assert_eq!((late.code, late.details), (Code::Conflict, Some(json!({ "key": "k", "version": 1 }))));
    set(&world, party("bob"), "k", json!(2), Some(1)).await.unwrap();
    assert_eq!(code(set(&world, party("ada"), "k", json!(3), Some(1)).await), Code::Conflict);
    assert_eq!(code(set(&world, party("ada"), "none", json!(3), Some(1)).await), Code::Conflict);
    assert_eq!(code(set(&world, party("ada"), "k", json!(3), Some(-1)).await), Code::InvalidArguments);
    assert_eq!(get(&world, "k").await.unwrap().value.value(), json!(2));
});

// covers: BI-66
world_test!(null_deletes_and_no_version_is_used_twice, async |world| {
    for n in 1..=3 {
        set(&world, party("ada"), "k", json!(n), None).await.unwrap();
    }
    assert_eq!(code(set(&world, party("ada"), "k", Value::Null, Some(1)).await), Code::Conflict);
    let gone = set(&world, party("ada"), "k", Value::Null, Some(3)).await.unwrap();
    assert_eq!((gone.version, gone.value.value()), (4, Value::Null));
    assert_eq!(code(get(&world, "k").await), Code::NotFound);
    assert_eq!(code(set(&world, party("ada"), "k", Value::Null, None).await), Code::NotFound);
    assert!(list(&world, "", "", 9).await.unwrap().entries.is_empty());
    // A writer that has read version 3 must not mistake the new value for it.
    let mut again = set(&world, party("bob"), "k", json!("new"), Some(0)).await.unwrap();
    assert_eq!(again.version, 5);
    set(&world, party("bob"), "other", json!(0), None).await.unwrap();
    set(&world, party("bob"), "other", Value::Null, None).await.unwrap();
    again = set(&world, party("bob"), "k", json!("newer"), Some(5)).await.unwrap();
    assert_eq!(again.version, 6);
    let deleted = world.events().await.into_iter().filter(|event| event.payload["deleted"] == true).count();
    assert_eq!(deleted, 2);
});

// covers: LIM-40, STATE-02, STATE-04
world_test!(exceeded_limits_and_system_keys_are_refused, async |world| {
    set(&world, operator(), "system.mode", json!("calm"), None).await.unwrap();
    set(&world, Party::System, "system.mode", json!("busy"), None).await.unwrap();
    for key in ["system", "system.mode", "system.x.y"] {
        assert_eq!(code(set(&world, party("ada"), key, json!(1), None).await), Code::AccessDenied, "{key}");
        assert_eq!(code(set(&world, party("ada"), key, Value::Null, None).await), Code::AccessDenied, "{key}");
    }
    set(&world, party("ada"), "systems", json!(1), None).await.unwrap();
    for key in ["", "a..b", "a b", &"x".repeat(129)] {
        assert_eq!(code(set(&world, party("ada"), key, json!(1), None).await), Code::InvalidArguments, "{key:?}");
        assert_eq!(code(get(&world, key).await), Code::InvalidArguments, "{key:?}");
    }
    world.limits(|limits| (limits.state_bytes, limits.state_keys_max) = (6, 2));
    assert_eq!(code(set(&world, party("ada"), "k", json!("12345"), None).await), Code::TooLarge);
    assert_eq!(code(set(&world, party("ada"), "k", json!("1234"), None).await), Code::RateLimited);
    set(&world, party("ada"), "systems", json!("1234"), None).await.unwrap();
    set(&world, party("ada"), "systems", Value::Null, None).await.unwrap();
    set(&world, party("ada"), "k", json!(1), None).await.unwrap();
});
