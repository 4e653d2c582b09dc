//! The `knowledge` and `knowledge_versions` tables.

use async_trait::async_trait;
use ghost_domain::{KnowledgeEntry, KnowledgeVersion};

use crate::error::Result;

/// Reading knowledge. Who may read what is decided above.
#[async_trait]
pub trait KnowledgeReads {
    /// One entry, deleted or not.
    async fn knowledge_get(&mut self, entry_id: &str) -> Result<Option<KnowledgeEntry>>;

    /// Entries that are not deleted, in order of id, from after `after`, at most `limit`.
    async fn knowledge_list(&mut self, after: &str, limit: u32) -> Result<Vec<KnowledgeEntry>>;

    /// How many entries are not deleted.
    async fn knowledge_count(&mut self) -> Result<u32>;

    /// The kept earlier versions of an entry, newest first.
    async fn knowledge_versions(&mut self, entry_id: &str) -> Result<Vec<KnowledgeVersion>>;
}

/// Writing knowledge.
#[async_trait]
pub trait KnowledgeWrites {
    /// Inserts or replaces an entry.
    async fn knowledge_put(&mut self, entry: &KnowledgeEntry) -> Result<()>;

    /// Inserts or replaces a version.
    async fn knowledge_version_put(&mut self, version: &KnowledgeVersion) -> Result<()>;

    /// Deletes the versions of an entry that are older than `oldest_kept` (KNOW-04).
    async fn knowledge_versions_prune(&mut self, entry_id: &str, oldest_kept: i64) -> Result<()>;
}
