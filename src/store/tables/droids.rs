//! Rows and queries of droids.

use ghost_domain::{AgentId, Droid};

use super::counts::of;
use super::prelude::*;

/// How many droids have not ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LiveDroids {
    /// Those of one parent.
    pub of_parent: u32,
    /// Those of the world.
    pub all: u32,
}

/// The count of droids that have not ended, of the world and of a parent.
const LIVE: &str = "droids_live";

record! { droid: Droid, "droids"; key droid_id: AgentId; parent_id, ended_at }

functions! {
    /// Droids in order of id, also those that have ended: those of `parent`, if it is given. Only droids after the id
    /// `after`.
    page droid_list(parent: Option<&AgentId>, after: Option<&AgentId>, limit: u32) -> Vec<Droid>:
        Conditions::new("SELECT record FROM droids")
            .when(parent, "parent_id = $1")
            .when(after, "droid_id > $1")
            .order("droid_id", list_limit(limit));
    /// The droid with this id.
    get droid_get(droid_id: &AgentId) -> Option<Droid>: droid_id;
}

impl Tx {
    /// The droids that have not ended, in order of id, at most [`PAGE_MAX`](super::PAGE_MAX).
    pub fn droids_live(&mut self) -> Result<Vec<Droid>> {
        let sql =
            sql!("SELECT record FROM droids{index droids_live} WHERE ended_at IS NULL ORDER BY droid_id {limit $1}");
        self.list(sql, args![PAGE_MAX])
    }

    /// The number of droids of `parent`, and of the world, that have not ended.
    pub fn droids_live_count(&mut self, parent: &AgentId) -> Result<LiveDroids> {
        Ok(LiveDroids { of_parent: self.counted(&of(LIVE, parent))?, all: self.counted(LIVE)? })
    }

    /// Inserts or replaces a droid.
    pub fn droid_put(&mut self, droid: &Droid) -> Result<()> {
        let stored = sql!("SELECT 'droids_live/' || parent_id FROM droids WHERE droid_id = $1 AND ended_at IS NULL");
        let count = droid.ended_at.is_none().then(|| of(LIVE, &droid.parent_id));
        self.put_counted(droid, &droid.droid_id, stored, count.as_deref())
    }
}
