//! Write grants.

use super::tools::*;

fn ids(grants: Vec<Grant>) -> Vec<GrantId> {
    map_rows(&grants, |grant| grant.grant_id)
}

// covers: ACL-04
pub(super) async fn live_grants_of_an_agent_are_found(store: Bench) {
    put!(&store, { grant_put: grant(3, "a"), grant(1, "a"), grant(5, "a"), grant(4, "aa"); });
    shows!(&store, |r| {
        ids(r.grants_live(&id_of("a"), at(0))?) => [1, 3, 5].map(grant_id);
        ids(r.grants_live(&id_of("a"), at(3))?) => [grant_id(5)], "a grant does not hold at its end";
        ids(r.grants_live(&id_of("a"), at(5))?) => [];
        r.grant_get(grant_id(3))? => Some(grant(3, "a"));
        r.grant_get(grant_id(9))? => None;
        ids(r.grant_list(Some(grant_id(1)), 2)?) => [3, 4].map(grant_id);
    });
}

pub(super) async fn grants_are_replaced_removed_and_pruned(store: Bench) {
    let longer = Grant { expires_at: at(9), ..grant(1, "a") };
    put!(&store, { grant_put: grant(1, "a"), grant(2, "a"), grant(3, "a"), grant(4, "a"), longer, grant(7, "a"); });
    assert_eq!(keep!(&store, |w| { (w.grant_remove(grant_id(7))?, w.grant_remove(grant_id(7))?) }), (true, false));
    shows!(&store, |r| { ids(r.grants_live(&id_of("a"), at(8))?) => [grant_id(1)]; });
    prunes!(&store, Family::Grants, |r| { ids(r.grant_list(None, 0)?) }, {
        (4, 1) => 1, [1, 3, 4].map(grant_id);
        (4, 9) => 1, [1, 4].map(grant_id);
    });
}
