//! The `droids` table: the records of droids, also of those whose agents are gone.

use ghost_domain::{AgentId, Droid};

use crate::error::Result;

/// How many droids have not ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LiveDroids {
    /// Those of one parent.
    pub of_parent: u32,
    /// Those of the world.
    pub all: u32,
}

/// Reads of droids.
pub trait DroidReads {
    /// The droid with this id.
    fn droid_get(&mut self, droid_id: &AgentId) -> Result<Option<Droid>>;

    /// The droids that have not ended, in order of id, at most [`PAGE_MAX`](super::PAGE_MAX).
    fn droids_live(&mut self) -> Result<Vec<Droid>>;

    /// The number of droids of `parent`, and of the world, that have not ended.
    fn droids_live_count(&mut self, parent: &AgentId) -> Result<LiveDroids>;

    /// Droids in order of id, also those that have ended: those of `parent`, if it is given. Only droids after the id
    /// `after`.
    fn droid_list(&mut self, parent: Option<&AgentId>, after: Option<&AgentId>, limit: u32) -> Result<Vec<Droid>>;
}

/// Writes of droids.
pub trait DroidWrites {
    /// Inserts or replaces a droid.
    fn droid_put(&mut self, droid: &Droid) -> Result<()>;

    /// Inserts a droid whose id no droid ever had. A backend may then spare the read that would find that out.
    fn droid_add(&mut self, droid: &Droid) -> Result<()> {
        self.droid_put(droid)
    }
}
