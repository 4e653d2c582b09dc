//! Write grants.

use ghost_domain::{Grant, GrantId};

use super::tools::*;
use crate::Store;
use crate::tables::Family;

async fn stored(store: &Store) -> Vec<GrantId> {
    map_rows(&reading!(store, |r| { r.grant_list(None, 0)? }), |grant| grant.grant_id)
}

// covers: ACL-04
pub(super) async fn live_grants_of_an_agent_are_found(store: Bench) {
    keep!(&store, |w| {
        for n in [3, 1, 5] {
            w.grant_put(&grant(n, "a"))?;
        }
        w.grant_put(&grant(4, "aa"))?;
    });
    let live = async |second: u64| {
        let now = at(second);
        map_rows(&reading!(&store, |r| { r.grants_live(&id_of("a"), now)? }), |grant| grant.grant_id)
    };
    assert_eq!(live(0).await, [1, 3, 5].map(grant_id));
    assert_eq!(live(3).await, [grant_id(5)], "a grant does not hold at its end");
    assert_eq!(live(5).await, []);
    shows!(&store, |r| {
        r.grant_get(grant_id(3))? => Some(grant(3, "a"));
        r.grant_get(grant_id(9))? => None;
    });
    let page = reading!(&store, |r| { r.grant_list(Some(grant_id(1)), 2)? });
    assert_eq!(map_rows(&page, |grant| grant.grant_id), [3, 4].map(grant_id));
}

pub(super) async fn grants_are_replaced_removed_and_pruned(mut store: Bench) {
    keep!(&store, |w| {
        for n in 1..=4 {
            w.grant_put(&grant(n, "a"))?;
        }
    });
    refuse!(&store, |w| {
        assert!(w.grant_remove(grant_id(1))?);
        assert_eq!(w.grant_get(grant_id(1))?, None);
        assert_eq!(w.prune(Family::Grants, at(9), 9)?, 3);
    });
    assert_eq!(stored(&store).await, [1, 2, 3, 4].map(grant_id));
    keep!(&store, |w| {
        w.grant_put(&Grant { expires_at: at(9), ..grant(1, "a") })?;
        w.grant_put(&grant(7, "a"))?;
        let removed = (w.grant_remove(grant_id(7))?, w.grant_remove(grant_id(7))?);
        assert_eq!(removed, (true, false));
        assert_eq!(w.grants_live(&id_of("a"), at(8))?.len(), 1, "a command sees its own writes");
    });
    assert_eq!(keep!(&store, |w| { w.prune(Family::Grants, at(4), 1)? }), 1, "the first to end goes first");
    assert_eq!(stored(&store).await, [1, 3, 4].map(grant_id));
    assert_eq!(keep!(&store, |w| { w.prune(Family::Grants, at(4), 9)? }), 1);
    assert_eq!(stored(&store).await, [1, 4].map(grant_id));
    store.reopen().await;
    assert_eq!(stored(&store).await, [1, 4].map(grant_id));
}
