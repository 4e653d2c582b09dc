//! What the writer knows and has not written yet, in layers: the running command's own rows, the rows of the batch's
//! accepted commands, and what is remembered from earlier batches. A refusal drops the first layer, a failed batch
//! drops them all, so nothing is ever undone piece by piece.
//!
//! Must never: answer from a layer that SQL could contradict. The writer is the only one that writes, and what it
//! remembers is dropped wholesale whenever that could stop being exact.

use std::collections::{HashMap, HashSet};
use std::hash::Hash;

use ghost_domain::event::NewEvent;
use ghost_domain::ports::Signal;
use ghost_domain::usage::UsageRow;
use ghost_domain::{
    Agent, AgentId, Ask, Budget, DeadLetter, Envelope, Event, EventId, HeldSkill, Job, JournalRow, LedgerRow,
    MessageId, Reservation, StoredAnswer, Task, Timestamp, Turn, TurnId,
};
use indexmap::IndexMap;

use super::row::{Keyed, Row};
use super::rows::{Head, Meta, Numbered, Prompt, TaskHistory};

/// Remembered values, at most twice `limit`: when the young half is full, the old half goes.
pub(super) struct Cache<K, V> {
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
    fn new(limit: usize) -> Self {
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

    fn accept(&mut self) {
        for (key, value) in self.own.drain() {
            self.cache.insert(key, value);
        }
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
    fn new(settled: Option<MessageId>) -> Self {
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

    fn accept(&mut self) {
        for id in self.own.drain(..) {
            if self.young.len() >= IDS_MAX {
                self.settled = self.settled.max(self.old.iter().max().copied());
                self.old = std::mem::take(&mut self.young);
            }
            self.young.insert(id);
        }
    }

    /// The same with nothing remembered one by one.
    fn settle(&self) -> Self {
        Self::new(self.settled.max(self.young.iter().chain(&self.old).max().copied()))
    }
}

/// Rows of one keyed table.
pub(super) struct Shelf<R: Keyed> {
    own: IndexMap<R::Key, R>,
    /// In SQL, or read from it, behind the command's savepoint.
    own_clean: HashMap<R::Key, R>,
    batch: IndexMap<R::Key, R>,
    cache: Cache<R::Key, R>,
}

impl<R: Keyed> Shelf<R> {
    fn new() -> Self {
        Self { own: IndexMap::new(), own_clean: HashMap::new(), batch: IndexMap::new(), cache: Cache::new(R::KEPT) }
    }

    /// The newest version of a row, if a layer has it.
    pub(super) fn get(&self, key: &R::Key) -> Option<&R> {
        self.own
            .get(key)
            .or_else(|| self.own_clean.get(key))
            .or_else(|| self.batch.get(key))
            .or_else(|| self.cache.get(key))
    }

    /// Writes a row, to be flushed later.
    pub(super) fn put(&mut self, row: R) {
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
        self.own_clean.insert(row.key(), row);
    }

    /// Whether rows that wait to be written satisfy `wanted`.
    pub(super) fn waits(&self, wanted: impl Fn(&R) -> bool) -> bool {
        self.own.values().chain(self.batch.values()).any(wanted)
    }

    /// Forgets what is remembered, not what waits to be written.
    pub(super) fn forget(&mut self) {
        self.own_clean.clear();
        self.cache.clear();
    }

    fn accept(&mut self) {
        for (key, row) in self.own_clean.drain() {
            remember(&mut self.cache, key, row);
        }
        if self.batch.is_empty() {
            std::mem::swap(&mut self.batch, &mut self.own);
        } else {
            self.batch.extend(self.own.drain(..));
        }
    }

    fn reject(&mut self) {
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
    fn new() -> Self {
        Self { own: Vec::new(), batch: Vec::new() }
    }

    /// Appends a row, to be flushed later.
    pub(super) fn push(&mut self, row: R) {
        self.own.push(row);
    }

    fn accept(&mut self) {
        self.batch.append(&mut self.own);
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

impl<R: Keyed> Pending<R> for Shelf<R> {
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

/// The sequences of the world: the last number given out in each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counters {
    pub(super) messages: i64,
    pub(super) journal: i64,
    pub(super) usage: i64,
    pub(super) task_events: i64,
    pub(super) events: i64,
}

/// An event whose command is still running: it has no place yet.
type Stated = (EventId, Timestamp, NewEvent);

/// All layers of all tables.
pub(super) struct Layers {
    pub(super) meta: Shelf<Meta>,
    pub(super) agents: Shelf<Agent>,
    pub(super) skills: Shelf<HeldSkill>,
    pub(super) jobs: Shelf<Job>,
    pub(super) mail: Shelf<Envelope>,
    pub(super) heads: Shelf<Head>,
    pub(super) asks: Shelf<Ask>,
    pub(super) turns: Shelf<Turn>,
    pub(super) prompts: Shelf<Prompt>,
    pub(super) budgets: Shelf<Budget>,
    pub(super) reservations: Shelf<Reservation>,
    pub(super) calls: Shelf<LedgerRow>,
    pub(super) requests: Shelf<StoredAnswer>,
    pub(super) dead_letters: Shelf<DeadLetter>,
    pub(super) tasks: Shelf<Task>,
    pub(super) journal: Log<JournalRow>,
    pub(super) usage: Log<Numbered<UsageRow>>,
    pub(super) task_events: Log<TaskHistory>,
    /// Events of accepted commands, numbered. Not cleared by a flush: they are published after COMMIT.
    pub(super) events: Vec<Event>,
    /// How many of `events` are in SQL.
    pub(super) events_written: usize,
    pub(super) stated: Vec<Stated>,
    pub(super) signals: Vec<Signal>,
    pub(super) own_signals: Vec<Signal>,
    /// Pending mail by inbox.
    pub(super) depths: Known<AgentId, u32>,
    /// The open turn that mail opened, by agent.
    pub(super) open_turns: Known<AgentId, Option<TurnId>>,
    pub(super) mail_ids: Ids,
    pub(super) counters: Counters,
    at_command: Counters,
    at_batch: Counters,
}

/// Runs the same call on every shelf and log.
macro_rules! every {
    ($layers:ident, $call:ident) => {
        $layers.meta.$call();
        $layers.agents.$call();
        $layers.skills.$call();
        $layers.jobs.$call();
        $layers.mail.$call();
        $layers.heads.$call();
        $layers.asks.$call();
        $layers.turns.$call();
        $layers.prompts.$call();
        $layers.budgets.$call();
        $layers.reservations.$call();
        $layers.calls.$call();
        $layers.requests.$call();
        $layers.dead_letters.$call();
        $layers.tasks.$call();
    };
}

impl Layers {
    /// Empty layers over a database whose sequences stand at `counters` and whose largest id of mail is `newest`.
    pub(super) fn new(counters: Counters, newest: Option<MessageId>) -> Self {
        Self {
            meta: Shelf::new(),
            agents: Shelf::new(),
            skills: Shelf::new(),
            jobs: Shelf::new(),
            mail: Shelf::new(),
            heads: Shelf::new(),
            asks: Shelf::new(),
            turns: Shelf::new(),
            prompts: Shelf::new(),
            budgets: Shelf::new(),
            reservations: Shelf::new(),
            calls: Shelf::new(),
            requests: Shelf::new(),
            dead_letters: Shelf::new(),
            tasks: Shelf::new(),
            journal: Log::new(),
            usage: Log::new(),
            task_events: Log::new(),
            events: Vec::new(),
            events_written: 0,
            stated: Vec::new(),
            signals: Vec::new(),
            own_signals: Vec::new(),
            depths: Known::new(16_384),
            open_turns: Known::new(16_384),
            mail_ids: Ids::new(newest),
            counters,
            at_command: counters,
            at_batch: counters,
        }
    }

    /// Makes the running command's rows the batch's.
    pub(super) fn accept(&mut self) {
        every!(self, accept);
        self.journal.accept();
        self.usage.accept();
        self.task_events.accept();
        self.depths.accept();
        self.open_turns.accept();
        self.mail_ids.accept();
        self.signals.append(&mut self.own_signals);
        for (event_id, ts, new) in self.stated.drain(..) {
            self.counters.events += 1;
            self.events.push(Event {
                seq: self.counters.events,
                event_id,
                ts,
                kind: new.kind,
                agent_id: new.agent_id,
                channel: new.channel,
                correlation_id: new.correlation_id,
                payload: new.payload,
            });
        }
        self.at_command = self.counters;
    }

    /// Drops the running command's rows.
    pub(super) fn reject(&mut self) {
        every!(self, reject);
        self.journal.own.clear();
        self.usage.own.clear();
        self.task_events.own.clear();
        self.depths.own.clear();
        self.open_turns.own.clear();
        self.mail_ids.own.clear();
        self.stated.clear();
        self.own_signals.clear();
        self.counters = self.at_command;
    }

    /// Ends a batch that was committed: gives what is to be published.
    pub(super) fn committed(&mut self) -> (Vec<Event>, Vec<Signal>) {
        self.at_batch = self.counters;
        self.events_written = 0;
        (std::mem::take(&mut self.events), std::mem::take(&mut self.signals))
    }

    /// Ends a batch that failed: nothing of it stands, nothing is remembered.
    pub(super) fn abandoned(&mut self) {
        let ids = self.mail_ids.settle();
        *self = Self { mail_ids: ids, ..Self::new(self.at_batch, None) };
    }
}
