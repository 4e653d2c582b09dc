//! Droids.

use std::sync::Arc;

use ghost_domain::{AgentId, Droid, DroidState};

use super::Medium;
use super::rows::{at, id_of};
use super::rows_shared::{droid, droid_id};
use super::tools::{keep, map_rows, open, reading, refuse};
use crate::Store;
use crate::tables::Family;

fn ids(numbers: &[u64]) -> Vec<AgentId> {
    map_rows(numbers, |n| droid_id(*n))
}

fn ids_of(droids: &[Droid]) -> Vec<AgentId> {
    map_rows(droids, |droid| droid.droid_id.clone())
}

async fn stored(store: &Store) -> Vec<AgentId> {
    ids_of(&reading!(store, |r| { r.droid_list(None, None, 0).await? }))
}

// covers: DROID-10
pub(super) async fn droids_are_listed_by_parent_and_by_life(medium: Arc<dyn Medium>) {
    let store = open(&medium).await;
    keep!(&store, |w| {
        for (n, parent, ended) in [(3, "a", None), (1, "b", Some(4)), (2, "a", Some(9)), (5, "aa", None)] {
            w.droid_put(&droid(n, parent, ended)).await?;
        }
    });
    let of_a = id_of("a");
    let (live, all, page) = reading!(&store, |r| {
        let after = droid_id(2);
        (r.droids_live().await?, r.droid_list(Some(&of_a), None, 0).await?, r.droid_list(None, Some(&after), 1).await?)
    });
    assert_eq!((ids_of(&live), ids_of(&all), ids_of(&page)), (ids(&[3, 5]), ids(&[2, 3]), ids(&[3])));
    let (one, none) = reading!(&store, |r| { (r.droid_get(&droid_id(3)).await?, r.droid_get(&droid_id(9)).await?) });
    assert_eq!((one, none), (Some(droid(3, "a", None)), None));
    let inside = keep!(&store, |w| {
        w.droid_put(&Droid { state: DroidState::Killed, ..droid(3, "a", Some(7)) }).await?;
        (w.droids_live().await?.len(), w.droid_get(&droid_id(3)).await?.map(|droid| droid.state))
    });
    assert_eq!(inside, (1, Some(DroidState::Killed)), "a command sees its own writes");
}

pub(super) async fn droids_that_ended_are_pruned(medium: Arc<dyn Medium>) {
    let store = open(&medium).await;
    keep!(&store, |w| {
        for (n, ended) in [(1, Some(3)), (2, None), (3, Some(1)), (4, Some(5))] {
            w.droid_put(&droid(n, "a", ended)).await?;
        }
    });
    refuse!(&store, |w| {
        assert_eq!(w.prune(Family::Droids, at(9), 9).await?, 3);
    });
    assert_eq!(keep!(&store, |w| { w.prune(Family::Droids, at(5), 1).await? }), 1, "the first to end goes first");
    assert_eq!(stored(&store).await, ids(&[1, 2, 4]));
    assert_eq!(keep!(&store, |w| { w.prune(Family::Droids, at(5), 9).await? }), 1);
    drop(store);
    assert_eq!(stored(&open(&medium).await).await, ids(&[2, 4]));
}
