//! Tallies of roots.

use ghost_domain::root_tally::RootTally;

use super::tools::*;
use crate::tables::Family;

fn tally(root: u64, messages: u64) -> RootTally {
    let mut tally = RootTally { messages, ..RootTally::new(root_id(root), at(root)) };
    tally.echo(&id_of("a"), &id_of("b"), "thanks");
    tally
}

pub(super) async fn tallies_are_kept_and_pruned(mut store: Bench) {
    keep!(&store, |w| {
        assert_eq!(w.root_get(root_id(1))?, None);
        w.root_put(&tally(1, 5))?;
        assert_eq!(w.root_get(root_id(1))?, Some(tally(1, 5)), "its own write");
        w.root_put(&tally(2, 9))?;
        w.root_put(&tally(3, 5))?
    });
    keep!(&store, |w| { w.root_put(&tally(1, 6))? });
    store.reopen().await;
    let listed = reading!(&store, |r| { r.root_list(10)? });
    assert_eq!(listed, [tally(2, 9), tally(1, 6), tally(3, 5)], "the most messages first");
    assert_eq!(reading!(&store, |r| { r.root_list(1)? }).len(), 1);
    assert_eq!(keep!(&store, |w| { w.prune(Family::Roots, at(3), 1)? }), 1, "bounded");
    assert_eq!(reading!(&store, |r| { r.root_get(root_id(1))? }), None, "the oldest goes first");
    keep!(&store, |w| {
        assert_eq!(w.prune(Family::Roots, at(3), 9)?, 1, "only what is older");
        assert_eq!(w.root_get(root_id(2))?, None);
        assert_eq!(w.root_get(root_id(3))?, Some(tally(3, 5)))
    });
}
