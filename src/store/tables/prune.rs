//! Retention: the only deletes in the store.

use async_trait::async_trait;
use ghost_domain::Timestamp;

use super::Result;

/// What can be pruned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Family {
    /// The feed. Its sequence goes on.
    Events,
    /// Ended turns with their journals and reservations, and prompt parts that no journal names.
    Turns,
    /// Mail whose turn has ended. Mail of held dead letters is kept.
    Messages,
    /// Closed asks.
    Asks,
    /// Ledger rows of calls that have ended.
    Ledger,
    /// Usage rows. Budgets keep their sums.
    Usage,
    /// Stored answers.
    Requests,
    /// Dead letters that were dealt with.
    DeadLetters,
    /// Ended tasks and their history, unless a task that has not ended depends on them.
    Tasks,
}

impl Family {
    /// Every family.
    pub const ALL: [Self; 9] = [
        Self::Events,
        Self::Turns,
        Self::Messages,
        Self::Asks,
        Self::Ledger,
        Self::Usage,
        Self::Requests,
        Self::DeadLetters,
        Self::Tasks,
    ];
}

/// Pruning.
#[async_trait]
pub trait PruneWrites {
    /// Deletes rows of a family that ended before `before`, oldest first, at most `limit`. Gives how many.
    async fn prune(&mut self, family: Family, before: Timestamp, limit: u32) -> Result<u64>;
}
