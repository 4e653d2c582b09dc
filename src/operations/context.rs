//! What every rule works with: the context of its world (clock, ids, limits, redaction, the identity of this daemon), its
//! transaction, the chain of work that it belongs to, and its result.
//!
//! This file imports from no other file of the crate, because every other file imports from it.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, PoisonError, RwLock};

use ghost_domain::event::{EventKind, NewEvent};
use ghost_domain::ports::{Ports, Signal};
use ghost_domain::redact::Redactor;
use ghost_domain::text::{clip, prefix_bytes, shown};
use ghost_domain::wall_clock::WatchedClock;
use ghost_domain::{
    Agent, AgentId, ChatWake, Clock, ConversationId, EventId, Limits, Refusal, RootId, Step, Task, Timestamp, Turn,
    TurnId, refusal,
};
use ghost_store::{Store, StoreError, Tx as StoreTx};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::sync::watch;
use uuid::Uuid;

/// The world fact (a row of the `meta` table) that records whether the world is paused: `1` if it
/// is.
pub const PAUSED: &str = "paused";

/// The longest secret, in bytes, that is still recognised where an excerpt was truncated.
const SECRET_BYTES: usize = 4_096;

/// Maximum characters of an unknown name that a record keeps.
const LABEL_MAX: usize = 200;

/// Checks whether an agent can run with the world's files as they are. The refusal says why not.
pub type Fitness = Arc<dyn Fn(&Agent) -> Result<()> + Send + Sync>;

/// Why an agent opens no turn, or continues none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wait {
    /// What it waits for, for people.
    pub reason: Arc<str>,
    /// What a person must do first, if waiting alone does not help.
    pub repair: Option<&'static str>,
}

impl Wait {
    /// A wait that ends without a person's help.
    #[must_use]
    pub fn for_reason(reason: impl Into<Arc<str>>) -> Self {
        Self { reason: reason.into(), repair: None }
    }
}

/// The context of a world's rules. Each command has a clone of it, so a clone copies one pointer. All clones share the same
/// settings: a reload changes the limits, the chat setting, the webhooks and the check of which agents can run for all of
/// them at once.
#[derive(Clone)]
pub struct Context(Arc<Shared>);

/// What all clones of a context share.
pub struct Shared {
    /// The ports for the clock, ids and jitter. The clock is [`Context::clock`].
    pub ports: Ports,
    /// The wall clock, watched for jumps. Until the world follows a jump, time goes on without it.
    pub clock: Arc<WatchedClock>,
    /// Removes secrets from text that is stored for people to read.
    pub redactor: Arc<Redactor>,
    /// The name of this daemon's node.
    pub node: Arc<str>,
    /// The fencing epoch under which this daemon owns its agents.
    pub epoch: i64,
    limits: RwLock<Arc<Limits>>,
    chat_wake: RwLock<ChatWake>,
    webhooks: RwLock<BTreeMap<String, AgentId>>,
    jobs: RwLock<Arc<BTreeSet<RootId>>>,
    waiting: RwLock<BTreeMap<AgentId, Wait>>,
    held: watch::Sender<Option<Arc<str>>>,
    fitness: RwLock<Fitness>,
}

impl Deref for Context {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        &self.0
    }
}

impl Context {
    /// Creates a context with these defaults: chat wakes the mentioned members
    /// ([`Context::set_chat_wake`]), there are no webhooks ([`Context::set_webhooks`]), and
    /// every agent can run ([`Context::set_fitness`]).
    #[must_use]
    pub fn new(ports: Ports, redactor: Redactor, node: &str, epoch: i64, limits: Limits) -> Self {
        let clock = Arc::new(WatchedClock::over(ports.clock));
        Self(Arc::new(Shared {
            ports: Ports { clock: Arc::clone(&clock) as Arc<dyn Clock>, ..ports },
            clock,
            redactor: Arc::new(redactor),
            node: node.into(),
            epoch,
            limits: RwLock::new(Arc::new(limits)),
            chat_wake: RwLock::new(ChatWake::Mentions),
            webhooks: RwLock::default(),
            jobs: RwLock::default(),
            waiting: RwLock::default(),
            held: watch::Sender::new(None),
            fitness: RwLock::new(Arc::new(|_| Ok(()))),
        }))
    }

