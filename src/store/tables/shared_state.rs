//! The `shared_state` table.

use ghost_domain::StateEntry;

use crate::error::Result;

/// Reads of shared state.
pub trait StateReads {
    /// The value of this key.
    fn state_get(&mut self, key: &str) -> Result<Option<StateEntry>>;

    /// Values whose key begins with `prefix`, in order of key, after the key `after`, at most
    /// `limit`.
    fn state_list(&mut self, prefix: &str, after: &str, limit: u32) -> Result<Vec<StateEntry>>;

    /// Number of keys.
    fn state_count(&mut self) -> Result<u32>;
}

/// Writes of shared state.
pub trait StateWrites {
    /// Inserts or replaces a value.
    fn state_put(&mut self, entry: &StateEntry) -> Result<()>;

    /// Deletes a value. Returns whether it existed.
    fn state_remove(&mut self, key: &str) -> Result<bool>;
}
