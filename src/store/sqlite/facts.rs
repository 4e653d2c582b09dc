//! Facts that the writer knows from the rows that it wrote. Each saves a query in a frequent command.
//!
//! A fact must never differ from what SQL and the pending rows say. Only the writer writes, and a
//! refused command drops its facts.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::Hash;
use std::sync::Arc;

use ghost_domain::{AgentId, ChannelName, MessageId, TurnId};

use super::bounded_map::BoundedMap;

/// All facts. The numbers are the limits of each, in entries of one generation.
pub(super) struct Facts {
    /// Number of pending mails in each inbox.
    pub(super) inbox_depths: Derived<AgentId, u32>,
    /// Number of pending mails in the world.
    pub(super) pending_total: Derived<(), u64>,
    /// Number of droids that have not ended, of each agent that has any.
    pub(super) droids_live: Derived<(), LiveByParent>,
    /// The open turn of each agent that continues with its own work (not a turn of an operator).
    pub(super) open_turns: Derived<AgentId, OpenTurn>,
    /// Members of each channel, in order; `None` if they may have changed.
    pub(super) channel_members: Derived<ChannelName, Option<Arc<[AgentId]>>>,
    /// Channels of each agent, in order; `None` if they may have changed.
    pub(super) agent_channels: Derived<AgentId, Option<Arc<[ChannelName]>>>,
    /// The last sequence of a post in each channel.
    pub(super) last_posts: Derived<ChannelName, i64>,
    pub(super) mail_ids: MailIds,
}

/// Makes the same call on every fact.
macro_rules! every {
    ($facts:ident, $call:ident) => {
        $facts.inbox_depths.$call();
        $facts.pending_total.$call();
        $facts.droids_live.$call();
        $facts.open_turns.$call();
        $facts.channel_members.$call();
        $facts.agent_channels.$call();
        $facts.last_posts.$call();
        $facts.mail_ids.$call();
    };
}

impl Facts {
    /// No facts but the mail ids.
    pub(super) fn new(mail_ids: MailIds) -> Self {
        Self {
            inbox_depths: Derived::new(3_584),
            pending_total: Derived::new(1),
            droids_live: Derived::new(1),
            open_turns: Derived::new(3_584),
            channel_members: Derived::new(64),
            agent_channels: Derived::new(3_584),
            last_posts: Derived::new(512),
            mail_ids,
        }
    }

    /// Keeps the facts of the accepted command.
    pub(super) fn accept(&mut self) {
        every!(self, accept);
    }

    /// Drops the facts of the refused command.
    pub(super) fn reject(&mut self) {
        every!(self, reject);
    }

    /// Updates the number of pending mails in the world, if it is known.
    pub(super) fn update_pending_total(&mut self, was_pending: bool, is_pending: bool) {
        let Some(total) = self.pending_total.get(&()).copied() else { return };
        match (was_pending, is_pending) {
            (false, true) => self.pending_total.put((), total.saturating_add(1)),
            (true, false) => self.pending_total.put((), total.saturating_sub(1)),
            _ => {}
        }
    }

    /// Updates the numbers of droids that have not ended, if they are known. `before` and `after` are the parent of a droid
    /// that had not ended, or has not ended now.
    pub(super) fn update_droids_live(&mut self, before: Option<&AgentId>, after: Option<&AgentId>) {
        let Some(known) = self.droids_live.get(&()).filter(|_| before != after) else { return };
        let mut counts = known.clone();
        if let Some(parent_id) = before {
            let left = counts.get(parent_id).copied().unwrap_or(0).saturating_sub(1);
            match left {
                0 => drop(counts.remove(parent_id)),
                _ => drop(counts.insert(parent_id.clone(), left)),
            }
        }
        if let Some(parent_id) = after {
            *counts.entry(parent_id.clone()).or_default() += 1;
        }
        self.droids_live.put((), counts);
    }
}

/// Number of droids that have not ended, of each agent that has any.
pub(super) type LiveByParent = BTreeMap<AgentId, u32>;

/// The open turn that an agent continues, as far as the writer knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OpenTurn {
    /// The agent has no open turn.
    None,
    /// The agent continues this turn.
    Is(TurnId),
    /// The agent has parked turns beside its other work. Only the table says which turn is next.
    Unknown,
}

/// Facts of one kind, by key. They are computed from rows and never written to SQL.
pub(super) struct Derived<K, V> {
    command: HashMap<K, V>,
    cache: BoundedMap<K, V>,
}

impl<K: Eq + Hash, V> Derived<K, V> {
    /// Creates an empty one.
    pub(super) fn new(limit: usize) -> Self {
        Self { command: HashMap::new(), cache: BoundedMap::new(limit) }
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
    older_than: Option<MessageId>,
}

/// Ids in each generation of [`MailIds`].
const IDS_MAX: usize = 16_384;

impl MailIds {
    /// Creates an empty one.
    pub(super) fn new(older_than: Option<MessageId>) -> Self {
        Self { command: Vec::new(), young: HashSet::new(), old: HashSet::new(), older_than }
    }

    /// Whether mail with this id may be stored.
    pub(super) fn may_hold(&self, id: MessageId) -> bool {
        self.older_than >= Some(id) || self.young.contains(&id) || self.old.contains(&id) || self.command.contains(&id)
    }

    /// Adds an id. It becomes permanent if the command is accepted.
    pub(super) fn put(&mut self, id: MessageId) {
        self.command.push(id);
    }

    /// Keeps the ids of the accepted command.
    pub(super) fn accept(&mut self) {
        for id in self.command.drain(..) {
            if self.young.len() >= IDS_MAX {
                self.older_than = self.older_than.max(self.old.iter().max().copied());
                self.old = std::mem::take(&mut self.young);
            }
            self.young.insert(id);
        }
    }

    /// Drops the ids of the refused command.
    pub(super) fn reject(&mut self) {
        self.command.clear();
    }

    /// A copy with empty sets, whose `older_than` covers the ids that were in them.
    pub(super) fn without_sets(&self) -> Self {
        Self::new(self.older_than.max(self.young.iter().chain(&self.old).max().copied()))
    }
}
