//! Droids.

use std::ops::Bound;

use ghost_domain::{AgentId, Droid};

use super::session::{LIST_MAX, Session, page};
use crate::tables::{DroidReads, DroidWrites, LiveDroids, Result};

impl DroidReads for Session<'_> {
    fn droid_get(&mut self, droid_id: &AgentId) -> Result<Option<Droid>> {
        Ok(self.tables.droids.get(droid_id).cloned())
    }

    fn droids_live(&mut self) -> Result<Vec<Droid>> {
        let live = self.tables.droids.values().filter(|droid| droid.ended_at.is_none());
        Ok(live.take(LIST_MAX).cloned().collect())
    }

    fn droids_live_count(&mut self, parent: &AgentId) -> Result<LiveDroids> {
        let mut count = LiveDroids::default();
        for droid in self.tables.droids.values().filter(|droid| droid.ended_at.is_none()) {
            count.all += 1;
            count.of_parent += u32::from(droid.parent_id == *parent);
        }
        Ok(count)
    }

    fn droid_list(&mut self, parent: Option<&AgentId>, after: Option<&AgentId>, limit: u32) -> Result<Vec<Droid>> {
        let from = after.cloned().map_or(Bound::Unbounded, Bound::Excluded);
        let droids = self.tables.droids.range((from, Bound::Unbounded)).map(|(_, droid)| droid);
        Ok(page(droids.filter(|droid| parent.is_none_or(|parent| droid.parent_id == *parent)), limit))
    }
}

impl DroidWrites for Session<'_> {
    fn droid_put(&mut self, droid: &Droid) -> Result<()> {
        self.tables.droids.put(droid.droid_id.clone(), droid.clone());
        Ok(())
    }
}
