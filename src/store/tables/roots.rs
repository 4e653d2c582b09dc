//! Rows and queries of the tallies of roots.

use ghost_domain::RootId;
use ghost_domain::root_tally::RootTally;

use super::prelude::*;

record! { tally: RootTally, "roots"; key root_id: RootId; messages, updated_at }

functions! {
    /// The tally of a root; `None` if nothing was counted yet.
    get root_get(root_id: RootId) -> Option<RootTally>: &root_id;
    /// Inserts or replaces a tally.
    put root_put(tally: &RootTally) -> (): tally;
}

impl Tx {
    /// Tallies with the most messages first, at most `limit`.
    pub fn root_list(&mut self, limit: u32) -> Result<Vec<RootTally>> {
        self.list(sql!("SELECT record FROM roots ORDER BY messages DESC, root_id {limit $1}"), args![list_limit(limit)])
    }
}
