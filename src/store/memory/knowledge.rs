//! Knowledge entries and their earlier versions.

use std::ops::Bound;

use ghost_domain::{KnowledgeEntry, KnowledgeVersion, Party, Timestamp};

use super::prune::oldest;
use super::session::{Session, bound, count};
use super::tables::Tables;
use crate::tables::{KnowledgeReads, KnowledgeWrites, Result};

impl Tables {
    pub(super) fn prune_knowledge(&mut self, before: Timestamp, limit: usize) -> usize {
        let gone = self.knowledge.values().filter(|entry| entry.deleted && entry.creator != Party::System);
        let old = oldest(gone.map(|entry| (entry.updated_at, entry.entry_id.clone())), before, limit);
        old.iter().filter(|entry_id| self.knowledge.remove(entry_id)).count()
    }
}

impl KnowledgeReads for Session<'_> {
    fn knowledge_get(&mut self, entry_id: &str) -> Result<Option<KnowledgeEntry>> {
        Ok(self.tables.knowledge.get(&entry_id.to_owned()).cloned())
    }

    fn knowledge_list(&mut self, after: &str, limit: u32) -> Result<Vec<KnowledgeEntry>> {
        let later = self.tables.knowledge.range((Bound::Excluded(after.to_owned()), Bound::Unbounded));
        let there = later.map(|(_, entry)| entry).filter(|entry| !entry.deleted);
        Ok(there.take(bound(limit)).cloned().collect())
    }

    fn knowledge_count(&mut self) -> Result<u32> {
        Ok(count(self.tables.knowledge.values().filter(|entry| !entry.deleted).count()))
    }

    fn knowledge_versions(&mut self, entry_id: &str) -> Result<Vec<KnowledgeVersion>> {
        let all = (entry_id.to_owned(), i64::MIN)..=(entry_id.to_owned(), i64::MAX);
        Ok(self.tables.knowledge_versions.range(all).rev().map(|(_, version)| version.clone()).collect())
    }
}

impl KnowledgeWrites for Session<'_> {
    fn knowledge_put(&mut self, entry: &KnowledgeEntry) -> Result<()> {
        self.tables.knowledge.put(entry.entry_id.clone(), entry.clone());
        Ok(())
    }

    fn knowledge_version_put(&mut self, version: &KnowledgeVersion) -> Result<()> {
        self.tables.knowledge_versions.put((version.entry_id.clone(), version.version), version.clone());
        Ok(())
    }

    fn knowledge_versions_prune(&mut self, entry_id: &str, oldest_kept: i64) -> Result<()> {
        let old = (entry_id.to_owned(), i64::MIN)..(entry_id.to_owned(), oldest_kept);
        let old: Vec<(String, i64)> = self.tables.knowledge_versions.range(old).map(|(key, _)| key.clone()).collect();
        for key in old {
            self.tables.knowledge_versions.remove(&key);
        }
        Ok(())
    }
}
