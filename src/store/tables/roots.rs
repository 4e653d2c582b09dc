//! The `roots` table: for each root, a tally of the work that it has caused.

use async_trait::async_trait;
use ghost_domain::RootId;
use ghost_domain::root_tally::RootTally;

use crate::error::Result;

/// Reads of tallies.
#[async_trait]
pub trait RootReads {
    /// The tally of a root; `None` if nothing was counted yet.
    async fn root_get(&mut self, root_id: RootId) -> Result<Option<RootTally>>;

    /// Tallies with the most messages first, at most `limit`.
    async fn root_list(&mut self, limit: u32) -> Result<Vec<RootTally>>;
}

/// Writes of tallies.
#[async_trait]
pub trait RootWrites {
    /// Inserts or replaces a tally.
    async fn root_put(&mut self, tally: &RootTally) -> Result<()>;
}
