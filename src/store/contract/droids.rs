//! Droids.

use ghost_domain::{AgentId, Droid, DroidState};

use super::tools::*;
use crate::Store;
use crate::tables::{Family, LiveDroids};

fn ids_of(droids: &[Droid]) -> Vec<AgentId> {
    map_rows(droids, |droid| droid.droid_id.clone())
}

async fn stored(store: &Store) -> Vec<AgentId> {
    ids_of(&reading!(store, |r| { r.droid_list(None, None, 0)? }))
}

// covers: DROID-10
pub(super) async fn droids_are_listed_by_parent_and_by_life(store: Bench) {
    keep!(&store, |w| {
        for (n, parent, ended) in [(3, "a", None), (1, "b", Some(4)), (2, "a", Some(9)), (5, "aa", None)] {
            w.droid_put(&droid(n, parent, ended))?;
        }
    });
    let of_a = id_of("a");
    shows!(&store, |r| {
        ids_of(&r.droids_live()?) => [3, 5].map(droid_id);
        ids_of(&r.droid_list(Some(&of_a), None, 0)?) => [2, 3].map(droid_id);
        ids_of(&r.droid_list(None, Some(&droid_id(2)), 1)?) => [droid_id(3)];
        r.droid_get(&droid_id(3))? => Some(droid(3, "a", None));
        r.droid_get(&droid_id(9))? => None;
    });
    let inside = keep!(&store, |w| {
        w.droid_put(&Droid { state: DroidState::Killed, ..droid(3, "a", Some(7)) })?;
        (w.droids_live()?.len(), w.droid_get(&droid_id(3))?.map(|droid| droid.state))
    });
    assert_eq!(inside, (1, Some(DroidState::Killed)), "a command sees its own writes");
}

// covers: DROID-16
pub(super) async fn live_droids_are_counted_through_every_change(mut store: Bench) {
    let counted = |of_parent, all| LiveDroids { of_parent, all };
    keep!(&store, |w| {
        assert_eq!(w.droids_live_count(&id_of("a"))?, counted(0, 0));
        for (n, parent, ended) in [(1, "a", None), (2, "a", None), (3, "b", None), (4, "a", Some(4))] {
            w.droid_put(&droid(n, parent, ended))?;
        }
        assert_eq!(
            (w.droids_live_count(&id_of("a"))?, w.droids_live_count(&id_of("b"))?),
            (counted(2, 3), counted(1, 3))
        );
    });
    refuse!(&store, |w| {
        w.droid_put(&droid(1, "a", Some(5)))?;
        assert_eq!(w.droids_live_count(&id_of("a"))?, counted(1, 2));
    });
    keep!(&store, |w| {
        assert_eq!(w.droids_live_count(&id_of("a"))?, counted(2, 3), "a refused command changes nothing");
        w.droid_put(&Droid { label: Some("new".into()), ..droid(1, "a", None) })?;
        w.droid_put(&droid(2, "a", Some(6)))?;
        w.droid_put(&droid(2, "a", Some(7)))?;
        w.droid_put(&droid(3, "a", None))?;
        assert_eq!(
            (w.droids_live_count(&id_of("a"))?, w.droids_live_count(&id_of("b"))?),
            (counted(2, 2), counted(0, 2))
        );
        w.prune(Family::Droids, at(9), 9)?;
    });
    assert_eq!(reading!(&store, |r| { r.droids_live_count(&id_of("a"))? }), counted(2, 2));
    store.reopen().await;
    assert_eq!(keep!(&store, |w| { w.droids_live_count(&id_of("b"))? }), counted(0, 2));
}

pub(super) async fn droids_that_ended_are_pruned(mut store: Bench) {
    keep!(&store, |w| {
        for (n, ended) in [(1, Some(3)), (2, None), (3, Some(1)), (4, Some(5))] {
            w.droid_put(&droid(n, "a", ended))?;
        }
    });
    refuse!(&store, |w| {
        assert_eq!(w.prune(Family::Droids, at(9), 9)?, 3);
    });
    assert_eq!(keep!(&store, |w| { w.prune(Family::Droids, at(5), 1)? }), 1, "the first to end goes first");
    assert_eq!(stored(&store).await, [1, 2, 4].map(droid_id));
    assert_eq!(keep!(&store, |w| { w.prune(Family::Droids, at(5), 9)? }), 1);
    store.reopen().await;
    assert_eq!(stored(&store).await, [2, 4].map(droid_id));
}
