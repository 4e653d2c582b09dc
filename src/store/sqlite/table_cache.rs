//! The parts that layers are made of: rows by key, rows in order, facts derived from rows, ids that are taken.
//!
//! Must never: forget a row that waits to be written, whatever else is dropped.

use std::collections::{HashMap, HashSet};
use std::hash::Hash;

use ghost_domain::MessageId;
use indexmap::IndexMap;

use super::row::{Keyed, Row};

/// Remembered values, at most twice `limit`: when the young half is full, the old half goes.
struct Cache<K, V> {
    limit: usize,
    young: HashMap<K, V>,
    old: HashMap<K, V>,
}

impl<K: Eq + Hash, V> Cache<K, V> {
    fn new(limit: usize) -> Self {
        Self { limit, young: HashMap::new(), old: HashMap::new() }
    }

    fn get(&self, key: &K) -> Option<&V> {
        self.young.get(key).or_else(|| self.old.get(key))
    }

    fn insert(&mut self, key: K, value: V) {
        if self.limit == 0 {
            return;
        }
        if self.young.len() >= self.limit && !self.young.contains_key(&key) {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(key, value);
    }

    fn remove(&mut self, key: &K) {
        self.young.remove(key);
        self.old.remove(key);
    }

    fn clear(&mut self) {
        self.young.clear();
        self.old.clear();
    }
}

/// Facts derived from rows, never written themselves.
pub(super) struct Known<K, V> {
    own: HashMap<K, V>,
    cache: Cache<K, V>,
}

impl<K: Eq + Hash, V> Known<K, V> {
    /// With nothing in it.
    pub(super) fn new(limit: usize) -> Self {
        Self { own: HashMap::new(), cache: Cache::new(limit) }
    }

    /// What is known of `key`.
    pub(super) fn get(&self, key: &K) -> Option<&V> {
        self.own.get(key).or_else(|| self.cache.get(key))
    }

    /// Sets a fact that holds if the command is accepted.
    pub(super) fn put(&mut self, key: K, value: V) {
        self.own.insert(key, value);
    }

    /// Keeps the facts of a command that was accepted.
    pub(super) fn accept(&mut self) {
        if self.own.is_empty() {
            return;
        }
        for (key, value) in self.own.drain() {
            self.cache.insert(key, value);
        }
    }

    /// Drops the facts of a command that refused.
    pub(super) fn reject(&mut self) {
        self.own.clear();
    }
}

/// Which mail exists, roughly: never says no of an id that is stored. Identifiers rise nearly in order of time, so that
/// in practice only one that comes twice is looked up.
pub(super) struct Ids {
    own: Vec<MessageId>,
    young: HashSet<MessageId>,
    old: HashSet<MessageId>,
    /// No stored id outside the three sets is larger.
    settled: Option<MessageId>,
}

/// Identifiers in each half of [`Ids`].
const IDS_MAX: usize = 16_384;

impl Ids {
    /// With nothing in it.
    pub(super) fn new(settled: Option<MessageId>) -> Self {
        Self { own: Vec::new(), young: HashSet::new(), old: HashSet::new(), settled }
    }

    /// Whether mail of this id may be stored.
    pub(super) fn may_hold(&self, id: MessageId) -> bool {
        self.settled >= Some(id) || self.young.contains(&id) || self.old.contains(&id) || self.own.contains(&id)
    }

    /// Says that mail of this id is stored if the command is accepted.
    pub(super) fn put(&mut self, id: MessageId) {
        self.own.push(id);
    }

    /// Makes what a command wrote the batch's.
    pub(super) fn accept(&mut self) {
        for id in self.own.drain(..) {
            if self.young.len() >= IDS_MAX {
                self.settled = self.settled.max(self.old.iter().max().copied());
                self.old = std::mem::take(&mut self.young);
            }
            self.young.insert(id);
        }
    }