    /// The current time.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.ports.clock.now()
    }

    /// Records why an agent opens no turn although it has mail, or does not go on with one: the models that it uses
    /// are down, or there is no room to write.
    /// `None` removes the entry. This is kept in memory only; after a restart it is determined
    /// again.
    pub fn set_waiting(&self, agent_id: &AgentId, wait: Option<Wait>) {
        let mut waiting = self.waiting.write().unwrap_or_else(PoisonError::into_inner);
        match wait {
            Some(wait) => waiting.insert(agent_id.clone(), wait),
            None => waiting.remove(agent_id),
        };
    }

    /// The reason why an agent opens no turn, if there is one; see [`Context::set_waiting`].
    #[must_use]
    pub fn waiting(&self, agent_id: &AgentId) -> Option<Wait> {
        self.waiting.read().unwrap_or_else(PoisonError::into_inner).get(agent_id).cloned()
    }

    /// The number of agents that wait; see [`Context::set_waiting`].
    #[must_use]
    pub fn waiting_agents(&self) -> usize {
        self.waiting.read().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Holds all turns back for this reason, or lets them go on. Kept in memory only.
    pub fn hold(&self, reason: Option<&str>) {
        self.held.send_if_modified(|held| {
            let changed = held.is_some() != reason.is_some();
            *held = reason.map(Arc::from);
            changed
        });
    }

    /// Why all turns are held back, if they are; see [`Context::hold`].
    #[must_use]
    pub fn held(&self) -> watch::Receiver<Option<Arc<str>>> {
        self.held.subscribe()
    }

    /// Creates a new identifier.
    #[must_use]
    pub fn id(&self) -> Uuid {
        self.ports.ids.next()
    }

    /// The current limits.
    #[must_use]
    pub fn limits(&self) -> Arc<Limits> {
        // The lock is only held to copy a pointer, so a poisoned lock still holds a complete value.
        Arc::clone(&self.limits.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Replaces the limits.
    pub fn set_limits(&self, limits: Limits) {
        *self.limits.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(limits);
    }

    /// Which members a chat message wakes if the rules themselves write it, for example the result
    /// of a cron job.
    #[must_use]
    pub fn chat_wake(&self) -> ChatWake {
        *self.chat_wake.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets which members chat messages wake.
    pub fn set_chat_wake(&self, wake: ChatWake) {
        *self.chat_wake.write().unwrap_or_else(PoisonError::into_inner) = wake;
    }

    /// The agent that receives the conversations of a webhook, if the webhook exists.
    #[must_use]
    pub fn webhook_agent(&self, webhook: &str) -> Option<AgentId> {
        self.webhooks.read().unwrap_or_else(PoisonError::into_inner).get(webhook).cloned()
    }

    /// Replaces the webhooks: a map from webhook name to the agent that receives its conversations.
    pub fn set_webhooks(&self, webhooks: BTreeMap<String, AgentId>) {
        *self.webhooks.write().unwrap_or_else(PoisonError::into_inner) = webhooks;
    }

    /// The roots of main jobs. Work of such a root shares no turn with work of other roots, so that
    /// the cost of the job is known.
    #[must_use]
    pub fn jobs(&self) -> Arc<BTreeSet<RootId>> {
        Arc::clone(&self.jobs.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Adds roots of main jobs.
    pub fn add_jobs(&self, roots: impl IntoIterator<Item = RootId>) {
        Arc::make_mut(&mut self.jobs.write().unwrap_or_else(PoisonError::into_inner)).extend(roots);
    }

    /// Checks whether an agent can run with the world's files as they are.
    ///
    /// # Errors
    /// A refusal that says why not and what to repair.
    pub fn may_run(&self, agent: &Agent) -> Result<()> {
        let fitness = Arc::clone(&self.fitness.read().unwrap_or_else(PoisonError::into_inner));
        fitness(agent)
    }

    /// Replaces the check that decides which agents can run.
    pub fn set_fitness(&self, fitness: Fitness) {
        *self.fitness.write().unwrap_or_else(PoisonError::into_inner) = fitness;
    }

    /// Returns at most `max` characters of `text`, for people to read. The text is redacted before
    /// it is truncated, because half a secret is not recognised but still reveals too much.
    #[must_use]
    pub fn excerpt(&self, text: &str, max: usize) -> String {
        // Redacting all of a long text is expensive, and only its beginning is needed.
        let head = prefix_bytes(text, max.saturating_mul(4).saturating_add(SECRET_BYTES));
        let clean = self.redactor.redact(head);
        if head.len() == text.len() {
            return clip(&clean, max);
        }
        // The end of the head may be half a secret, and redaction may have moved it towards the
        // beginning.
        let whole = prefix_bytes(&clean, clean.len().saturating_sub(SECRET_BYTES));
        let excerpt = clip(whole, max);
        if excerpt.len() == whole.len() { format!("{excerpt}…") } else { excerpt }
    }

    /// A name that is unknown here, made safe for a record: redacted, truncated to a maximum
    /// length, on one line.
    #[must_use]
    pub fn label(&self, name: &str) -> String {
        shown(&self.excerpt(name, LABEL_MAX), LABEL_MAX + 1)
    }
}

/// A transaction of the store with the context of its world. All functions of the store's transaction can be called on it.
pub struct Tx<'a> {
    store: &'a mut StoreTx,
    /// The context of the world.
    pub ctx: &'a Context,
}

impl Deref for Tx<'_> {
    type Target = StoreTx;

    fn deref(&self) -> &StoreTx {
        self.store
    }
}

impl DerefMut for Tx<'_> {
    fn deref_mut(&mut self) -> &mut StoreTx {
        self.store
    }
}

impl Tx<'_> {
    /// Appends an event, redacted, in the transaction that makes the change it reports.
    pub fn emit(&mut self, event: NewEvent) -> Result<()> {
        self.emit_at(self.ctx.now(), event)
    }

    /// Appends an event of a turn: about its agent, and found by the turn's id.
    pub(crate) fn emit_of(&mut self, turn: &Turn, kind: EventKind, payload: Value) -> Result<()> {
        self.emit(NewEvent::new(kind, payload).agent(&turn.agent_id).correlation(turn.turn_id))
    }

    /// Like [`Tx::emit`], with a given time, for an event whose record carries the same time.
    pub fn emit_at(&mut self, at: Timestamp, event: NewEvent) -> Result<()> {
        let event = NewEvent { payload: self.ctx.redactor.clean_json(event.payload), ..event };
        self.store.event_append(EventId(self.ctx.id()), at, event)?;
        Ok(())
    }

    /// Appends a step to the journal of a turn.
    pub(crate) fn journal(&mut self, turn_id: TurnId, step: &Step) -> Result<()> {
        Ok(self.store.journal_append(turn_id, step, self.ctx.now())?)
    }

    /// Wakes an agent after commit, so that it reads its inbox.
    pub fn wake(&mut self, agent_id: &AgentId) {
        self.store.signal(Signal::Wake(agent_id.clone()));
    }
}

impl Context {
    /// A transaction with this context.
    pub fn with<'a>(&'a self, store: &'a mut StoreTx) -> Tx<'a> {
        Tx { store, ctx: self }
    }

    /// Runs a command of the store with this context; see [`Store::write`].
    pub async fn write<T, E, F>(&self, store: &Store, work: F) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<StoreError> + Send + 'static,
        F: FnOnce(&mut Tx) -> Result<T, E> + Send + 'static,
    {
        let ctx = self.clone();
        store.write(move |w| work(&mut ctx.with(w))).await
    }

    /// Runs a query of the store with this context; see [`Store::read`].
    pub async fn read<T, E, F>(&self, store: &Store, work: F) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<StoreError> + Send + 'static,
        F: FnOnce(&mut Tx) -> Result<T, E> + Send + 'static,
    {
        let ctx = self.clone();
        store.read(move |r| work(&mut ctx.with(r))).await
    }

    /// Runs a query that needs no snapshot with this context; see [`Store::read_latest`].
    pub async fn read_latest<T, E, F>(&self, store: &Store, work: F) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<StoreError> + Send + 'static,
        F: FnOnce(&mut Tx) -> Result<T, E> + Send + 'static,
    {
        let ctx = self.clone();
        store.read_latest(move |r| work(&mut ctx.with(r))).await
    }
}

/// The position of a message in a chain of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Chain {
    /// Id of the event that started the chain.
    pub root_id: RootId,
    /// Turns between the root and this message.
    pub hop: u32,
    /// The conversation that started the chain, if one did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conversation_id: Option<ConversationId>,
}

