//! What every rule needs besides its transaction: time, ids, bounds, redaction, and which node speaks.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, PoisonError, RwLock};

use ghost_domain::event::NewEvent;
use ghost_domain::ports::{Ports, Signal};
use ghost_domain::redact::Redactor;
use ghost_domain::text::{clip, prefix_bytes, shown};
use ghost_domain::{Agent, AgentId, ChatWake, EventId, Limits, RootId, Timestamp};
use ghost_store::Writes;
use uuid::Uuid;

use crate::result::Result;

/// The fact about the world that says whether it is paused: `1` if it is.
pub const PAUSED: &str = "paused";

/// The longest secret that is recognised across the end of an excerpt, in bytes.
const SECRET_BYTES: usize = 4_096;

/// Characters of a name that nobody vouches for.
const LABEL_MAX: usize = 200;

/// Says whether the world's files have a place for an agent, or why not.
pub type Fitness = Arc<dyn Fn(&Agent) -> Result<()> + Send + Sync>;

/// The context of a world's rules. Cheap to clone; a reload changes the limits, whom chat wakes, where webhooks lead and who
/// can run for all clones at once.
#[derive(Clone)]
pub struct RuleContext {
    /// Clock, ids and jitter.
    pub ports: Ports,
    /// Takes secrets out of what is kept to be read.
    pub redactor: Arc<Redactor>,
    /// This daemon's name.
    pub node: Arc<str>,
    /// The fencing epoch under which this daemon owns its agents.
    pub epoch: i64,
    limits: Arc<RwLock<Arc<Limits>>>,
    chat_wake: Arc<RwLock<ChatWake>>,
    webhooks: Arc<RwLock<BTreeMap<String, AgentId>>>,
    jobs: Arc<RwLock<Arc<BTreeSet<RootId>>>>,
    waiting: Arc<RwLock<BTreeMap<AgentId, Arc<str>>>>,
    fitness: Arc<RwLock<Fitness>>,
}

impl RuleContext {
    /// A context. Chat wakes whom a post mentions until [`RuleContext::set_chat_wake`] says otherwise, there are no webhooks until
    /// [`RuleContext::set_webhooks`] names them, and every agent can run until [`RuleContext::set_fitness`] knows better.
    #[must_use]
    pub fn new(ports: Ports, redactor: Redactor, node: &str, epoch: i64, limits: Limits) -> Self {
        Self {
            ports,
            redactor: Arc::new(redactor),
            node: node.into(),
            epoch,
            limits: Arc::new(RwLock::new(Arc::new(limits))),
            chat_wake: Arc::new(RwLock::new(ChatWake::Mentions)),
            webhooks: Arc::default(),
            jobs: Arc::default(),
            waiting: Arc::default(),
            fitness: Arc::new(RwLock::new(Arc::new(|_| Ok(())))),
        }
    }

