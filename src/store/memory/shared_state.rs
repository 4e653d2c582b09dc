//! Shared state.

use std::ops::Bound;

use ghost_domain::StateEntry;

use super::session::{Session, bound, count};
use crate::tables::{Result, StateReads, StateWrites};

impl StateReads for Session<'_> {
    fn state_get(&mut self, key: &str) -> Result<Option<StateEntry>> {
        Ok(self.tables.state.get(&key.to_owned()).cloned())
    }

    fn state_list(&mut self, prefix: &str, after: &str, limit: u32) -> Result<Vec<StateEntry>> {
        let from = if after < prefix { Bound::Included(prefix) } else { Bound::Excluded(after) };
        Ok(self
            .tables
            .state
            .range((from.map(str::to_owned), Bound::Unbounded))
            .take_while(|(key, _)| key.starts_with(prefix))
            .take(bound(limit))
            .map(|(_, entry)| entry.clone())
            .collect())
    }

    fn state_count(&mut self) -> Result<u32> {
        Ok(count(self.tables.state.iter().len()))
    }
}

impl StateWrites for Session<'_> {
    fn state_put(&mut self, entry: &StateEntry) -> Result<()> {
        self.tables.state.put(entry.key.clone(), entry.clone());
        Ok(())
    }

    fn state_remove(&mut self, key: &str) -> Result<bool> {
        Ok(self.tables.state.remove(&key.to_owned()))
    }
}