impl Chain {
    /// The chain of a turn.
    #[must_use]
    pub fn of(turn: &Turn) -> Self {
        Self { root_id: turn.root_id, hop: turn.hop, conversation_id: turn.conversation_id }
    }

    /// The chain of what a turn sends.
    #[must_use]
    pub fn after(turn: &Turn) -> Self {
        Self { hop: turn.hop.saturating_add(1), ..Self::of(turn) }
    }

    /// The chain of notices about a task.
    #[must_use]
    pub fn of_task(task: &Task) -> Self {
        Self { root_id: task.root_id, hop: 0, conversation_id: task.conversation_id }
    }

    /// Starts a new chain, for an event from outside the world.
    #[must_use]
    pub fn root(ctx: &Context) -> Self {
        Self { root_id: RootId(ctx.id()), hop: 0, conversation_id: None }
    }
}

/// The result of a rule: a value, or a typed refusal.
pub type Result<T, E = Refusal> = std::result::Result<T, E>;

/// Reads a list to its end. `page` reads what follows the last item that was read.
pub(crate) fn read_all<T>(
    mut page: impl FnMut(Option<&T>) -> std::result::Result<Vec<T>, StoreError>,
) -> Result<Vec<T>> {
    let mut all: Vec<T> = Vec::new();
    loop {
        let next = page(all.last())?;
        if next.is_empty() {
            return Ok(all);
        }
        all.extend(next);
    }
}

