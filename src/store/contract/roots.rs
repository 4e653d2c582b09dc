//! Tallies of roots.

use ghost_domain::root_tally::RootTally;

use super::tools::*;

/// A tally with one echo, of second `root`.
pub(super) fn tally(root: u64, messages: u64) -> RootTally {
    let mut tally = RootTally { messages, ..RootTally::new(root_id(root), at(root)) };
    tally.echo(&id_of("a"), &id_of("b"), "thanks");
    tally
}

pub(super) async fn tallies_are_kept_and_pruned(store: Bench) {
    shows!(&store, |r| { r.root_get(root_id(1))? => None; });
    put!(&store, { root_put: tally(1, 5), tally(2, 9), tally(3, 5), tally(1, 6); });
    shows!(&store, |r| {
        r.root_list(10)? => [tally(2, 9), tally(1, 6), tally(3, 5)], "the most messages first";
        r.root_list(1)?.len() => 1;
        r.root_get(root_id(1))? => Some(tally(1, 6));
    });
    prunes!(&store, Family::Roots, |r| { r.root_list(10)? }, {
        (3, 1) => 1, [tally(2, 9), tally(3, 5)];
        (3, 9) => 1, [tally(3, 5)];
    });
}
