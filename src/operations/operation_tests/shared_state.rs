use super::operation_world::*;
use crate::shared_state::{Listed, Setting};

async fn set(world: &World, by: Party, key: &str, value: Value, expected: Option<i64>) -> Result<StateEntry> {
    let new = Setting { key: key.into(), value: value.into(), expected_version: expected };
    run!(world, |w| shared_state::set(w, &by, None, new))
}

async fn get(world: &World, key: &str) -> Result<StateEntry> {
    let key = key.to_owned();
    world.store.read(move |r| shared_state::get(r, &key)).await
}

async fn list(world: &World, prefix: &str, after: &str, limit: u32) -> Result<Listed> {
    let (prefix, after) = (prefix.to_owned(), after.to_owned());
    world.store.read(move |r| shared_state::list(r, &prefix, &after, limit)).await
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
    for (prefix, after, limit, found, more) in [
        ("plan.", "", 10, &["plan.a", "plan.step"][..], false),
        ("", "", 2, &["other", "plan"], true),
        ("", "plan", 3, &["plan.a", "plan.step", "planet"], false),
    ] {
        let listed = list(&world, prefix, after, limit).await.unwrap();
        let keys: Vec<&str> = listed.entries.iter().map(|entry| entry.key.as_str()).collect();
        assert_eq!((keys.as_slice(), listed.more), (found, more));
    }
    assert_eq!(code(list(&world, "a b", "", 2).await), Code::InvalidArguments);
    let told = world.payloads(EventKind::StateChanged).await;
    let first = json!({ "key": "plan.step", "version": 1, "writer": "agent:ada", "deleted": false });
    assert_eq!((told.len(), &told[0]), (6, &first));
});

// covers: BI-66, STATE-02
world_test!(null_deletes_and_no_version_is_used_twice, async |world| {
    let write = async |key: &str, value, expected| set(&world, party("ada"), key, value, expected).await;
    for n in 1..=3 {
        write("k", json!(n), Some(n - 1)).await.unwrap();
    }
    // A writer that expects another version changes nothing.
    for (key, value, expected, why) in [
        ("k", json!(9), 1, Code::Conflict),
        ("k", Value::Null, 1, Code::Conflict),
        ("none", json!(9), 1, Code::Conflict),
        ("k", json!(9), -1, Code::InvalidArguments),
    ] {
        assert_eq!(code(write(key, value, Some(expected)).await), why, "{key} {expected}");
    }
    assert_eq!(get(&world, "k").await.unwrap().value.value(), json!(3));
    let gone = write("k", Value::Null, Some(3)).await.unwrap();
    assert_eq!((gone.version, gone.value.value()), (4, Value::Null));
    assert_eq!(code(get(&world, "k").await), Code::NotFound);
    assert_eq!(code(write("k", Value::Null, None).await), Code::NotFound);
    assert!(list(&world, "", "", 9).await.unwrap().entries.is_empty());
    // A writer that has read version 3 must not mistake the new value for it.
    assert_eq!(write("k", json!("new"), Some(0)).await.unwrap().version, 5);
    for value in [json!(0), Value::Null] {
        write("other", value, None).await.unwrap();
    }
    assert_eq!(write("k", json!("newer"), Some(5)).await.unwrap().version, 6);
    let deleted = world.told(EventKind::StateChanged, "deleted").await;
    assert_eq!(deleted.into_iter().filter(|deleted| *deleted == true).count(), 2);
});

// covers: LIM-40, STATE-02, STATE-04
world_test!(exceeded_limits_and_system_keys_are_refused, async |world| {
    set(&world, operator(), "system.mode", json!("calm"), None).await.unwrap();
    set(&world, Party::System, "system.mode", json!("busy"), None).await.unwrap();
    for (key, value) in [("system", json!(1)), ("system.mode", Value::Null), ("system.x.y", json!(1))] {
        assert_eq!(code(set(&world, party("ada"), key, value, None).await), Code::AccessDenied, "{key}");
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
