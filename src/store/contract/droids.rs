//! Droids.

use super::tools::*;

fn ids_of(droids: Vec<Droid>) -> Vec<AgentId> {
    map_rows(&droids, |droid| droid.droid_id.clone())
}

// covers: DROID-10
pub(super) async fn droids_are_listed_by_parent_and_by_life(store: Bench) {
    let of_b = || droid(1, "b", Some(4));
    put!(&store, { droid_put: droid(3, "a", None), of_b(), droid(2, "a", Some(9)), droid(5, "aa", None); });
    shows!(&store, |r| {
        ids_of(r.droids_live()?) => [3, 5].map(droid_id);
        ids_of(r.droid_list(Some(&id_of("a")), None, 0)?) => [2, 3].map(droid_id);
        ids_of(r.droid_list(None, Some(&droid_id(2)), 1)?) => [droid_id(3)];
        r.droid_get(&droid_id(3))? => Some(droid(3, "a", None));
        r.droid_get(&droid_id(9))? => None;
    });
    put!(&store, { droid_put: Droid { state: DroidState::Killed, ..droid(3, "a", Some(7)) }; });
    shows!(&store, |r| {
        ids_of(r.droids_live()?) => [droid_id(5)];
        r.droid_get(&droid_id(3))?.map(|droid| droid.state) => Some(DroidState::Killed);
    });
}

// covers: DROID-16
pub(super) async fn live_droids_are_counted_through_every_change(store: Bench) {
    // The live droids of `a`, of `b`, and of the world.
    let counted = |r: &mut Tx| -> Result<_> {
        let (a, b) = (r.droids_live_count(&id_of("a"))?, r.droids_live_count(&id_of("b"))?);
        assert_eq!(a.all, b.all);
        Ok([a.of_parent, b.of_parent, a.all])
    };
    shows!(&store, |r| { counted(r)? => [0, 0, 0]; });
    put!(&store, { droid_put: droid(1, "a", None), droid(2, "a", None), droid(3, "b", None), droid(4, "a", Some(4)); });
    shows!(&store, |r| { counted(r)? => [2, 1, 3]; });
    refuse!(&store, |w| {
        w.droid_put(&droid(1, "a", Some(5)))?;
        assert_eq!(counted(w)?, [1, 1, 2]);
    });
    shows!(&store, |r| { counted(r)? => [2, 1, 3], "a refused command changes nothing"; });
    put!(&store, {
        droid_put: Droid { label: Some("new".into()), ..droid(1, "a", None) }, droid(2, "a", Some(6)),
            droid(2, "a", Some(7)), droid(3, "a", None);
    });
    shows!(&store, |r| { counted(r)? => [2, 0, 2]; });
    prunes!(&store, Family::Droids, |r| { counted(r)? }, { (9, 9) => 2, [2, 0, 2]; });
}

pub(super) async fn droids_that_ended_are_pruned(store: Bench) {
    let ended = |n, second| droid(n, "a", Some(second));
    put!(&store, { droid_put: ended(1, 3), droid(2, "a", None), ended(3, 1), ended(4, 5); });
    prunes!(&store, Family::Droids, |r| { ids_of(r.droid_list(None, None, 0)?) }, {
        (5, 1) => 1, [1, 2, 4].map(droid_id);
        (5, 9) => 1, [2, 4].map(droid_id);
        (9, 9) => 1, [droid_id(2)];
    });
}