    /// Now.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.ports.clock.now()
    }

    /// Remembers why an agent opens no turn though it has mail: the models that it thinks with are down. `None` when it does.
    /// In memory alone: after a restart it is found out anew.
    pub fn set_waiting(&self, agent_id: &AgentId, reason: Option<&str>) {
        let mut waiting = self.waiting.write().unwrap_or_else(PoisonError::into_inner);
        match reason {
            Some(reason) => waiting.insert(agent_id.clone(), reason.into()),
            None => waiting.remove(agent_id),
        };
    }

    /// Why an agent opens no turn; see [`RuleContext::set_waiting`].
    #[must_use]
    pub fn waiting(&self, agent_id: &AgentId) -> Option<Arc<str>> {
        self.waiting.read().unwrap_or_else(PoisonError::into_inner).get(agent_id).cloned()
    }

    /// How many agents open no turn; see [`RuleContext::set_waiting`].
    #[must_use]
    pub fn waiting_agents(&self) -> usize {
        self.waiting.read().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// A new identifier.
    #[must_use]
    pub fn id(&self) -> Uuid {
        self.ports.ids.next()
    }

    /// The bounds in force.
    #[must_use]
    pub fn limits(&self) -> Arc<Limits> {
        // The lock is held for a pointer copy only, so a poisoned one still holds a whole value.
        Arc::clone(&self.limits.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Puts other bounds in force.
    pub fn set_limits(&self, limits: Limits) {
        *self.limits.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(limits);
    }

    /// Whom a post wakes that the rules themselves make.
    #[must_use]
    pub fn chat_wake(&self) -> ChatWake {
        *self.chat_wake.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has other members woken by posts.
    pub fn set_chat_wake(&self, wake: ChatWake) {
        *self.chat_wake.write().unwrap_or_else(PoisonError::into_inner) = wake;
    }

    /// The agent that the threads of a webhook go to, if there is such a webhook.
    #[must_use]
    pub fn webhook_agent(&self, webhook: &str) -> Option<AgentId> {
        self.webhooks.read().unwrap_or_else(PoisonError::into_inner).get(webhook).cloned()
    }

    /// Puts other webhooks in force: the agents that their threads go to, by name.
    pub fn set_webhooks(&self, webhooks: BTreeMap<String, AgentId>) {
        *self.webhooks.write().unwrap_or_else(PoisonError::into_inner) = webhooks;
    }

    /// The roots of main jobs, each of which has its work to itself so that it is known what it cost.
    #[must_use]
    pub fn jobs(&self) -> Arc<BTreeSet<RootId>> {
        Arc::clone(&self.jobs.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Adds roots of main jobs.
    pub fn add_jobs(&self, roots: impl IntoIterator<Item = RootId>) {
        Arc::make_mut(&mut self.jobs.write().unwrap_or_else(PoisonError::into_inner)).extend(roots);
    }

    /// Whether an agent can run by the world's files.
    ///
    /// # Errors
    /// Why not, and what to repair.
    pub fn may_run(&self, agent: &Agent) -> Result<()> {
        let fitness = Arc::clone(&self.fitness.read().unwrap_or_else(PoisonError::into_inner));
        fitness(agent)
    }

    /// Puts another judgement of who can run in force.
    pub fn set_fitness(&self, fitness: Fitness) {
        *self.fitness.write().unwrap_or_else(PoisonError::into_inner) = fitness;
    }

    /// States an event in the transaction that makes it true, redacted.
    pub async fn emit(&self, w: &mut dyn Writes, event: NewEvent) -> Result<()> {
        self.emit_at(w, self.now(), event).await
    }

    /// The same of something whose record has a time of its own: both say the same.
    pub async fn emit_at(&self, w: &mut dyn Writes, at: Timestamp, event: NewEvent) -> Result<()> {
        let event = NewEvent { payload: self.redactor.clean_json(event.payload), ..event };
        w.event_append(EventId(self.id()), at, event).await?;
        Ok(())
    }

    /// At most `max` characters of `text` for someone to read. Redacted before it is cut: a secret that is cut in two is
    /// no longer recognised, and half of it is still too much.
    #[must_use]
    pub fn excerpt(&self, text: &str, max: usize) -> String {
        // Looking through all of a long text for the sake of its beginning would cost more than it tells.
        let head = prefix_bytes(text, max.saturating_mul(4).saturating_add(SECRET_BYTES));
        let clean = self.redactor.redact(head);
        if head.len() == text.len() {
            return clip(&clean, max);
        }
        // The end of the head may be half a secret, and redaction may have brought it near the beginning.
        let whole = prefix_bytes(&clean, clean.len().saturating_sub(SECRET_BYTES));
        let excerpt = clip(whole, max);
        if excerpt.len() == whole.len() { format!("{excerpt}…") } else { excerpt }
    }

    /// A name from outside that stands for nothing here, for a record: redacted, bounded and on one plain line.
    #[must_use]
    pub fn label(&self, name: &str) -> String {
        shown(&self.excerpt(name, LABEL_MAX), LABEL_MAX + 1)
    }

    /// Asks the running world to look at an agent after commit.
    pub fn wake(&self, w: &mut dyn Writes, agent_id: &AgentId) {
        w.signal(Signal::Wake(agent_id.clone()));
    }
}
