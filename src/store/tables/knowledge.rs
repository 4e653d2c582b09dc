//! Knowledge entries and their earlier versions. Their texts are large and rarely read, so they are
//! not cached.

use ghost_domain::{KnowledgeEntry, KnowledgeVersion};

use super::prelude::*;

/// The count of entries that are not deleted.
const KNOWLEDGE: &str = "knowledge";

record! { entry: KnowledgeEntry, "knowledge"; key entry_id: str; deleted, creator, updated_at }

record! { version: KnowledgeVersion, "knowledge_versions"; key entry_id: String, version: i64; }

impl Tx {
    /// The entry with this id, even if it is deleted.
    pub fn knowledge_get(&mut self, entry_id: &str) -> Result<Option<KnowledgeEntry>> {
        self.get(entry_id)
    }

    /// Entries that are not deleted, in order of id, after the id `after`, at most `limit`.
    pub fn knowledge_list(&mut self, after: &str, limit: u32) -> Result<Vec<KnowledgeEntry>> {
        let sql = sql!("SELECT record FROM knowledge WHERE deleted = 0 AND entry_id > $1 ORDER BY entry_id {limit $2}");
        self.list(sql, args![after, limit])
    }

    /// Number of entries that are not deleted.
    pub fn knowledge_count(&mut self) -> Result<u32> {
        self.counted(KNOWLEDGE)
    }

    /// The stored earlier versions of an entry, newest first.
    pub fn knowledge_versions(&mut self, entry_id: &str) -> Result<Vec<KnowledgeVersion>> {
        let sql = sql!("SELECT record FROM knowledge_versions WHERE entry_id = $1 ORDER BY version DESC");
        self.list(sql, args![entry_id])
    }

    /// Inserts or replaces an entry.
    pub fn knowledge_put(&mut self, entry: &KnowledgeEntry) -> Result<()> {
        let stored = sql!("SELECT 'knowledge' FROM knowledge WHERE entry_id = $1 AND deleted = 0");
        self.put_counted(entry, &entry.entry_id, stored, (!entry.deleted).then_some(KNOWLEDGE))
    }

    /// Inserts or replaces a version.
    pub fn knowledge_version_put(&mut self, version: &KnowledgeVersion) -> Result<()> {
        self.put(version)
    }

    /// Deletes the versions of an entry that are older than `oldest_kept` (KNOW-04).
    pub fn knowledge_versions_prune(&mut self, entry_id: &str, oldest_kept: i64) -> Result<()> {
        let sql = sql!("DELETE FROM knowledge_versions WHERE entry_id = $1 AND version < $2");
        self.execute(sql, args![entry_id, oldest_kept]).map(drop)
    }
}
