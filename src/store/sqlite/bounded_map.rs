//! A bounded map that drops its oldest entries.

use std::collections::HashMap;
use std::hash::Hash;

/// A bounded map with two generations of `limit` entries each. When the young generation is full,
/// it becomes the old one, and the entries of the previous old one are dropped.
pub(super) struct BoundedMap<K, V> {
    limit: usize,
    young: HashMap<K, V>,
    old: HashMap<K, V>,
}

impl<K: Eq + Hash, V> BoundedMap<K, V> {
    pub(super) fn new(limit: usize) -> Self {
        Self { limit, young: HashMap::new(), old: HashMap::new() }
    }

    /// Entries of one generation.
    pub(super) fn limit(&self) -> usize {
        self.limit
    }

    pub(super) fn get(&self, key: &K) -> Option<&V> {
        self.young.get(key).or_else(|| self.old.get(key))
    }

    pub(super) fn insert(&mut self, key: K, value: V) {
        if self.limit == 0 {
            return;
        }
        if self.young.len() >= self.limit && !self.young.contains_key(&key) {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(key, value);
    }

    pub(super) fn remove(&mut self, key: &K) {
        self.young.remove(key);
        self.old.remove(key);
    }

    pub(super) fn clear(&mut self) {
        self.young.clear();
        self.old.clear();
    }
}
