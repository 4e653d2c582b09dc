//! The table cache: rows of the database that the writer keeps in memory, together with rows that
//! wait to be written. [`Tables`](super::table_list::Tables) has one [`TableCache`] for each table
//! with keys, and one [`Log`] for each table that only grows.
//!
//! The writer looks up a row by key in this order, and stops at the first hit:
//!
//! 1. the running command: rows that it wrote and that wait to be flushed (`command`);
//! 2. the running command: rows that it flushed, read or implied (`command_clean`);
//! 3. the batch: rows of accepted commands that wait to be flushed (`batch`);
//! 4. the cache: rows that were read or written earlier (`cache`);
//! 5. keys that SQL has no row for (`absent`);
//! 6. SQL.
//!
//! The fourth and fifth are bounded by the limits in [`table_list`](super::table_list). Of asks, tool
//! calls, turns, tasks and droids only unfinished rows are cached, and of mail heads only those of pending or
//! taken mail ([`Keyed::worth_caching`]).
//!
//! A row that waits to be written is never dropped, unless its command or batch is undone.

use std::collections::HashMap;

use indexmap::IndexMap;

use super::bounded_map::BoundedMap;
use super::row::{Keyed, Row};

/// Rows of one table with keys. The module header explains the order of lookup.
pub(super) struct TableCache<R: Keyed> {
    command: IndexMap<R::Key, R>,
    /// Rows that equal those in SQL as the running command sees them: it read or flushed them
    /// inside its savepoint, or SQL gets them as part of another row.
    command_clean: HashMap<R::Key, R>,
    batch: IndexMap<R::Key, R>,
    cache: BoundedMap<R::Key, R>,
    /// Keys that SQL has no row for.
    absent: BoundedMap<R::Key, ()>,
}

impl<R: Keyed> TableCache<R> {
    /// An empty one. `rows` and `absent` limit the rows and the absent keys in each of two generations;
    /// 0 means that none are cached.
    pub(super) fn new(rows: usize, absent: usize) -> Self {
        Self {
            command: IndexMap::new(),
            command_clean: HashMap::new(),
            batch: IndexMap::new(),
            cache: BoundedMap::new(rows),
            absent: BoundedMap::new(absent),
        }
    }

    /// The newest version of a row, if it is in memory.
    pub(super) fn get(&self, key: &R::Key) -> Option<&R> {
        self.command
            .get(key)
            .or_else(|| self.command_clean.get(key))
            .or_else(|| self.batch.get(key))
            .or_else(|| self.cache.get(key))
    }

    /// Whether it is known that no row with this key exists.
    pub(super) fn known_absent(&self, key: &R::Key) -> bool {
        self.absent.limit() > 0 && self.get(key).is_none() && self.absent.get(key).is_some()
    }

    /// Records that SQL has no row with this key.
    pub(super) fn cache_absent(&mut self, key: &R::Key) {
        self.absent.insert(key.clone(), ());
    }

    /// Writes a row. It is flushed to SQL later.
    pub(super) fn put(&mut self, row: R) {
        // If the command is refused, the key is only read from SQL once more.
        self.absent.remove(&row.key());
        self.command.insert(row.key(), row);
    }

    /// Caches a row that was read from SQL. Inside a savepoint the row may have been written by the
    /// running command, so it is dropped if the command is refused.
    pub(super) fn cache_row(&mut self, row: R, in_savepoint: bool) {
        if self.cache.limit() == 0 || !row.worth_caching() {
            return;
        }
        if in_savepoint {
            self.command_clean.insert(row.key(), row);
        } else {
            self.cache.insert(row.key(), row);
        }
    }

    /// Adds a row that SQL gets as part of another row, so that it is not flushed itself. It
    /// becomes permanent if the command is accepted.
    pub(super) fn put_implied(&mut self, row: R) {
        self.absent.remove(&row.key());
        self.command_clean.insert(row.key(), row);
    }

    /// Whether any row that waits to be written satisfies `wanted`.
    pub(super) fn any_pending(&self, wanted: impl Fn(&R) -> bool) -> bool {
        self.command.values().chain(self.batch.values()).any(wanted)
    }