/// What was found under an id, or the refusal that there is none.
pub(crate) fn found<T>(found: Option<T>, what: &str, id: impl ToString, hint: &str) -> Result<T> {
    found.ok_or_else(|| Refusal::not_found(what, &id.to_string(), None).hint(hint))
}

/// Refuses a text or a file of more than `most` bytes.
pub(crate) fn fits(what: &str, bytes: usize, most: u32, hint: &str) -> Result<()> {
    if bytes <= most as usize {
        return Ok(());
    }
    Err(refusal!(TooLarge, "{what} has {bytes} bytes; the limit is {most}").hint(hint))
}

/// The refusal for a name that is not there. Without a name that is `near`, the hint is this one.
pub(crate) fn not_among(what: &str, name: &str, near: Option<&str>, hint: &str) -> Refusal {
    let refusal = Refusal::not_found(what, name, near);
    if near.is_some() { refusal } else { refusal.hint(hint) }
}

/// Refuses one more of what `limits.{limit}` bounds. `what` says of what there are `count`.
pub(crate) fn at_most(limit: &str, count: u32, most: u32, what: &str, hint: &str) -> Result<()> {
    if count < most {
        return Ok(());
    }
    Err(refusal!(RateLimited, "{count} {what}, which is the limit (limits.{limit})").hint(hint))
}
