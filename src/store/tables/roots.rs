//! Rows and queries of the tallies of roots.

use ghost_domain::RootId;
use ghost_domain::root_tally::RootTally;

use super::prelude::*;

record! { tally: RootTally, "roots"; key root_id: RootId; messages, updated_at }

impl Tx {
    /// The tally of a root; `None` if nothing was counted yet.
    pub fn root_get(&mut self, root_id: RootId) -> Result<Option<RootTally>> {
        self.get(&root_id)
    }

    /// Tallies with the most messages first, at most `limit`.
    pub fn root_list(&mut self, limit: u32) -> Result<Vec<RootTally>> {
        self.list(sql!("SELECT record FROM roots ORDER BY messages DESC, root_id {limit $1}"), args![list_limit(limit)])
    }

    /// Inserts or replaces a tally.
    pub fn root_put(&mut self, tally: &RootTally) -> Result<()> {
        self.put(tally)
    }
}
