//! Shared state: values by key.

use std::sync::Arc;

use ghost_domain::{Party, StateEntry};
use serde_json::{Value, json};

use super::Medium;
use super::rows::{at, id_of};
use super::rows_shared::{deep, state};
use super::tools::{keep, map_rows, open, reading, refuse};
use crate::Store;

pub(super) async fn values_round_trip(medium: Arc<dyn Medium>) {
    let store = open(&medium).await;
    let full = StateEntry {
        version: i64::MAX,
        writer: Party::Agent(id_of("b")),
        updated_at: at(5),
        ..state("plan.step-1_Owner", deep())
    };
    let wanted = full.clone();
    keep!(&store, |w| {
        w.state_put(&state("plan.step-1_Owner", Value::Null)).await?;
        assert_eq!(w.state_get("plan.step-1_Owner").await?, Some(state("plan.step-1_Owner", Value::Null)));
        w.state_put(&full).await?;
        w.state_put(&state("null", Value::Null)).await?;
        assert_eq!(w.state_get("plan.step-1_Owner").await?.as_ref(), Some(&full));
        assert_eq!(w.state_count().await?, 2);
    });
    refuse!(&store, |w| {
        w.state_put(&state("plan.step-1_Owner", json!("other"))).await?;
        w.state_put(&state("new", json!(1))).await?;
        assert_eq!((w.state_count().await?, w.state_list("", "", 9).await?.len()), (3, 3));
    });
    let got = keep!(&store, |w| { (w.state_get("plan.step-1_Owner").await?, w.state_get("new").await?) });
    assert_eq!(got, (Some(wanted.clone()), None));
    store.close().await;
    let store = open(&medium).await;
    let got = reading!(&store, |r| {
        (r.state_get("plan.step-1_Owner").await?, r.state_get("null").await?, r.state_get("plan").await?)
    });
    assert_eq!(got, (Some(wanted), Some(state("null", Value::Null)), None));
    assert_eq!(reading!(&store, |r| { r.state_count().await? }), 2);
}

pub(super) async fn values_are_removed(medium: Arc<dyn Medium>) {
    let store = open(&medium).await;
    keep!(&store, |w| {
        w.state_put(&state("a", json!(1))).await?;
        w.state_put(&state("b", json!(2))).await?;
        assert!(w.state_remove("a").await?, "also what the same command wrote");
        assert_eq!((w.state_get("a").await?, w.state_count().await?), (None, 1));
        w.state_put(&state("a", json!(3))).await?;
    });
    refuse!(&store, |w| { assert!(w.state_remove("a").await?) });
    assert_eq!(keys(&store, "", "", 9).await, ["a", "b"]);
    let removed = keep!(&store, |w| { (w.state_remove("a").await?, w.state_remove("a").await?) });
    assert_eq!(removed, (true, false));
    store.close().await;
    let store = open(&medium).await;
    assert_eq!(keys(&store, "", "", 9).await, ["b"]);
}

async fn keys(store: &Store, prefix: &'static str, after: &'static str, limit: u32) -> Vec<String> {
    map_rows(&reading!(store, |r| { r.state_list(prefix, after, limit).await? }), |entry| entry.key.clone())
}

pub(super) async fn keys_are_listed_by_prefix(medium: Arc<dyn Medium>) {
    let store = open(&medium).await;
    const ALL: [&str; 8] = ["A.b", "a", "a-b", "a.b", "a.c", "a_b", "ab", "b"];
    keep!(&store, |w| {
        for key in ALL.into_iter().rev() {
            w.state_put(&state(key, json!(key))).await?;
        }
        let inside = w.state_list("a.", "", 9).await?;
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