    /// The newest versions of the rows that wait to be written.
    pub(super) fn newest_pending(&self) -> impl Iterator<Item = &R> {
        let older = self.batch.iter().filter(|(key, _)| !self.command.contains_key(*key)).map(|(_, row)| row);
        self.command.values().chain(older)
    }

    /// Whether a row with this key waits to be written, so that the row in SQL is out of date.
    pub(super) fn has_pending(&self, key: &R::Key) -> bool {
        self.command.contains_key(key) || self.batch.contains_key(key)
    }

    /// Merges rows from SQL with rows that wait to be written, in order of key. `found` are the
    /// rows from SQL; those with a newer pending version are replaced. Pending rows are included if
    /// `wanted` is true for them.
    pub(super) fn merge(&self, mut found: Vec<R>, wanted: impl Fn(&R) -> bool) -> Vec<R>
    where
        R::Key: Ord,
    {
        if self.command.is_empty() && self.batch.is_empty() {
            return found;
        }
        found.retain(|row| !self.has_pending(&row.key()));
        found.extend(self.newest_pending().filter(|row| wanted(row)).cloned());
        found.sort_by_cached_key(Keyed::key);
        found
    }

    /// Removes a row from the cache after it was deleted in SQL. The caller makes sure that no
    /// version of it waits to be written.
    pub(super) fn forget_row(&mut self, key: &R::Key) {
        self.command_clean.remove(key);
        self.cache.remove(key);
    }

    /// Clears the cache. Rows that wait to be written stay.
    pub(super) fn clear_cache(&mut self) {
        self.command_clean.clear();
        self.cache.clear();
        self.absent.clear();
    }

    /// Drops rows of the running command that SQL has. Older versions of them may be cached, so these go too.
    pub(super) fn spill(&mut self) {
        for (key, _) in self.command_clean.drain() {
            self.cache.remove(&key);
        }
    }

    /// Moves the rows of the accepted command to the batch.
    pub(super) fn accept(&mut self) {
        // Draining an empty map costs time in proportion to its capacity, and most are empty.
        if !self.command_clean.is_empty() {
            for (key, row) in self.command_clean.drain() {
                remember(&mut self.cache, key, row);
            }
        }
        if self.command.is_empty() {
            return;
        }
        if self.batch.is_empty() {
            std::mem::swap(&mut self.batch, &mut self.command);
        } else {
            self.batch.extend(self.command.drain(..));
        }
    }

    /// Drops the rows of the refused command.
    pub(super) fn reject(&mut self) {
        self.command.clear();
        self.command_clean.clear();
    }
}

fn remember<R: Keyed>(cache: &mut BoundedMap<R::Key, R>, key: R::Key, row: R) {
    if row.worth_caching() {
        cache.insert(key, row);
    } else {
        cache.remove(&key);
    }
}

/// Rows of one table that only grows. They wait to be written and are never cached.
pub(super) struct Log<R> {
    command: Vec<R>,
    batch: Vec<R>,
}

impl<R> Log<R> {
    /// Creates an empty one.
    pub(super) fn new() -> Self {
        Self { command: Vec::new(), batch: Vec::new() }
    }

    /// Appends a row. It is flushed to SQL later.
    pub(super) fn push(&mut self, row: R) {
        self.command.push(row);
    }

    /// Moves what the accepted command added to the batch.
    pub(super) fn accept(&mut self) {
        self.batch.append(&mut self.command);
    }

    /// Drops the rows of the refused command.
    pub(super) fn reject(&mut self) {
        self.command.clear();
    }
}

/// Whose pending rows are meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    /// The accepted commands of the batch.
    Batch,
    /// The running command.
    Command,
}

/// A table whose pending rows can be flushed to SQL.
pub(super) trait Flushable<R: Row> {
    /// The pending rows, in order of writing.
    fn pending_rows(&self, owner: Owner) -> Vec<&R>;
    /// Records that the pending rows are now in SQL.
    fn mark_flushed(&mut self, owner: Owner);
    /// Whether there are pending rows.
    fn has_rows(&self, owner: Owner) -> bool;
}

