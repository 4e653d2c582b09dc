//! The context that every rule receives besides its transaction: clock, ids, limits, redaction and
//! the identity of this daemon.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Deref;
use std::sync::{Arc, PoisonError, RwLock};

use ghost_domain::ports::Ports;
use ghost_domain::redact::Redactor;
use ghost_domain::text::{clip, prefix_bytes, shown};
use ghost_domain::wall_clock::WatchedClock;
use ghost_domain::{Agent, AgentId, ChatWake, Clock, Limits, RootId, Timestamp};
use tokio::sync::watch;
use uuid::Uuid;

use crate::result::Result;

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
