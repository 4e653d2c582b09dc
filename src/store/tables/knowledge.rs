//! Knowledge entries and their earlier versions. Their texts are large and rarely read, so they are
//! not cached.

use ghost_domain::{KnowledgeEntry, KnowledgeVersion};

use super::prelude::*;

/// The count of entries that are not deleted.
const KNOWLEDGE: &str = "knowledge";

record! { entry: KnowledgeEntry, "knowledge"; key entry_id: str; deleted, creator, updated_at }

record! { version: KnowledgeVersion, "knowledge_versions"; key entry_id: String, version: i64; }

functions! {
    /// The entry with this id, even if it is deleted.
    get knowledge_get(entry_id: &str) -> Option<KnowledgeEntry>: entry_id;
    /// Entries that are not deleted, in order of id, after the id `after`, at most `limit`.
    list knowledge_list(after: &str, limit: u32) -> Vec<KnowledgeEntry>:
        "SELECT record FROM knowledge WHERE deleted = 0 AND entry_id > $1 ORDER BY entry_id {limit $2}";
    /// The stored earlier versions of an entry, newest first.
    list knowledge_versions(entry_id: &str) -> Vec<KnowledgeVersion>:
        "SELECT record FROM knowledge_versions WHERE entry_id = $1 ORDER BY version DESC";
    /// Number of entries that are not deleted.
    counted knowledge_count() -> u32: KNOWLEDGE;
    /// Inserts or replaces a version.
    put knowledge_version_put(version: &KnowledgeVersion) -> (): version;
    /// Deletes the versions of an entry that are older than `oldest_kept`.
    change knowledge_versions_prune(entry_id: &str, oldest_kept: i64) -> ():
        "DELETE FROM knowledge_versions WHERE entry_id = $1 AND version < $2";
}

impl Tx {
    /// Inserts or replaces an entry.
    pub fn knowledge_put(&mut self, entry: &KnowledgeEntry) -> Result<()> {
        let stored = sql!("SELECT 'knowledge' FROM knowledge WHERE entry_id = $1 AND deleted = 0");
        self.put_counted(entry, &entry.entry_id, stored, (!entry.deleted).then_some(KNOWLEDGE))
    }
}
