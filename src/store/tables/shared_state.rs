//! The `shared_state` table.

use async_trait::async_trait;
use ghost_domain::StateEntry;

use crate::error::Result;

/// Reads of shared state.
#[async_trait]
pub trait StateReads {
    /// The value of this key.
    async fn state_get(&mut self, key: &str) -> Result<Option<StateEntry>>;

    /// Values whose key begins with `prefix`, in order of key, after the key `after`, at most
    /// `limit`.
    async fn state_list(&mut self, prefix: &str, after: &str, limit: u32) -> Result<Vec<StateEntry>>;

    /// Number of keys.
    async fn state_count(&mut self) -> Result<u32>;
}

/// Writes of shared state.
#[async_trait]
pub trait StateWrites {
    /// Inserts or replaces a value.
    async fn state_put(&mut self, entry: &StateEntry) -> Result<()>;

    /// Deletes a value. Returns whether it existed.
    async fn state_remove(&mut self, key: &str) -> Result<bool>;
}
