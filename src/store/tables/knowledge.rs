//! Knowledge entries and their earlier versions. Their texts are large and rarely read, so they are
//! not cached.

use ghost_domain::{KnowledgeEntry, KnowledgeVersion};

use crate::error::Result;
use crate::row::{Args, Keyed, ReadRow, Row, from_record, to_json};
use crate::sql::{Sql, sql};
use crate::tx::Tx;

/// The count of entries that are not deleted.
const KNOWLEDGE: &str = "knowledge";

impl Row for KnowledgeEntry {
    const TABLE: &'static str = "knowledge";
    const WRITE: Sql = sql!(
        "INSERT INTO knowledge (entry_id, deleted, creator, updated_at, record) VALUES ($1, $2, $3, $4, $5) ON CONFLICT \
        (entry_id) DO UPDATE SET deleted = excluded.deleted, creator = excluded.creator, updated_at = excluded.updated_at, record = \
        excluded.record"
    );

    fn bind(&self, args: &mut Args) -> Result<()> {
        args.text(&self.entry_id).put(self.deleted).put(self.creator.to_string()).int(self.updated_at.0).put(to_json(
            Self::TABLE,
            &self.entry_id,
            self,
        )?);
        Ok(())
    }
}

impl Keyed for KnowledgeEntry {
    type Key = String;
    const SELECT: Sql = sql!("SELECT record FROM knowledge WHERE entry_id = $1");

    fn bind_key(key: &String, args: &mut Args) {
        args.text(key);
    }

    fn read(row: &ReadRow<'_>) -> Result<Self> {
        from_record(Self::TABLE, row)
    }
}

impl Row for KnowledgeVersion {
    const TABLE: &'static str = "knowledge_versions";
    const WRITE: Sql = sql!(
        "INSERT INTO knowledge_versions (entry_id, version, record) VALUES ($1, $2, $3) ON CONFLICT \
        (entry_id, version) DO UPDATE SET record = excluded.record"
    );

    fn bind(&self, args: &mut Args) -> Result<()> {
        args.text(&self.entry_id).int(self.version).put(to_json(Self::TABLE, &self.entry_id, self)?);
        Ok(())
    }
}

impl Keyed for KnowledgeVersion {
    type Key = (String, i64);
    const SELECT: Sql = sql!("SELECT record FROM knowledge_versions WHERE entry_id = $1 AND version = $2");

    fn bind_key(key: &Self::Key, args: &mut Args) {
        args.text(&key.0).int(key.1);
    }

    fn read(row: &ReadRow<'_>) -> Result<Self> {
        from_record(Self::TABLE, row)
    }
}

impl Tx {
    /// The entry with this id, even if it is deleted.
    pub fn knowledge_get(&mut self, entry_id: &str) -> Result<Option<KnowledgeEntry>> {
        self.get(&entry_id.to_owned())
    }

    /// Entries that are not deleted, in order of id, after the id `after`, at most `limit`.
    pub fn knowledge_list(&mut self, after: &str, limit: u32) -> Result<Vec<KnowledgeEntry>> {
        let mut args = Args::default();
        args.text(after).int(i64::from(limit));
        let sql = sql!("SELECT record FROM knowledge WHERE deleted = 0 AND entry_id > $1 ORDER BY entry_id {limit $2}");
        self.list(sql, args)
    }

    /// Number of entries that are not deleted.
    pub fn knowledge_count(&mut self) -> Result<u32> {
        self.counted(KNOWLEDGE)
    }

    /// The stored earlier versions of an entry, newest first.
    pub fn knowledge_versions(&mut self, entry_id: &str) -> Result<Vec<KnowledgeVersion>> {
        let sql = sql!("SELECT record FROM knowledge_versions WHERE entry_id = $1 ORDER BY version DESC");
        let mut args = Args::default();
        args.text(entry_id);
        self.list(sql, args)
    }
}

impl Tx {
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
        let mut args = Args::default();
        args.text(entry_id).int(oldest_kept);
        let sql = sql!("DELETE FROM knowledge_versions WHERE entry_id = $1 AND version < $2");
        self.execute(sql, args).map(|_| ())
    }
}
