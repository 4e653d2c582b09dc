//! The `roots` table: what each root has set going.

use async_trait::async_trait;
use ghost_domain::RootId;
use ghost_domain::root_tally::RootTally;

use crate::error::Result;

/// Reading tallies.
#[async_trait]
pub trait RootReads {
    /// The tally of a root, if anything was counted.
    async fn root_get(&mut self, root_id: RootId) -> Result<Option<RootTally>>;

    /// Tallies, the most messages first, at most `limit`.
    async fn root_list(&mut self, limit: u32) -> Result<Vec<RootTally>>;
}

/// Writing tallies.
#[async_trait]
pub trait RootWrites {
    /// Inserts or replaces a tally.
    async fn root_put(&mut self, tally: &RootTally) -> Result<()>;
}
