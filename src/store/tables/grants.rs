//! Rows and queries of write grants.

use ghost_domain::{AgentId, Grant, GrantId, Timestamp};

use super::prelude::*;

record! { grant: Grant, "acl_grants"; key grant_id: GrantId; agent_id, expires_at }

impl Tx {
    /// The grant with this id, also after its end while it is stored.
    pub fn grant_get(&mut self, grant_id: GrantId) -> Result<Option<Grant>> {
        self.get(&grant_id)
    }

    /// The grants of an agent that have not ended at `now`, in order of id, at most
    /// [`PAGE_MAX`](super::PAGE_MAX).
    pub fn grants_live(&mut self, agent_id: &AgentId, now: Timestamp) -> Result<Vec<Grant>> {
        let sql = sql!(
            "SELECT record FROM acl_grants{index acl_grants_agent} WHERE agent_id = $1 AND expires_at > $2 \
            ORDER BY grant_id {limit $3}"
        );
        self.list(sql, args![agent_id, now, PAGE_MAX])
    }

    /// All stored grants in order of id, also those that have ended. Only grants after the id `after`.
    pub fn grant_list(&mut self, after: Option<GrantId>, limit: u32) -> Result<Vec<Grant>> {
        let query = Conditions::new("SELECT record FROM acl_grants").when(after, "grant_id > $1");
        self.page(query.order("grant_id", list_limit(limit)))
    }

    /// Inserts or replaces a grant.
    pub fn grant_put(&mut self, grant: &Grant) -> Result<()> {
        self.put(grant)
    }

    /// Removes a grant. Returns whether it existed.
    pub fn grant_remove(&mut self, grant_id: GrantId) -> Result<bool> {
        Ok(self.execute(sql!("DELETE FROM acl_grants WHERE grant_id = $1"), args![grant_id])? > 0)
    }
}
