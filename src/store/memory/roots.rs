//! Tallies of roots.

use std::cmp::Reverse;

use ghost_domain::root_tally::RootTally;
use ghost_domain::{RootId, Timestamp};

use super::session::{Session, bound};
use super::tables::Tables;
use crate::tables::{Result, RootReads, RootWrites};

impl Tables {
    /// Deletes tallies whose last change was before `before`, oldest first.
    pub(super) fn prune_roots(&mut self, before: Timestamp, limit: usize) -> usize {
        let mut old: Vec<(Timestamp, RootId)> = self
            .roots
            .values()
            .filter(|tally| tally.updated_at < before)
            .map(|tally| (tally.updated_at, tally.root_id))
            .collect();
        old.sort_unstable();
        old.truncate(limit);
        for (_, root_id) in &old {
            self.roots.remove(root_id);
        }
        old.len()
    }
}

impl RootReads for Session<'_> {
    fn root_get(&mut self, root_id: RootId) -> Result<Option<RootTally>> {
        Ok(self.tables.roots.get(&root_id).cloned())
    }

    fn root_list(&mut self, limit: u32) -> Result<Vec<RootTally>> {
        let mut found: Vec<&RootTally> = self.tables.roots.values().collect();
        found.sort_by_key(|tally| (Reverse(tally.messages), tally.root_id));
        Ok(found.into_iter().take(bound(limit)).cloned().collect())
    }
}

impl RootWrites for Session<'_> {
    fn root_put(&mut self, tally: &RootTally) -> Result<()> {
        self.tables.roots.put(tally.root_id, tally.clone());
        Ok(())
    }
}
