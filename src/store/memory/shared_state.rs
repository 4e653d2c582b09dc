//! Shared state.

use std::ops::Bound;

use async_trait::async_trait;
use ghost_domain::StateEntry;

use super::session::{Session, bound, count};
use crate::tables::{Result, StateReads, StateWrites};

#[async_trait]
impl StateReads for Session<'_> {
    async fn state_get(&mut self, key: &str) -> Result<Option<StateEntry>> {
        Ok(self.tables.state.get(&key.to_owned()).cloned())
    }

    async fn state_list(&mut self, prefix: &str, after: &str, limit: u32) -> Result<Vec<StateEntry>> {
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

    async fn state_count(&mut self) -> Result<u32> {
        Ok(count(self.tables.state.iter().len()))
    }
}

#[async_trait]
impl StateWrites for Session<'_> {
    async fn state_put(&mut self, entry: &StateEntry) -> Result<()> {
        self.tables.state.put(entry.key.clone(), entry.clone());
        Ok(())
    }

    async fn state_remove(&mut self, key: &str) -> Result<bool> {
        Ok(self.tables.state.remove(&key.to_owned()))
    }
}
