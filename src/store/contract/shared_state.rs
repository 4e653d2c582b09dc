//! Shared state: values by key.

use ghost_domain::{Party, StateEntry};
use serde_json::{Value, json};

use super::tools::*;
use crate::Store;

pub(super) async fn values_round_trip(mut store: Bench) {
    let full = || StateEntry {
        version: i64::MAX,
        writer: Party::Agent(id_of("b")),
        updated_at: at(5),
        ..state("plan.step-1_Owner", deep())
    };
    keep!(&store, |w| {
        w.state_put(&state("plan.step-1_Owner", Value::Null))?;
        assert_eq!(w.state_get("plan.step-1_Owner")?, Some(state("plan.step-1_Owner", Value::Null)));
        w.state_put(&full())?;
        w.state_put(&state("null", Value::Null))?;
        assert_eq!(w.state_get("plan.step-1_Owner")?.as_ref(), Some(&full()));
        assert_eq!(w.state_count()?, 2);
    });
    refuse!(&store, |w| {
        w.state_put(&state("plan.step-1_Owner", json!("other")))?;
        w.state_put(&state("new", json!(1)))?;
        assert_eq!((w.state_count()?, w.state_list("", "", 9)?.len()), (3, 3));
    });
    keep!(&store, |w| {
        assert_eq!(w.state_get("plan.step-1_Owner")?, Some(full()));
        assert_eq!(w.state_get("new")?, None);
    });
    store.reopen().await;
    shows!(&store, |r| {
        r.state_get("plan.step-1_Owner")? => Some(full());
        r.state_get("null")? => Some(state("null", Value::Null));
        r.state_get("plan")? => None;
    });
    assert_eq!(reading!(&store, |r| { r.state_count()? }), 2);
}

pub(super) async fn values_are_removed(mut store: Bench) {
    keep!(&store, |w| {
        w.state_put(&state("a", json!(1)))?;
        w.state_put(&state("b", json!(2)))?;
        assert!(w.state_remove("a")?, "also what the same command wrote");
        assert_eq!((w.state_get("a")?, w.state_count()?), (None, 1));
        w.state_put(&state("a", json!(3)))?;
    });
    refuse!(&store, |w| { assert!(w.state_remove("a")?) });
    assert_eq!(keys(&store, "", "", 9).await, ["a", "b"]);
    keep!(&store, |w| {
        assert!(w.state_remove("a")?);
        assert!(!w.state_remove("a")?);
    });
    store.reopen().await;
    assert_eq!(keys(&store, "", "", 9).await, ["b"]);
}

async fn keys(store: &Store, prefix: &'static str, after: &'static str, limit: u32) -> Vec<String> {
    map_rows(&reading!(store, |r| { r.state_list(prefix, after, limit)? }), |entry| entry.key.clone())
}

pub(super) async fn keys_are_listed_by_prefix(store: Bench) {
    const ALL: [&str; 8] = ["A.b", "a", "a-b", "a.b", "a.c", "a_b", "ab", "b"];
    keep!(&store, |w| {
        for key in ALL.into_iter().rev() {
            w.state_put(&state(key, json!(key)))?;
        }
        let inside = w.state_list("a.", "", 9)?;
        assert_eq!(inside, [state("a.b", json!("a.b")), state("a.c", json!("a.c"))]);
    });
    assert_eq!(keys(&store, "", "", 99).await, ALL, "in order of bytes");
    assert_eq!(keys(&store, "", "a.b", 2).await, ["a.c", "a_b"]);
    assert_eq!(keys(&store, "a", "", 99).await, ["a", "a-b", "a.b", "a.c", "a_b", "ab"], "a key is a prefix of itself");
    assert_eq!(keys(&store, "a_", "", 99).await, ["a_b"], "no character is a wildcard");
    assert_eq!(keys(&store, "A", "", 99).await, ["A.b"], "case counts");
    assert_eq!(keys(&store, "a.", "a.b", 99).await, ["a.c"]);
    assert_eq!(keys(&store, "a.", "A", 1).await, ["a.b"], "from before the prefix");
    for (prefix, after, limit) in
        [("a", "", 0), ("a.", "a.c", 9), ("a.", "b", 9), ("%", "", 9), ("*", "", 9), ("c", "", 9)]
    {
        assert_eq!(keys(&store, prefix, after, limit).await, [] as [&str; 0], "{prefix} {after} {limit}");
    }
    assert_eq!(keys(&store, "", "", u32::MAX).await.len(), 8);
}