    /// Drops the ids of a command that refused.
    pub(super) fn reject(&mut self) {
        self.own.clear();
    }

    /// The same with nothing remembered one by one.
    pub(super) fn settle(&self) -> Self {
        Self::new(self.settled.max(self.young.iter().chain(&self.old).max().copied()))
    }
}

/// Rows of one keyed table.
pub(super) struct TableCache<R: Keyed> {
    own: IndexMap<R::Key, R>,
    /// In SQL, or read from it, behind the command's savepoint.
    own_clean: HashMap<R::Key, R>,
    batch: IndexMap<R::Key, R>,
    cache: Cache<R::Key, R>,
    /// Keys that SQL was found to have no row for.
    absent: Cache<R::Key, ()>,
}

impl<R: Keyed> TableCache<R> {
    /// With nothing in it.
    pub(super) fn new() -> Self {
        Self {
            own: IndexMap::new(),
            own_clean: HashMap::new(),
            batch: IndexMap::new(),
            cache: Cache::new(R::KEPT),
            absent: Cache::new(R::ABSENT_KEPT),
        }
    }

    /// The newest version of a row, if a layer has it.
    pub(super) fn get(&self, key: &R::Key) -> Option<&R> {
        self.own
            .get(key)
            .or_else(|| self.own_clean.get(key))
            .or_else(|| self.batch.get(key))
            .or_else(|| self.cache.get(key))
    }

    /// Whether there is known to be no row of this key.
    pub(super) fn lacks(&self, key: &R::Key) -> bool {
        R::ABSENT_KEPT > 0 && self.get(key).is_none() && self.absent.get(key).is_some()
    }

    /// Remembers that SQL has no row of this key.
    pub(super) fn learn_absent(&mut self, key: &R::Key) {
        self.absent.insert(key.clone(), ());
    }

    /// Writes a row, to be flushed later.
    pub(super) fn put(&mut self, row: R) {
        // Should the command refuse, this is only looked up once more.
        self.absent.remove(&row.key());
        self.own.insert(row.key(), row);
    }

    /// Remembers a row that was read from SQL. Behind a savepoint it may hold what the command wrote.
    pub(super) fn learn(&mut self, row: R, saved: bool) {
        if R::KEPT == 0 || !row.keep() {
            return;
        }
        if saved {
            self.own_clean.insert(row.key(), row);
        } else {
            self.cache.insert(row.key(), row);
        }
    }

    /// Remembers a row that stands if the command is accepted and that SQL gets by other means.
    pub(super) fn imply(&mut self, row: R) {
        self.absent.remove(&row.key());
        self.own_clean.insert(row.key(), row);
    }

    /// Whether rows that wait to be written satisfy `wanted`.
    pub(super) fn waits(&self, wanted: impl Fn(&R) -> bool) -> bool {
        self.own.values().chain(self.batch.values()).any(wanted)
    }

    /// The newest versions of the rows that wait to be written.
    pub(super) fn newest(&self) -> impl Iterator<Item = &R> {
        let older = self.batch.iter().filter(|(key, _)| !self.own.contains_key(*key)).map(|(_, row)| row);
        self.own.values().chain(older)
    }

    /// Whether a row of this key waits to be written, so that what SQL has is out of date.
    pub(super) fn has_newer(&self, key: &R::Key) -> bool {
        self.own.contains_key(key) || self.batch.contains_key(key)
    }

    /// Rows of which `wanted` is true, in order of key: those that wait to be written, and of `found`, which SQL gave,
    /// those that none of these replaces.
    pub(super) fn merge(&self, mut found: Vec<R>, wanted: impl Fn(&R) -> bool) -> Vec<R>
    where
        R::Key: Ord,
    {
        if self.own.is_empty() && self.batch.is_empty() {
            return found;
        }
        found.retain(|row| !self.has_newer(&row.key()));
        found.extend(self.newest().filter(|row| wanted(row)).cloned());
        found.sort_by_cached_key(Keyed::key);
        found
    }

