//! The `shared_state` table.

use async_trait::async_trait;
use ghost_domain::StateEntry;

use crate::error::Result;

/// Reading shared state.
#[async_trait]
pub trait StateReads {
    /// One value.
    async fn state_get(&mut self, key: &str) -> Result<Option<StateEntry>>;

    /// Values whose key begins with `prefix`, in order of key, from after `after`, at most `limit`.
    async fn state_list(&mut self, prefix: &str, after: &str, limit: u32) -> Result<Vec<StateEntry>>;

    /// How many keys there are.
    async fn state_count(&mut self) -> Result<u32>;
}

/// Writing shared state.
#[async_trait]
pub trait StateWrites {
    /// Inserts or replaces a value.
    async fn state_put(&mut self, entry: &StateEntry) -> Result<()>;

    /// Deletes a value. Says whether there was one.
    async fn state_remove(&mut self, key: &str) -> Result<bool>;
}
