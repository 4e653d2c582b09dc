//! Write grants.

use std::ops::Bound;

use ghost_domain::{AgentId, Grant, GrantId, Timestamp};

use super::session::{LIST_MAX, Session, page};
use crate::tables::{GrantReads, GrantWrites, Result};

impl GrantReads for Session<'_> {
    fn grant_get(&mut self, grant_id: GrantId) -> Result<Option<Grant>> {
        Ok(self.tables.grants.get(&grant_id).cloned())
    }

    fn grants_live(&mut self, agent_id: &AgentId, now: Timestamp) -> Result<Vec<Grant>> {
        let live = self.tables.grants.values().filter(|grant| grant.agent_id == *agent_id && grant.is_live(now));
        Ok(live.take(LIST_MAX).cloned().collect())
    }

    fn grant_list(&mut self, after: Option<GrantId>, limit: u32) -> Result<Vec<Grant>> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        Ok(page(self.tables.grants.range((from, Bound::Unbounded)).map(|(_, grant)| grant), limit))
    }
}

impl GrantWrites for Session<'_> {
    fn grant_put(&mut self, grant: &Grant) -> Result<()> {
        self.tables.grants.put(grant.grant_id, grant.clone());
        Ok(())
    }

    fn grant_remove(&mut self, grant_id: GrantId) -> Result<bool> {
        Ok(self.tables.grants.remove(&grant_id))
    }
}