    /// Forgets a row that was deleted in SQL, where none waits.
    pub(super) fn lose(&mut self, key: &R::Key) {
        self.own_clean.remove(key);
        self.cache.remove(key);
    }

    /// Forgets what is remembered, not what waits to be written.
    pub(super) fn forget(&mut self) {
        self.own_clean.clear();
        self.cache.clear();
        self.absent.clear();
    }

    /// Makes the rows of a command that was accepted the batch's.
    pub(super) fn accept(&mut self) {
        // Draining costs the table's capacity even where it is empty, and most are.
        if !self.own_clean.is_empty() {
            for (key, row) in self.own_clean.drain() {
                remember(&mut self.cache, key, row);
            }
        }
        if self.own.is_empty() {
            return;
        }
        if self.batch.is_empty() {
            std::mem::swap(&mut self.batch, &mut self.own);
        } else {
            self.batch.extend(self.own.drain(..));
        }
    }

    /// Drops the rows of a command that refused.
    pub(super) fn reject(&mut self) {
        self.own.clear();
        self.own_clean.clear();
    }
}

fn remember<R: Keyed>(cache: &mut Cache<R::Key, R>, key: R::Key, row: R) {
    if row.keep() {
        cache.insert(key, row);
    } else {
        cache.remove(&key);
    }
}

/// Rows of one table that only grows.
pub(super) struct Log<R> {
    own: Vec<R>,
    batch: Vec<R>,
}

impl<R> Log<R> {
    /// With nothing in it.
    pub(super) fn new() -> Self {
        Self { own: Vec::new(), batch: Vec::new() }
    }

    /// Appends a row, to be flushed later.
    pub(super) fn push(&mut self, row: R) {
        self.own.push(row);
    }

    /// Makes what a command wrote the batch's.
    pub(super) fn accept(&mut self) {
        self.batch.append(&mut self.own);
    }

    /// Drops the rows of a command that refused.
    pub(super) fn reject(&mut self) {
        self.own.clear();
    }
}

/// Whose rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    /// Those of commands that were accepted.
    Batch,
    /// Those of the running command.
    Own,
}

/// A table that can be flushed.
pub(super) trait Pending<R: Row> {
    /// The rows that wait, in order.
    fn waiting(&self, side: Side) -> Vec<&R>;
    /// Says that they are in SQL.
    fn written(&mut self, side: Side);
    /// Whether any wait.
    fn has(&self, side: Side) -> bool;
}

impl<R: Keyed> Pending<R> for TableCache<R> {
    fn waiting(&self, side: Side) -> Vec<&R> {
        match side {
            Side::Batch => self.batch.values().collect(),
            Side::Own => self.own.values().collect(),
        }
    }

    fn written(&mut self, side: Side) {
        match side {
            Side::Batch if R::KEPT == 0 => self.batch.clear(),
            Side::Own if R::KEPT == 0 => self.own.clear(),
            Side::Batch => {
                for (key, row) in self.batch.drain(..) {
                    remember(&mut self.cache, key, row);
                }
            }
            Side::Own => self.own_clean.extend(self.own.drain(..)),
        }
    }

    fn has(&self, side: Side) -> bool {
        match side {
            Side::Batch => !self.batch.is_empty(),
            Side::Own => !self.own.is_empty(),
        }
    }
}

impl<R: Row> Pending<R> for Log<R> {
    fn waiting(&self, side: Side) -> Vec<&R> {
        match side {
            Side::Batch => self.batch.iter().collect(),
            Side::Own => self.own.iter().collect(),
        }
    }

    fn written(&mut self, side: Side) {
        match side {
            Side::Batch => self.batch.clear(),
            Side::Own => self.own.clear(),
        }
    }

    fn has(&self, side: Side) -> bool {
        match side {
            Side::Batch => !self.batch.is_empty(),
            Side::Own => !self.own.is_empty(),
        }
    }
}