impl<R: Keyed> Flushable<R> for TableCache<R> {
    fn pending_rows(&self, owner: Owner) -> Vec<&R> {
        match owner {
            Owner::Batch => self.batch.values().collect(),
            Owner::Command => self.command.values().collect(),
        }
    }

    fn mark_flushed(&mut self, owner: Owner) {
        match owner {
            Owner::Batch if self.cache.limit() == 0 => self.batch.clear(),
            Owner::Command if self.cache.limit() == 0 => self.command.clear(),
            Owner::Batch => {
                for (key, row) in self.batch.drain(..) {
                    remember(&mut self.cache, key, row);
                }
            }
            Owner::Command => self.command_clean.extend(self.command.drain(..)),
        }
    }

    fn has_rows(&self, owner: Owner) -> bool {
        match owner {
            Owner::Batch => !self.batch.is_empty(),
            Owner::Command => !self.command.is_empty(),
        }
    }
}

impl<R: Row> Flushable<R> for Log<R> {
    fn pending_rows(&self, owner: Owner) -> Vec<&R> {
        match owner {
            Owner::Batch => self.batch.iter().collect(),
            Owner::Command => self.command.iter().collect(),
        }
    }

    fn mark_flushed(&mut self, owner: Owner) {
        match owner {
            Owner::Batch => self.batch.clear(),
            Owner::Command => self.command.clear(),
        }
    }

    fn has_rows(&self, owner: Owner) -> bool {
        match owner {
            Owner::Batch => !self.batch.is_empty(),
            Owner::Command => !self.command.is_empty(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sqlite::internal_rows::Meta;

    fn meta(key: &str, value: &str) -> Meta {
        Meta { key: key.to_owned(), value: value.to_owned() }
    }

    fn value(table: &TableCache<Meta>, key: &str) -> Option<String> {
        table.get(&key.to_owned()).map(|row| row.value.clone())
    }

    #[test]
    fn a_row_is_looked_up_in_the_documented_order() {
        let mut table = TableCache::new(8, 8);
        let key = "k".to_owned();
        table.cache_absent(&key);
        assert!(table.known_absent(&key) && value(&table, "k").is_none());
        table.cache_row(meta("k", "cache"), false);
        assert_eq!((value(&table, "k").unwrap().as_str(), table.known_absent(&key)), ("cache", false));
        table.put(meta("k", "batch"));
        table.accept();
        assert_eq!(value(&table, "k").unwrap(), "batch");
        table.put_implied(meta("k", "clean"));
        assert_eq!(value(&table, "k").unwrap(), "clean");
        table.put(meta("k", "command"));
        assert_eq!(value(&table, "k").unwrap(), "command");
        // A refused command drops its own rows only.
        table.reject();
        assert_eq!(value(&table, "k").unwrap(), "batch");
        table.mark_flushed(Owner::Batch);
        assert_eq!(value(&table, "k").unwrap(), "batch");
        assert!(!table.has_pending(&key));
        table.clear_cache();
        assert!(value(&table, "k").is_none() && !table.known_absent(&key));
    }

    #[test]
    fn a_spilled_row_leaves_no_older_version_behind() {
        let mut table = TableCache::new(8, 8);
        table.cache_row(meta("k", "old"), false);
        table.put(meta("k", "new"));
        table.mark_flushed(Owner::Command);
        table.spill();
        assert_eq!(value(&table, "k"), None);
    }

    #[test]
    fn the_cache_is_bounded_and_pending_rows_are_not() {
        let mut table = TableCache::new(4, 0);
        for n in 0..100 {
            table.put(meta(&n.to_string(), "v"));
        }
        table.accept();
        assert_eq!(table.pending_rows(Owner::Batch).len(), 100);
        table.mark_flushed(Owner::Batch);
        let cached = (0..100).filter(|n| value(&table, &n.to_string()).is_some()).count();
        assert!((4..=8).contains(&cached), "{cached}");
        assert!(value(&table, "99").is_some());
    }
}
