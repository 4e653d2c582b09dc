//! The `knowledge` and `knowledge_versions` tables.

use ghost_domain::{KnowledgeEntry, KnowledgeVersion};

use crate::error::Result;

/// Reads of knowledge. They check no access rights; `ghost-operations` decides which entries a party may
/// read.
pub trait KnowledgeReads {
    /// The entry with this id, even if it is deleted.
    fn knowledge_get(&mut self, entry_id: &str) -> Result<Option<KnowledgeEntry>>;

    /// Entries that are not deleted, in order of id, after the id `after`, at most `limit`.
    fn knowledge_list(&mut self, after: &str, limit: u32) -> Result<Vec<KnowledgeEntry>>;

    /// Number of entries that are not deleted.
    fn knowledge_count(&mut self) -> Result<u32>;

    /// The stored earlier versions of an entry, newest first.
    fn knowledge_versions(&mut self, entry_id: &str) -> Result<Vec<KnowledgeVersion>>;
}

/// Writes of knowledge.
pub trait KnowledgeWrites {
    /// Inserts or replaces an entry.
    fn knowledge_put(&mut self, entry: &KnowledgeEntry) -> Result<()>;

    /// Inserts or replaces a version.
    fn knowledge_version_put(&mut self, version: &KnowledgeVersion) -> Result<()>;

    /// Deletes the versions of an entry that are older than `oldest_kept` (KNOW-04).
    fn knowledge_versions_prune(&mut self, entry_id: &str, oldest_kept: i64) -> Result<()>;
}
