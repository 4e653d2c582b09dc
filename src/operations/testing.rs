//! Worlds for tests of this crate and of those above it: agents in a store in memory, a clock that
//! the test moves, and short ways to send mail and to read what happened.
//!
//! This module must never be part of a release build.

// Only the feature `testing` builds this. A failed set-up must end the test.
#![allow(clippy::unwrap_used)]

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use ghost_domain::event::EventFilter;
use ghost_domain::redact::Redactor;
use ghost_domain::testing::{ManualClock, START_MS, SignalLog};
use ghost_domain::{AgentId, AgentKind, Ask, AskId, Desired, Envelope, Event, EventKind, Kind, Limits, Party};
use ghost_store::Store;
use serde_json::Value;

use crate::agents::{self, NewAgent};
use crate::feed::Subscription;
use crate::mail::{self, Chain, NewMessage};
use crate::turns::{self, Taken};
use crate::{OperationContext, Result, asks};

/// Runs one command with the world's context. The world has methods `store` and `ctx`.
#[macro_export]
macro_rules! write_in_test {
    ($world:expr, |$w:ident| $body:expr) => {{
        let work = move |$w: &mut $crate::Tx| {
            let done = $body;
            assert_eq!($w.wrong_counts().unwrap(), [], "counts differ from the rows");
            done
        };
        $world.ctx().write($world.store(), work).await
    }};
}

/// Runs one query with the world's context. It must succeed.
#[macro_export]
macro_rules! read_in_test {
    ($world:expr, |$r:ident| $body:expr) => {{
        let work = move |$r: &mut $crate::Tx| Ok::<_, ghost_domain::Refusal>($body);
        $world.ctx().read($world.store(), work).await.unwrap()
    }};
}
pub use crate::{read_in_test as read, write_in_test as write};

/// A secret that the world's redactor knows.
pub const SECRET: &str = "hunter2-is-my-password";

/// An agent id.
#[must_use]
pub fn id(text: &str) -> AgentId {
    text.parse().unwrap()
}

/// The operator of the tests.
#[must_use]
pub fn operator() -> Party {
    Party::Operator("test".into())
}

/// A worker of the team `crew`.
#[must_use]
pub fn new_agent(ctx: &OperationContext, name: &str) -> NewAgent {
    NewAgent {
        agent_id: id(name),
        archetype: "worker".into(),
        name: name.into(),
        team: Some("crew".into()),
        kind: AgentKind::Dynamic,
        desired: Desired::Running,
        overrides: Value::Null,
        daily_money: None,
        heartbeat: None,
        owner: None,
        goal: None,
        chain: Chain::root(ctx),
    }
}

/// A store with what the rules need to work on it.
#[derive(Clone)]
pub struct OperationWorld {
    /// The store.
    pub store: Store,
    /// The context of the rules.
    pub ctx: OperationContext,
    /// The clock of the context.
    pub clock: Arc<ManualClock>,
    /// The signals of the store, if a test registers it there.
    pub signals: Arc<SignalLog>,
    /// What ends with the world.
    pub held: Option<Arc<dyn Any + Send + Sync>>,
}

impl OperationWorld {
    /// A world without agents in an empty store.
    #[must_use]
    pub fn without_agents(store: Store, limits: Limits) -> Self {
        let clock = ManualClock::at(START_MS);
        let ctx = OperationContext::new(clock.ports(), Redactor::new([SECRET.to_owned()]), "node", 1, limits);
        Self { store, ctx, clock, signals: Arc::default(), held: None }
    }

    /// The store.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// The context of the rules.
    pub fn ctx(&self) -> &OperationContext {
        &self.ctx
    }

    /// Creates an agent.
    pub async fn add_agent(&self, new: NewAgent) {
        write!(self, |w| agents::create(w, &operator(), new)).unwrap();
    }

    /// Changes the limits.
    pub fn limits(&self, change: impl FnOnce(&mut Limits)) {
        let mut limits = (*self.ctx.limits()).clone();
        change(&mut limits);
        self.ctx.set_limits(limits);
    }

    /// Delivers a message. A refusal has a suggestion.
    pub async fn deliver(&self, new: NewMessage) -> Result<Envelope> {
        match write!(self, |w| mail::deliver(w, new)) {
            Err(refusal) => Err(mail::with_nearest(&self.store, refusal).await),
            sent => sent,
        }
    }

    /// Sends a message from the operator.
    pub async fn send(&self, to: &str, body: &str) -> Envelope {
        send(&self.ctx, &self.store, to, body).await
    }

    /// Opens an ask of the operator.
    pub async fn ask_within(&self, to: &str, wait: Duration) -> Result<Ask> {
        ask(&self.ctx, &self.store, to, "how many?", wait).await
    }

    /// Opens the next turn of an agent.
    pub async fn take(&self, name: &str) -> Taken {
        self.try_take(name).await.unwrap().unwrap()
    }

    /// Opens the next turn of an agent, if there is one to open.
    pub async fn try_take(&self, name: &str) -> Result<Option<Taken>> {
        let agent_id = id(name);
        write!(self, |w| turns::take(w, &agent_id, None))
    }

    /// An ask that exists.
    pub async fn ask_row(&self, ask_id: AskId) -> Ask {
        read!(self, |r| r.ask_get(ask_id)?.unwrap())
    }

    /// The mail that an agent has not taken.
    pub async fn inbox(&self, name: &str) -> Vec<Envelope> {
        let agent_id = id(name);
        read!(self, |r| r.inbox_pending(&agent_id, 1_000)?)
    }

    /// All events.
    pub async fn events(&self) -> Vec<Event> {
        read!(self, |r| r.event_list(0, &EventFilter::default(), 10_000)?.0)
    }

    /// The number of events of this kind.
    pub async fn count(&self, kind: EventKind) -> usize {
        self.events().await.iter().filter(|event| event.kind == kind).count()
    }
}

/// Sends a message from the operator.
pub async fn send(ctx: &OperationContext, store: &Store, to: &str, body: &str) -> Envelope {
    let new = NewMessage::new(&id(to), operator(), Kind::Message, body, Chain::root(ctx));
    ctx.write(store, |w| mail::deliver(w, new)).await.unwrap()
}

/// Opens an ask of the operator.
pub async fn ask(ctx: &OperationContext, store: &Store, to: &str, text: &str, wait: Duration) -> Result<Ask> {
    let (to, text, chain) = (id(to), text.to_owned(), Chain::root(ctx));
    ctx.write(store, move |w| asks::open(w, operator(), None, &to, text, wait, chain)).await
}

/// Waits for the first event of this kind about this agent, from the beginning of the feed.
pub async fn until(store: &Store, kind: EventKind, agent: &str) {
    let filter = EventFilter { kinds: vec![kind.as_str().into()], agent_id: Some(id(agent)), channel: None };
    let mut feed = Subscription::open(store, Some(0), filter, true).await.unwrap();
    feed.next().await.unwrap().unwrap();
}
