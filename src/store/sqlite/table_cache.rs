//! The table cache: rows of the database that the writer keeps in memory, together with rows that
//! wait to be written. [`WriteBuffer`](super::write_buffer::WriteBuffer) has one [`TableCache`] for
//! each table with keys, one [`Log`] for each table that only grows, and a [`Derived`] for each
//! fact that is computed from rows.
//!
//! The writer looks up a row by key in this order, and stops at the first hit:
//!
//! - running command: rows that it wrote and that wait to be flushed (`command`), then rows that it
//!   flushed, read or implied (`command_clean`);
//! - batch: rows of accepted commands that wait to be flushed (`batch`);
//! - cache: rows that were read or written earlier (`cache`), then keys that SQL has no row for (`absent`);
//! - SQL.
//!
//! Only the cache is bounded. It has two generations of `CACHE_LIMIT` rows. When the young one is
//! full, the old one is dropped, so a cache holds at most twice its limit. The limits, in rows of
//! one generation:
//!
//! - mail heads 16,384; budgets 8,192 (and 4,096 absent keys); asks, tool calls, turns and channel
//!   members 4,096; root tallies 2,048 (and 2,048 absent keys);
//! - tasks 1,024; agents 896; conversations, channels and schedules 512; facts about the world 256;
//!   prompt parts 64;
//! - all other tables 0: their rows are never cached.
//!
//! The limits of derived facts are in [`WriteBuffer::new`](super::write_buffer::WriteBuffer::new).
//!
//! Of asks, tool calls, turns and tasks only unfinished rows are cached, and of mail heads only
//! those of pending or taken mail ([`Keyed::worth_caching`]).
//!
//! Must never: drop a row that waits to be written, unless its command or batch is undone.

use std::collections::{HashMap, HashSet};
use std::hash::Hash;

use ghost_domain::MessageId;
use indexmap::IndexMap;

use super::row::{Keyed, Row};

/// A bounded map with two generations of `limit` entries each. When the young generation is full,
/// it becomes the old one, and the entries of the previous old one are dropped.
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

/// Facts computed from rows. They are never written to SQL.
pub(super) struct Derived<K, V> {
    command: HashMap<K, V>,
    cache: Cache<K, V>,
}

impl<K: Eq + Hash, V> Derived<K, V> {
    /// Creates an empty one.
    pub(super) fn new(limit: usize) -> Self {
        Self { command: HashMap::new(), cache: Cache::new(limit) }
    }

    /// The fact for `key`, if it is known.
    pub(super) fn get(&self, key: &K) -> Option<&V> {
        self.command.get(key).or_else(|| self.cache.get(key))
    }

    /// Sets a fact. It becomes permanent if the command is accepted.
    pub(super) fn put(&mut self, key: K, value: V) {
        self.command.insert(key, value);
    }

    /// Keeps the facts of the accepted command.
    pub(super) fn accept(&mut self) {
        if self.command.is_empty() {
            return;
        }
        for (key, value) in self.command.drain() {
            self.cache.insert(key, value);
        }
    }

    /// Drops the facts of the refused command.
    pub(super) fn reject(&mut self) {
        self.command.clear();
    }
}

/// A set that says which mail ids may be stored. It may return true for an id that is not stored,
/// but never false for one that is. Ids rise nearly in order of time, so in practice only an id
/// that is sent twice needs a read of SQL.
pub(super) struct MailIds {
    command: Vec<MessageId>,
    young: HashSet<MessageId>,
    old: HashSet<MessageId>,
    /// Every stored id that is not in one of the three sets is at most this.
    settled: Option<MessageId>,
}

/// Ids in each generation of [`MailIds`].
const IDS_MAX: usize = 16_384;

impl MailIds {
    /// Creates an empty one.
    pub(super) fn new(settled: Option<MessageId>) -> Self {
        Self { command: Vec::new(), young: HashSet::new(), old: HashSet::new(), settled }
    }

    /// Whether mail with this id may be stored.
    pub(super) fn may_hold(&self, id: MessageId) -> bool {
        self.settled >= Some(id) || self.young.contains(&id) || self.old.contains(&id) || self.command.contains(&id)
    }

    /// Adds an id. It becomes permanent if the command is accepted.
    pub(super) fn put(&mut self, id: MessageId) {
        self.command.push(id);
    }

    /// Keeps the ids of the accepted command.
    pub(super) fn accept(&mut self) {
        for id in self.command.drain(..) {
            if self.young.len() >= IDS_MAX {
                self.settled = self.settled.max(self.old.iter().max().copied());
                self.old = std::mem::take(&mut self.young);
            }
            self.young.insert(id);
        }
    }

    /// Drops the ids of the refused command.
    pub(super) fn reject(&mut self) {
        self.command.clear();
    }

    /// A copy with empty sets, whose `settled` covers the ids that were in them.
    pub(super) fn without_sets(&self) -> Self {
        Self::new(self.settled.max(self.young.iter().chain(&self.old).max().copied()))
    }
}

/// Rows of one table with keys. The module header explains the order of lookup.
pub(super) struct TableCache<R: Keyed> {
    command: IndexMap<R::Key, R>,
    /// Rows that equal those in SQL as the running command sees them: it read or flushed them
    /// inside its savepoint, or SQL gets them as part of another row.
    command_clean: HashMap<R::Key, R>,
    batch: IndexMap<R::Key, R>,
    cache: Cache<R::Key, R>,
    /// Keys that SQL has no row for.
    absent: Cache<R::Key, ()>,
}

impl<R: Keyed> TableCache<R> {
    /// Creates an empty one.
    pub(super) fn new() -> Self {
        Self {
            command: IndexMap::new(),
            command_clean: HashMap::new(),
            batch: IndexMap::new(),
            cache: Cache::new(R::CACHE_LIMIT),
            absent: Cache::new(R::ABSENT_LIMIT),
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
        R::ABSENT_LIMIT > 0 && self.get(key).is_none() && self.absent.get(key).is_some()
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
        if R::CACHE_LIMIT == 0 || !row.worth_caching() {
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

fn remember<R: Keyed>(cache: &mut Cache<R::Key, R>, key: R::Key, row: R) {
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
            Owner::Batch if R::CACHE_LIMIT == 0 => self.batch.clear(),
            Owner::Command if R::CACHE_LIMIT == 0 => self.command.clear(),
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
