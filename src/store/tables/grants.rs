//! Rows and queries of write grants.

use ghost_domain::{AgentId, Grant, GrantId, Timestamp};

use super::prelude::*;

record! { grant: Grant, "acl_grants"; key grant_id: GrantId; agent_id, expires_at }

functions! {
    /// All stored grants in order of id, also those that have ended. Only grants after the id `after`.
    page grant_list(after: Option<GrantId>, limit: u32) -> Vec<Grant>:
        Conditions::new("SELECT record FROM acl_grants")
            .when(after, "grant_id > $1")
            .order("grant_id", list_limit(limit));
    /// The grant with this id, also after its end while it is stored.
    get grant_get(grant_id: GrantId) -> Option<Grant>: &grant_id;
    /// Inserts or replaces a grant.
    put grant_put(grant: &Grant) -> (): grant;
    /// Removes a grant. Returns whether it existed.
    remove grant_remove(grant_id: GrantId) -> bool: "DELETE FROM acl_grants WHERE grant_id = $1";
}

impl Tx {
    /// The grants of an agent that have not ended at `now`, in order of id, at most
    /// [`PAGE_MAX`](super::PAGE_MAX).
    pub fn grants_live(&mut self, agent_id: &AgentId, now: Timestamp) -> Result<Vec<Grant>> {
        let sql = sql!(
            "SELECT record FROM acl_grants{index acl_grants_agent} WHERE agent_id = $1 AND expires_at > $2 \
            ORDER BY grant_id {limit $3}"
        );
        self.list(sql, args![agent_id, now, PAGE_MAX])
    }
}
