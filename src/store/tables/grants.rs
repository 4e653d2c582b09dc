//! The `acl_grants` table: write grants that have not been revoked.

use ghost_domain::{AgentId, Grant, GrantId, Timestamp};

use crate::error::Result;

/// Reads of write grants.
pub trait GrantReads {
    /// The grant with this id, also after its end while it is stored.
    fn grant_get(&mut self, grant_id: GrantId) -> Result<Option<Grant>>;

    /// The grants of an agent that have not ended at `now`, in order of id, at most
    /// [`PAGE_MAX`](super::PAGE_MAX).
    fn grants_live(&mut self, agent_id: &AgentId, now: Timestamp) -> Result<Vec<Grant>>;

    /// All stored grants in order of id, also those that have ended. Only grants after the id `after`.
    fn grant_list(&mut self, after: Option<GrantId>, limit: u32) -> Result<Vec<Grant>>;
}

/// Writes of write grants.
pub trait GrantWrites {
    /// Inserts or replaces a grant.
    fn grant_put(&mut self, grant: &Grant) -> Result<()>;

    /// Removes a grant. Returns whether it existed.
    fn grant_remove(&mut self, grant_id: GrantId) -> Result<bool>;
}
