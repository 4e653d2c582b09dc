//! The `roots` table: for each root, a tally of the work that it has caused.

use ghost_domain::RootId;
use ghost_domain::root_tally::RootTally;

use crate::error::Result;

/// Reads of tallies.
pub trait RootReads {
    /// The tally of a root; `None` if nothing was counted yet.
    fn root_get(&mut self, root_id: RootId) -> Result<Option<RootTally>>;

    /// Tallies with the most messages first, at most `limit`.
    fn root_list(&mut self, limit: u32) -> Result<Vec<RootTally>>;
}

/// Writes of tallies.
pub trait RootWrites {
    /// Inserts or replaces a tally.
    fn root_put(&mut self, tally: &RootTally) -> Result<()>;
}
