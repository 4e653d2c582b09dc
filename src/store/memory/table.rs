//! One ordered table with an undo log of all changes since the last commit.
//!
//! A table must never return a mutable reference to a row. A change through it would be missing in
//! the undo log.

use std::collections::BTreeMap;
use std::collections::btree_map;
use std::ops::RangeBounds;

/// Rows in order of key, and the undo log: the previous value of each row that the running command
/// changed.
#[derive(Debug)]
pub(super) struct Table<K, V> {
    rows: BTreeMap<K, V>,
    undo: Vec<(K, Option<V>)>,
}

impl<K, V> Default for Table<K, V> {
    fn default() -> Self {
        Self { rows: BTreeMap::new(), undo: Vec::new() }
    }
}

impl<K: Ord + Clone, V> Table<K, V> {
    pub(super) fn get(&self, key: &K) -> Option<&V> {
        self.rows.get(key)
    }

    pub(super) fn contains(&self, key: &K) -> bool {
        self.rows.contains_key(key)
    }

    pub(super) fn put(&mut self, key: K, value: V) {
        let before = self.rows.insert(key.clone(), value);
        self.undo.push((key, before));
    }

    /// Returns whether the row existed.
    pub(super) fn remove(&mut self, key: &K) -> bool {
        match self.rows.remove(key) {
            Some(before) => {
                self.undo.push((key.clone(), Some(before)));
                true
            }
            None => false,
        }
    }

    pub(super) fn iter(&self) -> btree_map::Iter<'_, K, V> {
        self.rows.iter()
    }

    pub(super) fn values(&self) -> btree_map::Values<'_, K, V> {
        self.rows.values()
    }

    pub(super) fn range(&self, range: impl RangeBounds<K>) -> btree_map::Range<'_, K, V> {
        self.rows.range(range)
    }
}

/// The end of a command, for a table of any row type.
pub(super) trait Journaled {
    /// Whether anything was written since the last commit or undo.
    fn changed(&self) -> bool;

    /// Keeps all changes and empties the undo log.
    fn commit(&mut self);

    /// Undoes all changes, newest first.
    fn undo(&mut self);
}

impl<K: Ord + Clone, V> Journaled for Table<K, V> {
    fn changed(&self) -> bool {
        !self.undo.is_empty()
    }

    fn commit(&mut self) {
        self.undo.clear();
    }

    fn undo(&mut self) {
        while let Some((key, before)) = self.undo.pop() {
            match before {
                Some(value) => self.rows.insert(key, value),
                None => self.rows.remove(&key),
            };
        }
    }
}
